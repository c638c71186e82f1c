"""l2_loss and dropout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt import nn, threads
from fastopt.autodiff import Tensor, gradients
from fastopt.variable import Variable
from tests.autodiff.check import check

# ------------------------------------------------------------------ l2_loss


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_l2_value(dtype):
    loss = nn.l2_loss(np.array([[3.0, 4.0], [0.0, -1.0]], dtype))
    assert loss == 13.0
    assert loss.dtype == dtype
    assert loss.shape == ()
    assert nn.l2_loss(np.zeros((0, 3), dtype)) == 0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_l2_derivatives(shape):
    check(nn.l2_loss, np.random.default_rng(0).normal(size=shape), leaf=Variable)


def test_l2_of_any_layout():
    x = np.arange(12.0).reshape(3, 4)
    for view in (x.T, x[:, ::2], x[::-1], x.astype(">f8"), x.astype(np.longdouble)):
        assert nn.l2_loss(view) == np.sum(np.asarray(view, np.float64) ** 2) / 2


def test_l2_is_summed_in_float64():
    """A float32 sum would stop growing at 2**24 ones."""
    x = np.ones(2**24 + 2**10, np.float32)
    assert nn.l2_loss(x) == (2**24 + 2**10) / 2


def test_l2_does_not_depend_on_threads():
    x = np.random.default_rng(1).normal(size=300_000).astype(np.float32)
    before = threads.get_num_threads()
    results = set()
    try:
        for n in (1, 2, 3):
            threads.set_num_threads(n)
            results.add(float(nn.l2_loss(x)))
    finally:
        threads.set_num_threads(before)
    assert len(results) == 1


def test_l2_of_strings():
    with pytest.raises(TypeError, match="t must hold real numbers"):
        nn.l2_loss(["a"])


# ------------------------------------------------------------------ dropout


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dropout_keeps_and_scales(dtype):
    x = np.full((100, 100), 3, dtype)
    y = nn.dropout(x, 0.25, seed=1)
    assert y.dtype == dtype
    assert set(np.unique(y)) == {dtype(0), dtype(4)}
    # The share of 1e4 decisions strays by sqrt(.25 * .75 / 1e4) = 0.0043; six of these is 0.026.
    assert abs(np.mean(y == 0) - 0.25) < 0.026


def test_dropout_is_repeated_by_its_seed():
    x = np.ones(50)
    np.testing.assert_array_equal(nn.dropout(x, 0.5, seed=7), nn.dropout(x, 0.5, seed=7))
    assert (nn.dropout(x, 0.5, seed=7) != nn.dropout(x, 0.5, seed=8)).any()


def test_dropout_draws_on_from_a_generator():
    x = np.ones(50)
    rng = np.random.default_rng(3)
    first, second = nn.dropout(x, 0.5, rng=rng), nn.dropout(x, 0.5, rng=rng)
    assert (first != second).any()
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(nn.dropout(x, 0.5, rng=rng), first)
    np.testing.assert_array_equal(nn.dropout(x, 0.5, rng=rng), second)


def test_dropout_gradient_has_the_same_holes():
    x = Variable(np.arange(1.0, 21.0))
    y = nn.dropout(x, 0.4, seed=2)
    (g,) = gradients(y, [x])
    np.testing.assert_allclose(g, np.where(np.asarray(y) == 0, 0, 1 / 0.6), rtol=1e-15)


def test_dropout_derivatives():
    x = np.random.default_rng(4).normal(size=(3, 4))
    check(lambda x: nn.dropout(x, 0.5, seed=5), x, leaf=Variable)


def test_dropout_rate_zero_changes_nothing():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    x = Variable(np.ones(3))
    assert nn.dropout(x, 0, rng=rng) is x
    assert rng.bit_generator.state == state


def test_noise_shape_drops_together():
    x = np.ones((6, 5, 4))
    for noise_shape in [(6, 1, 4), (None, 1, None)]:
        y = nn.dropout(x, 0.5, noise_shape, seed=1)
        assert (y == y[:, :1]).all()
        assert len(np.unique(y)) == 2


@pytest.mark.parametrize("noise_shape", [(3,), (2, 4), (3, 4, 1), (0, 4)])
def test_noise_shape_must_fit(noise_shape):
    with pytest.raises(ValueError, match="noise_shape must have .* x of shape"):
        nn.dropout(np.ones((3, 4)), 0.5, noise_shape)


@pytest.mark.parametrize("rate", [1, 1.5, -0.1, float("nan")])
def test_rate_out_of_range(rate):
    with pytest.raises(ValueError, match="rate must be at least 0 and less than 1, got"):
        nn.dropout(np.ones(3), rate)


def test_dropout_arguments():
    with pytest.raises(ValueError, match="only one of seed and rng"):
        nn.dropout(np.ones(3), 0.5, seed=1, rng=np.random.default_rng(1))
    with pytest.raises(TypeError, match="rng must be a numpy.random.Generator, got int"):
        nn.dropout(np.ones(3), 0.5, rng=1)
    with pytest.raises(TypeError, match="x must hold real numbers"):
        nn.dropout(["a"], 0.5)


@given(st.floats(0, 0.99), st.integers(0, 2**32))
def test_dropout_of_tensor_equals_dropout_of_array(rate, seed):
    x = np.linspace(-1, 1, 9)
    y = nn.dropout(Tensor(x), rate, seed=seed)
    np.testing.assert_array_equal(np.asarray(y), nn.dropout(x, rate, seed=seed))
