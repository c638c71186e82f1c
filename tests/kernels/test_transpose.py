"""The gradient of weighted sums of rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._rows import pooled_gather
from fastopt._kernels._transpose import pair_gradients, sum_by_row


def expected(g: Any, offsets: Any, ids: Any, coefficients: Any) -> tuple[Any, Any]:
    """Add one entry after the other."""
    sums: dict[int, Any] = {}
    for b in range(len(g)):
        for k in range(offsets[b], offsets[b + 1]):
            term = g[b] if coefficients is None else coefficients[k] * g[b]
            sums[int(ids[k])] = sums.get(int(ids[k]), np.zeros_like(g[b])) + term
    rows = list(sums)
    shape = (len(rows), *g.shape[1:])
    return np.array(list(sums.values()), g.dtype).reshape(shape), np.array(rows, ids.dtype)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("row", [(), (1,), (3,), (16,), (2, 20)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_by_first_appearance(
    integer: Any, dtype: Any, row: tuple[int, ...], weighted: bool
) -> None:
    rng = np.random.default_rng(16)
    for n_bags, n, n_rows in ((0, 0, 3), (1, 5, 3), (40, 900, 70), (30, 0, 5)):
        offsets = np.sort(np.concatenate([[0, n], rng.integers(0, n + 1, max(0, n_bags - 1))]))
        offsets = offsets[: n_bags + 1] if n_bags else offsets[:1]
        ids = rng.integers(0, n_rows, n).astype(integer)
        g = np.asarray(rng.normal(size=(n_bags, *row))).astype(dtype)
        coefficients = rng.normal(size=n).astype(dtype) if weighted else None
        for _ in range(2):  # the map is clean again
            found = sum_by_row(g, offsets, ids, coefficients, n_rows)
            assert found is not None
            for array, wanted in zip(found, expected(g, offsets, ids, coefficients), strict=True):
                assert array.dtype == wanted.dtype
                np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [*range(1, 34), 64, 130])
def test_rows_of_any_width(dtype: Any, width: int) -> None:
    """The same bits for every number of threads, and every place of a column."""
    rng = np.random.default_rng(width)
    n_bags, n, n_rows = 150, 9_000, 400  # enough for two threads
    offsets = np.sort(np.concatenate([[0, n], rng.integers(0, n + 1, n_bags - 1)]))
    ids = rng.integers(0, n_rows, n)
    g = rng.normal(size=(n_bags, width)).astype(dtype)
    coefficients = rng.normal(size=n).astype(dtype)
    for weights in (coefficients, None):
        wanted = expected(g, offsets, ids, weights)
        for threads in (1, 3):
            with fo.num_threads(threads):
                found = sum_by_row(g, offsets, ids, weights, n_rows)
            assert found is not None
            for array, right in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("width", [1, 5, 32, 60])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_bags_that_are_looked_up(integer: Any, width: int, weighted: bool) -> None:
    rng = np.random.default_rng(width)
    n_bags, n, n_rows = 150, 12_000, 400
    offsets = np.sort(np.concatenate([[0, n], rng.integers(0, n + 1, n_bags - 1)]))
    ids, bags = rng.integers(0, n_rows, n), rng.integers(0, 20, n_bags).astype(integer)
    g = rng.normal(size=(20, width)).astype(np.float32)
    coefficients = rng.normal(size=n).astype(np.float32) if weighted else None
    found = sum_by_row(g, offsets, ids, coefficients, n_rows, bags)
    wanted = sum_by_row(g[bags], offsets, ids, coefficients, n_rows)
    assert found is not None and wanted is not None
    for array, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("bad", [-1, 2, 2**32])
def test_bags_out_of_range(bad: int) -> None:
    g, offsets, ids = np.ones(2, np.float32), np.array([0, 2, 3, 5]), np.zeros(5, np.int64)
    with pytest.raises(IndexError, match=rf"bags\[1\] is {bad}, out of range for 2 rows of g"):
        sum_by_row(g, offsets, ids, None, 7, np.array([0, bad, -5]))
    with pytest.raises(ValueError, match="over 2 bags"):
        sum_by_row(g, offsets, ids, None, 7, np.array([0, 1]))
    for kind in (np.float64, np.uint8):
        with pytest.raises(TypeError, match="bags must"):
            sum_by_row(g, offsets, ids, None, 7, np.zeros(3, kind))


@pytest.mark.parametrize("bad", [-1, 7, 2**40])
def test_ids_out_of_range(bad: int) -> None:
    ids = np.array([1, 2, 2, bad, 3])
    g, offsets = np.ones(1, np.float32), np.array([0, 5])
    with pytest.raises(IndexError, match=rf"index {bad} at position 3 .* 7 rows"):
        sum_by_row(g, offsets, ids, None, 7)
    ids[3] = 6
    found = sum_by_row(g, offsets, ids, None, 7)
    assert found is not None and found[1].tolist() == [1, 2, 6, 3]


@pytest.mark.parametrize("bad", [0, 700, 19_999])
@pytest.mark.parametrize("width", [1, 16, 40])
def test_nobody_waits_for_what_is_never_numbered(bad: int, width: int) -> None:
    """One thread adds up what another one numbers, which may stop early."""
    ids = np.arange(20_000) % 300
    ids[bad] = 300
    g, offsets = np.ones((2_000, width), np.float32), np.arange(0, 20_001, 10)
    with fo.num_threads(2):
        with pytest.raises(IndexError, match=rf"index 300 at position {bad} "):
            sum_by_row(g, offsets, ids, None, 300)
        found = sum_by_row(g, offsets, ids, None, 301)
    assert found is not None and found[0].sum() == 20_000 * width


@pytest.mark.parametrize("offsets", [[0, 4], [1, 5], [0, 6], [0, 3, 5], [0, 5, 5], [5, 0]])
def test_offsets_that_do_not_fit(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets must rise from 0 to 5 over 1 bags"):
        sum_by_row(np.ones(1), np.array(offsets), np.zeros(5, np.int64), None, 3)


def test_what_does_not_fit_is_refused() -> None:
    g, offsets, ids = np.ones(1), np.array([0, 5]), np.zeros(5, np.int64)
    with pytest.raises(TypeError, match="g must"):
        sum_by_row(np.ones(1, np.float16), offsets, ids, None, 3)
    with pytest.raises(TypeError, match="ids must"):
        sum_by_row(g, offsets, ids.astype(np.uint8), None, 3)
    with pytest.raises(TypeError, match="ids must"):
        sum_by_row(g, offsets, np.zeros(10, np.int64)[::2], None, 3)
    with pytest.raises(ValueError, match="coefficients must"):
        sum_by_row(g, offsets, ids, np.ones(5, np.float32), 3)
    with pytest.raises(ValueError, match="4 coefficients do not fit 5 ids"):
        sum_by_row(g, offsets, ids, np.ones(4), 3)
    with pytest.raises(ValueError, match="n_rows"):
        sum_by_row(g, offsets, ids, None, -1)


def test_a_table_too_large_for_the_map() -> None:
    assert sum_by_row(np.ones(1), np.array([0, 1]), np.zeros(1, np.int64), None, 2**40) is None


def pair_arguments(
    dtype: Any = np.float32, integer: Any = np.int64, width: int = 16, per_id: int = 3
) -> dict[str, Any]:
    rng = np.random.default_rng(width)
    n = 4_000  # with their others enough for two threads
    return {
        "first": rng.normal(size=(300, width)).astype(dtype),
        "ids": rng.integers(0, 300, n).astype(integer),
        "second": rng.normal(size=(500, width)).astype(dtype),
        "others": rng.integers(0, 500, n * per_id).astype(integer),
        "starts": np.arange(n + 1) * per_id,
        "weights": rng.normal(size=n * per_id).astype(dtype),
    }


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 5, 16])
@pytest.mark.parametrize("threads", [1, 2])
def test_both_gradients_of_products(integer: Any, dtype: Any, width: int, threads: int) -> None:
    given = pair_arguments(dtype, integer, width)
    first, ids, second, others, starts, weights = given.values()
    values = np.empty((ids.size, width), dtype)
    pooled_gather(second, others, starts, weights, None, values)
    wanted = (values, *sum_by_row(first[ids], starts, others, weights, 500))
    with fo.num_threads(threads):
        found = pair_gradients(**given)
    assert found is not None
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, right, strict=True)


def test_products_of_bags_of_any_length() -> None:
    given = pair_arguments()
    n = given["others"].size
    given["starts"] = np.sort(
        np.concatenate([[0, n], np.random.default_rng(0).integers(0, n, 3_999)])
    )
    first, ids, second, others, starts, weights = given.values()
    found = pair_gradients(**given)
    assert found is not None
    sums, rows = sum_by_row(first[ids], starts, others, weights, 500)
    np.testing.assert_array_equal(found[1], sums)
    np.testing.assert_array_equal(found[2], rows)


def changed(array: Any, position: int, value: int) -> Any:
    array = array.copy()
    array[position] = value
    return array


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("first", lambda x: x.astype(np.float64)),
        ("first", lambda x: x.astype(np.float16)),
        ("first", lambda x: x[:, :15]),
        ("first", lambda x: x.reshape(300, 4, 4)),
        ("first", lambda x: list(x)),
        ("second", lambda x: np.asfortranarray(x)),
        ("second", lambda x: x.astype(">f4")),
        ("ids", lambda x: changed(x, 7, 300)),
        ("ids", lambda x: changed(x, 3_999, -1)),
        ("ids", lambda x: x.astype(float)),
        ("ids", lambda x: x[:-1]),
        ("others", lambda x: changed(x, 11_999, 500)),
        ("others", lambda x: changed(x, 0, -1)),
        ("others", lambda x: x.reshape(-1, 3)),
        ("others", lambda x: x[:0]),
        ("starts", lambda x: x.astype(np.int32)),
        ("starts", lambda x: changed(x, 0, 1)),
        ("starts", lambda x: changed(x, 0, -1)),
        ("starts", lambda x: changed(x, 5, 2**62)),
        ("starts", lambda x: changed(x, 4_000, 12_001)),
        ("weights", lambda x: x.astype(np.float64)),
        ("weights", lambda x: x[:-1]),
        ("weights", lambda x: x.reshape(-1, 3)),
    ],
)
def test_products_that_are_left_to_the_caller(name: str, change: Any) -> None:
    given = pair_arguments()
    assert pair_gradients(**given) is not None
    assert pair_gradients(**{**given, name: change(given[name])}) is None


def test_long_rows_are_left_to_the_caller() -> None:
    """They are turned around instead."""
    assert pair_gradients(**pair_arguments(width=33)) is None


def test_threads_number_side_by_side() -> None:
    """Each with a map of its own: whoever found none would have to sort."""
    rng = np.random.default_rng(0)
    g, offsets = rng.normal(size=(20_000, 16)).astype(np.float32), np.arange(0, 400_001, 20)
    ids = rng.integers(0, 100_000, 400_000)
    wanted = sum_by_row(g, offsets, ids, None, 100_000)
    assert wanted is not None
    with ThreadPoolExecutor(4) as pool:
        ways = list(pool.map(lambda _: sum_by_row(g, offsets, ids, None, 100_000), range(24)))
    for found in ways:
        assert found is not None
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
