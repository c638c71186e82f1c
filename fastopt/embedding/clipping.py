"""The option `max_norm` of look-ups: rows that are too long are scaled to that length."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype, shown

Array = np.ndarray[Any, Any]


def checked_max_norm(max_norm: float | None) -> float | None:
    """Return `max_norm` as a float, or None.

    Raises
    ------
    TypeError
        If it is not a number.
    ValueError
        If it is negative or NaN.
    """
    if max_norm is None:
        return None
    try:
        value = float(max_norm)
    except (TypeError, ValueError) as error:
        raise TypeError(f"max_norm must be None or a number, got {shown(max_norm)}") from error
    except OverflowError:  # larger than any norm
        return None
    if not value >= 0:
        raise ValueError(f"max_norm must be None or at least 0, got {max_norm!r}")
    return value


class Clip:
    """What clipping did to an array of rows, and its derivative.

    Parameters
    ----------
    rows : ndarray, shape (n, ...)
        Changed in place: a row of L2 norm ``norm > max_norm`` is scaled by ``max_norm / norm``, the
        others keep their bits.
    max_norm : float
    """

    def __init__(self, rows: Array, max_norm: float) -> None:
        flat = _flat(rows)
        wide = flat.astype(compute_dtype(rows.dtype), copy=False)
        # float64, or the squares of large float32 numbers would overflow.
        norms = np.sqrt(np.einsum("kd,kd->k", wide, wide, dtype=np.float64))
        self.where = np.flatnonzero(norms > max_norm)
        norms = norms[self.where, None]
        self._factor = (max_norm / norms).astype(wide.dtype)
        self._direction = (wide[self.where] / norms).astype(wide.dtype)
        flat[self.where] = wide[self.where] * self._factor

    def backward(self, gradient: Array, places: Array | None = None) -> Array:
        """Return the gradient of rows before clipping, given that of rows after it.

        Parameters
        ----------
        gradient : ndarray, shape (n, ...) or (len(places), ...)
            Not changed.
        places : ndarray, optional
            The rows that `gradient` is of, rising; all if None.
        """
        chosen: Array | slice = slice(None)
        where = self.where
        if places is not None:
            _, chosen, where = np.intersect1d(self.where, places, True, return_indices=True)
        if where.size == 0:
            return gradient
        out = gradient.copy()
        flat = _flat(out)
        direction = self._direction[chosen]
        part = flat[where].astype(direction.dtype, copy=False)
        along = np.einsum("kd,kd->k", part, direction)[:, None]
        flat[where] = self._factor[chosen] * (part - direction * along)
        return out


def _flat(rows: Array) -> Array:
    return rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))
