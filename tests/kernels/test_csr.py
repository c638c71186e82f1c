"""Rows of matrices in compressed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt._kernels._csr import touched_rows
from tests.kernels.support import threads


@given(data=st.data())
def test_touched_rows(data: Any) -> None:
    n_rows, width = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 6))
    counts = data.draw(st.lists(st.integers(0, 9), min_size=n_rows, max_size=n_rows))
    index, dtype = (
        data.draw(st.sampled_from(kinds))
        for kinds in ((np.int32, np.int64), (np.float32, np.float64))
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index)
    n = int(indptr[-1])
    columns = rng.integers(0, width, n).astype(data.draw(st.sampled_from((np.int32, np.int64))))
    entries = rng.normal(size=n + data.draw(st.integers(0, 3))).astype(dtype)
    found = touched_rows(indptr, columns, entries, width)
    assert found is not None
    touched, values = found
    np.testing.assert_array_equal(touched, np.flatnonzero(counts))
    expected = np.zeros((n_rows, width), dtype)
    np.add.at(expected, (np.repeat(np.arange(n_rows), counts), columns), entries[:n])
    np.testing.assert_array_equal(values, expected[touched])
    assert values.dtype == dtype and touched.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_every_number_of_threads(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 30, 20_000) * (rng.random(20_000) < 0.5)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns, entries = rng.integers(0, 16, indptr[-1]), rng.normal(size=indptr[-1]).astype(dtype)
    results = set()
    for n in (1, 2, 8):
        with threads(n):
            found = touched_rows(indptr, columns, entries, 16)
            assert found is not None
            results.add(b"".join(array.tobytes() for array in found))
    assert len(results) == 1


def test_what_is_no_matrix() -> None:
    """scipy does not look: its compiled code trusts offsets and columns."""
    indptr, columns, entries = np.array([0, 2, 2, 3]), np.array([0, 1, 1]), np.ones(3)
    assert touched_rows(indptr, columns, entries, 2) is not None
    for bad in ([1, 2, 2, 3], [0, 2, 1, 3], [0, 2, 2, 4], [0, -1, 2, 3], [0, 2, 2, -1]):
        assert touched_rows(np.array(bad), columns, entries, 2) is None
    for bad in ([0, 2, 1], [0, -1, 1], [0, 1, 2**40]):
        assert touched_rows(indptr, np.array(bad), entries, 2) is None
    assert touched_rows(indptr, columns, entries, 0) is None
    assert touched_rows(indptr, columns, entries[:2], 2) is None
    assert touched_rows(indptr, columns[:2], entries, 2) is None
    assert touched_rows(np.zeros(0, int), columns, entries, 2) is None
    for others in (
        (indptr.astype(np.int16), columns, entries),
        (indptr, columns.astype(np.float64), entries),
        (indptr, columns, entries.astype(int)),
        (indptr, columns, np.ones(6)[::2]),
        (indptr, columns, entries.reshape(3, 1)),
        ([0, 2, 2, 3], columns, entries),
    ):
        assert touched_rows(*others, 2) is None
