"""Rows between tables and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels._rows import gather, pooled_gather, scatter_add
from tests.kernels.support import threads

WIDTHS = [(), (1,), (3,), (4,), (16,), (2, 9), (300,)]
INTEGERS = pytest.mark.parametrize("integer", [np.int32, np.int64])
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@INTEGERS
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.complex128])
@pytest.mark.parametrize("row", WIDTHS)
@pytest.mark.parametrize("n", [0, 1, 100, 30_000])
def test_gather(integer: Any, dtype: Any, row: tuple[int, ...], n: int) -> None:
    rng = np.random.default_rng(11)
    table = np.asarray(rng.integers(-100, 100, (50, *row))).astype(dtype)
    ids = rng.integers(0, 50, n).astype(integer)
    out = np.empty((n, *row), dtype)
    with threads(2):
        gather(table, ids, out)
    np.testing.assert_array_equal(out, table[ids])


@INTEGERS
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [-1, 50, 2**31 - 1])
@pytest.mark.parametrize("at", [0, 7, 8, 15, 16, 40])
def test_gather_names_the_first_bad_row(integer: Any, dtype: Any, bad: int, at: int) -> None:
    """Rows of four bytes are looked up in vectors."""
    ids = np.arange(41).astype(integer)
    ids[[at, 40]] = bad
    with pytest.raises(IndexError, match=rf"index {bad} at position {at} is out of range"):
        gather(np.zeros(50, dtype), ids, np.empty(41, dtype))


@INTEGERS
@FLOATS
@pytest.mark.parametrize("row", WIDTHS)
@pytest.mark.parametrize("n", [0, 1, 100, 30_000])
def test_scatter_add_in_order_of_arrival(
    integer: Any, dtype: Any, row: tuple[int, ...], n: int
) -> None:
    rng = np.random.default_rng(12)
    table = np.asarray(rng.normal(size=(50, *row))).astype(dtype)
    ids = rng.integers(0, 50, n).astype(integer)
    values = np.asarray(rng.normal(size=(n, *row))).astype(dtype)
    expected = table.copy()
    np.add.at(expected, ids, values)  # one after the other
    with threads(2):
        scatter_add(table, ids, values)
    np.testing.assert_array_equal(table, expected)


@INTEGERS
@FLOATS
@pytest.mark.parametrize("row", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_pooled_gather(
    integer: Any, dtype: Any, row: tuple[int, ...], weighted: bool, scaled: bool
) -> None:
    rng = np.random.default_rng(13)
    n, n_bags = 20_000, 900
    table = np.asarray(rng.normal(size=(50, *row))).astype(dtype)
    ids = rng.integers(0, 50, n).astype(integer)
    offsets = np.sort(rng.integers(0, n + 1, n_bags + 1))  # bags without ids among them
    offsets[[0, -1]] = 0, n
    weights = rng.normal(size=n).astype(dtype) if weighted else None
    scales = rng.random(n_bags).astype(dtype) if scaled else None
    out = np.empty((n_bags, *row), dtype)
    with threads(2):
        pooled_gather(table, ids, offsets, weights, scales, out)
    terms = table[ids]
    if weights is not None:
        terms = terms * weights.reshape(-1, *[1] * len(row))
    expected = np.zeros_like(out)
    np.add.at(expected, np.repeat(np.arange(n_bags), np.diff(offsets)), terms)
    if scales is not None:
        expected *= scales.reshape(-1, *[1] * len(row))
    np.testing.assert_array_equal(out, expected)


@FLOATS
@pytest.mark.parametrize("width", [*range(1, 20), 31, 33, 64, 100, 128, 129, 257])
def test_pooled_gather_adds_in_order(dtype: Any, width: int) -> None:
    """The same bits as additions one after the other, whatever block a column falls into."""
    rng = np.random.default_rng(width)
    table, ids = rng.normal(size=(40, width)).astype(dtype), rng.integers(0, 40, 600)
    weights = rng.normal(size=600).astype(dtype)
    expected = np.zeros((60, width), dtype)
    for k, row in enumerate(ids):
        expected[k // 10] += weights[k] * table[row]
    out = np.empty_like(expected)
    pooled_gather(table, ids, np.arange(0, 601, 10), weights, None, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_pooled_gather_in_another_order(dtype: Any) -> None:
    rng = np.random.default_rng(14)
    computed = np.float32 if dtype is np.float16 else dtype
    table, ids = rng.normal(size=(50, 6)).astype(dtype), rng.integers(0, 50, 300)
    offsets, scales = np.array([0, 7, 7, 120, 300]), np.arange(1, 5).astype(computed)
    order = np.array([2, 0, 3, 3])
    plain, turned = np.empty((4, 6), computed), np.empty((4, 6), computed)
    pooled_gather(table, ids, offsets, None, None, plain)
    pooled_gather(table, ids, offsets, None, scales, turned, order)
    np.testing.assert_array_equal(turned, scales[:, None] * plain[order])
    with pytest.raises(ValueError, match=r"order\[1\] is 4, which is none of 4 bags"):
        pooled_gather(table, ids, offsets, None, None, plain, np.array([0, 4, 1, 2]))
    with pytest.raises(ValueError, match="order"):
        pooled_gather(table, ids, offsets, None, None, plain, np.array([0, 1, 2]))


@INTEGERS
@pytest.mark.parametrize("width", [1, 3, 16])
def test_gather_names_the_first_of_many_bad_rows(integer: Any, width: int) -> None:
    """Also where several are looked up at once."""
    ids = np.zeros(70, integer)
    ids[[21, 22, 50]] = 9
    with pytest.raises(IndexError, match="index 9 at position 21 "):
        gather(np.ones((9, width), np.float32), ids, np.empty((70, width), np.float32))


@pytest.mark.parametrize("start", [0, 4, 64])
@pytest.mark.parametrize("width", [16, 20, 48, 128])
def test_gather_of_large_results(start: int, width: int) -> None:
    """Large results are written around the caches where they consist of whole cache lines."""
    rng = np.random.default_rng(15)
    table, n = rng.normal(size=(300, width)).astype(np.float32), 26_000_000 // width // 4 + 5
    ids = rng.integers(0, 300, n)
    memory = np.zeros(4 * n * width + 256, np.uint8)
    start += -memory.ctypes.data % 64
    out = memory[start : start + 4 * n * width].view(np.float32).reshape(n, width)
    with threads(2):
        gather(table, ids, out)
        np.testing.assert_array_equal(out, table[ids])
        assert not memory[:start].any() and not memory[start + out.nbytes :].any()
        ids[n - 3] = 300
        with pytest.raises(IndexError, match=f"index 300 at position {n - 3}"):
            gather(table, ids, out)


def test_trailing_empty_bags_are_zeros() -> None:
    """tensorflow/tensorflow#38792, #72785: the last bag vanished, or held leftover memory."""
    table = np.arange(9.0).reshape(3, 3)
    out = np.full((5, 3), np.nan)
    pooled_gather(table, np.array([1]), np.array([0, 0, 0, 0, 1, 1]), None, np.ones(5), out)
    np.testing.assert_array_equal(out, [[0] * 3] * 3 + [[3, 4, 5]] + [[0] * 3])


@INTEGERS
@pytest.mark.parametrize("bad", [4, -1, 2**31 - 1])
@pytest.mark.parametrize("n", [4, 40_000])
def test_ids_out_of_range(integer: Any, bad: int, n: int) -> None:
    """tensorflow/tensorflow#17417, #62628, pytorch/pytorch#70170: zeros, or a crash afterwards."""
    table = np.ones((4, 8), np.float32)
    ids = np.zeros(n, integer)
    ids[[n // 2, n - 1]] = bad
    message = f"index {bad} at position {n // 2} is out of range for 4 rows"
    values = np.ones((n, 8), np.float32)
    out = np.empty((1, 8), np.float32)
    with threads(2):
        with pytest.raises(IndexError, match=message):
            gather(table, ids, np.empty((n, 8), np.float32))
        with pytest.raises(IndexError, match=message):
            scatter_add(table, ids, values)
        with pytest.raises(IndexError, match=message):
            pooled_gather(table, ids, np.array([0, n]), None, None, out)
    np.testing.assert_array_equal(table, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("offsets", [[0, 3], [0, 2, 1, 2], [-1, 2], [2**60, 2]])
def test_offsets_out_of_range(offsets: list[int], dtype: Any) -> None:
    out = np.empty((len(offsets) - 1, 2), np.float32)
    with pytest.raises(ValueError, match="offsets of bag"):
        pooled_gather(np.ones((4, 2), dtype), np.array([0, 1]), np.array(offsets), None, None, out)


@INTEGERS
@pytest.mark.parametrize("bad", [4, -1])
def test_ids_out_of_range_of_16_bits(integer: Any, bad: int) -> None:
    """Bags of these go a way of their own."""
    ids, out = np.array([0, 3, bad, 3, bad], integer), np.empty((2, 2), np.float32)
    with pytest.raises(IndexError, match=f"index {bad} at position 2 is out of range for 4 rows"):
        pooled_gather(np.ones((4, 2), np.float16), ids, np.array([0, 2, 5]), None, None, out)


def test_what_does_not_fit_is_refused() -> None:
    table, ids = np.ones((4, 2), np.float32), np.array([0, 1, 2])
    out = np.zeros((3, 2), np.float32)
    for wrong in (np.empty((2, 2), np.float32), np.empty((3, 2)), np.empty(3, np.float32)):
        with pytest.raises(ValueError, match="out must have dtype float32 and shape"):
            gather(table, ids, wrong)
        with pytest.raises(ValueError, match="values must have"):
            scatter_add(table, ids, wrong)
    with pytest.raises(TypeError, match="uint8"):
        gather(table, ids.astype(np.uint8), out)
    with pytest.raises(ValueError, match="one dimension"):
        gather(table, ids[None], out)
    with pytest.raises(TypeError, match="table"):
        gather(table[:, ::2], ids, out)
    with pytest.raises(TypeError, match="native"):
        gather(table, ids.astype(">i8"), out)
    with pytest.raises(ValueError, match="table"):
        gather(np.array([object()] * 4), ids, np.empty(3, object))
    with pytest.raises(ValueError, match="at least one dimension"):
        gather(np.ones((), np.float32), ids, out)
    with pytest.raises(TypeError, match="float16"):
        scatter_add(table.astype(np.float16), ids, out.astype(np.float16))
    with pytest.raises(ValueError, match="weights must have"):
        pooled_gather(table, ids, np.array([0, 3]), np.ones(2, np.float32), None, out[:1])
    with pytest.raises(ValueError, match="scales must have"):
        pooled_gather(table, ids, np.array([0, 3]), None, np.ones(2, np.float32), out[:1])
    with pytest.raises(ValueError, match="offsets"):
        pooled_gather(table, ids, np.empty(0, np.int64), None, None, out[:0])
    table.flags.writeable = False
    gather(table, ids, out)
    with pytest.raises(ValueError, match="read-only"):
        scatter_add(table, ids, out)
    with pytest.raises(ValueError, match="read-only"):
        gather(out, ids, table[:3])
