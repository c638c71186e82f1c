"""The gradient of a weighted sum of rows: which row gets how much of which bag.

Pooled look-ups and products of a sparse matrix with a table have this gradient in common. It is the
only place that writes it out row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastopt._kernels._grouping import Grouping
from fastopt._kernels._rows import pooled_gather
from fastopt._kernels._step_memory import empty
from fastopt._kernels._transpose import sum_by_row
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]


def pooled_gradient(
    g: Array,
    offsets: Array,
    coefficients: Array | None,
    scales: Array | None,
    rows: Array,
    dense_shape: tuple[int, ...],
    through: Callable[[Array, Array], Array] | None = None,
) -> IndexedSlices:
    """Return slices in which ``rows[k]`` gets ``g[b] * scales[b] * coefficients[k]``, k in bag b.

    This is a pooled look-up the other way round: the bags of a row are looked up in `g` and added,
    so that entries are never written out one by one.

    Parameters
    ----------
    g : ndarray, shape (n_bags, ...)
        The gradient of the bags, float32 or float64, C-contiguous.
    offsets : ndarray, shape (n_bags + 1,)
        Where the entries of each bag begin, int64; from 0 to n.
    coefficients : ndarray, shape (n,), or None
        A factor for each entry, of the dtype of `g`.
    scales : ndarray, shape (n_bags,), or None
        A factor for each bag, of the dtype of `g`.
    rows : ndarray, shape (n,)
        The row of each entry: int32 or int64, C-contiguous, in range.
    dense_shape : tuple of int
        That of the table.
    through : callable, optional
        A linear map of each row. It is given the summed rows, and for each of them the number of an
        entry that has the row; these numbers rise.

    Returns
    -------
    IndexedSlices
        Each row once, in order of first appearance; entries of a row are added in their order.
    """
    if scales is not None:
        g = g * scales.reshape(-1, *(1,) * (g.ndim - 1))
    if through is None:
        summed = sum_by_row(g, offsets, rows, coefficients, dense_shape[0])
        if summed is not None:
            return IndexedSlices._unchecked(*summed, dense_shape)
    bag = np.repeat(np.arange(g.shape[0]), np.diff(offsets))
    return entries_gradient(g, bag, coefficients, rows, dense_shape, through)


def entries_gradient(
    g: Array,
    bag: Array,
    coefficients: Array | None,
    rows: Array,
    dense_shape: tuple[int, ...],
    through: Callable[[Array, Array], Array] | None = None,
) -> IndexedSlices:
    """Return slices in which ``rows[k]`` gets ``g[bag[k]] * coefficients[k]``.

    As `pooled_gradient`, for entries in any order: their bags, or whatever rows of `g` they take,
    are in `bag`, shape ``(n,)``, int32 or int64.
    """
    grouping = Grouping(rows, dense_shape[0])
    positions, starts, order = grouping.groups()
    if coefficients is not None:
        coefficients = coefficients[positions]
    total = empty((grouping.n_unique, *g.shape[1:]), g.dtype)
    pooled_gather(g, bag[positions], starts, coefficients, None, total, order)
    if through is not None:
        total = through(total, positions[starts[:-1]][order])
    return IndexedSlices._unchecked(total, grouping.unique_in_order(), dense_shape)
