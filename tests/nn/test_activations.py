"""Activations: values, limits, dtypes and derivatives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt import nn
from fastopt.autodiff import Tensor, gradients
from fastopt.variable import Variable
from tests.autodiff.check import check

# name -> (function, reference of one float in Python, limits at -inf and inf)
ELEMENTWISE = {
    "relu": (nn.relu, lambda x: max(x, 0.0), 0.0, math.inf),
    "leaky_relu": (nn.leaky_relu, lambda x: x if x > 0 else 0.2 * x, -math.inf, math.inf),
    "elu": (nn.elu, lambda x: x if x > 0 else math.expm1(x), -1.0, math.inf),
    "sigmoid": (nn.sigmoid, lambda x: 1 / (1 + math.exp(-x)), 0.0, 1.0),
    "log_sigmoid": (nn.log_sigmoid, lambda x: -math.log1p(math.exp(-x)), -math.inf, 0.0),
    "softplus": (nn.softplus, lambda x: math.log1p(math.exp(x)), 0.0, math.inf),
    "tanh": (nn.tanh, math.tanh, -1.0, 1.0),
    "silu": (nn.silu, lambda x: x / (1 + math.exp(-x)), 0.0, math.inf),
    "silu_2": (
        lambda x: nn.silu(x, beta=2.0),
        lambda x: x / (1 + math.exp(-2 * x)),
        0.0,
        math.inf,
    ),
    "gelu": (
        nn.gelu,
        lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
        0.0,
        math.inf,
    ),
    "gelu_tanh": (
        lambda x: nn.gelu(x, approximate=True),
        lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        0.0,
        math.inf,
    ),
}
DTYPES = [np.float16, np.float32, np.float64]
# Half precision is computed in float32 and rounded once; the others take a few roundings.
RTOL = {np.float16: 1e-3, np.float32: 2e-6, np.float64: 1e-13}


@pytest.fixture(params=ELEMENTWISE)
def case(request):
    return ELEMENTWISE[request.param]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(case, dtype):
    f, reference, _, _ = case
    x = np.linspace(-6, 6, 49).astype(dtype).reshape(7, 7)
    y = f(x)
    assert type(y) is np.ndarray
    assert y.dtype == dtype
    expected = [reference(float(v)) for v in x.ravel()]
    # Near 0 the tail of gelu is a difference of nearly equal numbers in the reference itself.
    np.testing.assert_allclose(y.ravel(), expected, rtol=RTOL[dtype], atol=RTOL[dtype] / 4)


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name != "relu"])
def test_integers_are_computed_in_float64(name):
    f, reference, _, _ = ELEMENTWISE[name]
    y = f([-2, 0, 3])
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, [reference(v) for v in (-2, 0, 3)], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_far_out_nothing_overflows(case, dtype):
    """No floating-point flag is raised, and infinite arguments give the limits."""
    f, _, low, high = case
    x = np.array([-math.inf, -1e4, -700, -50, 0, 50, 700, 1e4, math.inf], dtype)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        y = f(x)
        variable = Variable(x)
        (g,) = gradients(f(variable), [variable])
    assert y[0] == low
    assert y[-1] == high
    assert np.isfinite(y[1:-1]).all()
    assert np.isfinite(g).all()
    assert g.dtype == dtype


def test_nan_stays_nan(case):
    f = case[0]
    assert np.isnan(f(np.array([np.nan, np.nan], np.float32))).all()


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 1, 3)])
def test_derivatives(case, shape):
    x = np.random.default_rng(1).normal(scale=2, size=shape)
    check(case[0], x, leaf=Variable)


def test_tensor_in_tensor_out(case):
    f = case[0]
    y = f(Tensor([0.5, -0.5]))
    assert isinstance(y, Tensor)
    np.testing.assert_array_equal(np.asarray(y), f(np.array([0.5, -0.5])))


def test_caller_is_not_changed(case):
    x = np.array([-1.0, 0.0, 2.0])
    x.flags.writeable = False
    case[0](x)
    np.testing.assert_array_equal(x, [-1.0, 0.0, 2.0])


def test_kinks():
    """At 0 relu passes nothing on and leaky_relu the slope of the negative side, as TensorFlow."""
    for f, slope in [(nn.relu, 0.0), (lambda x: nn.leaky_relu(x, alpha=0.3), 0.3)]:
        x = Variable(np.array([0.0, -0.0]))
        (g,) = gradients(f(x), [x])
        np.testing.assert_array_equal(g, [slope, slope])


def test_relu_keeps_integers():
    y = nn.relu(np.array([-1, 2], np.int32))
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, [0, 2])


def test_softplus_of_small_numbers_is_not_zero():
    """log(1 + exp(-40)) is exp(-40), which a sum with 1 would lose."""
    np.testing.assert_allclose(nn.softplus(-40.0), math.exp(-40), rtol=1e-15)
    np.testing.assert_allclose(nn.log_sigmoid(40.0), -math.exp(-40), rtol=1e-15)


def test_other_kinds_are_refused():
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex128"):
        nn.sigmoid([1j])
    with pytest.raises(TypeError, match="features must hold real numbers, got dtype <U1"):
        nn.gelu(["a"])


# ------------------------------------------------------------------ softmax


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_values(axis, dtype):
    x = np.random.default_rng(2).normal(scale=3, size=(3, 4, 2)).astype(dtype)
    e = np.exp(x.astype(np.float64))
    expected = e / e.sum(axis, keepdims=True)
    # The logarithm adds the rounding of logits of size 10.
    rtol = RTOL[dtype] * 4
    for y, want in [(nn.softmax(x, axis), expected), (nn.log_softmax(x, axis), np.log(expected))]:
        assert y.dtype == dtype
        np.testing.assert_allclose(y, want, rtol=rtol, atol=rtol / 4)


@pytest.mark.parametrize("f", [nn.softmax, nn.log_softmax])
@pytest.mark.parametrize(("shape", "axis"), [((4,), -1), ((2, 3), 0), ((2, 3), -1), ((2, 0), 1)])
def test_softmax_derivatives(f, shape, axis):
    x = np.random.default_rng(3).normal(size=shape)
    check(lambda x: f(x, axis=axis), x, leaf=Variable)


def test_softmax_of_huge_logits():
    x = np.array([[1e4, 1e4, -1e4], [0.0, -np.inf, 0.0]], np.float32)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(nn.softmax(x), [[0.5, 0.5, 0], [0.5, 0, 0.5]])
        y = nn.log_softmax(x)
    np.testing.assert_allclose(y[0], -math.log(2) - np.array([0, 0, 2e4]), rtol=1e-6)
    assert y[1, 1] == -np.inf


def test_masked_logits_get_no_gradient():
    x = Variable(np.array([1.0, -np.inf, 2.0]))
    for f, upstream in [(nn.softmax, [1.0, 5.0, 2.0]), (nn.log_softmax, [1.0, 0.0, 2.0])]:
        (g,) = gradients(f(x), [x], grad_ys=np.array(upstream))
        assert g[1] == 0
        assert np.isfinite(g).all()


def test_softmax_axis_is_checked():
    with pytest.raises(np.exceptions.AxisError):
        nn.softmax(np.zeros(3), axis=1)
    with pytest.raises(np.exceptions.AxisError):
        nn.log_softmax(1.0)


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8), st.floats(-1e3, 1e3))
def test_softmax_properties(logits, shift):
    """Probabilities sum to 1, and a common shift of the logits changes only their rounding."""
    x = np.array(logits)
    p = nn.softmax(x)
    assert abs(p.sum() - 1) < 1e-14
    # A shift rounds logits of size 1e4 to 2e-12, which the exponential makes a relative error.
    np.testing.assert_allclose(nn.softmax(x + shift), p, rtol=1e-11, atol=1e-300)


def test_relu_of_large_arrays_has_the_derivative_of_small_ones():
    rng = np.random.default_rng(8)
    x, up = (rng.normal(size=(3000, 70)).astype(np.float32) for _ in range(2))
    for value in (x, x[::-1]):  # the second is not contiguous
        v = Tensor(value)
        (g,) = gradients(nn.relu(v), [v], grad_ys=[up])
        assert g.dtype == np.float32
        np.testing.assert_array_equal(g, up * (value > 0))
