"""Sums of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels._aggregate import add_n


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 7), (100_001,)])
def test_terms_are_added_left_to_right(dtype: Any, n: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(n)
    arrays = [np.asarray(rng.normal(size=shape)).astype(dtype) for _ in range(n)]
    expected = arrays[0].copy()
    for array in arrays[1:]:
        expected = expected + array
    kept = [array.copy() for array in arrays]
    out = np.full(shape, np.nan, dtype)
    add_n(arrays, out)
    np.testing.assert_array_equal(out, expected)
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)
    add_n(arrays, arrays[0])
    np.testing.assert_array_equal(arrays[0], expected)


def test_what_does_not_fit_is_refused_before_anything_is_written() -> None:
    out = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"arrays\[1\] must have dtype float32 and shape \(3,\)"):
        add_n([np.ones(3, np.float32), np.ones(4, np.float32)], out)
    with pytest.raises(ValueError, match="float64"):
        add_n([np.ones(3, np.float64), np.ones(3, np.float32)], out)
    with pytest.raises(ValueError, match="empty"):
        add_n([], out)
    with pytest.raises(TypeError, match=r"arrays\[0\]"):
        add_n([np.ones((3, 2), np.float32)[:, 0], np.ones(3, np.float32)], out)
    with pytest.raises(TypeError, match="int64"):
        add_n([np.ones(3, np.int64)], np.ones(3, np.int64))
    np.testing.assert_array_equal(out, 0)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        add_n([np.ones(3, np.float32)], out)
