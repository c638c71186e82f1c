"""What the tests of 16-bit floats share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
HALVES = (F16, BF16)


def both() -> Any:
    """Parametrize a test over the two dtypes."""
    return pytest.mark.parametrize("half", HALVES, ids=lambda dtype: dtype.name)


def every(half: Any) -> Array:
    """Return all numbers that there are."""
    return np.arange(1 << 16, dtype=np.uint16).view(half)


def widened(numbers: Array) -> Array:
    """Return what NumPy makes of 16-bit floats in float32."""
    with np.errstate(invalid="ignore"):  # some processors report the NaN that signal
        return numbers.astype(np.float32)


def float32_near(half: Any) -> Array:
    """Return the float32 that are of this dtype or halfway between two, and their neighbours."""
    exact = widened(every(half)).view(np.uint32).astype(np.int64)
    halfway = (exact[:-1] + exact[1:]) // 2
    near = np.concatenate([a + d for a in (exact, halfway) for d in range(-2, 3)])
    random = np.random.default_rng(0).integers(0, 1 << 32, size=200_000)
    return np.concatenate([near % (1 << 32), random]).astype(np.uint32).view(np.float32)


def bits(array: Array) -> Array:
    """Return 16-bit floats as integers."""
    return np.asarray(array).view(np.uint16)
