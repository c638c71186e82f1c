"""Running sums of gradients.

16-bit gradients are summed in float32: the sum may be out of their range although the mean is not.

A sum is known by its `SumState`: with it another process goes on to the same bits, since terms are
added in the order in which they come, one after the other, and what is merged early or late is
merged in that order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype
from fastopt._kernels._rows import scatter_add
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]

# Stored rows below which merging them is put off.
_FEW_ROWS = 4096


@dataclass(frozen=True)
class SumState:
    """A sum, as arrays.

    Attributes
    ----------
    dtype : str
        The name of the dtype of the first term, which a mean has.
    arrays : dict of str to ndarray
        "dense"; or "values", "indices" and "counts" of slices.
    """

    dtype: str
    arrays: dict[str, Array]


@dataclass(frozen=True)
class Collected:
    """What has been collected for a step that is not done yet.

    Attributes
    ----------
    count : int
        How many gradients.
    step : int
        For which step.
    sums : list of (object, SumState)
        Their sums, with what each belongs to.
    numbers : dict of str to list of int
        What else there is to know, for whoever has collected.
    """

    count: int = 0
    step: int = 0
    sums: list[tuple[Any, SumState]] = field(default_factory=list)
    numbers: dict[str, list[int]] = field(default_factory=dict)


class DenseSum:
    """The sum of arrays."""

    def __init__(self) -> None:
        self._total: Array | None = None

    def add(self, gradient: Array) -> None:
        """Add a term, which may change afterwards."""
        if self._total is None:
            dtype = compute_dtype(gradient.dtype)
            self._total = np.array(gradient, dtype=dtype, order="C", copy=True)
        else:
            np.add(self._total, gradient, out=self._total)

    def total(self) -> Array:
        """Return the sum. At least one term must have been added."""
        assert self._total is not None
        return self._total

    def arrays(self) -> dict[str, Array]:
        """Return the sum as `SumState` has it."""
        return {"dense": self.total()}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from what `arrays` returned; these are kept."""
        self._total = arrays["dense"]


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

    def arrays(self) -> dict[str, Array]:
        """Return the sum as `SumState` has it."""
        total, counts = self.total()
        return {"values": total.values, "indices": total.indices, "counts": counts}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from what `arrays` returned; these are kept."""
        self._terms = [IndexedSlices(arrays["values"], arrays["indices"])]
        self._counts = [arrays["counts"].reshape(-1, 1)]
        self._rows = len(self._terms[0])
        self._limit = max(2 * self._rows, _FEW_ROWS)

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
        self._sum: DenseSum | SlicesSum | None = None
        self._dtype: np.dtype[Any] | None = None

    def add(self, gradient: Array | IndexedSlices) -> None:
        """Add a term, which may change afterwards."""
        if self._dtype is None:
            self._dtype = gradient.dtype
        if not isinstance(gradient, IndexedSlices):
            if not isinstance(self._sum, DenseSum):
                slices, self._sum = self._sum, DenseSum()
                self._sum.add(gradient)
                if slices is not None:
                    _scatter(self._sum.total(), slices.total()[0])
            else:
                self._sum.add(gradient)
        elif isinstance(self._sum, DenseSum):
            _scatter(self._sum.total(), gradient)
        else:
            if self._sum is None:
                self._sum = SlicesSum()
            self._sum.add(gradient)

    def mean(self, count: int) -> Array | IndexedSlices:
        """Return the sum divided by `count`, in the dtype of the first term."""
        assert self._dtype is not None and self._sum is not None
        if isinstance(self._sum, DenseSum):
            mean = np.divide(self._sum.total(), count)
            return np.asarray(mean).astype(self._dtype, copy=False)
        total, _ = self._sum.total()
        values = np.divide(total.values, count).astype(self._dtype, copy=False)
        return IndexedSlices(values, total.indices, self._shape)

    def state(self) -> SumState:
        """Return the sum as arrays. At least one term must have been added."""
        assert self._dtype is not None and self._sum is not None
        return SumState(self._dtype.name, self._sum.arrays())

    def restore(self, state: SumState) -> None:
        """Go on from what `state` returned; its arrays are kept."""
        self._dtype = np.dtype(state.dtype)
        self._sum = sum_of(state)


def sum_of(state: SumState) -> DenseSum | SlicesSum:
    """Return a sum that goes on from a state, whose arrays are kept."""
    total = DenseSum() if "dense" in state.arrays else SlicesSum()
    total.restore(state.arrays)
    return total


def _scatter(dense: Array, slices: IndexedSlices) -> None:
    values = np.ascontiguousarray(slices.values, dtype=dense.dtype)
    scatter_add(dense, slices.indices, values)
