"""Derivatives of sums, means, extrema, products, deviations and running sums."""

import numpy as np
import pytest

from fastopt.autodiff import Tensor, gradients

from .check import apart, check, normal, positive

AXES = [
    ((), [None, ()]),
    ((4,), [None, 0, -1, (0,), ()]),
    ((2, 3), [None, 0, 1, -1, -2, (0, 1), (1, 0), (-1,)]),
    ((2, 3, 2), [None, 1, (0, 2), (2, 0), (-3, -1), (0, 1, 2)]),
]
CASES = [(shape, axis) for shape, axes in AXES for axis in axes]
REDUCTIONS = {
    "sum": (np.sum, normal),
    "mean": (np.mean, normal),
    "max": (np.max, apart),
    "min": (np.min, apart),
    "amax": (np.amax, apart),
    "amin": (np.amin, apart),
    "prod": (np.prod, positive),
    "var": (np.var, normal),
    "std": (np.std, lambda *s: normal(*s) if s else None),
    "nansum": (np.nansum, normal),
    "nanmean": (np.nanmean, normal),
}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, shape, axis, keepdims):
    f, values = REDUCTIONS[name]
    x = values(*shape)
    n = np.size(x) if axis is None else np.prod([shape[i] for i in np.atleast_1d(axis).astype(int)])
    if name == "std" and n < 2:
        pytest.skip("a single number has no deviation")
    check(lambda x: f(x, axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("f", [np.cumsum, np.cumprod])
def test_running(f, axis):
    check(lambda x: f(x, axis=axis), normal(3, 4))
    check(lambda x: f(x, axis=axis), np.array([[1.5, 0.0, 2.0, 0.0], [1.0, 2.0, 0.0, 4.0]]))


@pytest.mark.parametrize("f", [np.var, np.std])
@pytest.mark.parametrize("ddof", [0, 1, 1.5])
def test_ddof(f, ddof):
    check(lambda x: f(x, ddof=ddof), normal(5))
    check(lambda x: f(x, 0, None, None, ddof), normal(5, 2))


METHODS = {
    "sum": lambda x: x.sum(axis=0) + x.sum(),
    "mean": lambda x: x.mean(0, keepdims=True),
    "prod": lambda x: x.prod(axis=1),
    "max": lambda x: x.max(axis=1),
    "min": lambda x: x.min(),
    "var": lambda x: x.var(axis=0, ddof=1),
    "std": lambda x: x.std(),
    "cumsum": lambda x: x.cumsum(axis=1),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    check(METHODS[name], apart(3, 4) + 2.5)


UFUNC_METHODS = {
    "add.reduce": lambda x: np.add.reduce(x),
    "add.reduce axis": lambda x: np.add.reduce(x, axis=1, keepdims=True),
    "add.reduce all": lambda x: np.add.reduce(x, axis=None),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1),
    "maximum.reduce": lambda x: np.maximum.reduce(x),
    "minimum.reduce": lambda x: np.minimum.reduce(x, axis=(0, 1)),
    "logaddexp.reduce": lambda x: np.logaddexp.reduce(x, axis=1),
    "add.accumulate": lambda x: np.add.accumulate(x, axis=1),
}


@pytest.mark.parametrize("name", UFUNC_METHODS)
def test_ufunc_methods(name):
    check(UFUNC_METHODS[name], apart(2, 3))


@pytest.mark.parametrize("call", [
    lambda x: np.hypot.reduce(x), lambda x: np.multiply.accumulate(x), lambda x: np.add.outer(x, x),
    lambda x: np.add.at(x, 0, 1.0), lambda x: np.add.reduceat(x, [0]),
])  # fmt: skip
def test_other_ufunc_methods_are_named(call):
    with pytest.raises(
        TypeError, match=r"numpy\.(hypot|multiply|add)\.(reduce|accumulate|outer|at|reduceat)"
    ):
        call(Tensor([1.0, 2.0]))


@pytest.mark.parametrize("f", [np.max, np.min])
def test_ties_share_the_gradient(f):
    x = Tensor([[1.0, 1.0, 1.0], [3.0, 2.0, 2.5]])
    (g,) = gradients(f(x, axis=1), x)
    np.testing.assert_allclose(g[0], [1 / 3, 1 / 3, 1 / 3])
    assert np.count_nonzero(g[1]) == 1 and g[1].sum() == 1.0


@pytest.mark.parametrize("zeros", [[0], [1], [0, 2], [0, 1, 2]], ids=str)
def test_prod_with_zeros(zeros):
    x = np.array([2.0, 3.0, 5.0])
    x[zeros] = 0.0
    check(np.prod, x)
    check(lambda x: np.prod(x, axis=(0, 2)), x.reshape(1, 1, 3) * positive(2, 2, 1))


def test_std_of_what_does_not_vary():
    x = Tensor(np.ones((2, 3)))
    np.testing.assert_array_equal(gradients(np.std(x, axis=1), x)[0], np.zeros((2, 3)))


def test_nan_is_passed_over():
    x = Tensor([1.0, np.nan, 3.0])
    np.testing.assert_array_equal(gradients(np.nansum(x), x)[0], [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(gradients(np.nanmean(x), x)[0], [0.5, 0.0, 0.5])
    np.testing.assert_array_equal(gradients(np.nanmax(x), x)[0], [0.0, 0.0, 1.0])


def test_average():
    w = positive(4)
    check(lambda x: np.average(x), normal(3, 4))
    check(lambda x: np.average(x, axis=0), normal(3, 4))
    check(lambda x, w: np.average(x, axis=1, weights=w), normal(3, 4), w)
    check(lambda x, w: np.average(x, weights=w), normal(3, 4), positive(3, 4))
    with pytest.raises(TypeError, match=r"numpy.average: returned="):
        np.average(Tensor([1.0]), returned=True)
    with pytest.raises(TypeError, match=r"weights of shape \(3,\)"):
        np.average(Tensor(np.ones((2, 3))), weights=np.ones(3))
    with pytest.raises(ValueError, match="do not fit axis 0"):
        np.average(Tensor(np.ones((2, 3))), axis=0, weights=np.ones(3))


def test_logsumexp_by_hand_and_of_infinities():
    check(lambda x: np.log(np.sum(np.exp(x - np.max(x)))) + np.max(x), apart(4))
    x = Tensor([[-np.inf, -np.inf], [-np.inf, 0.0]])
    (g,) = gradients(np.logaddexp.reduce(x, axis=1), x)
    np.testing.assert_array_equal(g, [[0.0, 0.0], [0.0, 1.0]])


def test_sums_can_be_empty():
    check(lambda x: np.sum(x, axis=1), normal(3, 0))
    check(np.prod, normal(0))


@pytest.mark.parametrize("option", [{"where": np.array([True, False])}, {"initial": 1.0}])
@pytest.mark.parametrize("f", [np.sum, np.max, np.add.reduce])
def test_options_without_recorded_form_are_named(f, option):
    (name,) = option
    with pytest.raises(TypeError, match=rf"numpy\.\S+: {name}= is not supported"):
        f(Tensor([1.0, 2.0]), **option)


def test_dtype_of_a_sum():
    x = Tensor(np.ones(3, np.float32))
    y = np.sum(x, dtype=np.float64)
    assert y.dtype == np.float64
    assert gradients(y, x)[0].dtype == np.float32


PLAIN = [
    np.argmax, np.argmin, np.argsort, np.nonzero, np.count_nonzero, np.all, np.any, np.argwhere,
    np.flatnonzero, lambda x: x.argmax(axis=0), lambda x: x.argmin(), lambda x: x.argsort(),
    lambda x: x.any(),
    lambda x: x.all(axis=0), lambda x: np.searchsorted([1.5, 2.5], x.ravel()),
    lambda x: np.logical_or.reduce(x),
    lambda x: x.round(1), lambda x: np.isin(x, [1.0]),
]  # fmt: skip


@pytest.mark.parametrize("f", PLAIN)
def test_functions_without_gradient_return_arrays(f):
    values = np.array([[2.0, 1.0], [0.0, 3.0]])
    result = f(Tensor(values))
    assert not isinstance(result, Tensor)
    np.testing.assert_array_equal(result, f(values))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1,), (7,), (1001,), (300, 7), (7, 300), (40, 3, 50)])
def test_the_mean_of_all_has_numpys_bits(dtype, shape):
    values = np.random.default_rng(1).normal(3.0, 1.0, shape).astype(dtype)
    for x in (values, values.T, values[::2]):
        mean = np.mean(Tensor(x))
        assert mean.dtype == dtype
        np.testing.assert_array_equal(mean.numpy(), np.mean(x))


def test_the_mean_of_nothing_warns():
    with (
        np.errstate(invalid="ignore"),
        pytest.warns(RuntimeWarning, match="Mean of empty slice"),
    ):
        assert np.isnan(np.mean(Tensor(np.ones((0, 3)))).item())
