"""Whose memory a gradient or a step of the backward pass touches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from fastopt.autodiff.tensor import Differentiable, Form, Node
from fastopt.indexed_slices import IndexedSlices, values_of, with_values

Array = np.ndarray[Any, Any]

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


_FREQUENT = frozenset((type(None), Node, Form, int, float, bool, str))


def saved_arrays(node: Node) -> list[Array] | None:
    """Return the arrays that the derivative of a node may read, or None if it may read anything."""
    if node.operation.opaque:
        return None
    arrays: list[Array] = []
    stack: list[Any] = [node.ans, *node.args, *node.kwargs.values()]
    while stack:
        item = stack.pop()
        if type(item) in _FREQUENT:
            continue
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


class Guard:
    """The storage of variables that may be changed while the pass goes on.

    Parameters
    ----------
    xs : iterable of Differentiable
        The variables; what operations made owns no storage.
    """

    def __init__(self, xs: Iterable[Differentiable]) -> None:
        bounds: list[tuple[int, int, int]] = []
        for x in xs:
            if x._node is None:
                # Only where it lies is of interest.
                value = getattr(x, "_storage", None)
                if value is None:
                    value = x._read()
                if isinstance(value, np.ndarray) and value.size:
                    bounds.append((*byte_bounds(value), id(x)))
        bounds.sort()
        self._bounds = bounds
        self._lows = [low for low, _, _ in bounds]
        # Storages may overlap each other; reach[i] is the furthest end among the first i + 1.
        self._reach: list[int] = []
        for _, high, _ in bounds:
            self._reach.append(max(high, self._reach[-1]) if self._reach else high)

    def touched(self, array: Array) -> list[int]:
        """Return the ids of the variables whose storage may overlap an array."""
        low, high = byte_bounds(array)
        found = []
        at = bisect_left(self._lows, high) - 1
        while at >= 0 and self._reach[at] > low:
            if self._bounds[at][1] > low:
                found.append(self._bounds[at][2])
            at -= 1
        return found

    def last_reads(self, nodes: Sequence[Node]) -> dict[int, int]:
        """Return, by id of the variable, the position of the last node that may read its memory."""
        last: dict[int, int] = {}
        for i, node in enumerate(nodes):
            arrays = saved_arrays(node)
            if arrays is None:
                last.update((key, i) for _, _, key in self._bounds)
            else:
                for array in arrays:
                    last.update((key, i) for key in self.touched(array))
        return last

    def apart(self, term: Any) -> Any:
        """Return a gradient, or a copy if it lies in memory that may change before it is used."""
        array = values_of(term)
        if not isinstance(array, np.ndarray) or not array.size or not self.touched(array):
            return term
        return with_values(term, array.copy())


def own(g: Any, owners: set[int]) -> Any:
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
