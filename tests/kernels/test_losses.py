"""Losses in one pass: against float64, at the ends of the range, with wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels import _lists
from fastopt._kernels._losses import fits, sigmoid_cross_entropy, squared_error

ULP = float(np.finfo(np.float32).eps)


def logits() -> Any:
    around = np.random.default_rng(0).normal(0.0, 5.0, 50_000)
    ends = [0.0, -0.0, 1e-45, -1e-45, 1e-30, 103.9, 104.1, -103.9, -104.1, 3e38, -3e38]
    return np.concatenate([around, np.linspace(-110, 110, 20_003), ends]).astype(np.float32)


@pytest.mark.parametrize("label", [0.0, 0.3, 1.0])
def test_cross_entropy_against_float64(label: float) -> None:
    x = logits()
    z = np.full_like(x, label)
    loss, slope = np.empty_like(x), np.empty_like(x)
    assert sigmoid_cross_entropy(z, x, loss, slope)
    exact = x.astype(np.float64)
    with np.errstate(under="ignore"):
        e = np.exp(-np.abs(exact))
    zz = z.astype(np.float64)
    right = np.maximum(exact, 0) - exact * zz + np.log1p(e)
    # Three roundings of terms no larger than these, and some in the logarithm.
    bound = 3 * ULP * (np.abs(exact) + np.log1p(e))
    assert np.all(np.abs(loss - right) <= bound)
    assert np.all(np.abs(slope - (np.where(exact >= 0, 1.0, e) / (1 + e) - zz)) <= 2 * ULP)
    alone = np.empty_like(x)
    assert sigmoid_cross_entropy(z, x, alone, None)
    np.testing.assert_array_equal(alone, loss)


def test_slopes_of_what_is_hardly_likely_keep_their_digits() -> None:
    x = np.linspace(-80, 0, 4_001).astype(np.float32)
    slope = np.empty_like(x)
    sigmoid_cross_entropy(np.zeros_like(x), x, np.empty_like(x), slope)
    np.testing.assert_allclose(slope, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=4 * ULP)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 8_192, 8_193, 100_003])
def test_same_bits_on_any_number_of_threads(n: int) -> None:
    x = np.resize(logits(), n)
    z = np.random.default_rng(1).random(n, np.float32)
    seen = set()
    for threads in (1, 2, 5):
        loss, slope = np.empty_like(x), np.empty_like(x)
        with fo.num_threads(threads):
            assert sigmoid_cross_entropy(z, x, loss, slope)
        seen.add(loss.tobytes() + slope.tobytes())
    assert len(seen) == 1


@pytest.mark.parametrize("strange", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("n", [5, 100_003])
def test_what_is_not_finite_is_told(strange: float, n: int) -> None:
    for at in (0, n // 2, n - 1):
        x = np.ones(n, np.float32)
        x[at] = strange
        slope = np.empty_like(x)
        assert not sigmoid_cross_entropy(np.zeros_like(x), x, np.empty_like(x), slope)
        np.testing.assert_array_equal(slope[at], {np.inf: 1.0, -np.inf: 0.0}.get(strange, np.nan))


def test_cross_entropy_of_what_does_not_fit() -> None:
    x, z = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    assert fits(z, x)
    cases: list[Any] = [
        (z.astype(np.float64), x),
        (z, x.astype(np.float64)),
        (z.reshape(3, 2), x),
        (z[:, ::-1], x),
        (z, x[:, ::-1]),
        (z.astype(">f4"), x),
        (z.tolist(), x),
        (z, 1.0),
    ]
    for labels, given in cases:
        assert not fits(labels, given)
        with pytest.raises(TypeError, match="must be C-contiguous arrays"):
            sigmoid_cross_entropy(labels, given, np.empty_like(x), None)
    fixed = np.empty_like(x)
    fixed.flags.writeable = False
    for out in (np.empty(5, np.float32), np.empty((2, 3)), fixed, None):
        with pytest.raises(TypeError, match="what is written"):
            sigmoid_cross_entropy(z, x, out, None)  # type: ignore[arg-type]
        if out is not None:
            with pytest.raises(TypeError, match="what is written"):
                sigmoid_cross_entropy(z, x, np.empty_like(x), out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 17, 4_096, 8_193, 50_000])
def test_squared_error(dtype: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    x, z = (rng.normal(size=n).astype(dtype) for _ in range(2))
    difference = np.empty_like(x)
    mean = squared_error(z, x, difference)
    np.testing.assert_array_equal(difference, x - z)
    # The squares of float32 are exact in float64; of n sums each rounds once.
    exact = np.mean(difference.astype(np.longdouble) ** 2)
    np.testing.assert_allclose(mean, float(exact), rtol=(n + 2) * 2.0**-53)
    (scaled,) = _lists.times([difference], 0.3)  # what becomes of it in the derivative
    np.testing.assert_array_equal(scaled, difference * dtype(0.3))


def test_squared_error_of_what_does_not_fit() -> None:
    x = np.ones(4, np.float32)
    fixed = x.copy()
    fixed.flags.writeable = False
    cases: list[Any] = [
        (x, x[:0], x.copy()),
        (x, [1.0], x.copy()),
        (x, x.astype(np.float16), x.copy()),
        (x.astype(np.float64), x, x.copy()),
        (x[:3], x, x.copy()),
        (x, x, np.empty(4)),
        (x, x, fixed),
        (x[::-1], x, x.copy()),
    ]
    for labels, predictions, difference in cases:
        with pytest.raises(TypeError):
            squared_error(labels, predictions, difference)
    for array in (x[::2], x.astype(np.int32), [1.0]):
        with pytest.raises(TypeError, match=r"arrays\[0\] must be"):
            _lists.times([array], 2.0)  # type: ignore[list-item]
