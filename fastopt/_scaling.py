"""Multiplying a gradient by a number."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


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
    with np.errstate(invalid="ignore"):  # 0 * inf is NaN, and whoever scales has said so
        if isinstance(factor, float) and values.dtype.itemsize >= 4:
            narrow = values.dtype.type(factor)
            if abs(narrow) >= np.finfo(values.dtype).tiny or factor == 0.0 or factor != factor:
                product: Array = np.asarray(np.multiply(values, narrow))
                return product
        out: Array = np.empty_like(values)
        np.multiply(values, factor, out=out, dtype=np.float64, casting="same_kind")
        return out
