"""The gradient of a weighted sum of rows: which row gets how much of which bag.

Pooled look-ups and products of a sparse matrix with a table have this gradient in common. It is the
only place that writes it out row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastopt._kernels._grouping import Grouping
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]


def pooled_gradient(
    g: Array,
    bag: Array,
    coefficients: Array | None,
    scales: Array | None,
    rows: Array,
    dense_shape: tuple[int, ...],
    through: Callable[[Array], Array] | None = None,
) -> IndexedSlices:
    """Return slices in which row ``rows[k]`` gets ``g[bag[k]] * scales[bag[k]] * coefficients[k]``.

    Parameters
    ----------
    g : ndarray, shape (n_bags, ...)
        The gradient of the bags, float32 or float64, C-contiguous.
    bag : ndarray, shape (n,)
        The bag of each entry.
    coefficients : ndarray, shape (n,), or None
        A factor for each entry.
    scales : ndarray, shape (n_bags,), or None
        A factor for each bag.
    rows : ndarray, shape (n,)
        The row of each entry: int32 or int64, C-contiguous, in range.
    dense_shape : tuple of int
        That of the table.
    through : callable, optional
        Applied to the entries before those of one row are added.

    Returns
    -------
    IndexedSlices
        Each row once, in order of first appearance; entries of a row are added in their order.
    """
    ones = (1,) * (g.ndim - 1)
    if scales is not None:
        g = g * scales.reshape(-1, *ones)
    values = g[bag]
    if coefficients is not None:
        values *= coefficients.reshape(-1, *ones)
    if through is not None:
        values = np.ascontiguousarray(through(values))
    total, unique = Grouping(rows, dense_shape[0]).sum_rows(values)
    return IndexedSlices._unchecked(total, unique, dense_shape)
