"""The backward pass: gradients of recorded values with respect to what they were computed from.

A pass is planned before anything is computed: which operations lead from the ys to the xs, in which
order they are undone, after which of them the gradient of an x is complete. Nothing is recursive,
so graphs may be as deep as memory allows, and the order of all sums is fixed by the order in which
operations were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastopt._kernels._recorder import reachable, steps, undo
from fastopt.autodiff.aggregation import Patch, Terms, is_running
from fastopt.autodiff.fitting import fit, seed
from fastopt.autodiff.primitives import is_inexact
from fastopt.autodiff.recording import executing_eagerly
from fastopt.autodiff.storage import Guard, own
from fastopt.autodiff.tensor import Differentiable, Node
from fastopt.indexed_slices import IndexedSlices

__all__ = ["BackwardPass", "backward", "backward_in_order", "gradients"]

# A node, the positions of the arguments that gradients go to, and what made these arguments.
Step = tuple[Node, Sequence[int], Sequence[Any]]


def _key(x: Differentiable) -> Any:
    """Return what gradients of `x` are collected under: its node, or itself if nothing made it."""
    return x if x._node is None else x._node


class BackwardPass:
    """A planned backward pass; iterating over it computes.

    Parameters
    ----------
    ys, xs : sequence of Differentiable
        Gradients of the sum over all elements of all `ys` with respect to each of `xs`.
    grad_ys : sequence, optional
        The gradient of each y, of its shape; None stands for ones.
    stop_gradients : sequence of Differentiable
        Held constant: no gradient flows to what they were computed from.
    aggregation_method : int, optional
        See `AggregationMethod`.
    guard_storage : bool
        Yield the gradient of an x that owns storage only when no later step of the pass reads
        memory that overlaps it, so that the receiver may change x at once.

    Attributes
    ----------
    connected : list of bool
        For each x, whether a recorded path leads to it from a y. Only these are yielded.

    Raises
    ------
    LookupError
        If an operation on the path has no derivative.
    RuntimeError
        If a variable was changed after it was read into the graph.
    TypeError, ValueError
        If a `grad_y` does not fit its y.
    """

    def __init__(
        self,
        ys: Sequence[Differentiable],
        xs: Sequence[Differentiable],
        grad_ys: Sequence[Any] | None = None,
        stop_gradients: Sequence[Differentiable] = (),
        aggregation_method: int | None = None,
        *,
        guard_storage: bool = False,
    ) -> None:
        self._collect = partial(_collect, is_running(aggregation_method))
        self._keys = [_key(x) for x in xs]
        y_keys = [_key(y) for y in ys]
        self._seeds = [
            (key, seed(y, None if grad_ys is None else grad_ys[i], i))
            for i, (y, key) in enumerate(zip(ys, y_keys, strict=True))
            if is_inexact(y.dtype)
        ]
        wanted = {id(key) for x, key in zip(xs, self._keys, strict=True) if is_inexact(x.dtype)}
        stopped = {id(_key(x)) for x in stop_gradients}
        self._steps = steps(reachable(y_keys, stopped), wanted, stopped)
        last_use = {id(key): -1 for key in y_keys}
        for i, (_, _, parents) in enumerate(self._steps):
            for parent in parents:
                last_use[id(parent)] = i
        self.connected = [id(key) in wanted and id(key) in last_use for key in self._keys]
        self._guard: Guard | None = None
        last_read: dict[int, int] = {}
        if guard_storage:
            connected = zip(xs, self.connected, strict=True)
            self._guard = Guard(x for x, leads in connected if leads)
            last_read = self._guard.last_reads([node for node, _, _ in self._steps])
        self._schedule(last_use, last_read)
        self._results = self._run()

    def _schedule(self, last_use: dict[int, int], last_read: dict[int, int]) -> None:
        """Note after which step each gradient is complete, and may be handed out."""
        self._complete: dict[int, dict[int, Any]] = {}
        self._ready: dict[int, list[int]] = {}
        for position, key in enumerate(self._keys):
            if self.connected[position]:
                step = last_use[id(key)]
                self._complete.setdefault(step, {})[id(key)] = key
                step = max(step, last_read.get(id(key), -1))
                self._ready.setdefault(step, []).append(position)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self

    def __next__(self) -> tuple[int, Any]:
        return next(self._results)

    def _run(self) -> Iterator[tuple[int, Any]]:
        # id of a key -> (the only term so far, whether nobody else sees its memory), or Terms.
        pending: dict[int, tuple[Any, bool] | Terms] = {}
        for key, g in self._seeds:
            self._collect(pending, key, g, False)
        self._seeds = []
        todo, self._steps = self._steps, []
        in_steps = {id(node) for node, _, _ in todo}
        guard, complete, ready = self._guard, self._complete, self._ready
        if -1 in complete or -1 in ready:
            yield from self._hand_out(-1, pending, in_steps)
        apart = None if guard is None else guard.apart
        for i, step in enumerate(todo):
            undo(step, pending, _total, _pull, fit, self._collect, apart)
            if i in complete or i in ready:
                yield from self._hand_out(i, pending, in_steps)

    def _hand_out(
        self, step: int, pending: dict[int, Any], in_steps: set[int]
    ) -> Iterator[tuple[int, Any]]:
        for key in self._complete.get(step, {}).values():
            terms = pending.get(id(key))
            if terms is not None:
                pending[id(key)] = (_total(terms, key), False)
                del terms
        ready = self._ready.get(step, [])
        for n, position in enumerate(ready):
            key = self._keys[position]
            again = id(key) in in_steps or any(self._keys[other] is key for other in ready[n + 1 :])
            terms = pending.get(id(key)) if again else pending.pop(id(key), None)
            yield position, None if terms is None else terms[0]
            del terms


def _collect(
    running: bool, pending: dict[int, tuple[Any, bool] | Terms], key: Any, term: Any, owned: bool
) -> None:
    """Add a term to those of the gradient of `key`; `running` keeps no more than their sum."""
    before = pending.get(id(key))
    if before is None:
        pending[id(key)] = (term, owned)
        return
    if type(before) is tuple:
        first, its = before
        before = pending[id(key)] = Terms()
        before.add(first, its, running)
    before.add(term, owned, running)  # type: ignore[union-attr]


def _total(terms: tuple[Any, bool] | Terms, key: Any) -> Any:
    """Return the sum of the terms of a key; that of something computed is dense."""
    if type(terms) is tuple:
        term, owned = terms
        if type(term) is np.ndarray or isinstance(term, np.generic):
            return term
        if type(term) is IndexedSlices and type(key) is not Node:
            return term
        terms = Terms()
        terms.add(term, owned, False)
    return terms.total(key.shape, key.dtype, type(key) is Node)  # type: ignore[union-attr]


def _pull(operation: Any, node: Node, argnums: Sequence[int], g: Any) -> Sequence[Any]:
    """Return the gradients of a node's arguments; complex ones are conjugated as TensorFlow's."""
    if node.dtype.kind != "c":
        return operation.pull(node, argnums, g)
    if not operation.holomorphic:
        raise TypeError(f"{operation.name} is not differentiated for complex arguments")
    return [_conjugate(term) for term in operation.pull(node, argnums, np.conjugate(g))]


def _conjugate(term: Any) -> Any:
    if term is None:
        return None
    if isinstance(term, Patch):
        return Patch(term.index, np.conjugate(term.values), term.repeats)
    return np.conjugate(term)


def backward_in_order(
    ys: Sequence[Differentiable],
    xs: Sequence[Differentiable],
    grad_ys: Sequence[Any] | None = None,
    stop_gradients: Sequence[Differentiable] = (),
    aggregation_method: int | None = None,
) -> BackwardPass:
    """Plan a pass that yields each gradient as soon as its x may be changed.

    Parameters
    ----------
    ys, xs, grad_ys, stop_gradients, aggregation_method
        As `BackwardPass` has them.

    Returns
    -------
    BackwardPass
        Iterating over it yields ``(position of x, gradient)``. Its `connected` says beforehand
        which positions these will be. A gradient is not to be changed by the receiver; the pass
        itself keeps no reference to it.
    """
    return BackwardPass(ys, xs, grad_ys, stop_gradients, aggregation_method, guard_storage=True)


def backward(
    ys: Sequence[Differentiable],
    xs: Sequence[Differentiable],
    grad_ys: Sequence[Any] | None = None,
    stop_gradients: Sequence[Differentiable] = (),
    aggregation_method: int | None = None,
) -> list[Any]:
    """Return the gradient of each x, an array, slices, or None if no path leads to it.

    Parameters
    ----------
    ys, xs, grad_ys, stop_gradients, aggregation_method
        As `BackwardPass` has them.

    Returns
    -------
    list of (ndarray or IndexedSlices or None)
        Arrays are C-contiguous and the caller's own: no two of them share memory.
    """
    owners: set[int] = set()
    for x in xs:
        if x._node is not None:
            result: list[Any] = [None] * len(xs)
            for position, g in BackwardPass(ys, xs, grad_ys, stop_gradients, aggregation_method):
                result[position] = own(g, owners)
            return result
    # Nothing made any x, so nothing takes its gradient further: all are complete at the end.
    collect = partial(_collect, is_running(aggregation_method))
    pending: dict[int, tuple[Any, bool] | Terms] = {}
    y_keys = [_key(y) for y in ys]
    for i, (y, key) in enumerate(zip(ys, y_keys, strict=True)):
        if is_inexact(y.dtype):
            collect(pending, key, seed(y, None if grad_ys is None else grad_ys[i], i), False)
    wanted = {id(x) for x in xs if is_inexact(x.dtype)}
    stopped = {id(_key(x)) for x in stop_gradients}
    for step in steps(reachable(y_keys, stopped), wanted, stopped):
        undo(step, pending, _total, _pull, fit, collect, None)
    found: list[Any] = []
    for x in xs:
        terms = pending.get(id(x)) if id(x) in wanted else None
        if terms is None:
            found.append(None)
        else:
            total = _total(terms, x)
            pending[id(x)] = (total, False)
            found.append(own(total, owners))
    return found


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: str = "none",
) -> list[Any]:
    """Return the derivatives of the sum over all elements of all `ys` with respect to each of `xs`.

    Parameters
    ----------
    ys : Tensor or list of Tensor
        What to differentiate.
    xs : Variable or Tensor, or list of them
        With respect to what: variables, or tensors that `ys` were computed from.
    grad_ys : array_like or list of (array_like or None), optional
        The incoming gradient of each y, of its shape; None stands for ones.
    name : str
        Names TensorFlow's operations; without effect here, where gradients are plain arrays.
    colocate_gradients_with_ops : bool
        Chooses a device in TensorFlow; without effect on a library for CPUs.
    gate_gradients : bool
        Without effect: every gradient is complete before this function returns.
    aggregation_method : int, optional
        How several terms of one gradient are summed; see `AggregationMethod`.
    stop_gradients : Variable or Tensor, or list of them, optional
        Held constant: derivatives with respect to them are given, but nothing flows to what they
        were computed from.
    unconnected_gradients : {"none", "zero"}
        What an x gets that no y depends on: None, or zeros of its shape and dtype.

    Returns
    -------
    list of (ndarray or IndexedSlices or None)
        One for each x, of its shape and dtype. The gradient of rows looked up in a variable is an
        `IndexedSlices`.

    Raises
    ------
    ValueError
        If there are not as many `grad_ys` as `ys`, shapes differ, or an option is unknown.
    TypeError
        If an x is no variable or tensor, a y is complex and has no grad_y, or the kinds of numbers
        differ.
    LookupError
        If a function on the path has no derivative; the message names it.
    RuntimeError
        In eager mode, or if a variable was changed after it had been read.

    Examples
    --------
    >>> import numpy as np
    >>> from fastopt.autodiff import Tensor, gradients
    >>> v = Tensor([1.0, 2.0])
    >>> y = 2 * v
    >>> z = np.sum(y * v)
    >>> gradients(z, [v, y])
    [array([4., 8.]), array([1., 2.])]
    >>> gradients(z, [v, y], stop_gradients=y)
    [array([2., 4.]), array([1., 2.])]
    """
    if executing_eagerly():
        raise RuntimeError(
            "gradients() differentiates recorded graphs, and in eager mode nothing is recorded: "
            "give the loss as a callable to Optimizer.compute_gradients, or use graph_mode()"
        )
    zero = str(getattr(unconnected_gradients, "value", unconnected_gradients))
    if zero not in ("none", "zero"):
        raise ValueError(
            f"unconnected_gradients must be 'none' or 'zero', got {unconnected_gradients!r}"
        )
    ys, xs = _listed(ys), _listed(xs)
    if grad_ys is not None:
        grad_ys = list(grad_ys) if isinstance(grad_ys, (list, tuple)) else [grad_ys]
        if len(grad_ys) != len(ys):
            raise ValueError(f"got {len(grad_ys)} grad_ys for {len(ys)} ys; one is needed for each")
    stop_gradients = [] if stop_gradients is None else _listed(stop_gradients)
    for what, items in (("ys", ys), ("xs", xs), ("stop_gradients", stop_gradients)):
        for i, item in enumerate(items):
            if not isinstance(item, Differentiable):
                raise TypeError(
                    f"{what}[{i}] must be a Variable or Tensor, got {type(item).__name__}: "
                    f"{item!r:.80}"
                )
    result = backward(ys, xs, grad_ys, stop_gradients, aggregation_method)
    if zero == "zero":
        return [
            np.zeros(x.shape, x.dtype) if g is None else g for x, g in zip(xs, result, strict=True)
        ]
    return result
