"""Sums of the gradient terms of one tensor: dense ones, slices, and both."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._kernels import _aggregate, _rows
from fastopt.indexed_slices import IndexedSlices

__all__ = ["AggregationMethod"]

Array = np.ndarray[Any, Any]

# Elements from which on the kernel, which has threads, adds two arrays sooner than NumPy.
_MANY = 1 << 16


class AggregationMethod:
    """How the gradient terms of one tensor are summed.

    All three give the same bits: terms are added from left to right, in the order in which the
    backward pass meets them.

    Attributes
    ----------
    ADD_N : int
        All terms are kept and summed in one pass. The default.
    DEFAULT : int
        The same as `ADD_N`.
    EXPERIMENTAL_TREE : int
        A running sum: a term is added as soon as it is there, so that memory for two is enough.
    EXPERIMENTAL_ACCUMULATE_N : int
        The same as `EXPERIMENTAL_TREE`.

    Examples
    --------
    >>> import fastopt as fo
    >>> x = fo.Variable(2.0)
    >>> fo.gradients(x * 3.0 + x, x, aggregation_method=fo.AggregationMethod.EXPERIMENTAL_TREE)
    [array(4., dtype=float32)]
    """

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


def is_running(method: Any) -> bool:
    """Say whether an aggregation method keeps a running sum.

    Raises
    ------
    ValueError
        If it is none of those known.
    """
    if method is None or method == AggregationMethod.ADD_N:
        return False
    if method in (AggregationMethod.EXPERIMENTAL_TREE, AggregationMethod.EXPERIMENTAL_ACCUMULATE_N):
        return True
    raise ValueError(f"aggregation_method must be one of [0, 1, 2], got {method!r}")


class Patch:
    """A gradient that is zero but at an index: what comes back through ``x[index]``.

    Parameters
    ----------
    index
        Anything that indexes an array.
    values : ndarray
        What belongs there.
    repeats : bool
        Whether the index may name an element twice.
    """

    __slots__ = ("index", "values", "repeats")

    def __init__(self, index: Any, values: Any, repeats: bool) -> None:
        self.index = index
        self.values = values
        self.repeats = repeats

    def add_to(self, total: Array) -> None:
        """Add the values into a dense array."""
        if self.repeats:
            np.add.at(total, self.index, self.values)
        else:
            total[self.index] += self.values


class Terms:
    """The gradient terms of one tensor that have arrived so far.

    Dense terms are added in the order in which they arrive. If there are slices or patches as well,
    these are then added into that sum one after the other, so that no second dense array is needed.
    A backward pass meets the latest operation first; slices stand in the order in which they were
    looked up, as TensorFlow has it, so that order is turned round.
    """

    __slots__ = ("dense", "owned", "sparse")

    def __init__(self) -> None:
        self.dense: list[Any] = []
        self.owned: list[bool] = []
        self.sparse: list[IndexedSlices | Patch] = []

    def add(self, term: Any, owned: bool, running: bool) -> None:
        """Add a term; `owned` says that nobody else sees its memory."""
        if isinstance(term, (IndexedSlices, Patch)):
            self.sparse.append(term)
        elif running and self.dense:
            if self.owned[0] and type(self.dense[0]) is np.ndarray:
                np.add(self.dense[0], term, out=self.dense[0])
            else:
                self.dense[0] = self.dense[0] + term
                self.owned[0] = True
        else:
            self.dense.append(term)
            self.owned.append(owned)

    def total(self, shape: tuple[int, ...], dtype: np.dtype[Any], densify: bool) -> Any:
        """Return the sum: an array or, if all terms are slices and `densify` is not set, slices."""
        sparse = self.sparse[::-1]
        if self.dense:
            total = self.dense[0] if len(self.dense) == 1 else add_n(self.dense, self.owned)
            if sparse and len(self.dense) == 1 and not self.owned[0]:
                total = np.array(total)
        elif densify or not all(isinstance(term, IndexedSlices) for term in sparse):
            total = np.zeros(shape, dtype)
        else:
            return _concatenated(sparse)  # type: ignore[arg-type]
        if sparse:
            total = np.asarray(total)
            for term in sparse:
                if isinstance(term, Patch):
                    term.add_to(total)
                else:
                    scatter_add(total, term)
        return total


def _kernel_fits(*arrays: Any) -> bool:
    """Say whether the kernels take these: native float32 or float64, aligned, C-contiguous."""
    dtype = arrays[0].dtype
    return dtype.char in "fd" and all(
        type(a) is np.ndarray and a.dtype == dtype and a.flags.c_contiguous and a.flags.aligned
        for a in arrays
    )


def add_n(terms: list[Any], owned: list[bool]) -> Any:
    """Sum two or more arrays of one shape and dtype from left to right.

    In one pass, where the kernel can; with NumPy's additions the bits are the same.
    """
    first = terms[0]
    if type(first) is not np.ndarray or first.ndim == 0:
        total = first
        for term in terms[1:]:
            total = total + term
        return total
    if (len(terms) > 2 or first.size >= _MANY) and _kernel_fits(*terms):
        total = first if owned[0] and len(terms) == 2 else np.empty(first.shape, first.dtype)
        _aggregate.add_n(terms, total)
        return total
    total = np.add(first, terms[1], out=first if owned[0] else None)
    for term in terms[2:]:
        np.add(total, term, out=total)
    return total


def scatter_add(total: Array, term: IndexedSlices) -> None:
    """Add the rows of slices into an array, repeated ones in order of arrival."""
    term.check_range(total.shape[0])
    values = np.ascontiguousarray(term.values)
    if _kernel_fits(total, values):
        _rows.scatter_add(total, np.ascontiguousarray(term.indices), values)
    else:
        np.add.at(total, term.indices, values)


def _concatenated(terms: list[IndexedSlices]) -> IndexedSlices:
    if len(terms) == 1:
        return terms[0]
    return IndexedSlices(
        np.concatenate([term.values for term in terms]),
        np.concatenate([term.indices for term in terms]),
        terms[0].dense_shape,
    )
