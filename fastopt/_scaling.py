"""Multiplying gradients by a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt._kernels import _lists
from fastopt.step_memory import step_memory

Array = np.ndarray[Any, Any]


# The range of normal numbers, of the types whose products are rounded well enough by themselves.
_NORMAL = {
    np.dtype(t): (float(np.finfo(t).tiny), float(np.finfo(t).max)) for t in (np.float32, np.float64)
}


def fits_normally(factor: float, dtype: np.dtype[Any]) -> bool:
    """Say whether `dtype`, float32 or float64, holds a factor as a normal number, or as NaN."""
    smallest, largest = _NORMAL[dtype]
    return smallest <= abs(factor) <= largest or factor != factor


def times(values: Array, factor: float | Array) -> Array:
    """Return ``values * factor`` in the dtype of the values.

    A factor that this dtype holds only as a subnormal number or not at all, and every factor of
    16-bit values, is used in float64, so that the product is rounded once.

    Parameters
    ----------
    values : ndarray
        Floating numbers.
    factor : float or ndarray
        float64; an array is broadcast to the values.
    """
    if isinstance(factor, float) and _lists.fits(values):
        with step_memory():
            return _lists.times([values], factor)[0]
    out: Array = np.empty_like(values)
    with np.errstate(invalid="ignore"):  # 0 * inf is NaN, and whoever scales has said so
        np.multiply(values, factor, out=out, dtype=np.float64, casting="same_kind")
    return out


def times_all(arrays: Sequence[Any], factor: float) -> list[Any]:
    """Return the products of several arrays and a number, as `times` has them.

    Where kernels take all arrays as they are, an entry may be None, and stays it.
    """
    listed = list(arrays)
    if not _lists.all_fit(listed):
        return [times(values, factor) for values in listed]
    with step_memory():
        return _lists.times(listed, factor)
