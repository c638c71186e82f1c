"""Multiplying a gradient by a number."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# The range of normal numbers, of the types whose products are rounded well enough by themselves.
_NORMAL = {
    np.dtype(t): (float(np.finfo(t).tiny), float(np.finfo(t).max)) for t in (np.float32, np.float64)
}


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
    if isinstance(factor, float):
        smallest, largest = _NORMAL.get(values.dtype, (0.0, -1.0))
        if smallest <= abs(factor) <= largest or (largest > 0.0 and factor != factor):
            product: Array = np.asarray(np.multiply(values, values.dtype.type(factor)))
            return product
    out: Array = np.empty_like(values)
    with np.errstate(invalid="ignore"):  # 0 * inf is NaN, and whoever scales has said so
        np.multiply(values, factor, out=out, dtype=np.float64, casting="same_kind")
    return out
