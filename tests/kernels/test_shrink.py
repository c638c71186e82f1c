"""Shrinking rows in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels._shrink import shrink
from tests.kernels.support import threads


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (5, 3), (4, 0), (6000, 40), (3, 70_000)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_all_listed_and_other_rows(dtype: Any, shape: tuple[int, ...], n_threads: int) -> None:
    rng = np.random.default_rng(1)
    start = np.asarray(rng.normal(size=shape)).astype(dtype)
    smaller = start - start * dtype(0.3)
    with threads(n_threads):
        a = start.copy()
        shrink(a, 0.3)
        np.testing.assert_array_equal(a, smaller)
        if not shape:
            return
        n = shape[0]
        for rows in (np.arange(0), np.arange(n), np.arange(0, n, 2), np.arange(n // 2, n)):
            listed = np.isin(np.arange(n), rows).reshape(-1, *[1] * (len(shape) - 1))
            a = start.copy()
            shrink(a, 0.3, rows.astype(np.int64))
            np.testing.assert_array_equal(a, np.where(listed, smaller, start))
            a = start.copy()
            shrink(a, 0.3, rows.astype(np.int64), others=True)
            np.testing.assert_array_equal(a, np.where(listed, start, smaller))


def test_what_becomes_subnormal_becomes_zero() -> None:
    tiny = np.finfo(np.float32).smallest_normal
    a = np.array([tiny, -tiny, 4 * tiny, np.inf, np.nan], np.float32)
    shrink(a, 0.5)
    np.testing.assert_array_equal(a, np.array([0, 0, 2 * tiny, np.nan, np.nan], np.float32))


@pytest.mark.parametrize(
    "array",
    [
        [1.0],
        np.ones(3, np.int64),
        np.broadcast_to(1.0, ()),
        np.ones(3, np.float16),
        np.ones((3, 4)).T,
        np.ones(3)[::2],
    ],
)
def test_other_arrays_are_refused(array: Any) -> None:
    with pytest.raises(TypeError, match="array must be"):
        shrink(array, 0.5)


@pytest.mark.parametrize("rows", [np.ones(1), np.ones((1, 1), np.int64), np.arange(6)[::2]])
def test_other_rows_are_refused(rows: Any) -> None:
    with pytest.raises(TypeError, match="rows must be"):
        shrink(np.ones((8, 2)), 0.5, rows)
