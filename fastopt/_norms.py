"""Euclidean norms of gradients, dense and sparse, taken as one.

Sums of squares are accumulated in float64 and in a fixed order: a norm has the same bits for every
number of threads, and squares of float32 numbers do not overflow. Where squares of float64 numbers
would, the norm is computed again from scaled numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt._arrays import contiguous
from fastopt._kernels import _lists
from fastopt.indexed_slices import IndexedSlices, values_of

Array = np.ndarray[Any, Any]
Gradient = Array | IndexedSlices

# Below this a sum of squares may have lost terms to the subnormal range of float64.
_TINY_SQUARES = 2.0**-960

WHOLE = (np.dtype(np.float32), np.dtype(np.float64))  # whose sums are not rounded to 16 bits


def repeats(gradient: Any) -> bool:
    """Say whether these are slices that list an index more than once."""
    if not isinstance(gradient, IndexedSlices):
        return False
    return gradient.grouping(gradient._known_rows()).n_unique < len(gradient)


def norm_of(parts: Sequence[Gradient], merge_repeated: bool) -> float:
    """Return the Euclidean norm of gradients taken as one."""
    if _lists.all_fit(dense := list(parts)):
        return norm_of_dense(dense)
    plain = []
    squares = 0.0
    for part in parts:
        values = _kernel_array(values_of(part))
        if merge_repeated and isinstance(part, IndexedSlices) and repeats(part):
            if part.dtype in WHOLE:
                squares += part.grouping(part._known_rows()).squares_of_sums(values)
                continue
            values = _kernel_array(part.coalesce().values)  # sums are rounded, then squared
        plain.append(values)
    squares += _lists.sum_of_squares(plain)
    if _TINY_SQUARES < squares < math.inf:
        return math.sqrt(squares)
    if merge_repeated:
        parts = [part.coalesce() if isinstance(part, IndexedSlices) else part for part in parts]
    return _extreme_norm([_kernel_array(values_of(part)) for part in parts])


def norm_of_dense(entries: list[Any]) -> float:
    """Return the norm of arrays that kernels take as they are, as one; an entry may be None."""
    squares = _lists.sum_of_squares(entries)
    if _TINY_SQUARES < squares < math.inf:
        return math.sqrt(squares)
    return _extreme_norm([entry for entry in entries if entry is not None])


def _extreme_norm(arrays: list[Array]) -> float:
    """Return the norm of numbers whose squares float64 may not hold."""
    tops = _lists.largest(arrays)
    if any(math.isnan(top) for top in tops):
        return math.nan
    top = max(tops, default=0.0)
    if top == 0.0 or top == math.inf:
        return top
    # With `out`, since NumPy makes a scalar of a 0-d quotient.
    units = [np.divide(a, top, out=np.empty(a.shape), dtype=np.float64) for a in arrays]
    return top * math.sqrt(_lists.sum_of_squares(units))


def _kernel_array(values: Array) -> Array:
    """Return the numbers as kernels take them: of extended precision in float64."""
    if _lists.fits(values):
        return values
    if values.dtype not in (np.float16, np.float32, np.float64):
        values = values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    return contiguous(np.asarray(values))


def norms_over(values: Array, axes: tuple[int, ...]) -> Array:
    """Return Euclidean norms over `axes`, which are kept with length 1."""
    wide = values.astype(np.float64)
    top = np.max(np.abs(wide), axis=axes, keepdims=True, initial=0.0)
    unit = np.where((top > 0.0) & np.isfinite(top), top, 1.0)
    np.divide(wide, unit, out=wide)
    norms: Array = unit * np.sqrt(np.sum(np.square(wide, out=wide), axis=axes, keepdims=True))
    return norms
