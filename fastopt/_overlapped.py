"""`Optimizer.minimize` with ``GATE_NONE``: updates overlap the backward pass."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from fastopt import _loss, _pairs
from fastopt._batch import Batch
from fastopt.autodiff import backward_in_order
from fastopt.operation import Operation
from fastopt.variable import Variable

if TYPE_CHECKING:
    from fastopt.optimizer import Optimizer


def minimize(
    optimizer: Optimizer,
    loss: Any,
    global_step: Variable | None,
    var_list: Any,
    aggregation_method: int | None,
    name: str | None,
    grad_loss: Any,
) -> Operation:
    """Minimize a loss and update each variable as soon as the backward pass allows."""
    traced = _loss.trace(
        loss,
        var_list,
        _loss.GATES["GATE_NONE"],
        aggregation_method,
        grad_loss,
        optimizer._assert_valid_dtypes,
    )
    xs = traced.xs
    if traced.loss is None:
        raise _pairs.no_gradients(xs, loss)
    gradients = backward_in_order(
        [traced.loss], xs, [traced.grad_loss], (), traced.aggregation_method
    )
    connected = gradients.connected
    variables = [
        _pairs.updatable(x, optimizer._label())
        for x, leads in zip(xs, connected, strict=True)
        if leads
    ]
    if not variables:
        raise _pairs.no_gradients(xs, loss)
    optimizer._require_updatable(variables)
    if global_step is not None:
        optimizer._require_step(global_step)
    memory = _pairs.require_storage(variables)
    ops: list[Any] = []
    refs: list[weakref.ref[Variable]] = []
    rows = parameters = 0
    call = optimizer._call
    call.step = global_step
    with contextlib.ExitStack() as stack:
        stack.callback(call.forget)
        if optimizer._use_locking:
            stack.enter_context(optimizer._state_lock)
        with optimizer._state_lock, optimizer._creating(variables) as journal:
            optimizer._create_slots(variables)
            optimizer._prepare()
            optimizer._require_ready(variables)
        memory.add(optimizer._slots_of(variables))
        try:
            for position, gradient in gradients:
                if gradient is None:
                    continue
                pairs = [(gradient, xs[position])]
                batch: Batch | None = optimizer._bind(pairs)
                if batch is None:
                    pairs = _pairs.checked(pairs, optimizer._label())
                    batch = optimizer._batch(list(memory.apart(pairs)))
                del gradient, pairs
                new_ops, new_rows, new_parameters = optimizer._run(batch)
                ops.extend(new_ops)
                refs.extend(batch.refs)
                rows += new_rows
                parameters += new_parameters
                del batch  # and with it the gradient
            if not ops:
                raise _pairs.no_gradients(xs, loss)
        except BaseException:
            if not ops:
                journal.undo()
            raise
        step = optimizer._conclude(ops, global_step, name)
    return optimizer._record(name, tuple(refs), rows, parameters, step)
