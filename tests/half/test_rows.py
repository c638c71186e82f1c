"""Pooled look-ups of 16-bit tables: sums of their float32 values, without a copy of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._rows import pooled_gather
from tests.half.support import both
from tests.kernels.support import threads


@both()
@pytest.mark.parametrize("width", [1, 3, 40, 1100])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_as_the_table_in_float32(half: Any, width: int, weighted: bool, scaled: bool) -> None:
    rng = np.random.default_rng(5)
    table = rng.normal(size=(50, width)).astype(half)
    ids = rng.integers(0, 50, size=400)
    offsets = np.concatenate([[0], np.sort(rng.integers(0, 401, size=29)), [400]])
    weights = rng.normal(size=400).astype(np.float32) if weighted else None
    scales = rng.normal(size=30).astype(np.float32) if scaled else None
    expected = np.empty((30, width), np.float32)
    pooled_gather(table.astype(np.float32), ids, offsets, weights, scales, expected)
    for n in (1, 3):
        out = np.empty((30, width), np.float32)
        with threads(n):
            pooled_gather(table, ids.astype(np.int32), offsets, weights, scales, out)
        assert out.tobytes() == expected.tobytes()


@both()
def test_what_does_not_fit(half: Any) -> None:
    table = np.ones((5, 2), half)
    ids, offsets = np.array([1, 5]), np.array([0, 2])
    out = np.empty((1, 2), np.float32)
    with pytest.raises(IndexError, match="index 5 at position 1"):
        pooled_gather(table, ids, offsets, None, None, out)
    with pytest.raises(ValueError, match="out must have dtype float32"):
        pooled_gather(table, ids % 5, offsets, None, None, out.astype(half))
    with pytest.raises(ValueError, match="weights must have dtype float32"):
        pooled_gather(table, ids % 5, offsets, np.ones(2, half), None, out)


@both()
def test_of_swapped_bytes_and_odd_strides(half: Any) -> None:
    table = np.arange(12).reshape(6, 2).astype(half)
    expected = fo.embedding_lookup_sparse(table, [[1, 3], [5]], None)
    for other in (np.asfortranarray(table), np.repeat(table, 2, axis=0)[::2]):
        got = fo.embedding_lookup_sparse(other, [[1, 3], [5]], None)
        assert got.dtype == half and got.tobytes() == expected.tobytes()
    if half == np.float16:
        got = fo.embedding_lookup_sparse(table.astype(">f2"), [[1, 3], [5]], None)
        assert (got == expected).all()
