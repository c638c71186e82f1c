"""The backward pass: gradients of recorded values with respect to what they were computed from.

A pass is planned before anything is computed: which operations lead from the ys to the xs, in which order
they are undone, after which of them the gradient of an x is complete. Nothing is recursive, so graphs may be
as deep as memory allows, and the order of all sums is fixed by the order in which operations were recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from fastopt.autodiff.aggregation import Patch, Terms, is_running, unbroadcast
from fastopt.autodiff.primitives import is_inexact
from fastopt.autodiff.recording import executing_eagerly
from fastopt.autodiff.tensor import Differentiable, Form, Node
from fastopt.indexed_slices import IndexedSlices

__all__ = ["BackwardPass", "backward", "backward_in_order", "gradients"]

Array = np.ndarray[Any, Any]


def _key(x: Differentiable) -> Any:
    """Return what gradients of `x` are collected under: its node, or itself if no operation made it."""
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
        Yield the gradient of an x that owns storage only when no later step of the pass reads memory that
        overlaps it, so that the receiver may change x at once.

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
        self._running = is_running(aggregation_method)
        self._keys = [_key(x) for x in xs]
        y_keys = [_key(y) for y in ys]
        self._seeds = [
            (key, _seed(y, None if grad_ys is None else grad_ys[i], i))
            for i, (y, key) in enumerate(zip(ys, y_keys, strict=True))
            if is_inexact(y.dtype)
        ]
        wanted = {
            id(key) for x, key in zip(xs, self._keys, strict=True) if is_inexact(x.dtype)
        }
        stopped = {id(_key(x)) for x in stop_gradients}
        self._owners: list[tuple[int, int, int]] = []
        self._plan(y_keys, wanted, stopped)
        self._schedule(y_keys, wanted, xs if guard_storage else None)
        self._results = self._run()

    # ------------------------------------------------------------------ planning

    def _plan(self, y_keys: list[Any], wanted: set[int], stopped: set[int]) -> None:
        """Find the operations that lead from the ys to the xs, latest first."""
        seen: dict[int, Node] = {}
        stack = [key for key in y_keys if isinstance(key, Node)]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen[id(node)] = node
            for leaf, version in node.reads:
                if leaf._version != version:
                    raise RuntimeError(
                        f"{leaf.name!r} was changed after {node.operation.name} had read it, so gradients "
                        "would mix old and new values: record the loss again, or give it as a callable"
                    )
            if id(node) not in stopped:
                stack.extend(p for p in node.parents if type(p) is Node and id(p) not in seen)
        leads: set[int] = set()
        steps = []
        for node in sorted(seen.values(), key=_node_id):
            if id(node) in stopped:
                continue
            edges = [
                (argnum, parent)
                for argnum, parent in zip(node.argnums, node.parents, strict=True)
                if id(parent) in wanted or id(parent) in leads
            ]
            if edges:
                leads.add(id(node))
                missing = node.operation.lacks(argnum for argnum, _ in edges)
                if missing is not None:
                    raise LookupError(
                        f"no gradient is defined for argument {missing} of {node.operation.name}, which "
                        "lies between ys and xs; define it with defvjp, or hold it constant with "
                        "stop_gradient"
                    )
                steps.append((node, edges))
        steps.reverse()
        self._steps = steps

    def _schedule(
        self, y_keys: list[Any], wanted: set[int], guarded: Sequence[Differentiable] | None
    ) -> None:
        """Find out after which step each gradient is complete, and may be handed out."""
        last_use = {id(key): -1 for key in y_keys}
        for i, (_, edges) in enumerate(self._steps):
            for _, parent in edges:
                last_use[id(parent)] = i
        self.connected = [id(key) in wanted and id(key) in last_use for key in self._keys]
        last_read = self._last_reads(guarded) if guarded is not None else {}
        self._complete: dict[int, list[Any]] = {}
        self._ready: dict[int, list[int]] = {}
        completed: set[int] = set()
        for position, key in enumerate(self._keys):
            if not self.connected[position]:
                continue
            step = last_use[id(key)]
            if id(key) not in completed:
                completed.add(id(key))
                self._complete.setdefault(step, []).append(key)
            self._ready.setdefault(max(step, last_read.get(id(key), -1)), []).append(position)

    def _last_reads(self, xs: Sequence[Differentiable]) -> dict[int, int]:
        """Return the last step that reads the memory of each x that owns storage, by its id."""
        owners: list[tuple[int, int, int]] = []
        for x, connected in zip(xs, self.connected, strict=True):
            if connected and x._node is None:
                value = x._read()
                if isinstance(value, np.ndarray) and value.size:
                    owners.append((*byte_bounds(value), id(x)))
        owners.sort()
        self._owners = owners
        lows = [low for low, _, _ in owners]
        # Storages may overlap each other; reach[i] is the furthest end among the first i + 1.
        reach: list[int] = []
        for _, high, _ in owners:
            reach.append(max(high, reach[-1]) if reach else high)
        last: dict[int, int] = {}
        for i, (node, _) in enumerate(self._steps):
            arrays = _saved_arrays(node)
            if arrays is None:
                last.update((key, i) for _, _, key in owners)
                continue
            for array in arrays:
                low, high = byte_bounds(array)
                at = bisect_left(lows, high) - 1
                while at >= 0 and reach[at] > low:
                    if owners[at][1] > low:
                        last[owners[at][2]] = i
                    at -= 1
        return last

    # ------------------------------------------------------------------ computing

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self

    def __next__(self) -> tuple[int, Any]:
        return next(self._results)

    def _run(self) -> Iterator[tuple[int, Any]]:
        pending: dict[int, Any] = {}
        for key, seed in self._seeds:
            self._collect(pending, key, seed, False)
        self._seeds = []
        steps, self._steps = self._steps, []
        in_steps = {id(node) for node, _ in steps}
        yield from self._hand_out(-1, pending, in_steps)
        for i, (node, edges) in enumerate(steps):
            g = _total(pending.pop(id(node), None), node, True)
            if g is not None:
                operation = node.operation
                argnums = [argnum for argnum, _ in edges]
                for (argnum, parent), term in zip(
                    edges, _pull(operation, node, argnums, g), strict=True
                ):
                    if term is None:
                        continue
                    fitted = _fit(term, parent, operation, argnum)
                    if self._owners and not operation.builtin:
                        fitted = self._apart(fitted)
                    owned = (
                        fitted is not term
                        or operation.builtin
                        and term is not g
                    ) and type(fitted) is np.ndarray and fitted.base is None
                    self._collect(pending, parent, fitted, owned)
                    del term, fitted
                del g
            yield from self._hand_out(i, pending, in_steps)

    def _apart(self, term: Any) -> Any:
        """Copy a gradient that lies in the storage of an x, which may change before it is used."""
        array = term.values if isinstance(term, IndexedSlices) else term
        if not isinstance(array, np.ndarray) or not array.size:
            return term
        low, high = byte_bounds(array)
        if not any(first < high and low < last for first, last, _ in self._owners):
            return term
        if isinstance(term, IndexedSlices):
            return IndexedSlices(array.copy(), term.indices, term.dense_shape)
        return array.copy()

    def _collect(self, pending: dict[int, Any], key: Any, term: Any, owned: bool) -> None:
        terms = pending.get(id(key))
        if terms is None:
            terms = pending[id(key)] = Terms()
        terms.add(term, owned, self._running)

    def _hand_out(
        self, step: int, pending: dict[int, Any], in_steps: set[int]
    ) -> Iterator[tuple[int, Any]]:
        for key in self._complete.get(step, ()):
            terms = pending.get(id(key))
            if terms is not None:
                total = _total(terms, key, isinstance(key, Node))
                terms = pending[id(key)] = Terms()
                terms.add(total, False, False)
                del total, terms
        ready = self._ready.get(step, ())
        for n, position in enumerate(ready):
            key = self._keys[position]
            again = id(key) in in_steps or any(
                self._keys[other] is key for other in ready[n + 1 :]
            )
            terms = pending.get(id(key)) if again else pending.pop(id(key), None)
            yield position, _total(terms, key, isinstance(key, Node))
            del terms


def _node_id(node: Node) -> int:
    return node.id


def _total(terms: Terms | None, key: Any, densify: bool) -> Any:
    return None if terms is None else terms.total(key.shape, key.dtype, densify)


def _pull(operation: Any, node: Node, argnums: list[int], g: Any) -> Sequence[Any]:
    """Return the gradients of a node's arguments, in TensorFlow's convention for complex numbers."""
    if node.dtype.kind != "c" and not any(p.dtype.kind == "c" for p in node.parents):
        return operation.pull(node, argnums, g)  # type: ignore[no-any-return]
    if not operation.holomorphic:
        raise TypeError(f"{operation.name} is not differentiated for complex arguments")
    terms = operation.pull(node, argnums, np.conjugate(g))
    return [None if term is None else np.conjugate(term) for term in terms]


def _fit(term: Any, parent: Any, operation: Any, argnum: int) -> Any:
    """Give a gradient the dtype and shape of what it belongs to."""
    if isinstance(term, IndexedSlices):
        return _fit_slices(term, parent, operation, argnum)
    if isinstance(term, Patch):
        if term.values.dtype != parent.dtype:
            term = Patch(term.index, term.values.astype(parent.dtype), term.repeats)
        return term
    if type(term) is not np.ndarray and not isinstance(term, np.generic):
        term = np.asarray(term)
    shape = parent.shape
    if term.shape != shape:
        if not operation.elementwise:
            raise ValueError(
                f"{operation.name}: the gradient of argument {argnum} has shape {term.shape}, the "
                f"argument has shape {shape}"
            )
        term = unbroadcast(term, shape)
    dtype = parent.dtype
    if term.dtype != dtype:
        kind = term.dtype.kind
        if kind not in "fciub" and not is_inexact(term.dtype):
            raise TypeError(
                f"{operation.name}: the gradient of argument {argnum} has dtype {term.dtype}, the "
                f"argument has dtype {dtype}"
            )
        if kind == "c" and dtype.kind != "c":
            term = term.real
        term = term.astype(dtype)
    return term


def _fit_slices(term: IndexedSlices, parent: Any, operation: Any, argnum: int) -> IndexedSlices:
    shape = parent.shape
    if term.values.shape[1:] != shape[1:] or not shape or term.dense_shape not in (None, shape):
        raise ValueError(
            f"{operation.name}: the gradient of argument {argnum} has rows of shape "
            f"{term.values.shape[1:]} and dense_shape {term.dense_shape}, the argument has shape {shape}"
        )
    if term.dtype != parent.dtype or term.dense_shape is None:
        term = IndexedSlices(term.values.astype(parent.dtype, copy=False), term.indices, shape)
    return term


def _seed(y: Differentiable, grad_y: Any, position: int) -> Any:
    if grad_y is None:
        if y.dtype.kind == "c":
            raise TypeError(
                f"gradients of complex tensors must set grad_ys (ys[{position}] is {y.name!r} of dtype "
                f"{y.dtype})"
            )
        return np.ones(y.shape, y.dtype) if y.shape else y.dtype.type(1)
    if isinstance(grad_y, IndexedSlices):
        grad_y = grad_y.to_dense()
    g = np.array(grad_y)
    real = g.dtype.kind in "iuf" or (g.dtype.kind != "c" and is_inexact(g.dtype))
    if not (g.dtype.kind == "c" if y.dtype.kind == "c" else real):
        kind = "complex" if y.dtype.kind == "c" else "real"
        raise TypeError(
            f"grad_ys[{position}] has dtype {g.dtype}, but ys[{position}], {y.name!r} of dtype {y.dtype}, "
            f"needs a {kind} one"
        )
    if g.shape != y.shape:
        raise ValueError(
            f"grad_ys[{position}] has shape {g.shape}, but ys[{position}], {y.name!r}, has shape {y.shape}"
        )
    return g.astype(y.dtype, copy=False)


_NO_MEMORY = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    slice,
    type(Ellipsis),
    type,
    np.generic,
    np.dtype,
    Form,
    Node,
    Differentiable,
)


def _saved_arrays(node: Node) -> list[Array] | None:
    """Return the arrays that the derivative of a node may read, or None if it may read anything."""
    if node.operation.opaque:
        return None
    arrays: list[Array] = []
    stack: list[Any] = [node.ans, *node.args, *node.kwargs.values()]
    while stack:
        item = stack.pop()
        if isinstance(item, np.ndarray):
            if item.size:
                arrays.append(item)
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, _NO_MEMORY):
            continue
        elif hasattr(item, "__dict__"):
            # For example a sparse matrix: its arrays are its attributes.
            arrays.extend(a for a in vars(item).values() if isinstance(a, np.ndarray) and a.size)
        else:
            return None
    return arrays


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
        Iterating over it yields ``(position of x, gradient)``. Its `connected` says beforehand which
        positions these will be. A gradient is not to be changed by the receiver; the pass itself keeps
        no reference to it.
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
    result: list[Any] = [None] * len(xs)
    owners: set[int] = set()
    for position, g in BackwardPass(ys, xs, grad_ys, stop_gradients, aggregation_method):
        result[position] = _own(g, owners)
    return result


def _own(g: Any, owners: set[int]) -> Any:
    """Make a gradient an array that shares no memory with those handed out before."""
    if g is None or isinstance(g, IndexedSlices):
        return g
    g = np.asarray(g)
    owner = g
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if not (g.flags.c_contiguous and g.flags.writeable) or id(owner) in owners:
        return np.array(g, order="C")
    owners.add(id(owner))
    return g


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
        Held constant: derivatives with respect to them are given, but nothing flows to what they were
        computed from.
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
        If an x is no variable or tensor, a y is complex and has no grad_y, or the kinds of numbers differ.
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
            "gradients() differentiates recorded graphs, and in eager mode nothing is recorded: give "
            "the loss as a callable to Optimizer.compute_gradients, or use graph_mode()"
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
                    f"{what}[{i}] must be a Variable or Tensor, got {type(item).__name__}: {item!r:.80}"
                )
    result = backward(ys, xs, grad_ys, stop_gradients, aggregation_method)
    if zero == "zero":
        return [
            np.zeros(x.shape, x.dtype) if g is None else g for x, g in zip(xs, result, strict=True)
        ]
    return result
