"""Nothing is read or written behind the end of an array: each one ends where a page begins that
nobody may touch. A kernel that looks ahead, or works on whole vectors, would end the process.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

from fastopt._kernels import _csr, _dots, _half, _lists, _quantized, _rows
from fastopt._kernels._grouping import Grouping
from fastopt._kernels._plan import Plan
from fastopt._kernels._row_set import RowSet
from fastopt._kernels._transpose import pair_gradients, sum_by_row

from .support import Key, Slices, threads

Array = np.ndarray[Any, Any]
INTEGERS = pytest.mark.parametrize("integer", [np.int32, np.int64])
# Around the sizes of vectors, and of what is fetched ahead.
SIZES = pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 1_000])
WIDTHS = pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 11, 16, 23, 33, 64, 100])


def fenced(array: Any) -> Array:
    """Return a copy whose last byte is the last one of a page."""
    array = np.ascontiguousarray(array)
    size = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    no_access = 0
    if protect(ctypes.c_void_p(start + size), ctypes.c_size_t(mmap.PAGESIZE), no_access):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


def bags(n: int, n_bags: int) -> Array:
    """Return offsets of bags, some of them empty."""
    inner = np.random.default_rng(n).integers(0, n + 1, n_bags - 1)
    return fenced(np.sort(np.concatenate([[0, n], inner])))


@INTEGERS
@SIZES
@WIDTHS
def test_rows(integer: Any, n: int, width: int) -> None:
    rng = np.random.default_rng(n)
    table = fenced(rng.normal(size=(70, width)).astype(np.float32))
    ids = fenced(np.append(rng.integers(0, 70, n - 1), 69).astype(integer))
    out = fenced(np.empty((n, width), np.float32))
    _rows.gather(table, ids, out)
    np.testing.assert_array_equal(out, table[ids])

    offsets, weights = bags(n, 9), fenced(rng.normal(size=n).astype(np.float32))
    scales, sums = fenced(np.ones(9, np.float32)), fenced(np.empty((9, width), np.float32))
    _rows.pooled_gather(table, ids, offsets, weights, scales, sums)
    wanted = np.zeros_like(sums)
    np.add.at(wanted, np.repeat(np.arange(9), np.diff(offsets)), weights[:, None] * table[ids])
    np.testing.assert_array_equal(sums, wanted)
    half = fenced(table.astype(np.float16))
    _rows.pooled_gather(half, ids, offsets, weights, scales, sums)
    np.testing.assert_allclose(sums, wanted, rtol=1e-2, atol=1e-2 * n)

    wanted = table.copy()
    np.add.at(wanted, ids, out)
    _rows.scatter_add(table, ids, out)
    np.testing.assert_array_equal(table, wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_an_order_that_names_no_bag(dtype: Any) -> None:
    """The offsets of the bag behind the last one would be read."""
    table, ids, out = np.ones((4, 3), dtype), np.zeros(2, np.int64), np.empty((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"order\[1\] is 2, which is none of 2 bags"):
        _rows.pooled_gather(table, ids, fenced([0, 1, 2]), None, None, out, np.array([0, 2]))


@INTEGERS
@SIZES
@WIDTHS
def test_rows_of_8_bits(integer: Any, n: int, width: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.integers(0, 256, (70, width + 8)).astype(np.uint8)
    rows[:, width:].view(np.float32)[...] = [0.5, -3.0]
    rows, ids = fenced(rows), fenced(np.append(rng.integers(0, 70, n - 1), 69).astype(integer))
    table = rows[:, :width].astype(np.float32) * 0.5 - 3
    out = fenced(np.empty((n, width), np.float32))
    _quantized.lookup(rows, ids, None, None, None, out)
    np.testing.assert_array_equal(out, table[ids])
    offsets, sums = bags(n, 9), fenced(np.empty((9, width), np.float32))
    _quantized.lookup(rows, ids, offsets, None, None, sums)
    wanted = np.zeros_like(sums)
    np.add.at(wanted, np.repeat(np.arange(9), np.diff(offsets)), table[ids])
    np.testing.assert_array_equal(sums, wanted)


@INTEGERS
@SIZES
@WIDTHS
def test_gradients_of_bags(integer: Any, n: int, width: int) -> None:
    rng = np.random.default_rng(n)
    ids = fenced(np.append(rng.integers(0, 70, n - 1), 69).astype(integer))
    coefficients = fenced(rng.normal(size=n).astype(np.float32))
    g, own = fenced(rng.normal(size=(9, width)).astype(np.float32)), fenced(np.arange(9)[::-1])
    offsets = bags(n, 9)
    found = sum_by_row(g, offsets, ids, coefficients, 70, own)
    assert found is not None
    wanted = np.zeros((70, width), np.float32)
    np.add.at(wanted, ids, coefficients[:, None] * np.repeat(g[own], np.diff(offsets), axis=0))
    np.testing.assert_array_equal(found[0], wanted[found[1]])

    tables = [fenced(rng.normal(size=(70, width)).astype(np.float32)) for _ in range(2)]
    pair = tables[0], fenced(np.arange(9).astype(integer)), tables[1], ids
    both = pair_gradients(*pair, offsets, coefficients)
    assert (both is None) == (width > 32)
    dots = fenced(np.empty(n, np.float32))
    _dots.row_dots(tables[0], ids, tables[1], ids, dots)
    np.testing.assert_allclose(dots, (tables[0][ids] * tables[1][ids]).sum(1), 1e-4, 1e-4)


@INTEGERS
@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 1_000, 40_001])
@pytest.mark.parametrize("n_rows", [1, 33, 64, 65, 128])
def test_different_rows(integer: Any, n: int, n_rows: int) -> None:
    rng = np.random.default_rng(n)
    ids = fenced(np.append(rng.integers(0, n_rows, n - 1), n_rows - 1).astype(integer))
    for n_threads in (1, 2):
        with threads(n_threads):
            rows = RowSet(ids, n_rows)
            np.testing.assert_array_equal(rows.rows, np.unique(ids))
            values = fenced(rng.normal(size=rows.rows.size))
            coefficients, offsets = fenced(np.ones(n)), bags(n, 9)
            rows.products(values, offsets, coefficients)
            rows.sums(fenced(np.ones(9)), offsets, coefficients)
            np.testing.assert_array_equal(Grouping(ids, n_rows).unique_sorted(), rows.rows)


@SIZES
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_lists(n: int, dtype: Any) -> None:
    array = fenced(np.ones(n, dtype))
    assert _lists.sum_of_squares([array]) == n
    assert _lists.largest([array]) == [1]
    assert _lists.times([array], 2.0)[0].sum() == 2 * n
    assert _lists.bounded(array, -0.5, 0.5).sum() == n / 2
    if dtype == np.float16:
        np.testing.assert_array_equal(_half.narrow(fenced(_half.widen(array)), array.dtype), array)


@INTEGERS
@SIZES
def test_entries_of_a_matrix(integer: Any, n: int) -> None:
    columns = np.append(np.zeros(n - 1), 4).astype(integer)
    found = _csr.touched_rows(
        fenced(bags(n, 9).astype(integer)), fenced(columns), fenced(np.ones(n)), 5
    )
    assert found is not None and found[1].sum() == n


@INTEGERS
@SIZES
@pytest.mark.parametrize("width", [1, 3, 16, 33])
def test_updates(integer: Any, n: int, width: int) -> None:
    rng = np.random.default_rng(n)
    for ids in (np.append(rng.integers(0, 70, n - 1), 69), np.arange(69, 69 - min(n, 70), -1)):
        w, slot = fenced(np.zeros((70, width))), fenced(np.ones((70, width)))
        key = Key()
        values = fenced(np.ones((ids.size, width)))
        plan = Plan("adagrad", [key], [w], [(slot,)], Slices)
        assert plan.bind([(Slices(values, fenced(ids.astype(integer))), key)])
        plan.run((1.0,))
        plan.release()
        assert ((w != 0).all(1) == np.isin(np.arange(70), ids)).all()
