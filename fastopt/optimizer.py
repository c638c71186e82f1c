"""`Optimizer`: the contract every update rule keeps, and the hooks a rule fills in."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fastopt import _loss, _overlapped, _pairs, _replicas
from fastopt._arrays import shown
from fastopt._batch import Batch, HookBatch, KeptBatch, Outcome
from fastopt._kernels._counters import count
from fastopt._kernels._recorder import current as current_mode
from fastopt._slots import Journal, SlotKeeper
from fastopt._unscaling import unscaled
from fastopt.autodiff import backward
from fastopt.distribute.context import context_set_to
from fastopt.distribute.context import current as current_replica
from fastopt.distribute.strategy import Strategy
from fastopt.graph import get_default_graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.loss_scale import FixedLossScale, LossScale, apply_if_finite, from_environment
from fastopt.loss_scale import get as get_loss_scale
from fastopt.operation import Operation
from fastopt.schedules.base import at_step
from fastopt.step_memory import step_memory
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]
Gradient = Array | IndexedSlices


class Optimizer(SlotKeeper):
    """Base class of all optimizers: computes gradients of a loss and applies them to variables.

    It cannot update anything itself. Use one of its subclasses, as `GradientDescentOptimizer` or
    `AdamOptimizer`, or write a rule of your own by filling in hooks (see Notes).

    Parameters
    ----------
    use_locking : bool
        Hold a lock for each variable, and for the state of this optimizer, while they are updated.
        Several threads may then apply gradients at once, and each update is whole. Without it they
        race as in Hogwild: updates may get lost, but memory is safe.
    name : str
        The name of the optimizer. Slot variables are named after it.
    loss_scale : int, float, "dynamic" or LossScale, optional
        `compute_gradients` multiplies the loss by this and the gradients by its reciprocal, so that
        small gradients of 16-bit numbers don't vanish; see `fastopt.loss_scale`. With a dynamic
        scale a step whose gradients are not all finite is skipped as a whole.

    Raises
    ------
    ValueError
        If `name` is empty or ``None``, or `loss_scale` is no loss scale.
    TypeError
        If `use_locking` is no bool, or `name` no string.

    Notes
    -----
    ``apply_gradients`` calls, in this order:

    1. ``_create_slots(var_list)``: make the slots of these variables, unless they have them
       (`_zeros_slot`, `_get_or_make_slot`, `_get_or_make_slot_with_initializer`,
       `_create_non_slot_variable`);
    2. ``_prepare()``: read the hyperparameters of this step (`_call_if_callable`);
    3. for each pair ``_apply_dense(grad, var)`` or ``_apply_sparse(slices, var)``. The slices list
       each row once: ``_apply_sparse_duplicate_indices(slices, var)``, which may be overridden
       instead, sums repeated rows first;
    4. ``_finish(update_ops, name)``, once.

    Gradients arrive as arrays of the variable's shape and dtype (float32 where that is float16 or
    bfloat16), to be read only; the rows of slices are within the variable. Variables are changed by
    ``var.assign``, ``var.scatter_add`` and their relatives.

    Rules written for TensorFlow 2 name the hooks ``_resource_apply_dense(grad, var)``,
    ``_resource_apply_sparse(values, var, indices)`` and
    ``_resource_apply_sparse_duplicate_indices``. They work too; where both names are overridden,
    these are called.

    Examples
    --------
    A rule in pure Python: gradient descent by the sign of the gradient.

    >>> import numpy as np
    >>> import fastopt as fo
    >>> class SignDescent(fo.Optimizer):
    ...     def __init__(self, learning_rate, use_locking=False, name="SignDescent"):
    ...         super().__init__(use_locking, name)
    ...         self._learning_rate = learning_rate
    ...     def _prepare(self):
    ...         self._step_size = self._call_if_callable(self._learning_rate)
    ...     def _apply_dense(self, grad, var):
    ...         var.assign_sub(self._step_size * np.sign(grad))
    >>> v = fo.Variable(np.array([1.0, 2.0]), name="v")
    >>> done = SignDescent(0.5).minimize(lambda: np.sum(v * v))
    >>> v.numpy()
    array([0.5, 1.5])
    """

    GATE_NONE: ClassVar[int] = _loss.GATES["GATE_NONE"]
    GATE_OP: ClassVar[int] = _loss.GATES["GATE_OP"]
    GATE_GRAPH: ClassVar[int] = _loss.GATES["GATE_GRAPH"]

    # Whether nothing is to be done between `apply_gradients` and `_apply`.
    _goes_straight: bool = False

    def __init__(self, use_locking: bool, name: str, loss_scale: Any = None) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name: it may not be empty or None")
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {shown(name)}")
        if not isinstance(use_locking, bool | np.bool_):  # a name in its place, say
            raise TypeError(f"use_locking must be True or False, got {shown(use_locking)}")
        self._name = name
        self._use_locking = bool(use_locking)
        self._loss_scale = self._make_loss_scale(loss_scale)
        super().__init__()

    def _make_transient(self) -> None:
        super()._make_transient()
        # The step counter that was checked last, as a function that returns it.
        self._known_step: Callable[[], Variable | None] = _nothing

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_known_step"]
        return state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    # ------------------------------------------------------------------ what users call

    def get_name(self) -> str:
        """Return the name given to the constructor."""
        return self._name

    def doing_loss_scaling(self) -> bool:
        """Say whether this optimizer scales the loss."""
        return self._loss_scale is not None

    def variables(self) -> list[Variable]:
        """Return the state of the optimizer: slots and other variables by name, the loss scale's.

        Unless eager mode is on, only slots and other variables of the default graph.
        """
        found = super().variables()
        return found if self._loss_scale is None else found + self._loss_scale.variables()

    def minimize(
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """Compute the gradients of a loss and apply them: one step of training.

        Parameters
        ----------
        loss : callable or Tensor
            See `compute_gradients`.
        global_step : Variable, optional
            A counter that grows by one after the variables have been updated.
        var_list : Variable or nested list of Variable, optional
            See `compute_gradients`.
        gate_gradients : int
            With ``GATE_NONE`` the update of a variable overlaps the rest of the backward pass: it
            is done as soon as its gradient is complete and no later step of the pass reads the
            variable, and the gradient is freed. Peak memory for gradients is then that of the
            largest, not of all together. But if the backward pass fails half-way, the variables
            that were updated stay so. With ``GATE_OP`` (the default) and ``GATE_GRAPH`` all
            gradients exist before the first update, and a call that fails changes nothing.
        aggregation_method : int, optional
            One of `AggregationMethod`; see `compute_gradients`.
        colocate_gradients_with_ops : bool
            Without effect: everything is computed on the one CPU.
        name : str, optional
            Name of the returned operation.
        grad_loss : array_like, optional
            See `compute_gradients`.

        Returns
        -------
        Operation
            The record of what was done.

        Raises
        ------
        ValueError
            If there is no gradient for any variable. Nothing has changed then.

        Examples
        --------
        >>> import numpy as np
        >>> import fastopt as fo
        >>> w = fo.Variable(np.array([3.0, 4.0]), name="w")
        >>> opt = fo.GradientDescentOptimizer(0.25)
        >>> for _ in range(3):
        ...     done = opt.minimize(lambda: np.sum(w * w))
        >>> w.numpy()
        array([0.375, 0.5  ])
        """
        if (
            _loss.is_gate(gate_gradients, Optimizer.GATE_NONE)
            and self._loss_scale is None  # which wants all gradients before the first update
            and self._halves_are_ours()
        ):
            with step_memory():
                return _overlapped.minimize(
                    self, loss, global_step, var_list, aggregation_method, name, grad_loss
                )
        finite: bool | None = None
        if self._loss_scale is not None and self._halves_are_ours():  # nobody changes gradients
            pairs, finite = self._compute(
                loss, var_list, gate_gradients, aggregation_method, grad_loss
            )
        else:
            pairs = self.compute_gradients(
                loss,
                var_list=var_list,
                gate_gradients=gate_gradients,
                aggregation_method=aggregation_method,
                colocate_gradients_with_ops=colocate_gradients_with_ops,
                grad_loss=grad_loss,
            )
        if all(gradient is None for gradient, _ in pairs) and current_replica() is None:
            raise _pairs.no_gradients([var for _, var in pairs], loss)
        if finite is not None:
            return self._apply_scaled(pairs, global_step, name, finite)
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Compute the gradients of a loss with respect to variables.

        Parameters
        ----------
        loss : callable or Tensor
            A function without arguments that computes the loss from variables, called once; or,
            unless eager mode is on, a `Tensor` computed from variables before. A loss that is not a
            scalar acts as the sum of its elements.
        var_list : Variable, Tensor, or nested list, tuple or dict of them, optional
            What to differentiate with respect to. Default: of a callable the trainable variables
            that it read, in the order of reading; of a Tensor all trainable variables of the
            default graph.
        gate_gradients : int
            ``GATE_NONE``, ``GATE_OP`` or ``GATE_GRAPH``. All gradients exist when this method
            returns, so it makes a difference in `minimize` only.
        aggregation_method : int, optional
            How the contributions are summed where a tensor is used several times: one of
            `AggregationMethod`. Default ``ADD_N``.
        colocate_gradients_with_ops : bool
            Without effect: everything is computed on the one CPU.
        grad_loss : array_like, optional
            The gradient of whatever the loss goes into, with the loss's shape. Default ones.

        Returns
        -------
        list of tuple
            A pair (gradient, variable) for each variable, in the order of the list. The gradient is
            an array, `IndexedSlices`, or ``None`` if the loss doesn't depend on the variable; for a
            variable of integers it is ``None``.

        Raises
        ------
        RuntimeError
            If the loss is not a callable and eager mode is on.
        ValueError
            If `gate_gradients` or `aggregation_method` is none of the values, the loss or a
            variable with a gradient has a dtype that cannot be trained, or the list is empty while
            the loss is a Tensor.
        TypeError
            If the loss, `grad_loss` or an entry of the list is of a type that has no place there.

        Examples
        --------
        >>> import numpy as np
        >>> import fastopt as fo
        >>> w = fo.Variable(np.array([3.0, 4.0]), name="w")
        >>> fo.GradientDescentOptimizer(0.1).compute_gradients(lambda: np.sum(w * w))[0][0]
        array([6., 8.])
        """
        return self._compute(loss, var_list, gate_gradients, aggregation_method, grad_loss)[0]

    def _compute(
        self, loss: Any, var_list: Any, gate_gradients: int, aggregation_method: Any, grad_loss: Any
    ) -> tuple[list[tuple[Any, Any]], bool | None]:
        """Compute gradients; with a loss scale say also whether all of them are finite."""
        finite: bool | None = None
        with step_memory():
            scale = None if self._loss_scale is None else float(self._loss_scale())
            traced = _loss.trace(
                loss,
                var_list,
                gate_gradients,
                aggregation_method,
                grad_loss,
                self._assert_valid_dtypes,
                scale,
            )
            if traced.loss is None:
                return [(None, x) for x in traced.xs], finite
            quiet = self._quiet()
            with np.errstate(**quiet) if quiet else _AS_IT_IS:
                gradients = backward(
                    [traced.loss], traced.xs, [traced.grad_loss], (), traced.aggregation_method
                )
            if scale is not None:
                # What vanishes in 16 bits without a scale would vanish again.
                gradients, finite = unscaled(gradients, scale, widen=True)
            pairs = list(zip(gradients, traced.xs, strict=True))
        self._assert_valid_dtypes([x for gradient, x in pairs if gradient is not None])
        return pairs, finite

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Apply gradients to variables: the second part of `minimize`.

        Everything is checked, for all pairs, before anything is changed: after an error no
        variable, no slot and no counter differs by a bit. (What a constraint or a hook of a rule
        written in Python raises comes too late for that.)

        Parameters
        ----------
        grads_and_vars : iterable of (gradient, variable)
            As `compute_gradients` returns them. A gradient is an array or array_like,
            `IndexedSlices`, any scipy.sparse matrix, a PyTorch CPU tensor, dense or sparse, or
            ``None``, which leaves its variable alone. It has the variable's shape: nothing is
            broadcast. A variable that is listed twice is updated twice, in the order of the list.
        global_step : Variable, optional
            A scalar of any numeric dtype that grows by one after all updates.
        name : str, optional
            Name of the returned operation. Default: the optimizer's name.

        Returns
        -------
        Operation
            The record of what was done, in eager mode too.

        Raises
        ------
        TypeError
            If a gradient, a variable or `global_step` is of a type that cannot be one, or the dtype
            of a gradient cannot be cast to the variable's.
        ValueError
            If there are no pairs, no gradients, a shape or dtype doesn't fit, a variable is
            read-only, or two variables share memory; or a hyperparameter is out of its bounds at
            this step, or not finite in the dtype in which a variable is updated.
        IndexError
            If a row of a sparse gradient is negative or not less than the number of rows.
        OverflowError
            If the dtype of `global_step` has no number for the next step.
        NotImplementedError
            If a `Tensor` shall be updated.
        RuntimeError
            If a gradient is sparse whose variable has a constraint that does not act row by row,
            or in the cross-replica context of a strategy.

        Notes
        -----
        In a replica (see `fastopt.distribute`) this waits for all other replicas. Their gradients
        are added and applied once; a variable that has no gradient on any of them is left alone.

        Examples
        --------
        >>> import numpy as np
        >>> import fastopt as fo
        >>> w = fo.Variable(np.zeros((4, 2)), name="w")
        >>> slices = fo.IndexedSlices(np.ones((2, 2)), [3, 3])
        >>> fo.GradientDescentOptimizer(0.5).apply_gradients([(slices, w)])
        <Operation 'GradientDescent' GradientDescentOptimizer: 1 variable, 1 sparse row>
        >>> w.numpy()[3]
        array([-1., -1.])
        """
        pairs = grads_and_vars
        if type(pairs) is not list or not pairs:
            pairs = _pairs.as_list(grads_and_vars)
        if current_replica() is not None:
            return _replicas.meet(self, pairs, global_step, name)
        if self._goes_straight:
            return self._apply(pairs, global_step, name)
        return self._apply_once(pairs, global_step, name)

    # ------------------------------------------------------------------ the course of a step

    def _distributed_apply(
        self,
        strategy: Strategy,
        grads_and_vars: Any,
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Operation:
        """Apply gradients of all replicas in a cross-replica context.

        Parameters
        ----------
        strategy : Strategy
            The strategy in force.
        grads_and_vars : iterable of (PerReplica, variable)
            The gradients of each variable. They are added; ``None`` adds nothing.
        global_step, name
            As for `apply_gradients`.
        """
        pairs = _replicas.reduced(strategy, _pairs.as_list(grads_and_vars))
        with context_set_to(None):  # from here on it is one step like any other
            return self._apply_once(pairs, global_step, name)

    def _apply_once(
        self, pairs: list[Any], global_step: Variable | None, name: str | None
    ) -> Operation:
        """Apply gradients, without a thought of replicas. The hook for wrappers."""
        return self._apply_scaled(pairs, global_step, name, None)

    def _apply_scaled(
        self,
        pairs: list[Any],
        global_step: Variable | None,
        name: str | None,
        finite: bool | None,
    ) -> Operation:
        """Apply gradients if the loss scale agrees; `finite` says what is known of them."""
        if self._loss_scale is None:
            return self._apply_whole(pairs, global_step, name)
        if global_step is not None:
            self._require_step(global_step)
        done: Operation = apply_if_finite(
            self._loss_scale,
            [_pairs.split(pair, position)[0] for position, pair in enumerate(pairs)],
            partial(self._apply_whole, pairs, global_step, name),
            partial(self._nothing_applied, global_step, name),
            finite,
        )
        return done

    def _apply_whole(
        self, pairs: list[Any], global_step: Variable | None, name: str | None
    ) -> Operation:
        if self._use_locking:
            with self._state_lock:
                return self._apply(pairs, global_step, name)
        return self._apply(pairs, global_step, name)

    def _apply(self, pairs: list[Any], global_step: Variable | None, name: str | None) -> Operation:
        self._call.step = global_step
        try:
            batch = self._kept(pairs, global_step) or self._make_ready(pairs, global_step)
            ops, rows, parameters = self._run(batch)
            step = self._conclude(ops, global_step, name)
        finally:
            self._call.forget()
        return self._record(name, batch.refs, rows, parameters, step)

    def _kept(self, pairs: list[Any], global_step: Variable | None) -> Batch | None:
        """Return a batch made in an earlier step, if it takes these gradients; ready to run."""
        kept = self._bind(pairs)
        if kept is None:
            return None
        try:
            if global_step is not None:
                self._require_step(global_step)
            self._call.graph = kept.graph
            self._prepare()
        except BaseException:
            kept.release()
            raise
        return kept

    def _run(self, batch: Batch) -> Outcome:
        if not self._use_locking:
            return batch.run(self)
        with contextlib.ExitStack() as stack:
            for lock in batch.locks:  # in the order in which everybody takes them
                stack.enter_context(lock)
            return batch.run(self)

    def _bind(self, pairs: list[Any]) -> KeptBatch | None:
        """Return a batch made in an earlier step, if it takes these gradients as they are.

        The short way of a step, for subclasses that have one; ``None`` leads the long way.
        """
        return None

    def _make_ready(self, pairs: list[Any], global_step: Variable | None) -> Batch:
        """Check everything, make the slots, read the hyperparameters; return a batch that can run.

        What this creates goes again if it raises.
        """
        good = _pairs.checked(pairs, self._label())
        kept = self._kept(good, global_step)  # now that gradients are converted, and None left out
        if kept is not None:
            return kept
        variables = [var for _, var in good]
        self._require_updatable(variables)
        if global_step is not None:
            self._require_step(global_step)
        memory = _pairs.require_storage(variables, self._slots_of(variables))
        good = list(memory.apart(good))
        with self._state_lock, self._creating(variables) as journal:
            self._create_slots(variables)
            self._prepare()
            self._require_ready(variables)
            return self._batch(good, journal)

    def _batch(self, pairs: list[_pairs.Pair], journal: Journal | None = None) -> Batch:
        """Make a batch of checked pairs. Here: one that calls the hooks pair by pair."""
        return HookBatch(pairs, journal)

    def _conclude(
        self, ops: Sequence[Any], global_step: Variable | None, name: str | None
    ) -> int | float | None:
        """Finish the step and count it."""
        if global_step is None:
            self._finish(ops, self._name if name is None else name)
            return None
        self._finish(ops, "update")
        return advance(global_step)

    def _record(
        self,
        name: str | None,
        refs: tuple[weakref.ref[Variable], ...],
        rows: int,
        parameters: int,
        step: int | float | None,
    ) -> Operation:
        """Write the record of a step."""
        if name is None:
            name = self._name
        operation = Operation(name, type(self).__name__, refs, rows, parameters, step)
        if not current_mode().eager:
            get_default_graph()._set_train_op(operation)
        return operation

    def _nothing_applied(self, global_step: Variable | None, name: str | None) -> Operation:
        """Return the record of a call that has updated no variable."""
        step = None if global_step is None else global_step.item()
        return Operation(name or self._name, type(self).__name__, step=step)

    def _quiet(self) -> dict[str, Any]:
        """Return the warnings of NumPy that a backward pass does without."""
        if self._loss_scale is None or isinstance(self._loss_scale, FixedLossScale):
            return {}
        return {"over": "ignore", "invalid": "ignore"}  # what such a scale looks for

    def _make_loss_scale(self, loss_scale: Any) -> LossScale | None:
        """Return the loss scale that the constructor's argument or the environment asks for."""
        return from_environment() if loss_scale is None else get_loss_scale(loss_scale)

    def _require_step(self, global_step: Variable) -> None:
        """Check a step counter, unless it is the one that was checked last."""
        if self._known_step() is global_step:
            _pairs.require_room(global_step)
        else:
            _pairs.require_step(global_step)
            self._known_step = weakref.ref(global_step)

    def _halves_are_ours(self) -> bool:
        """Whether `minimize` may do without the two methods that it is made of."""
        cls = type(self)
        return (
            cls.compute_gradients is Optimizer.compute_gradients
            and cls.apply_gradients is Optimizer.apply_gradients
            and cls._apply_once is Optimizer._apply_once
            and current_replica() is None  # where replicas meet once
        )

    # ------------------------------------------------------------------ hooks for rules

    def _valid_dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Return the dtypes that losses, gradients and variables may have."""
        return _float_dtypes()

    def _create_slots(self, var_list: list[Variable]) -> None:
        """Create the slots that these variables do not have yet. Called in every step."""

    def _prepare(self) -> None:
        """Read the hyperparameters of this step. Called in every step, after `_create_slots`."""

    def _apply_dense(self, grad: Array, var: Variable) -> Any:
        """Update a variable by an array of its shape."""
        raise NotImplementedError(f"{type(self).__name__} doesn't implement _apply_dense")

    def _resource_apply_dense(self, grad: Array, var: Variable) -> Any:
        """Update a variable by an array of its shape; the name used since TensorFlow 2."""
        return self._apply_dense(grad, var)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        """Update rows of a variable, each of which is listed once."""
        raise NotImplementedError(f"{type(self).__name__} doesn't implement _apply_sparse")

    def _resource_apply_sparse(self, grad: Array, var: Variable, indices: Array) -> Any:
        """Update rows, each of which is listed once; the name used since TensorFlow 2."""
        return self._apply_sparse(IndexedSlices(grad, indices, var.shape), var)

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        """Update rows of a variable, any of which may be listed more than once.

        Here: sum the repeated rows in the order of the list, then `_apply_sparse`. Rows keep the
        order of their first appearance. To be overridden by rules that are linear in the gradient.
        """
        return self._apply_sparse(grad.coalesce(), var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Array, var: Variable, indices: Array
    ) -> Any:
        """Update rows, any of which may be listed repeatedly; the name used since TensorFlow 2."""
        unique = IndexedSlices(grad, indices, var.shape).coalesce()
        return self._resource_apply_sparse(unique.values, var, unique.indices)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Any:
        """Do what is left after all updates of a call, such as advancing counters.

        Parameters
        ----------
        update_ops : sequence
            What the hooks returned, pair by pair.
        name_scope : str
            The name of the operation, "update" in a call with a `global_step`.
        """

    def _call_if_callable(self, param: Any) -> Any:
        """Return ``param()`` if it can be called, else `param`.

        A schedule that is bound to no step is called with the `global_step` of this call.
        """
        param = at_step(param, self._call.step)
        return param() if callable(param) else param

    # ------------------------------------------------------------------ checks

    def _assert_valid_dtypes(self, tensors: Sequence[Any]) -> None:
        """Raise `ValueError` for the first of these that has not one of the valid dtypes."""
        valid = self._valid_dtypes()
        for tensor in tensors:
            if tensor.dtype not in valid:
                hint = "; give it dtype=np.float32" if tensor.dtype.kind in "iub" else ""
                raise ValueError(
                    f"Invalid type {tensor.dtype} for {getattr(tensor, 'name', tensor)!r}, expected"
                    f" one of: {', '.join(str(dtype) for dtype in valid)}{hint}"
                )

    def _label(self) -> str:
        return f"{type(self).__name__} {self._name!r}"

    def _require_updatable(self, variables: Sequence[Variable]) -> None:
        """Raise if one of these variables cannot be updated by this rule."""
        self._assert_valid_dtypes(variables)

    def _require_ready(self, variables: Sequence[Variable]) -> None:
        """Raise if one of these variables cannot be updated with what `_prepare` has read."""


_AS_IT_IS = contextlib.nullcontext()


def advance(global_step: Variable) -> int | float:
    """Add one to a step counter, in its own dtype, and return what it is then."""
    with global_step._lock:
        step = count(global_step._storage)
        global_step._version += 1
        return step


def _nothing() -> None:
    return None


_FLOATS: tuple[np.dtype[Any], ...] = tuple(map(np.dtype, ("float16", "float32", "float64")))


def _float_dtypes() -> tuple[np.dtype[Any], ...]:
    bfloat16 = np.sctypeDict.get("bfloat16")  # there once ml_dtypes has been imported
    return _FLOATS if bfloat16 is None else (_FLOATS[0], np.dtype(bfloat16), *_FLOATS[1:])
