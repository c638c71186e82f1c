"""From the arguments of `compute_gradients` to what is differentiated with respect to what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastopt._arrays import shown
from fastopt._pairs import how_to_make_one
from fastopt._unscaling import scale_loss
from fastopt._validate import UnsupportedTypeError
from fastopt.autodiff import AggregationMethod, Recording, Tensor, executing_eagerly
from fastopt.autodiff.tensor import Differentiable
from fastopt.conversion import is_torch_tensor
from fastopt.distribute.strategy import loss_factor
from fastopt.graph import trainable_variables
from fastopt.variable import Variable

GATES = {"GATE_NONE": 0, "GATE_OP": 1, "GATE_GRAPH": 2}
AGGREGATION_METHODS = (
    AggregationMethod.ADD_N,
    AggregationMethod.EXPERIMENTAL_TREE,
    AggregationMethod.EXPERIMENTAL_ACCUMULATE_N,
)


@dataclass
class Traced:
    """What a backward pass starts from.

    `loss` is ``None`` if the loss is a constant, so that no gradient exists.
    """

    loss: Differentiable | None
    xs: list[Any]
    grad_loss: np.ndarray[Any, Any] | None
    aggregation_method: int | None
    shown: Any


def trace(
    loss: Any,
    var_list: Any,
    gate_gradients: Any,
    aggregation_method: Any,
    grad_loss: Any,
    require_dtypes: Callable[[list[Any]], None],
    loss_scale: float | None = None,
) -> Traced:
    """Check the arguments and, if the loss is a callable, run it.

    Parameters
    ----------
    require_dtypes : callable
        Called with a list of things that must have one of the optimizer's dtypes.
    loss_scale : float, optional
        What the loss is multiplied by, beside the share of a replica.
    """
    if callable(loss):
        return _trace_callable(
            loss, var_list, gate_gradients, aggregation_method, grad_loss, loss_scale
        )
    if executing_eagerly():
        raise RuntimeError(
            "with eager execution the loss must be a function without arguments: nothing outside"
            f" of it is recorded, got {shown(loss)}"
        )
    _require_gate(gate_gradients)
    _require_array(loss, "loss")
    require_dtypes([loss])
    if grad_loss is not None:
        grad_loss = _grad_loss(grad_loss, loss)
    xs = trainable_variables() if var_list is None else flatten(var_list)
    require_variables(xs)
    if not xs:
        raise ValueError("No variables to optimize: the list of variables is empty.")
    _require_aggregation(aggregation_method)
    traced = _scaled(loss, loss_scale) if isinstance(loss, Differentiable) else None
    return Traced(traced, xs, grad_loss, aggregation_method, loss)


def _trace_callable(
    function: Callable[[], Any],
    var_list: Any,
    gate_gradients: Any,
    aggregation_method: Any,
    grad_loss: Any,
    loss_scale: float | None,
) -> Traced:
    _require_gate(gate_gradients)
    _require_aggregation(aggregation_method)
    xs: list[Any] | None = None
    if var_list is not None:
        xs = flatten(var_list)
        require_variables(xs)
    with Recording() as recording:
        for x in xs or ():
            recording.watch(x)
        loss = function()
        if isinstance(loss, Differentiable):
            loss = _scaled(loss, loss_scale)
    if xs is None:
        xs = [x for x in recording.watched if x._trainable]
    if isinstance(loss, Differentiable):
        if loss.dtype.kind == "c":
            raise ValueError(
                f"the loss must be real, {shown(function)} returned dtype {loss.dtype}"
            )
        traced = loss if loss.dtype.kind not in "iub" else None
    else:
        traced = None
        _require_number(loss, function)
    if grad_loss is not None:
        grad_loss = _grad_loss(grad_loss, np.asarray(loss) if traced is None else loss)
    return Traced(traced, xs, grad_loss, aggregation_method, function)


def _scaled(loss: Differentiable, loss_scale: float | None) -> Any:
    """Return the loss times the loss scale, and divided by the number of replicas.

    Of a callable this is asked for when it has been called: it may say what kind of mean it is.
    """
    if loss_scale is not None:
        loss = scale_loss(loss, loss_scale)
    share = loss_factor()
    return loss if share == 1.0 else scale_loss(loss, share)


def flatten(var_list: Any) -> list[Any]:
    """Make one list of a variable, or of variables in nested lists, tuples, dicts and iterators.

    Dicts go by sorted key, as in TensorFlow.
    """
    return list(_leaves(var_list))


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, Mapping):
        for key in sorted(nest):
            yield from _leaves(nest[key])
    elif isinstance(nest, list | tuple | Iterator) or type(nest) in (
        type({}.values()),
        type({}.keys()),
    ):
        for item in nest:
            yield from _leaves(item)
    else:
        yield nest


def require_variables(xs: list[Any]) -> None:
    """Refuse what gradients cannot be computed with respect to."""
    for position, x in enumerate(xs):
        if not isinstance(x, Variable | Tensor):
            raise UnsupportedTypeError(
                f"var_list[{position}] must be a fastopt Variable or Tensor, got {shown(x)}"
                f"{how_to_make_one(x)}"
            )


def is_gate(value: Any, gate: int) -> bool:
    """Say whether `value` is this gate, by equality: as in TensorFlow, True is ``GATE_OP``."""
    return isinstance(value, int | np.integer | float) and value == gate


def _require_gate(gate_gradients: Any) -> None:
    if type(gate_gradients) is int and 0 <= gate_gradients <= 2:  # most often
        return
    if any(is_gate(gate_gradients, gate) for gate in GATES.values()):
        return
    names = ", ".join(f"Optimizer.{name} ({value})" for name, value in GATES.items())
    raise ValueError(f"gate_gradients must be one of: {names}, got {shown(gate_gradients)}")


def _require_aggregation(method: Any) -> None:
    if method is None:
        return
    if not isinstance(method, int | np.integer) or method not in AGGREGATION_METHODS:
        raise ValueError(
            f"aggregation_method must be None or one of {list(AGGREGATION_METHODS)} (see"
            f" AggregationMethod), got {shown(method)}"
        )


def _require_array(value: Any, name: str) -> None:
    if not isinstance(value, Differentiable | np.ndarray | np.generic):
        raise UnsupportedTypeError(
            f"{name} must be a function without arguments or a Tensor computed from variables, got"
            f" {shown(value)}{_of_pytorch(value)}"
        )


def _of_pytorch(loss: Any) -> str:
    if not is_torch_tensor(loss):
        return ""
    return (
        "; of PyTorch's tensors PyTorch computes the gradients: call loss.backward(), then"
        " apply_gradients([(parameter.grad, variable), ...])"
    )


def _require_number(loss: Any, function: Callable[[], Any]) -> None:
    """Check what a callable returned if it is no tensor: a constant at least."""
    text = (
        f"the loss function {shown(function)} must return a Tensor or a number, got {shown(loss)}"
    )
    if loss is None:
        raise TypeError(text + "; is a `return` missing?")
    if isinstance(loss, list | tuple) and any(isinstance(x, Differentiable) for x in loss):
        raise TypeError(text + "; add the terms of a loss up, or return only the first")
    try:
        array = np.asarray(loss)
    except (TypeError, ValueError, RuntimeError) as error:  # the last is of PyTorch's tensors
        raise TypeError(text + _of_pytorch(loss)) from error
    if array.dtype.kind not in "iufb" and array.dtype.name != "bfloat16":
        raise TypeError(text)


def _grad_loss(grad_loss: Any, loss: Any) -> np.ndarray[Any, Any]:
    """Check the incoming gradient against the loss and give it the loss's dtype."""
    try:
        array = np.asarray(grad_loss)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"grad_loss must be an array of real numbers, got {shown(grad_loss)}"
        ) from error
    if array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"grad_loss must be an array of real numbers, got {shown(grad_loss)}")
    if array.shape != loss.shape:
        raise ValueError(
            f"grad_loss must have the shape of the loss: it has {array.shape}, the loss has"
            f" {loss.shape}"
        )
    return array if loss.dtype.kind in "iub" else array.astype(loss.dtype, copy=False)
