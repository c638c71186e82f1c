"""Which look-ups share a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt._kernels._grouping import Grouping, find_out_of_range
from tests.kernels.support import threads


def check(indices: Any, n_rows: int) -> None:
    grouping = Grouping(indices, n_rows)
    unique, first, inverse = np.unique(indices, return_index=True, return_inverse=True)
    order = np.argsort(first)
    assert len(grouping) == len(indices)
    assert grouping.n_unique == len(unique)
    assert grouping.n_rows == n_rows
    for found, expected in (
        (grouping.unique_sorted(), unique),
        (grouping.unique_in_order(), unique[order]),
    ):
        assert found.dtype == indices.dtype
        np.testing.assert_array_equal(found, expected)
    positions, starts, by_appearance = grouping.groups()
    np.testing.assert_array_equal(positions, np.argsort(inverse, kind="stable"))
    np.testing.assert_array_equal(starts, np.concatenate([[0], np.bincount(inverse).cumsum()]))
    np.testing.assert_array_equal(by_appearance, order)
    for dtype in (np.float32, np.float64, np.float16):
        values = np.random.default_rng(8).normal(size=(len(indices), 2, 3)).astype(dtype)
        expected = np.zeros((len(unique), 2, 3), dtype)
        np.add.at(expected, inverse, values)  # in order of arrival
        summed, rows = grouping.sum_rows(values, sort=True)
        np.testing.assert_array_equal(summed, expected)
        np.testing.assert_array_equal(rows, unique)
        summed, rows = grouping.sum_rows(values)
        np.testing.assert_array_equal(summed, expected[order])
        np.testing.assert_array_equal(rows, unique[order])
        assert summed.dtype == dtype


@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.sampled_from([np.int32, np.int64]),
)
def test_small_lists(indices: list[int], dtype: Any) -> None:
    check(np.array(indices, dtype), 31)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", [24, 25, 2048, 2049, 70_000, 140_000])
@pytest.mark.parametrize(
    "n_rows", [1, 2, 9, 4095, 4097, 100_000, 2**24, 2**24 + 1, 2**31 - 1, 2**32, 2**33, 2**62]
)
def test_every_width_of_row_numbers(n_threads: int, n: int, n_rows: int) -> None:
    """pytorch/pytorch#57416: flattened keys overflowed. Beyond 2**32 rows items are wider."""
    rng = np.random.default_rng(9)
    indices = rng.integers(0, n_rows, n)
    indices[: n // 2] = rng.choice(indices[n // 2 :], n // 2)
    indices[0] = n_rows - 1
    with threads(n_threads):
        check(indices, n_rows)


@pytest.mark.parametrize("n_rows", [10, 1_000_000])
def test_hot_and_sorted_rows(n_rows: int) -> None:
    rng = np.random.default_rng(10)
    check(np.full(5000, n_rows - 1), n_rows)
    check(np.sort(rng.integers(0, n_rows, 5000)), n_rows)
    check(np.sort(rng.integers(0, n_rows, 5000))[::-1].copy(), n_rows)
    check(np.minimum((rng.random(30_000) ** 8 * n_rows).astype(np.int32), n_rows - 1), n_rows)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("bad", "position"), [(4, 1), (-1, 3), (2**31 - 1, 0), (-(2**31), 2)])
def test_out_of_range(dtype: Any, bad: int, position: int) -> None:
    """tensorflow/tensorflow#98994, #17417: rows beyond the table were skipped or wrapped round."""
    indices = np.array([0, 3, 2, 1], dtype)
    assert find_out_of_range(indices, 4) == -1
    indices[position] = bad
    assert find_out_of_range(indices, 4) == position
    with pytest.raises(IndexError, match=f"index {bad} at position {position} .* 4 rows"):
        Grouping(indices, 4)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n_rows", [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**63 - 1])
def test_rows_next_to_a_limit(dtype: Any, n_rows: int) -> None:
    """The check tells by signs, in the width of the indices: none may overflow into a good one."""
    kinds = np.iinfo(dtype)
    near = [n_rows + d for d in (-2, -1, 0, 1)] + [0, 1, -1, kinds.min, kinds.min + 1, kinds.max]
    for row in near:
        if kinds.min <= row <= kinds.max:
            found = find_out_of_range(np.full(3, row, dtype), n_rows)
            assert found == (-1 if 0 <= row < n_rows else 0), row


@pytest.mark.parametrize("n_threads", [1, 4])
def test_the_first_of_many_is_named(n_threads: int) -> None:
    indices = np.zeros(100_000, np.int64)
    indices[[70_123, 30_007, 99_999]] = [5, 2**40, -1]
    with threads(n_threads):
        assert find_out_of_range(indices, 5) == 30_007
        with pytest.raises(IndexError, match=f"index {2**40} at position 30007"):
            Grouping(indices, 5)


def test_no_rows() -> None:
    empty = np.empty(0, np.int64)
    assert find_out_of_range(empty, 0) == -1
    assert Grouping(empty, 0).n_unique == 0
    assert find_out_of_range(np.zeros(1, np.int32), 0) == 0


def test_any_integer_of_the_same_size_is_the_same() -> None:
    """Quantco/tabmat#84: a kernel compiled for C long refused an equally wide long long."""
    for dtype in (np.longlong, np.int_, np.intp, np.intc):
        assert Grouping(np.array([2, 0, 2], dtype), 3).n_unique == 2
        assert find_out_of_range(np.array([0, 5], dtype), 3) == 1


def test_what_is_no_list_of_row_numbers() -> None:
    with pytest.raises(TypeError, match="bool"):
        Grouping(np.array([True, False]), 2)
    with pytest.raises(TypeError, match="float64"):
        find_out_of_range(np.array([0.0]), 2)
    with pytest.raises(TypeError, match="uint64"):
        Grouping(np.array([1], np.uint64), 2)
    with pytest.raises(ValueError, match="one dimension"):
        Grouping(np.zeros((2, 2), np.int64), 2)
    with pytest.raises(ValueError, match="one row for each of 2"):
        Grouping(np.array([0, 1]), 2).sum_rows(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="negative"):
        Grouping(np.array([0]), -1)


def test_the_grouping_does_not_look_at_the_indices_again() -> None:
    indices = np.array([3, 1, 3])
    grouping = Grouping(indices, 4)
    indices[:] = 0
    summed, rows = grouping.sum_rows(np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(rows, [3, 1])
    np.testing.assert_array_equal(summed, [5.0, 2.0])
