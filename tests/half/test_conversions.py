"""Widening and rounding of 16-bit floats, against NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels import _half
from tests.half.support import BF16, F16, bits, both, every, float32_near, widened
from tests.kernels.support import threads


@both()
def test_every_number_is_widened(half: Any) -> None:
    numbers = every(half)
    wide = _half.widen(numbers)
    nan = np.isnan(wide)
    expected = widened(numbers)
    assert wide.dtype == np.float32
    assert (nan == np.isnan(expected)).all()
    assert (wide.view(np.uint32) == expected.view(np.uint32))[~nan].all()


@both()
def test_rounding_is_to_nearest_even(half: Any) -> None:
    numbers = float32_near(half)
    rounded = _half.narrow(numbers, half)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        expected = numbers.astype(half)
    nan = np.isnan(numbers)
    assert rounded.dtype == half
    assert (np.isnan(rounded) == nan).all()
    assert (bits(rounded) == bits(expected))[~nan].all()


@both()
def test_there_and_back(half: Any) -> None:
    numbers = every(half)
    back = _half.narrow(_half.widen(numbers), half)
    nan = np.isnan(_half.widen(numbers))
    quiet = bits(numbers) | np.where(nan, 0x200 if half == F16 else 0x40, 0)
    assert (bits(back) == quiet).all()  # NaN with its payload too


def test_some_numbers_by_hand() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.0, 65520.0, 2.0**-25, 3 * 2.0**-26])
    got = _half.narrow(x.astype(np.float32), F16)
    assert got.tolist() == [1.0, 1 + 2.0**-9, 65504.0, np.inf, 0.0, 2.0**-24]
    y = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, -0.0], np.float32)
    assert _half.narrow(y, BF16).astype(float).tolist()[:2] == [1.0, 1 + 2.0**-6]
    assert np.isinf(_half.narrow(np.array([3.4e38], np.float32), BF16)).all()
    assert bits(_half.narrow(y, BF16))[3] == 0x8000


@both()
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_same_bits_for_every_number_of_threads(half: Any, n: int) -> None:
    numbers = np.random.default_rng(1).normal(size=300_001).astype(np.float32)
    alone = _half.narrow(numbers, half)
    with threads(n):
        assert _half.narrow(numbers, half).tobytes() == alone.tobytes()
        assert _half.widen(alone).tobytes() == alone.astype(np.float32).tobytes()


def test_what_is_no_array_of_halves() -> None:
    good = np.ones(4, np.float32)
    with pytest.raises(TypeError, match="float16 or bfloat16, not float32"):
        _half.widen(good)
    with pytest.raises(TypeError, match="float16 or bfloat16, not int16"):
        _half.narrow(good, np.int16)
    with pytest.raises(TypeError, match="must be float32, not float64"):
        _half.narrow(np.ones(4), F16)
    for bad in (good[::2], good.astype(">f4")):
        with pytest.raises(TypeError, match="C-contiguous|float32"):
            _half.narrow(bad, F16)
    with pytest.raises(TypeError, match="C-contiguous"):
        _half.widen(np.ones(4, F16)[::2])
    assert _half.narrow(np.zeros((0, 3), np.float32), F16).shape == (0, 3)


@both()
@pytest.mark.parametrize("scale", [1.0, 2.0**-15, 3e4])
def test_random_rounding_goes_to_a_neighbour_and_is_right_on_average(
    half: Any, scale: float
) -> None:
    rng = np.random.default_rng(2)
    numbers = (scale * rng.uniform(-1, 1, 64)).astype(np.float32)
    keys = 4096
    down = _half.narrow(numbers, half).astype(np.float64)
    ulp = np.abs(_half.widen(_half.narrow(numbers, half)) * 2.0 ** (-10 if half == F16 else -7))
    total = np.zeros(64)
    for key in range(keys):
        rounded = _half.narrow(numbers, half, key).astype(np.float64)
        assert (np.abs(rounded - numbers) <= np.maximum(ulp, 2.0**-24 if half == F16 else 0)).all()
        total += rounded
    # A mean of Bernoulli variables, each with a deviation of at most half a place: six of them.
    place = np.maximum(ulp, 2.0**-24 if half == F16 else 0)
    assert (np.abs(total / keys - numbers) <= 6 * 0.5 * place / np.sqrt(keys)).all()
    assert np.abs(total / keys - numbers).sum() < np.abs(down - numbers).sum() / 4


@both()
def test_random_rounding_leaves_what_needs_none(half: Any) -> None:
    numbers = every(half)
    wide = _half.widen(numbers)
    nan = np.isnan(wide)
    for key in (0, 1, 2**32 - 1):
        rounded = _half.narrow(wide, half, key)
        assert (bits(rounded) == bits(numbers))[~nan].all()
        assert np.isnan(_half.widen(rounded)[nan]).all()
    large = np.full(1000, 3.4e38 if half == BF16 else 65535.0, np.float32)
    assert set(_half.narrow(large, half, 5).astype(float)) == {np.inf, float(_largest(half))}
    beyond = np.array([np.inf, -np.inf], np.float32)
    assert np.isinf(_half.narrow(beyond, half, 5).astype(float)).all()


def _largest(half: Any) -> float:
    return float(np.max(_half.widen(every(half))[np.isfinite(_half.widen(every(half)))]))


@both()
def test_random_bits_are_those_of_the_element(half: Any) -> None:
    numbers = np.random.default_rng(1).normal(size=300_001).astype(np.float32)
    alone = _half.narrow(numbers, half, 7)
    for n in (2, 3):
        with threads(n):
            assert _half.narrow(numbers, half, 7).tobytes() == alone.tobytes()
    assert _half.narrow(numbers[:1000], half, 7).tobytes() == alone[:1000].tobytes()
    assert (bits(alone) != bits(_half.narrow(numbers, half, 8))).mean() > 0.3
    same = np.full(10_000, 1 + 2.0**-12, np.float32)
    up = bits(_half.narrow(same, half, 3)) != bits(_half.narrow(np.ones(1, np.float32), half))[0]
    # Neighbours are independent: of pairs, the share in which both go up is that of one, squared.
    share = up.mean()
    assert abs((up[1:] & up[:-1]).mean() - share**2) < 6 * 0.5 / np.sqrt(len(same))
