"""The different rows of look-ups, found without a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastopt as fo
from fastopt._kernels._row_set import RowSet


@pytest.fixture
def threads():
    """Set the number of threads of a test, and put it back."""
    before = fo.get_num_threads()
    yield fo.set_num_threads
    fo.set_num_threads(before)


def check(ids: Any, n_rows: int) -> None:
    found = RowSet(ids, n_rows)
    rows, numbers = np.unique(ids, return_inverse=True)
    assert found.rows.dtype == ids.dtype
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.numbers, numbers)


@given(st.integers(1, 700).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=9)))
def test_rows_and_numbers(ids):
    check(np.array(ids), max(ids) + 1)
    check(np.array(ids, np.int32), 128 * len(ids))


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 1_000, 70_001, 1_000_000])
def test_threads_share_the_work(threads, integer, n_threads, n_rows):
    """Also where some have no rows, or all rows are listed."""
    threads(n_threads)
    rng = np.random.default_rng(n_rows)
    check(rng.integers(0, n_rows, 140_001).astype(integer), n_rows)
    check(rng.permutation(np.arange(140_001) % n_rows).astype(integer), n_rows)
    check(rng.integers(0, n_rows, 20_001).astype(integer), n_rows)
    check(np.full(140_000, n_rows - 1, integer), n_rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_in_order_of_arrival(threads, dtype, weighted):
    rng = np.random.default_rng(5)
    n, n_bags, n_rows = 140_000, 1_300, 9_000
    offsets = np.sort(np.concatenate([[0, n], rng.integers(0, n + 1, n_bags - 1)]))
    ids = rng.integers(0, n_rows, n)
    g = rng.normal(size=n_bags).astype(dtype)
    coefficients = rng.normal(size=n).astype(dtype) if weighted else None
    terms = np.repeat(g, np.diff(offsets))
    if coefficients is not None:
        terms = coefficients * terms
    wanted = np.zeros(n_rows, dtype)
    np.add.at(wanted, ids, terms)  # one after the other
    for n_threads in (1, 2):
        threads(n_threads)
        found = RowSet(ids, n_rows)
        sums = found.sums(g, offsets, coefficients)
        assert sums.dtype == dtype
        np.testing.assert_array_equal(sums, wanted[found.rows])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 15, 140_000])
def test_products_in_order_of_a_bag(threads, dtype, n):
    rng = np.random.default_rng(6)
    n_bags, n_rows = 1_300, min(9_000, 128 * n)
    offsets = np.sort(np.concatenate([[0, n], rng.integers(0, n + 1, n_bags - 1)]))  # some empty
    ids = rng.integers(0, n_rows, n)
    table, coefficients = (rng.normal(size=m).astype(dtype) for m in (n_rows, n))
    wanted = np.zeros(n_bags, dtype)
    np.add.at(wanted, np.repeat(np.arange(n_bags), np.diff(offsets)), coefficients * table[ids])
    for n_threads in (1, 2):
        threads(n_threads)
        found = RowSet(ids, n_rows)
        out = found.products(table[found.rows], offsets, coefficients)
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("bad", [-1, 700, 2**40])
def test_ids_out_of_range(threads, bad, n_threads):
    """The first one is named."""
    threads(n_threads)
    ids = np.arange(140_000) % 700
    ids[[3, 139_999]] = bad
    with pytest.raises(IndexError, match=rf"index {bad} at position 3 .* 700 rows"):
        RowSet(ids, 700)
    ids[3] = 0
    with pytest.raises(IndexError, match=rf"index {bad} at position 139999 .* 700 rows"):
        RowSet(ids, 700)


def test_what_does_not_fit_is_refused():
    ids = np.zeros(5, np.int64)
    with pytest.raises(TypeError, match="ids must"):
        RowSet(ids.astype(np.uint8), 3)
    with pytest.raises(TypeError, match="ids must"):
        RowSet(np.zeros(10, np.int64)[::2], 3)
    with pytest.raises(TypeError, match="ids must"):
        RowSet(ids.reshape(1, 5), 3)
    for few, n_rows in ((ids, 641), (ids[:0], 1)):
        assert not RowSet.suits(len(few), n_rows)
        with pytest.raises(ValueError, match="are few"):
            RowSet(few, n_rows)
    with pytest.raises(IndexError):
        RowSet(ids, 0)
    found, offsets = RowSet(ids, 640), np.array([0, 5])
    with pytest.raises(ValueError, match="offsets must rise from 0 to 5 over 1 bags"):
        found.sums(np.ones(1), offsets + 1, None)
    with pytest.raises(ValueError, match="one dimension"):
        found.sums(np.ones((1, 1)), offsets, None)
    with pytest.raises(ValueError, match="4 coefficients do not fit 5 ids"):
        found.sums(np.ones(1), offsets, np.ones(4))
    with pytest.raises(TypeError, match="g must"):
        found.sums(np.ones(1, np.float16), offsets, None)
    with pytest.raises(TypeError, match="values must"):
        found.products(np.ones(1, ">f8"), offsets, np.ones(5))
    with pytest.raises(ValueError, match="do not fit 1 rows"):
        found.products(np.ones(2), offsets, np.ones(5))
    with pytest.raises(ValueError, match="offsets must rise from 0 to 5 over 1 bags"):
        found.products(np.ones(1), offsets + 1, np.ones(5))
    with pytest.raises(ValueError, match="read-only"):
        found.numbers[0] = 7
