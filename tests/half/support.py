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


def bits(array: Array) -> Array:
    """Return 16-bit floats as integers."""
    return np.asarray(array).view(np.uint16)
