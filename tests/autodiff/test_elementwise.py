"""Derivatives of ufuncs, `clip` and `where`."""

import numpy as np
import pytest

from fastopt.autodiff import Tensor, gradients
from fastopt.variable import Variable

from .check import between, check, normal, positive

SHAPES = [(), (3,), (2, 3), (0,), (2, 0, 3)]

ANYWHERE = [
    np.positive, np.negative, np.square, np.exp, np.exp2, np.expm1, np.sin, np.cos, np.sinh,
    np.cosh,
    np.tanh, np.arctan, np.arcsinh, np.sinc, np.deg2rad, np.radians, np.rad2deg, np.degrees,
    np.copy,
    np.nan_to_num, np.real,
]  # fmt: skip
POSITIVE = [np.log, np.log2, np.log10, np.log1p, np.sqrt, np.cbrt, np.reciprocal]
AWAY_FROM_ZERO = [np.abs, np.absolute, np.fabs, np.sign, np.reciprocal, np.cbrt]
INSIDE_ONE = [np.arcsin, np.arccos, np.arctanh, np.tan]


def ids(f):
    return getattr(f, "__name__", None)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("f", ANYWHERE, ids=ids)
def test_anywhere(f, shape):
    check(f, normal(*shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("f", POSITIVE, ids=ids)
def test_positive(f, shape):
    check(f, positive(*shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("f", AWAY_FROM_ZERO, ids=ids)
def test_away_from_zero(f, shape):
    check(f, normal(*shape, away=0.2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("f", INSIDE_ONE, ids=ids)
def test_inside_one(f, shape):
    check(f, between(-0.9, 0.9, *shape))


def test_arccosh():
    check(np.arccosh, between(1.2, 3.0, 4))


def about_ten(*shape, seed):
    return between(10.0, 10.3, *shape, seed=seed)


def about_three(*shape, seed):
    return between(2.6, 3.2, *shape, seed=seed)


PAIRS = [
    ((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), (2, 1)),
    ((2, 1), (1, 3)), ((), (2, 3)), ((2, 3), ()), ((1,), ()), ((4, 1, 2), (3, 1)), ((1, 1), (2,)),
    ((0, 3), (3,)), ((0,), (1,)),
]  # fmt: skip
BINARY = {
    "add": (np.add, normal, normal),
    "subtract": (np.subtract, normal, normal),
    "multiply": (np.multiply, normal, normal),
    "divide": (np.divide, normal, positive),
    "power": (np.power, positive, normal),
    "power_operator": (lambda x, y: x**y, positive, normal),
    "maximum": (np.maximum, normal, normal),
    "minimum": (np.minimum, normal, normal),
    "fmax": (np.fmax, normal, normal),
    "fmin": (np.fmin, normal, normal),
    "logaddexp": (np.logaddexp, normal, normal),
    "logaddexp2": (np.logaddexp2, normal, normal),
    "hypot": (np.hypot, normal, positive),
    "arctan2": (np.arctan2, normal, positive),
    "remainder": (np.remainder, about_ten, about_three),
    "fmod": (np.fmod, about_ten, about_three),
    "where": (lambda x, y: np.where(np.arange(3) > 1, x, y), normal, normal),
}  # fmt: skip


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    f, first, second = BINARY[name]
    if name == "where":
        try:
            np.broadcast_shapes((3,), *shapes)
        except ValueError:
            shapes = ((3,), (2, 3))
    check(f, first(*shapes[0], seed=1), second(*shapes[1], seed=2))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power", "maximum"])
@pytest.mark.parametrize("scalar", [2, 2.0, -3, 0.5, True], ids=repr)
def test_python_scalar_keeps_dtype(name, scalar):
    f = BINARY[name][0]
    check(lambda x: f(x, scalar), positive(3))
    if not (name == "power" and scalar == -3):
        check(lambda x: f(scalar, x), positive(3)) if scalar is not True else None


def test_copysign():
    check(lambda x: np.copysign(x, np.array([1.0, -1.0, 1.0], x.dtype)), np.array([1.0, 2.0, -3.0]))


def test_operators_equal_functions():
    x = Variable([1.0, 2.0, -3.0])
    y = Tensor([2.0, 0.5, 1.5])
    for by_operator, by_function in [
        (x + y, np.add(x, y)),
        (x - y, np.subtract(x, y)),
        (x * y, np.multiply(x, y)),
        (x / y, np.divide(x, y)),
        (-x, np.negative(x)),
        (+x, np.positive(x)),
        (abs(x), np.abs(x)),
        (1 - y, np.subtract(1, y)),
        (1 / y, np.divide(1, y)),
        (2 * y, np.multiply(2, y)),
        (2 + y, np.add(2, y)),
        (y**3, np.power(y, 3)),
        (x**2, np.power(x, 2)),
        (3.0**y, np.power(3.0, y)),
        (x % 2.0, np.remainder(x, 2.0)),
        (np.array([1.0, 2.0, 3.0]) - y, np.subtract(np.array([1.0, 2.0, 3.0]), y)),
        ([1.0, 2.0, 3.0] * y, np.multiply([1.0, 2.0, 3.0], y)),
    ]:
        assert isinstance(by_operator, Tensor)
        np.testing.assert_array_equal(np.asarray(by_operator), np.asarray(by_function))


@pytest.mark.parametrize("exponent", [0, 0.0, 1, 2, 2.0, 3, -1, 0.5], ids=repr)
def test_power_of_a_constant(exponent):
    check(lambda x: x**exponent, positive(4))


def test_power_zero_of_zero():
    """The derivative of x ** 0 is 0, also at 0, where x ** -1 is infinite."""
    x = Tensor([0.0, 2.0])
    y = Tensor([0.0, 0.0])
    np.testing.assert_array_equal(gradients(np.power(x, y), x)[0], [0.0, 0.0])
    np.testing.assert_array_equal(gradients(x**0, x)[0], [0.0, 0.0])
    # No gradient flows to an exponent whose logarithm is not defined, as in TensorFlow.
    np.testing.assert_allclose(gradients(np.power(x, y), y)[0], [0.0, np.log(2.0)])


def test_integer_exponents():
    check(lambda x: x ** np.array([0, 1, 3], np.int8), positive(3))


@pytest.mark.parametrize("f", [np.maximum, np.minimum, np.fmax, np.fmin], ids=ids)
def test_ties_share_the_gradient(f):
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([1.0, 1.0, 3.0])
    first, second = gradients(f(x, y), [x, y])
    np.testing.assert_array_equal(first + second, [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(first[[0, 2]], [0.5, 0.5])


def test_nan_goes_through_maximum_but_not_fmax():
    x, y = Tensor([np.nan, 1.0]), Tensor([1.0, np.nan])
    np.testing.assert_array_equal(gradients(np.maximum(x, y), x)[0], [1.0, 1.0])
    np.testing.assert_array_equal(gradients(np.fmax(x, y), x)[0], [0.0, 1.0])


def test_kinks_have_finite_gradients():
    zero = Tensor(0.0)
    assert gradients(np.hypot(zero, 0.0), zero)[0] == 0.0
    assert gradients(np.abs(zero), zero)[0] == 0.0
    assert gradients(np.sinc(zero), zero)[0] == 0.0


@pytest.mark.parametrize(
    "x, y, expected", [(0.0, -np.inf, 1.0), (800.0, 0.0, 1.0), (-800.0, 0.0, 0.0)]
)
def test_logaddexp_far_out(x, y, expected):
    a = Tensor(x)
    assert gradients(np.logaddexp(a, y), a)[0] == expected


def test_logaddexp_of_infinities():
    a = Tensor([-np.inf, -np.inf, 1.0])
    (g,) = gradients(np.logaddexp(a, np.array([-np.inf, 0.0, -np.inf])), a)
    np.testing.assert_array_equal(g, [0.0, 0.0, 1.0])


CLIPS = {
    "both": lambda x: np.clip(x, -0.5, 0.5),
    "low": lambda x: np.clip(x, -0.5, None),
    "high": lambda x: np.clip(x, None, 0.5),
    "keywords": lambda x: np.clip(x, a_min=-0.5, a_max=0.5),
    "method": lambda x: x.clip(-0.5, 0.5),
    "arrays": lambda x: np.clip(x, np.full(5, -0.5, x.dtype), np.full(5, 0.5, x.dtype)),
    "crossed": lambda x: np.clip(x, 0.5, -0.5) + x,
}


@pytest.mark.parametrize("name", CLIPS)
def test_clip(name):
    check(CLIPS[name], np.array([-2.0, -0.4, 0.1, 0.4, 3.0]))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy 2.1 names")
def test_clip_with_the_names_of_the_array_api():
    check(lambda x: np.clip(x, min=-0.5, max=0.5), np.array([-2.0, -0.4, 0.1, 0.4, 3.0]))


def test_clip_bounds():
    check(np.clip, normal(2, 3), np.full((2, 1), -0.4), np.full(3, 0.4))
    check(np.clip, np.array([-1.0, 0.0, 2.0]), np.array(0.5), np.array(-0.5))


def test_clip_passes_at_the_bounds():
    x = Tensor([-1.0, 1.0])
    np.testing.assert_array_equal(gradients(np.clip(x, -1.0, 1.0), x)[0], [1.0, 1.0])


def test_where():
    condition = np.array([[True, False, True], [False, False, True]])
    check(lambda x, y: np.where(condition, x, y), normal(2, 3), normal(3))
    check(lambda x: np.where(condition, x, 0.0), normal(3))
    check(lambda x: np.where(x > 0, x, 0.1 * x), normal(5, away=0.1))
    # What is not chosen may be infinite.
    x = Tensor([1.0, 0.0])
    safe = np.where(np.asarray(x) > 0, x, 1.0)
    np.testing.assert_array_equal(gradients(np.where(x > 0, np.log(safe), 0.0), x)[0], [1.0, 0.0])
    (found,) = np.where(x)
    np.testing.assert_array_equal(found, [0])


def test_broadcast_to_0d():
    """raskr/rust-autograd#38: the gradient of a 0-d variable is 0-d."""
    v = Variable(3.0, dtype=np.float64)
    (g,) = gradients(np.sum(np.ones(2) * v), v)
    assert g.shape == ()
    assert g == 2.0


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 3)])
def test_length_one_axes_keep_their_shape(shape):
    check(lambda v: np.ones((2, 3), v.dtype) * v, normal(*shape))


MIXED = [
    lambda x: x * np.float64(2.0),
    lambda x: x * np.array(2.0),
    lambda x: x + np.ones(3),
    lambda x: np.add(x, x, dtype=np.float64),
    lambda x: x.astype(np.float64) ** 2,
]


@pytest.mark.parametrize("f", MIXED)
def test_wider_results_give_narrow_gradients(f):
    """A float32 input has a float32 gradient even where promotion makes the result float64."""
    x = Tensor(np.ones(3, np.float32))
    y = f(x)
    assert y.dtype == f(np.ones(3, np.float32)).dtype == np.float64
    (g,) = gradients(y, x)
    assert g.dtype == np.float32


def test_float16():
    x = Tensor(np.ones(3, np.float16))
    y = np.exp(x) * 2 + x / 3
    assert y.dtype == np.float16
    (g,) = gradients(y, x)
    assert g.dtype == np.float16
    np.testing.assert_allclose(g, np.full(3, 2 * np.e + 1 / 3), rtol=2e-3)


PLAIN = [
    np.floor, np.ceil, np.trunc, np.rint, np.round, np.isnan, np.isinf, np.isfinite, np.signbit,
    np.logical_not, np.fix, lambda x: x == 1, lambda x: x != 1, lambda x: x < 1, lambda x: x >= 1,
    lambda x: x // 2, lambda x: np.isclose(x, 1.0), lambda x: np.logical_and(x, True),
]  # fmt: skip


@pytest.mark.parametrize("f", PLAIN)
def test_functions_without_gradient_return_arrays(f):
    values = np.array([0.2, 1.0, -1.7])
    for x in (Variable(values, dtype=np.float64), Tensor(values)):
        result = f(x)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, f(values))


def test_sign_has_a_gradient_of_zero():
    x = Tensor([1.0, -2.0])
    np.testing.assert_array_equal(gradients(np.sign(x) * x, x)[0], [1.0, -1.0])


def test_astype():
    check(lambda x: (x * 2).astype(x.dtype), normal(3))
    x = Tensor(np.ones(3, np.float32))
    y = x.astype(np.float64)
    assert y.dtype == np.float64
    assert gradients(y * 2, x)[0].dtype == np.float32
    assert type(x.astype(np.int64)) is np.ndarray
    if hasattr(np, "astype"):
        assert np.astype(x, np.float16).dtype == np.float16


def test_out_is_refused():
    x = Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match=r"numpy.clip: out= is not supported"):
        np.clip(x, 0.0, 1.0, np.zeros(2))
    out = np.zeros(2)
    with pytest.raises(TypeError, match=r"numpy.exp: out= is not supported"):
        np.exp(x, out=out)
    with pytest.raises(TypeError, match=r"numpy.add: out= is not supported"):
        np.add(out, 1.0, out=x)
    with pytest.raises(TypeError, match=r"numpy.add: out= is not supported"):
        out += x
    np.testing.assert_array_equal(out, [0.0, 0.0])
    with pytest.raises(TypeError, match=r"numpy.exp: where= is not supported"):
        np.exp(x, where=np.array([True, False]))


@pytest.mark.parametrize("call", [
    lambda x: np.modf(x), lambda x: np.frexp(x), lambda x: np.divmod(x, 2.0),
    lambda x: np.spacing(x, out=x),
    lambda x: np.nextafter(x, 2.0),
])  # fmt: skip
def test_unsupported_ufuncs_are_named(call):
    with pytest.raises(TypeError, match=r"numpy\.\w+"):
        call(Tensor([1.0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_of_a_bias_loses_no_digits(dtype):
    """100,000 equal terms, which float32 would add up wrongly one after the other."""
    b = Tensor(np.zeros(3, dtype))
    (g,) = gradients(np.zeros((100_000, 3), dtype) + b, [b], grad_ys=np.full((100_000, 3), 0.1))
    assert g.dtype == dtype
    # Some 460 additions in a chain at most; one float32 chain of all errs by 1200 eps.
    np.testing.assert_allclose(g, 100_000 * float(dtype(0.1)), rtol=460 * np.finfo(dtype).eps)
