"""Sums of the gradient terms of one tensor: dense ones, slices, and both."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt.indexed_slices import IndexedSlices

__all__ = ["AggregationMethod"]

Array = np.ndarray[Any, Any]


class AggregationMethod:
    """How the gradient terms of one tensor are summed.

    All three give the same bits: terms are added from left to right, in the order in which the backward
    pass meets them.

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


class Terms:
    """The gradient terms of one tensor that have arrived so far.

    Dense terms are added from left to right. If there are slices as well, their rows are then added into
    that sum one after the other, so that no second dense array is needed.
    """

    __slots__ = ("dense", "slices", "owned")

    def __init__(self) -> None:
        self.dense: list[Any] = []
        self.slices: list[IndexedSlices] = []
        self.owned: list[bool] = []

    def add(self, term: Any, owned: bool, running: bool) -> None:
        """Add a term; `owned` says that nobody else sees its memory."""
        if isinstance(term, IndexedSlices):
            self.slices.append(term)
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
        """Return the sum, an array or, if all terms are slices and `densify` is not set, slices."""
        if not self.dense:
            if not densify:
                return _concatenated(self.slices)
            total: Any = np.zeros(shape, dtype)
        elif len(self.dense) == 1:
            total = self.dense[0]
            if self.slices and not self.owned[0]:
                total = np.array(total)
        else:
            total = add_n(self.dense, self.owned)
        for term in self.slices:
            scatter_add(total, term)
        return total


def add_n(terms: list[Any], owned: list[bool]) -> Any:
    """Sum arrays of one shape and dtype from left to right."""
    first = terms[0]
    if type(first) is not np.ndarray or first.ndim == 0:
        total = first
        for term in terms[1:]:
            total = total + term
        return total
    total = np.add(first, terms[1], out=first if owned[0] else None)
    for term in terms[2:]:
        np.add(total, term, out=total)
    return total


def scatter_add(total: Array, term: IndexedSlices) -> None:
    """Add the rows of slices into an array, repeated ones in order of arrival."""
    term.check_range(total.shape[0])
    np.add.at(total, term.indices, term.values)


def _concatenated(terms: list[IndexedSlices]) -> IndexedSlices:
    if len(terms) == 1:
        return terms[0]
    return IndexedSlices(
        np.concatenate([term.values for term in terms]),
        np.concatenate([term.indices for term in terms]),
        terms[0].dense_shape,
    )
