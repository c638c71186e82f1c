"""Functions of single elements: NumPy's ufuncs, `clip` and `where`.

Gradients have the shape of the result; `backward` sums them down to that of an argument which was
broadcast. Where the derivative jumps between two values because arguments tie (`maximum`,
`minimum`), each gets half of the gradient, as in HIPS autograd and PyTorch; TensorFlow gives all of
it to the first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastopt.autodiff.numpy_vjps._define import define, handle, plain, times
from fastopt.autodiff.tensor import HANDLERS

LN2 = math.log(2.0)
LN10 = math.log(10.0)


def unary(function: Any, reads: str, maker: Any, **options: Any) -> None:
    """Define a ufunc of one argument."""
    define(function, maker, reads=(reads,), elementwise=True, refuses=("out", "where"), **options)


def binary(function: Any, reads: tuple[str, str], first: Any, second: Any, **options: Any) -> None:
    """Define a ufunc of two arguments."""
    define(
        function,
        first,
        second,
        reads=reads,
        elementwise=True,
        refuses=("out", "where"),
        **options,
    )


unary(np.positive, "", lambda ans, x: lambda g: g, holomorphic=True)
unary(np.negative, "", lambda ans, x: lambda g: -g, holomorphic=True)
unary(np.absolute, "x", lambda ans, x: lambda g: times(np.sign(x), g))
unary(np.fabs, "x", lambda ans, x: lambda g: times(np.sign(x), g))
unary(np.sign, "", lambda ans, x: lambda g: np.zeros_like(g))
unary(np.square, "x", lambda ans, x: lambda g: times(2 * x, g), holomorphic=True)
unary(np.sqrt, "ans", lambda ans, x: lambda g: times(0.5 / ans, g), holomorphic=True)
unary(np.cbrt, "ans", lambda ans, x: lambda g: g / (3 * np.square(ans)))
unary(np.reciprocal, "ans", lambda ans, x: lambda g: times(-np.square(ans), g), holomorphic=True)
unary(np.exp, "ans", lambda ans, x: lambda g: g * ans, holomorphic=True)
unary(np.exp2, "ans", lambda ans, x: lambda g: times(LN2 * ans, g), holomorphic=True)
unary(np.expm1, "ans", lambda ans, x: lambda g: times(ans + 1, g), holomorphic=True)
unary(np.log, "x", lambda ans, x: lambda g: g / x, holomorphic=True)
unary(np.log2, "x", lambda ans, x: lambda g: g / (LN2 * x), holomorphic=True)
unary(np.log10, "x", lambda ans, x: lambda g: g / (LN10 * x), holomorphic=True)
unary(np.log1p, "x", lambda ans, x: lambda g: g / (1 + x), holomorphic=True)
unary(np.sin, "x", lambda ans, x: lambda g: times(np.cos(x), g), holomorphic=True)
unary(np.cos, "x", lambda ans, x: lambda g: times(-np.sin(x), g), holomorphic=True)
unary(np.tan, "ans", lambda ans, x: lambda g: times(1 + np.square(ans), g), holomorphic=True)
unary(np.arcsin, "x", lambda ans, x: lambda g: g / np.sqrt(1 - np.square(x)), holomorphic=True)
unary(np.arccos, "x", lambda ans, x: lambda g: -g / np.sqrt(1 - np.square(x)), holomorphic=True)
unary(np.arctan, "x", lambda ans, x: lambda g: g / (1 + np.square(x)), holomorphic=True)
unary(np.sinh, "x", lambda ans, x: lambda g: times(np.cosh(x), g), holomorphic=True)
unary(np.cosh, "x", lambda ans, x: lambda g: times(np.sinh(x), g), holomorphic=True)
unary(np.tanh, "ans", lambda ans, x: lambda g: times(1 - np.square(ans), g), holomorphic=True)
unary(np.arcsinh, "x", lambda ans, x: lambda g: g / np.sqrt(np.square(x) + 1), holomorphic=True)
unary(np.arccosh, "x", lambda ans, x: lambda g: g / np.sqrt(np.square(x) - 1), holomorphic=True)
unary(np.arctanh, "x", lambda ans, x: lambda g: g / (1 - np.square(x)), holomorphic=True)
for _degrees in (np.deg2rad, np.radians):
    unary(_degrees, "", lambda ans, x: lambda g: g * (math.pi / 180))
for _radians in (np.rad2deg, np.degrees):
    unary(_radians, "", lambda ans, x: lambda g: g * (180 / math.pi))


def _unless_less(g: Any, a: Any, b: Any) -> Any:
    """Return `g`, half of it where a and b tie, and zero where a is less than b."""
    kept = np.where(np.less(a, b), g.dtype.type(0), g)
    ties = np.equal(a, b)
    return np.where(ties, g * 0.5, kept) if np.any(ties) else kept


def _number(x: Any, otherwise: float) -> Any:
    return np.where(np.isnan(x), otherwise, x)


def _mod_y(ans: Any, x: Any, y: Any) -> Any:
    return lambda g: -g * np.floor_divide(x, y)


def _power_x(ans: Any, x: Any, y: Any) -> Any:
    def vjp(g: Any) -> Any:
        if isinstance(y, (int, float)):
            return times(y * np.power(x, y - 1), g) if y != 0 else np.zeros_like(g)
        # y = 0 makes the derivative 0, also at x = 0, where x ** -1 is infinite.
        y_or_1 = np.where(np.equal(y, 0), np.ones_like(y), y)
        return times(y * np.power(x, y_or_1 - 1), g)

    return vjp


def _power_y(ans: Any, x: Any, y: Any) -> Any:
    def vjp(g: Any) -> Any:
        # As TensorFlow has it: no gradient where the logarithm is not defined.
        if np.iscomplexobj(x):
            return times(ans * np.log(np.where(np.equal(x, 0), 1, x)), g)
        positive = np.greater(x, 0)
        log = np.log(np.where(positive, x, np.ones_like(x)))
        return times(np.where(positive, log, np.zeros_like(log)) * ans, g)

    return vjp


binary(
    np.add, ("", ""), lambda ans, x, y: lambda g: g, lambda ans, x, y: lambda g: g, holomorphic=True
)
binary(
    np.subtract,
    ("", ""),
    lambda ans, x, y: lambda g: g,
    lambda ans, x, y: lambda g: -g,
    holomorphic=True,
)
binary(
    np.multiply,
    ("y", "x"),
    lambda ans, x, y: lambda g: g * y,
    lambda ans, x, y: lambda g: g * x,
    holomorphic=True,
)
binary(
    np.true_divide,
    ("y", "x y"),
    lambda ans, x, y: lambda g: g / y,
    lambda ans, x, y: lambda g: times(-x / np.square(y), g),
    holomorphic=True,
)
for _power in (np.power, np.float_power):
    binary(_power, ("x y", "ans x y"), _power_x, _power_y, holomorphic=True)
binary(
    np.maximum,
    ("x y", "x y"),
    lambda ans, x, y: lambda g: _unless_less(g, x, y),
    lambda ans, x, y: lambda g: _unless_less(g, y, x),
)
binary(
    np.minimum,
    ("x y", "x y"),
    lambda ans, x, y: lambda g: _unless_less(g, y, x),
    lambda ans, x, y: lambda g: _unless_less(g, x, y),
)
binary(
    np.fmax,
    ("x y", "x y"),
    lambda ans, x, y: lambda g: _unless_less(g, _number(x, -np.inf), _number(y, -np.inf)),
    lambda ans, x, y: lambda g: _unless_less(g, _number(y, -np.inf), _number(x, -np.inf)),
)
binary(
    np.fmin,
    ("x y", "x y"),
    lambda ans, x, y: lambda g: _unless_less(g, _number(y, np.inf), _number(x, np.inf)),
    lambda ans, x, y: lambda g: _unless_less(g, _number(x, np.inf), _number(y, np.inf)),
)
binary(
    np.logaddexp,
    ("ans x", "ans y"),
    lambda ans, x, y: lambda g: times(_softmax_share(x, ans, np.exp), g),
    lambda ans, x, y: lambda g: times(_softmax_share(y, ans, np.exp), g),
)
binary(
    np.logaddexp2,
    ("ans x", "ans y"),
    lambda ans, x, y: lambda g: times(_softmax_share(x, ans, np.exp2), g),
    lambda ans, x, y: lambda g: times(_softmax_share(y, ans, np.exp2), g),
)
binary(
    np.hypot,
    ("ans x", "ans y"),
    lambda ans, x, y: lambda g: times(_ratio(x, ans), g),
    lambda ans, x, y: lambda g: times(_ratio(y, ans), g),
)
binary(
    np.arctan2,
    ("x y", "x y"),
    lambda ans, x, y: lambda g: g * (y / (np.square(x) + np.square(y))),
    lambda ans, x, y: lambda g: g * (-x / (np.square(x) + np.square(y))),
)
binary(
    np.copysign,
    ("x y", ""),
    lambda ans, x, y: lambda g: g * np.where(np.signbit(x) == np.signbit(y), 1, -1),
    lambda ans, x, y: lambda g: np.zeros_like(g),
)
for _mod in (np.remainder, np.fmod):
    binary(
        _mod,
        ("", "x y"),
        lambda ans, x, y: lambda g: g,
        _mod_y if _mod is np.remainder else lambda ans, x, y: lambda g: -g * np.trunc(x / y),
    )


def _softmax_share(x: Any, ans: Any, exp: Any) -> Any:
    """Return exp(x - ans), also where both are infinite."""
    if np.all(np.isfinite(ans)):
        return exp(x - ans)
    # -inf against -inf has no preference: no gradient, as for finite numbers far below.
    return exp(x - np.where(np.isneginf(ans), np.zeros_like(ans), ans))


def _ratio(x: Any, norm: Any) -> Any:
    """Return x / norm, and 0 where the norm is 0."""
    return x / np.where(np.equal(norm, 0), np.ones_like(norm), norm)


# ---------------------------------------------------------------------- clip, where and others

_where = define(
    np.where,
    None,
    lambda ans, condition, x, y: lambda g: np.where(condition, g, g.dtype.type(0)),
    lambda ans, condition, x, y: lambda g: np.where(condition, g.dtype.type(0), g),
    reads=("", "condition", "condition"),
    elementwise=True,
    register=False,
    name="numpy.where",
)


@handle(np.where)
def where(condition: Any, *xy: Any) -> Any:
    """As `numpy.where`; with the condition alone, the indices of what is not zero."""
    return _where(condition, *xy) if xy else np.nonzero(condition)


def _clip_x(ans: Any, x: Any, low: Any, high: Any) -> Any:
    def vjp(g: Any) -> Any:
        outside = np.zeros(np.shape(g), np.bool_)
        if low is not None:
            outside = outside | np.less(x, low)
        if high is not None:
            outside = outside | np.greater(x, high)
        return np.where(outside, g.dtype.type(0), g)

    return vjp


def _clip_low(ans: Any, x: Any, low: Any, high: Any) -> Any:
    def vjp(g: Any) -> Any:
        taken = np.less(x, low)
        if high is not None:
            taken = taken & np.less_equal(low, high)
        return np.where(taken, g, g.dtype.type(0))

    return vjp


def _clip_high(ans: Any, x: Any, low: Any, high: Any) -> Any:
    def vjp(g: Any) -> Any:
        # The upper bound wins where the bounds cross.
        reached = x if low is None else np.maximum(x, low)
        return np.where(np.greater(reached, high), g, g.dtype.type(0))

    return vjp


_clip = define(
    lambda x, low, high, **kwargs: np.clip(x, low, high, **kwargs),
    _clip_x,
    _clip_low,
    _clip_high,
    reads=("x low high",) * 3,
    elementwise=True,
    register=False,
    name="numpy.clip",
)


@handle(np.clip)
def clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    **kwargs: Any,
) -> Any:
    """As `numpy.clip`. A value at a bound passes its gradient, as in TensorFlow and PyTorch."""
    if out is not None:
        kwargs["out"] = out
    low = a_min if min is None else min
    high = a_max if max is None else max
    return _clip(a, low, high, **kwargs)


def _sinc(ans: Any, x: Any) -> Any:
    def vjp(g: Any) -> Any:
        px = math.pi * np.where(np.equal(x, 0), np.ones_like(x), x)
        slope = (np.cos(px) * px - np.sin(px)) * math.pi / np.square(px)
        return g * np.where(np.equal(x, 0), np.zeros_like(slope), slope)

    return vjp


define(np.sinc, _sinc, reads=("x",), elementwise=True)
define(
    np.nan_to_num,
    lambda ans, x: lambda g: np.where(np.isfinite(x), g, g.dtype.type(0)),
    reads=("x",),
    elementwise=True,
    refuses=("copy",),
)
define(np.real, lambda ans, x: lambda g: g, reads=("",), elementwise=True)
define(np.copy, lambda ans, x: lambda g: g, reads=("",), elementwise=True, holomorphic=True)
_astype = HANDLERS["astype"] = define(
    lambda x, dtype: x.astype(dtype),
    lambda ans, x, dtype: lambda g: g,
    reads=("",),
    name="astype",
    register=False,
    holomorphic=True,
)

if hasattr(np, "astype"):  # NumPy 2.1

    @handle(np.astype)
    def astype(x: Any, dtype: Any, /, **kwargs: Any) -> Any:
        """As `numpy.astype`."""
        return _astype(x, dtype)


plain(
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.isfinite,
    np.isinf,
    np.isnan,
    np.signbit,
    np.logical_and,
    np.logical_or,
    np.logical_xor,
    np.logical_not,
    np.floor,
    np.ceil,
    np.trunc,
    np.rint,
    np.floor_divide,
    np.spacing,
    np.invert,
    np.bitwise_and,
    np.bitwise_or,
    np.bitwise_xor,
    np.left_shift,
    np.right_shift,
    np.gcd,
    np.lcm,
)
plain(
    np.round,
    np.around,
    np.fix,
    np.isneginf,
    np.isposinf,
    np.isreal,
    np.iscomplex,
    np.isclose,
    np.allclose,
    np.array_equal,
    np.array_equiv,
)
