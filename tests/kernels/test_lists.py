"""What is done to all gradients of a step at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastopt._kernels import _lists
from fastopt._kernels._grouping import Grouping
from tests.kernels.support import threads

DTYPES = [np.float16, np.float32, np.float64]
SIZES = [0, 1, 7, 2047, 2049, 16_384, 16_385, 100_003]


def arrays_of(dtype: Any, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    found = [(scale * rng.normal(size=n)).astype(dtype) for n in SIZES]
    return [*found, np.asarray(scale * 2.0).astype(dtype), found[4][:2048].reshape(2, 64, 16)]


def bits(arrays: Any) -> list[bytes]:
    arrays = arrays if isinstance(arrays, list) else [arrays]
    return [np.asarray(array).tobytes() for array in arrays]


def for_threads(function: Any) -> Any:
    """Return what a function returns, which is the same for every number of threads."""
    results = []
    for n in (1, 2, 3, 8):
        with threads(n):
            results.append(function())
    for other in results[1:]:
        assert bits(other) == bits(results[0])
    return results[0]


def test_what_fits() -> None:
    good = [np.zeros((2, 3), dtype) for dtype in DTYPES]
    assert all(map(_lists.fits, good)) and _lists.all_fit([*good, None]) and _lists.all_fit([])
    swapped = np.zeros(3, np.dtype(np.float32).newbyteorder())
    bad = [np.zeros((2, 3))[:, 1], swapped, np.zeros(3, int), np.ma.zeros(3), np.float32(1), [1.0]]
    for each in bad:
        assert not _lists.fits(each) and not _lists.all_fit([good[0], each])
        with pytest.raises(TypeError, match=r"arrays\[1\]"):
            _lists.times([good[0], each], 2.0)
    with pytest.raises(TypeError, match=r"arrays\[0\] must be float16, float32 or float64"):
        _lists.sum_of_squares([np.zeros(3, int)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_comes_of_none(dtype: Any) -> None:
    arrays = arrays_of(dtype)
    some: list[Any] = [None]
    for array in arrays:
        some += [array, None]
    assert _lists.sum_of_squares(some) == _lists.sum_of_squares(arrays)
    products = for_threads(lambda: _lists.times(some, 0.3)[1::2])
    assert bits(products) == bits(_lists.times(arrays, 0.3))
    assert all(entry is None for entry in _lists.times(some, 0.3)[::2])
    assert _lists.largest(some)[1::2] == _lists.largest(arrays)
    assert _lists.sum_of_squares([None]) == 0.0 and _lists.times([None], 0.3) == [None]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_of_squares(dtype: Any) -> None:
    arrays = arrays_of(dtype)
    exact = math.fsum(float(x) ** 2 for array in arrays for x in array.flat)
    # Sixteen running sums a piece: an error of at most n / 16 roundings, seen far smaller.
    assert for_threads(lambda: _lists.sum_of_squares(arrays)) == pytest.approx(exact, rel=1e-13)
    assert _lists.sum_of_squares([]) == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_largest(dtype: Any) -> None:
    arrays = arrays_of(dtype)
    expected = [float(np.abs(array).max(initial=0.0)) for array in arrays]
    assert for_threads(lambda: _lists.largest(arrays)) == expected
    for special in (math.inf, -math.inf):
        arrays[7][50_000] = special
        assert _lists.largest(arrays)[7] == math.inf
    arrays[7][3] = math.nan
    assert math.isnan(for_threads(lambda: _lists.largest(arrays))[7])
    tiny = np.array([0.0, -np.finfo(dtype).smallest_subnormal])
    assert _lists.largest([tiny.astype(dtype)]) == [float(np.finfo(dtype).smallest_subnormal)]


@pytest.mark.parametrize("factor", [0.0, -0.3, 1e-3, 3e4, 1e-42, 1e39, 1e300, math.nan])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_times_rounds_once(dtype: Any, factor: float) -> None:
    """numpy/numpy#5240 and others: a factor that the dtype doesn't hold loses bits of products."""
    arrays = arrays_of(dtype, 100.0)
    before = bits(arrays)
    got = for_threads(lambda: _lists.times(arrays, factor))
    assert bits(arrays) == before
    for product, array in zip(got, arrays, strict=True):
        assert product.dtype == dtype and product.shape == array.shape
        if dtype == np.float32 and (1e-37 < abs(factor) < 1e38):
            expected = array * np.float32(factor)
        else:
            expected = (array.astype(np.float64) * factor).astype(dtype)
        np.testing.assert_array_equal(product, expected)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("beyond", "expected"), [(2.0**-40, 1 + 2.0**-10), (-(2.0**-40), 1.0)])
def test_a_product_next_to_a_tie(sign: float, beyond: float, expected: float) -> None:
    """In float32 it is the tie itself, between 1 and the next float16."""
    (got,) = _lists.times([np.ones(20, np.float16)], sign * (1 + 2.0**-11 + beyond))
    np.testing.assert_array_equal(got, sign * expected)


@given(
    values=hnp.arrays(np.uint16, 64, elements=st.integers(0, 2**16 - 1)),
    factor=st.floats(allow_nan=False, allow_infinity=False),
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_float16_times_anything(values: np.ndarray, factor: float) -> None:
    """Rounding to odd in between makes float64 -> float32 -> float16 one rounding."""
    half = values.view(np.float16)
    expected = (half.astype(np.float64) * factor).astype(np.float16)
    np.testing.assert_array_equal(_lists.times([half], factor)[0], expected)


@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:overflow")
def test_unscaled(dtype: Any, widen: bool) -> None:
    arrays = arrays_of(dtype, 1e4)
    for factor in (2.0**-15, 0.1, 3.0):
        got = for_threads(lambda: _lists.unscaled(arrays, factor, widen)[0])  # noqa: B023
        tops = for_threads(lambda: _lists.unscaled(arrays, factor, widen)[1])  # noqa: B023
        compute = np.float32 if dtype == np.float16 else dtype
        for product, array, top in zip(got, arrays, tops, strict=True):
            expected = array.astype(compute) * compute(factor)
            if not widen:
                expected = expected.astype(dtype)
            assert product.dtype == expected.dtype
            np.testing.assert_array_equal(product, expected)
            assert top == float(np.abs(expected).max(initial=0.0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounded(dtype: Any) -> None:
    for array in arrays_of(dtype):
        array = array.copy()
        array.ravel()[-1:] = math.nan
        got = for_threads(lambda: [_lists.bounded(array, -0.5, 0.25)])[0]  # noqa: B023
        np.testing.assert_array_equal(got, np.clip(array, dtype(-0.5), dtype(0.25)))
        assert got.dtype == dtype and got.shape == array.shape
    crossed = _lists.bounded(np.array([-3.0, 0.0, 3.0], dtype), 1.0, -1.0)
    np.testing.assert_array_equal(crossed, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_follow(dtype: Any) -> None:
    wide = np.float32 if dtype == np.float16 else dtype
    values = arrays_of(dtype)

    def moved() -> list[np.ndarray]:
        averages = [np.full(array.shape, 0.7, wide) for array in values]
        _lists.follow(averages, values, 0.1)
        return averages

    for average, value in zip(for_threads(moved), values, strict=True):
        start = np.full(value.shape, 0.7, wide)
        expected = start - (start - value.astype(wide)) * wide(0.1)
        np.testing.assert_array_equal(average, expected)


def test_follow_refuses_what_does_not_fit() -> None:
    average = np.zeros(3, np.float32)
    for bad, error in (
        (np.zeros(4, np.float32), ValueError),
        (np.zeros(3, np.float64), TypeError),
        (np.zeros(3, int), TypeError),
        (np.zeros((3, 2), np.float32)[:, 0], TypeError),
        ([0.0, 0.0, 0.0], TypeError),
    ):
        with pytest.raises(error, match=r"arrays\[1\]"):
            _lists.follow([average, average.copy()], [np.ones(3, np.float32), bad], 0.5)
    with pytest.raises(TypeError, match=r"averages\[0\]"):
        _lists.follow([np.zeros(3, np.float16)], [np.zeros(3, np.float16)], 0.5)
    with pytest.raises(ValueError, match="1 averages and 2 arrays"):
        _lists.follow([average], [average, average], 0.5)
    np.testing.assert_array_equal(average, 0)
    average.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _lists.follow([average], [np.ones(3, np.float32)], 0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 5), (64,), (2500,), (0,)])
def test_squares_of_sums(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    for n, n_rows in ((0, 4), (1, 4), (50, 7), (3000, 900)):
        grouping = Grouping(rng.integers(0, n_rows, n), n_rows)
        values = rng.normal(size=(n, *shape)).astype(dtype)
        summed = grouping.sum_rows(values)[0]
        got = for_threads(lambda: grouping.squares_of_sums(values))  # noqa: B023
        assert got == pytest.approx(float(np.sum(summed.astype(float) ** 2)), rel=1e-13)
        scaled = grouping.sum_rows(values, False, 0.3)[0]
        np.testing.assert_array_equal(scaled, summed * dtype(0.3))


def test_squares_of_sums_refuses_what_does_not_fit() -> None:
    grouping = Grouping(np.array([0, 1, 0]), 2)
    with pytest.raises(ValueError, match="one row for each of 3 indices"):
        grouping.squares_of_sums(np.zeros((2, 2)))
    with pytest.raises(TypeError, match="float32 or float64, not int64"):
        grouping.squares_of_sums(np.zeros((3, 2), int))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("row", [(), (3,), (4, 5), (0,), (500,)])
def test_rows_of_averages(dtype: Any, row: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    start, averaged = (rng.normal(size=(2000, *row)).astype(dtype) for _ in range(2))
    ids = np.flatnonzero(rng.random(2000) < 0.4)
    values = rng.normal(size=(ids.size, *row)).astype(dtype)
    factors = rng.random(ids.size)

    def moved() -> list[np.ndarray]:
        arrays = [start.copy(), averaged.copy()]
        _lists.catch_up_rows(*arrays, ids, factors)
        _lists.follow_rows(*arrays, ids, values, 0.1)
        return arrays

    average, remembered = for_threads(moved)
    expected, known = start.copy(), averaged.copy()
    wide, column = known[ids].astype(np.float64), factors.reshape(-1, *(1,) * len(row))
    expected[ids] = wide + (expected[ids] - wide) * column
    expected[ids] = expected[ids] - (expected[ids] - values) * dtype(0.1)
    known[ids] = values
    np.testing.assert_array_equal(average, expected)
    np.testing.assert_array_equal(remembered, known)


def test_rows_of_averages_refuse_what_does_not_fit() -> None:
    average, averaged = np.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32)
    ids, values = np.array([1, 3]), np.ones((2, 2), np.float32)
    for bad in ([3, 1], [1, 1], [-1, 2], [2, 4]):
        with pytest.raises(IndexError, match="ids must ascend within 4 rows"):
            _lists.follow_rows(average, averaged, np.array(bad), values, 0.5)
    with pytest.raises(TypeError, match="ids must be an int64 array"):
        _lists.follow_rows(average, averaged, ids.astype(np.int32), values, 0.5)
    with pytest.raises(TypeError, match="ids must be C-contiguous"):
        _lists.follow_rows(average, averaged, np.arange(4)[::2], values, 0.5)
    with pytest.raises(ValueError, match="averaged must have dtype float32"):
        _lists.follow_rows(average, averaged[:3], ids, values, 0.5)
    with pytest.raises(TypeError, match="values must be a C-contiguous array of dtype float32"):
        _lists.follow_rows(average, averaged, ids, values.astype(np.float64), 0.5)
    with pytest.raises(ValueError, match="not one row for each id"):
        _lists.follow_rows(average, averaged, ids, values[:1].copy(), 0.5)
    with pytest.raises(TypeError, match="factors must be float64, one for each id"):
        _lists.catch_up_rows(average, averaged, ids, np.ones(3))
    for read_only in (average, averaged):
        read_only.flags.writeable = False
        with pytest.raises(TypeError, match="writable"):
            _lists.catch_up_rows(average, averaged, ids, np.ones(2))
        read_only.flags.writeable = True
    np.testing.assert_array_equal([average, averaged], 0)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000, 16_384, 16_385, 200_001])
def test_sum_of_squares_of_one(n: int) -> None:
    """cython/cython#3618: a sum was as many times too large as there were threads."""
    for dtype in (np.float32, np.float64):
        array = np.random.default_rng(n).normal(size=n).astype(dtype)
        exact = math.fsum(float(x) ** 2 for x in array)
        results = set()
        for n_threads in (1, 2, 8):
            with threads(n_threads):
                results.add(_lists.sum_of_squares([array]))
        assert len(results) == 1
        # Sixteen running sums: an error of at most n / 16 roundings, seen far smaller.
        assert results.pop() == pytest.approx(exact, rel=1e-13)


def test_squares_of_float32_do_not_overflow() -> None:
    """jax-ml/jax PR#2426: the norm of four numbers 1e20 was infinite."""
    array = np.full((2, 2), 1e20, np.float32)
    assert math.sqrt(_lists.sum_of_squares([array])) == pytest.approx(2e20, rel=1e-7)
