"""Running sums of gradients.

16-bit gradients are summed in float32: the sum may be out of their range although the mean is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype
from fastopt._kernels._rows import scatter_add
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]

# Stored rows below which merging them is put off.
_FEW_ROWS = 4096


class SlicesSum:
    """The sum of slices of one array, and how many of them list each row.

    Terms are kept as they come and merged when they have grown to twice the rows of the last merge,
    so that memory stays within a small factor of the rows in use and a term costs its own rows. A
    row is summed in the order in which the terms came.
    """

    def __init__(self) -> None:
        self._terms: list[IndexedSlices] = []
        self._counts: list[Array] = []
        self._rows = 0
        self._limit = _FEW_ROWS

    def add(self, slices: IndexedSlices) -> None:
        """Add a term, which may change afterwards: merging its rows copies them."""
        one = slices.astype(compute_dtype(slices.dtype)).coalesce()
        self._terms.append(IndexedSlices(one.values, one.indices.astype(np.int64)))
        self._counts.append(np.ones((len(one), 1)))
        self._rows += len(one)
        if self._rows > self._limit:
            self._limit = max(2 * len(self._merged()), _FEW_ROWS)

    def total(self) -> tuple[IndexedSlices, Array]:
        """Return the sum, each row once and in ascending order, and the count of each row.

        At least one term must have been added.
        """
        total = self._merged()
        return total, self._counts[0][:, 0]

    def _merged(self) -> IndexedSlices:
        terms = IndexedSlices.concatenate(self._terms)
        counts = np.concatenate(self._counts)
        total = terms.coalesce(sort=True)
        self._counts = [terms._with_values(counts).coalesce(sort=True).values]
        self._terms = [total]
        self._rows = len(total)
        return total


class GradientSum:
    """The sum of gradients of one variable: slices as long as all terms are slices.

    Parameters
    ----------
    shape : tuple of int
        The shape of the variable, which all terms have.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._dense: Array | None = None
        self._sparse: SlicesSum | None = None
        self._dtype: np.dtype[Any] | None = None

    def add(self, gradient: Array | IndexedSlices) -> None:
        """Add a term, which may change afterwards."""
        if self._dtype is None:
            self._dtype = gradient.dtype
        if isinstance(gradient, IndexedSlices):
            if self._dense is not None:
                _scatter(self._dense, gradient)
                return
            if self._sparse is None:
                self._sparse = SlicesSum()
            self._sparse.add(gradient)
        elif self._dense is None:
            dtype = compute_dtype(gradient.dtype)
            self._dense = np.array(gradient, dtype=dtype, order="C", copy=True)
            if self._sparse is not None:
                _scatter(self._dense, self._sparse.total()[0])
                self._sparse = None
        else:
            self._dense += gradient

    def mean(self, count: int) -> Array | IndexedSlices:
        """Return the sum divided by `count`, in the dtype of the first term."""
        assert self._dtype is not None
        if self._dense is not None:
            return np.asarray(np.divide(self._dense, count)).astype(self._dtype, copy=False)
        assert self._sparse is not None
        total, _ = self._sparse.total()
        values = np.divide(total.values, count).astype(self._dtype, copy=False)
        return IndexedSlices(values, total.indices, self._shape)


def _scatter(dense: Array, slices: IndexedSlices) -> None:
    values = np.ascontiguousarray(slices.values, dtype=dense.dtype)
    scatter_add(dense, slices.indices, values)
