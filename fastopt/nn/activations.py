"""Activation functions, each one recorded operation with its own derivative."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from fastopt._kernels import _nn
from fastopt.autodiff import defvjp
from fastopt.nn import numerics
from fastopt.nn.numerics import Array, as_floating, widened
from fastopt.nn.recorded import recorded

_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715


def relu(features: Any) -> Any:
    """Rectified linear unit, ``max(features, 0)``.

    Parameters
    ----------
    features : array_like, Variable or Tensor
        Real numbers of any shape.

    Returns
    -------
    Tensor or ndarray
        Of the shape and dtype of `features`; a Tensor if `features` is a Variable or Tensor. The
        derivative at 0 is 0. NaN stays NaN.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.relu([-1.0, 0.0, 2.0])
    array([0., 0., 2.])
    """
    return _relu(features)


@recorded
def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _relu_vjp(ans: Any, x: Any) -> Any:
    def vjp(g: Array) -> Array:
        if _nn.fits(g) and _nn.fits(x) and g.dtype == x.dtype:
            return _nn.mask(g, x)[0]
        # A product with the mask: choosing by it element by element costs seven times as much.
        return g * np.greater(x, 0)

    return vjp


def leaky_relu(features: Any, alpha: float = 0.2) -> Any:
    """Leaky rectified linear unit: `features` where positive, ``alpha * features`` elsewhere.

    Parameters
    ----------
    features : array_like, Variable or Tensor
        Real numbers of any shape.
    alpha : float
        Slope on the negative side.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `features`. The derivative at 0 is `alpha`.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.leaky_relu([-1.0, 2.0], alpha=0.5)
    array([-0.5,  2. ])
    """
    return _leaky_relu(features, float(alpha))


@recorded
def _leaky_relu(x: Any, alpha: float) -> Any:
    x = as_floating(x, "features")
    steeper = np.maximum if alpha <= 1 else np.minimum
    return steeper(x, x * alpha)


def elu(features: Any) -> Any:
    """Exponential linear unit: `features` where positive, ``exp(features) - 1`` elsewhere.

    Parameters
    ----------
    features : array_like, Variable or Tensor
        Real numbers of any shape.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `features`.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.elu([-1.0, 2.0]).round(4)
    array([-0.6321,  2.    ])
    """
    return _elu(features)


@recorded
def _elu(x: Any) -> Any:
    x = as_floating(x, "features")
    return np.maximum(x, 0) + np.expm1(np.minimum(x, 0))  # one of the two is 0


def sigmoid(x: Any) -> Any:
    """Logistic function, ``1 / (1 + exp(-x))``, without overflow.

    Parameters
    ----------
    x : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `x`.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.sigmoid([-1e4, 0.0, 1e4])
    array([0. , 0.5, 1. ])
    """
    return _sigmoid(x)


@recorded
def _sigmoid(x: Any) -> Any:
    return numerics.sigmoid(as_floating(x, "x"))


def log_sigmoid(x: Any) -> Any:
    """Logarithm of the logistic function, ``-log(1 + exp(-x))``, without overflow.

    Parameters
    ----------
    x : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `x`.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.log_sigmoid([-1e4, 1e4])
    array([-10000.,     -0.])
    """
    return _log_sigmoid(x)


@recorded
def _log_sigmoid(x: Any) -> Any:
    return -numerics.softplus(-as_floating(x, "x"))


def softplus(features: Any) -> Any:
    """Smooth rectifier, ``log(1 + exp(features))``, without overflow.

    Parameters
    ----------
    features : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `features`.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.softplus([-1e4, 1e4])
    array([    0., 10000.])
    """
    return _softplus(features)


@recorded
def _softplus(x: Any) -> Any:
    return numerics.softplus(as_floating(x, "features"))


def tanh(x: Any) -> Any:
    """Hyperbolic tangent; the same as ``numpy.tanh(x)``.

    Parameters
    ----------
    x : array_like, Variable or Tensor
        Real numbers of any shape.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `x`.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.tanh([-1e4, 0.0])
    array([-1.,  0.])
    """
    return np.tanh(x)


def silu(features: Any, beta: float = 1.0) -> Any:
    """Sigmoid-weighted linear unit, ``features * sigmoid(beta * features)``.

    Parameters
    ----------
    features : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.
    beta : float
        Steepness of the sigmoid.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `features`; 0 at -inf.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.silu([-1e4, 0.0, 1.0]).round(4)
    array([-0.    ,  0.    ,  0.7311])
    """
    return _silu(features, float(beta))


swish = silu


@recorded
def _silu(x: Any, beta: float) -> Any:
    x = as_floating(x, "features")
    wide = widened(x)
    gate = numerics.sigmoid(wide * beta)
    with np.errstate(invalid="ignore", under="ignore"):
        out = np.asarray(wide * gate)
    if not numerics.sum_is_finite(out):
        out[np.isinf(wide) & (gate == 0)] = 0  # at an infinite end the gate wins
    return out.astype(x.dtype, copy=False)


def _silu_vjp(ans: Any, x: Any, beta: float) -> Any:
    def vjp(g: Array) -> Array:
        wide = widened(np.asarray(x))
        gate = numerics.sigmoid(wide * beta)
        with np.errstate(invalid="ignore", under="ignore"):
            slope = np.asarray((1 - gate) * gate * beta)
            bend = np.asarray(wide * slope)
        if not numerics.sum_is_finite(bend):
            bend[np.isinf(wide) & (slope == 0)] = 0  # the slope of the gate vanishes faster
        bend += gate
        return (g * bend).astype(x.dtype, copy=False)

    return vjp


def gelu(features: Any, approximate: bool = False) -> Any:
    """Gaussian error linear unit, ``features * Phi(features)``.

    Parameters
    ----------
    features : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.
    approximate : bool
        If true, ``0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`` instead of the normal
        distribution function Phi.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `features`; 0 at -inf.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.gelu([-1.0, 0.0, 1.0]).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    return _gelu(features, bool(approximate))


@recorded
def _gelu(x: Any, approximate: bool) -> Any:
    x = as_floating(x, "features")
    wide = widened(x)
    with np.errstate(under="ignore"):
        # Below the bound Phi is 0 in every dtype, so the clip changes nothing but -inf * 0.
        out = np.maximum(wide, -40) * _gelu_gate_and_slope(wide, approximate)[0]
    return out.astype(x.dtype, copy=False)


def _gelu_vjp(ans: Any, x: Any, approximate: bool) -> Any:
    def vjp(g: Array) -> Array:
        with np.errstate(under="ignore"):
            gate, slope = _gelu_gate_and_slope(widened(np.asarray(x)), approximate)
            return (g * (gate + slope)).astype(x.dtype, copy=False)

    return vjp


def _gelu_gate_and_slope(x: Array, approximate: bool) -> tuple[Array, Array]:
    """Return Phi(x) and ``x * Phi'(x)``, or their approximations."""
    if approximate:
        clipped = np.clip(x, -10, 10)  # tanh is exactly +-1 from there on
        square = clipped * clipped
        tanh = np.tanh(_SQRT_2_OVER_PI * clipped * (1 + _GELU_CUBIC * square))
        inner = _SQRT_2_OVER_PI * (1 + 3 * _GELU_CUBIC * square)
        return 0.5 * (1 + tanh), 0.5 * clipped * (1 - tanh * tanh) * inner
    from scipy.special import erfc  # here, so that importing fastopt does not load scipy

    clipped = np.clip(x, -40, 40)
    density = _INV_SQRT_2PI * np.exp(-0.5 * clipped * clipped)
    return 0.5 * erfc(-_SQRT_HALF * clipped), clipped * density


def softmax(logits: Any, axis: int = -1) -> Any:
    """Softmax, ``exp(logits) / sum(exp(logits))`` along an axis, without overflow.

    Parameters
    ----------
    logits : array_like, Variable or Tensor
        Real numbers with at least one axis; integers are computed in float64. A logit of -inf gets
        probability 0; +inf, or nothing but -inf along the axis, gives NaN.
    axis : int
        The axis that sums to 1.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `logits`.

    Raises
    ------
    numpy.exceptions.AxisError
        If `logits` has no such axis.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.softmax([1e4, 1e4])
    array([0.5, 0.5])
    """
    return _softmax(logits, axis)


@recorded
def _softmax(x: Any, axis: int) -> Any:
    x = as_floating(x, "logits")
    return numerics.softmax(x, normalize_axis_index(axis, x.ndim))


def _softmax_vjp(ans: Any, x: Any, axis: int) -> Any:
    def vjp(g: Array) -> Array:
        probabilities = widened(np.asarray(ans))
        out = probabilities * g
        out -= probabilities * np.sum(out, axis=axis, keepdims=True)
        return out.astype(ans.dtype, copy=False)

    return vjp


def log_softmax(logits: Any, axis: int = -1) -> Any:
    """Logarithm of the softmax, ``logits - log(sum(exp(logits)))`` along an axis, without overflow.

    Parameters
    ----------
    logits : array_like, Variable or Tensor
        Real numbers with at least one axis; integers are computed in float64.
    axis : int
        The axis whose exponentials sum to 1.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `logits`.

    Raises
    ------
    numpy.exceptions.AxisError
        If `logits` has no such axis.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.log_softmax([0.0, -1e4])
    array([     0., -10000.])
    """
    return _log_softmax(logits, axis)


@recorded
def _log_softmax(x: Any, axis: int) -> Any:
    x = as_floating(x, "logits")
    return numerics.log_softmax(x, normalize_axis_index(axis, x.ndim))


def _log_softmax_vjp(ans: Any, x: Any, axis: int) -> Any:
    def vjp(g: Array) -> Array:
        with np.errstate(under="ignore"):
            probabilities = np.exp(widened(np.asarray(ans)))
        out = g - probabilities * np.sum(g, axis=axis, keepdims=True, dtype=probabilities.dtype)
        return np.asarray(out).astype(ans.dtype, copy=False)

    return vjp


defvjp(_relu, _relu_vjp, reads=[["x"]])
defvjp(
    _leaky_relu,
    lambda ans, x, alpha: lambda g: np.where(np.greater(x, 0), g, g * alpha),
    reads=[["x"]],
)
defvjp(_elu, lambda ans, x: lambda g: g * (np.minimum(ans, 0) + 1), reads=[["ans"]])
defvjp(_sigmoid, lambda ans, x: lambda g: g * (ans * (1 - ans)), reads=[["ans"]])
defvjp(_log_sigmoid, lambda ans, x: lambda g: g * numerics.sigmoid(-np.asarray(x)), reads=[["x"]])
defvjp(_softplus, lambda ans, x: lambda g: g * numerics.sigmoid(np.asarray(x)), reads=[["x"]])
defvjp(_silu, _silu_vjp, reads=[["x"]])
defvjp(_gelu, _gelu_vjp, reads=[["x"]])
defvjp(_softmax, _softmax_vjp, reads=[["ans"]])
defvjp(_log_softmax, _log_softmax_vjp, reads=[["ans"]])
