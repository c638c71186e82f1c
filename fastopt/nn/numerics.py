"""The numerically delicate formulas behind activations and losses, on plain arrays.

Every function takes and returns floating arrays of one shape. Nothing overflows on finite input,
and no floating-point warning is raised for a result that is right. Half precision is computed in
float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import numpy as np

from fastopt._arrays import compute_dtype, is_bfloat16, is_half
from fastopt._kernels import _losses

Array = np.ndarray[Any, Any]
P = ParamSpec("P")


def as_floating(value: Any, name: str) -> Array:
    """Return `value` as a floating array; integers become float64, as in NumPy's own functions.

    Raises
    ------
    TypeError
        If the values are not real numbers.
    """
    array = np.asarray(value)
    if array.dtype.kind == "f" or is_bfloat16(array.dtype):
        return array
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")


def widened(x: Array) -> Array:
    """Return `x`, in float32 if it is of half precision: sums and exponentials need the range."""
    return x.astype(compute_dtype(x.dtype), copy=False)


def sum_is_finite(x: Array) -> bool:
    """Say whether no element is infinite or NaN; of finite ones the sum may still overflow.

    One quick pass that tells whether rare cases need a closer look.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(x)))


def _half_as_float32(
    f: Callable[Concatenate[Array, P], Array],
) -> Callable[Concatenate[Array, P], Array]:
    @functools.wraps(f)
    def wrapper(x: Array, /, *args: P.args, **kwargs: P.kwargs) -> Array:
        if is_half(x.dtype):
            with np.errstate(under="ignore"):
                return f(x.astype(np.float32), *args, **kwargs).astype(x.dtype)
        return f(x, *args, **kwargs)

    return wrapper


@_half_as_float32
def sigmoid(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))``; where the exponential overflows, 0 is the right answer."""
    out = np.negative(x, out=np.empty(x.shape, x.dtype))
    with np.errstate(over="ignore", under="ignore"):
        np.exp(out, out=out)
        out += 1
        return np.reciprocal(out, out=out)


@_half_as_float32
def softplus(x: Array) -> Array:
    """Return ``log(1 + exp(x))`` as ``max(x, 0) + log1p(exp(-|x|))``."""
    out = _log1p_exp_minus_abs(x)
    out += np.maximum(x, 0)
    return out


def log_sum_exp_minus(x: Array, axis: int) -> tuple[Array, Array]:
    """Return `x` less its maximum along `axis`, and the log of the sum of exponentials of that.

    Along an axis of length 0 the sum is empty and its logarithm -inf.
    """
    with np.errstate(under="ignore", divide="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return shifted, np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


@_half_as_float32
def softmax(x: Array, axis: int) -> Array:
    """Return ``exp(x) / sum(exp(x))`` along `axis`."""
    with np.errstate(under="ignore"):
        out = np.asarray(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
        np.exp(out, out=out)
        out /= np.sum(out, axis=axis, keepdims=True)
    return out


@_half_as_float32
def log_softmax(x: Array, axis: int) -> Array:
    """Return ``x - log(sum(exp(x)))`` along `axis`."""
    shifted, log_sum = log_sum_exp_minus(x, axis)
    shifted -= log_sum
    return shifted


def sigmoid_cross_entropy(labels: Array, x: Array, slope: Array | None = None) -> Array:
    """Return ``max(x, 0) - x * labels + log1p(exp(-|x|))``.

    An infinite logit on the side of its label costs nothing, where the difference is NaN. With a
    `slope`, which only what the kernel fits may have, ``sigmoid(x) - labels`` is written there.
    """
    if _losses.fits(labels, x):
        loss = np.empty(x.shape, x.dtype)
        if _losses.sigmoid_cross_entropy(labels, x, loss, slope):
            return loss
    with np.errstate(invalid="ignore", under="ignore"):
        out = np.maximum(x, 0, out=np.empty(x.shape, x.dtype))
        product = np.multiply(x, labels, out=np.empty(x.shape, x.dtype))
        out -= product
        out += _log1p_exp_minus_abs(x, out=product)
    if not sum_is_finite(out):
        infinite = np.isinf(x)
        wrong = np.where(x >= 0, 1 - labels, labels)[infinite]
        with np.errstate(invalid="ignore"):
            out[infinite] = np.where(wrong == 0, 0, wrong * np.inf)
    return out


def cross_entropy(labels: Array, logits: Array, axis: int) -> Array:
    """Return ``-sum(labels * log_softmax(logits))`` along `axis`; a label of 0 costs nothing.

    That holds for a logit of -inf too (a class that is masked out), where the product would be NaN.
    """
    shifted, log_sum = log_sum_exp_minus(logits, axis)
    np.subtract(log_sum, shifted, out=shifted)
    with np.errstate(invalid="ignore"):
        terms = labels * shifted
        loss = np.sum(terms, axis=axis)
        if not sum_is_finite(loss):
            terms[(labels == 0) & (shifted == np.inf)] = 0
            loss = np.sum(terms, axis=axis)
    return np.asarray(loss)


def _log1p_exp_minus_abs(x: Array, out: Array | None = None) -> Array:
    out = np.abs(x, out=np.empty(x.shape, x.dtype) if out is None else out)
    with np.errstate(under="ignore"):
        np.negative(out, out=out)
        np.exp(out, out=out)
        return np.log1p(out, out=out)
