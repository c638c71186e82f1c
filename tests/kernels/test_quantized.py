"""Look-ups of rows of 8 bits; what they are worth to users is in ``tests/embedding``."""

from __future__ import annotations

import numpy as np
import pytest

from fastopt._kernels._quantized import lookup

from .support import threads


@pytest.mark.parametrize("start", [0, 4, 64])
@pytest.mark.parametrize("width", [16, 20, 48, 128])
def test_large_results(start: int, width: int) -> None:
    """Large results are written around the caches where they consist of whole cache lines."""
    rng = np.random.default_rng(15)
    rows, n = rng.integers(0, 256, (300, width + 8)).astype(np.uint8), 26_000_000 // width // 4 + 5
    rows[:, width:] = np.array([0.5, -3.0], np.float32).view(np.uint8)
    ids = rng.integers(0, 300, n)
    memory = np.zeros(4 * n * width + 256, np.uint8)
    start += -memory.ctypes.data % 64
    out = memory[start : start + 4 * n * width].view(np.float32).reshape(n, width)
    with threads(2):
        lookup(rows, ids, None, None, None, out)
    np.testing.assert_array_equal(out, (rows[:, :width] * np.float32(0.5) - np.float32(3))[ids])
    assert not memory[:start].any() and not memory[start + out.nbytes :].any()
