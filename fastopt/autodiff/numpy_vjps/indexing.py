"""Functions that pick elements by index, and look-ups of rows."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fastopt._kernels._grouping import find_out_of_range
from fastopt.autodiff.aggregation import Patch
from fastopt.autodiff.numpy_vjps._define import define, handle
from fastopt.autodiff.tensor import Differentiable, value_of
from fastopt.indexed_slices import IndexedSlices

_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))


def _pick(x: Any, index: Any) -> Any:
    return x[index]


def _put_back(ans: Any, x: Any, index: Any) -> Any:
    return lambda g: Patch(index, g, _may_repeat(index))


def _may_repeat(index: Any) -> bool:
    """Say whether an index may name an element twice: only integer arrays can."""
    items = index if isinstance(index, tuple) else (index,)
    return any(
        not isinstance(item, _BASIC) and np.asarray(item).dtype.kind in "iu" and np.ndim(item) > 0
        for item in items
    )


_picked = define(
    _pick, _put_back, reads=("index",), name="x[...]", register=False, holomorphic=True
)


def _rows(ans: Any, x: Any, ids: Any) -> Any:
    def vjp(g: Any) -> Any:
        values = np.reshape(g, (ids.size, *x.shape[1:]))
        return IndexedSlices(values, ids.reshape(-1), x.shape)

    return vjp


_looked_up = define(
    lambda x, ids: np.take(x, ids, axis=0),
    _rows,
    reads=("ids",),
    name="x[ids]",
    register=False,
)


def rows(x: Differentiable, ids: Any) -> Any:
    """Look up rows of axis 0; only these are read, and their gradient is an `IndexedSlices`.

    Parameters
    ----------
    x : Differentiable
        A real table of at least one axis.
    ids : ndarray of int
        Row numbers in range, not negative, of any shape.

    Returns
    -------
    Tensor or ndarray
        Shape ``ids.shape + x.shape[1:]``.
    """
    ids = np.ascontiguousarray(ids)
    found = x._read_rows(ids.reshape(-1)).reshape(ids.shape + x.shape[1:])
    return _looked_up.record((x, ids), {}, found)


def _checked_ids(ids: Any, n: int, axis: int) -> Any:
    """Return integer ids without negative ones, as NumPy wraps them, or raise IndexError."""
    flags = ids.flags
    if ids.dtype.char in "il" and ids.dtype.isnative and flags.c_contiguous and flags.aligned:
        # The usual case in one pass: nothing negative, nothing beyond the end.
        if find_out_of_range(ids.reshape(-1), n) < 0:
            return ids
    if ids.size == 0:
        return ids.astype(np.int64)
    ids = np.require(ids, ids.dtype.newbyteorder("="), "A")
    low, high = int(ids.min()), int(ids.max())
    if low < -n or high >= n:
        bad = high if high >= n else low
        offset = int(np.flatnonzero(ids.reshape(-1) == bad)[0])
        raise IndexError(
            f"index {bad} (at offset {offset} of the indices) is out of bounds for axis {axis} "
            f"with size {n}"
        )
    if ids.dtype.kind == "u" or ids.dtype.itemsize < 4:
        ids = ids.astype(np.int64)
    return np.where(ids < 0, ids + n, ids) if low < 0 else ids


def _as_ids(index: Any) -> Any:
    """Return `index` as an array if it picks rows by integers, else None."""
    if isinstance(index, (np.ndarray, list)):
        ids = np.asarray(index)
        if ids.size == 0 and isinstance(index, list):
            return ids.astype(np.int64) if ids.ndim == 1 else None
        if ids.ndim and ids.dtype.kind in "iu":
            return ids
    return None


def _plain_index(index: Any) -> Any:
    """Return an index without differentiable objects in it."""
    if isinstance(index, Differentiable):
        value = index._read()
        if value.dtype.kind not in "iub":
            raise IndexError(
                f"arrays used as indices must be of integer or boolean type, got {index!r}"
            )
        # A copy: the variable may change before the backward pass.
        return np.array(value) if np.ndim(value) else value
    if type(index) is tuple:
        return tuple(_plain_index(item) for item in index)
    if type(index) is list:
        return value_of(index)
    return index


def _full(item: Any) -> bool:
    return item is Ellipsis or (isinstance(item, slice) and item == slice(None))


@handle(operator.getitem)
def getitem(x: Differentiable, index: Any) -> Any:
    """Index as NumPy does; integer arrays along the first axis of a real array look up rows."""
    index = _plain_index(index)
    first = index
    if type(index) is tuple and index and all(_full(item) for item in index[1:]):
        # x[ids, :, ...]: an ellipsis stands for any number of axes, but only one may.
        n_dots = sum(item is Ellipsis for item in index[1:])
        if n_dots <= 1 and len(index) - n_dots <= x.ndim:
            first = index[0]
    if x.shape and x.dtype.kind == "f":
        ids = _as_ids(first)
        if ids is not None:
            return rows(x, _checked_ids(ids, x.shape[0], 0))
    return _picked(x, index)


@handle(np.take)
def take(
    a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Any:
    """As `numpy.take`."""
    if out is not None:
        raise TypeError("numpy.take: out= is not supported on differentiable objects")
    ids = np.asarray(_plain_index(indices))
    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"numpy.take: indices must be integers, got dtype {ids.dtype}")
    if axis is None:
        a, axis = (a if a.ndim == 1 else np.reshape(a, -1)), 0
    axis = operator.index(axis)
    axis += a.ndim if axis < 0 else 0
    if not 0 <= axis < a.ndim:
        raise np.exceptions.AxisError(axis, a.ndim)
    n = a.shape[axis]
    if mode == "wrap":
        ids = ids % n
    elif mode == "clip":
        ids = np.clip(ids, 0, n - 1)
    elif mode != "raise":
        raise ValueError(f"numpy.take: mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    ids = _checked_ids(ids, n, axis)
    if axis == 0 and ids.ndim:
        return getitem(a, ids)
    return _picked(a, (slice(None),) * axis + (ids if ids.ndim else int(ids),))


@handle(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """As `numpy.take_along_axis`."""
    ids = np.asarray(_plain_index(indices))
    if not isinstance(arr, Differentiable):
        return np.take_along_axis(arr, ids, axis)
    if axis is None:
        arr, axis = np.reshape(arr, -1), 0
    axis = axis % arr.ndim
    if ids.ndim != arr.ndim:
        raise ValueError(
            f"numpy.take_along_axis: indices of shape {ids.shape} need as many axes as arr of "
            f"shape {arr.shape}"
        )
    index: list[Any] = []
    for i, n in enumerate(arr.shape):
        if i == axis:
            index.append(ids)
        else:
            shape = [1] * arr.ndim
            shape[i] = -1
            index.append(np.arange(n).reshape(shape))
    return _picked(arr, tuple(index))


@handle(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """As `numpy.compress`."""
    if out is not None:
        raise TypeError("numpy.compress: out= is not supported on differentiable objects")
    return np.take(a, np.flatnonzero(value_of(condition)), axis=axis)


@handle(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """As `numpy.select`."""
    if len(condlist) != len(choicelist):
        raise ValueError(
            f"numpy.select: {len(condlist)} conditions for {len(choicelist)} choices; there must "
            "be as many"
        )
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = np.where(condition, choice, result)
    return result
