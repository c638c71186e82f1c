"""Functions that sum, multiply, average or pick along axes, and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt.autodiff.numpy_vjps._define import define, handle, plain, times
from fastopt.autodiff.primitives import is_default
from fastopt.autodiff.tensor import HANDLERS, Differentiable

REFUSED = ("out", "where", "initial", "mean", "correction")


def axes_of(x: Any, axis: Any) -> tuple[int, ...]:
    """Return the axes that a reduction of `x` goes over, all not negative."""
    if axis is None:
        return tuple(range(x.ndim))
    if isinstance(axis, tuple):
        return tuple(int(i) % x.ndim for i in axis)
    return (int(axis) % x.ndim,) if x.ndim else ()


def kept(a: Any, x: Any, axis: Any) -> Any:
    """Give a reduced array `a` the reduced axes of `x` back, with length one."""
    shape = list(x.shape)
    for i in axes_of(x, axis):
        shape[i] = 1
    return np.reshape(a, shape)


def spread(g: Any, x: Any, axis: Any) -> Any:
    """Broadcast the gradient of a reduction over `x`, as a read-only view."""
    if axis is None and g.dtype.char in "fd":
        # As `broadcast_to` makes it, which takes seven times as long.
        view: Any = np.ndarray(x.shape, g.dtype, np.asarray(g), 0, (0,) * x.ndim)
        view.flags.writeable = False
        return view
    return np.broadcast_to(kept(g, x, axis), x.shape)


def count(x: Any, axis: Any) -> int:
    """Return how many elements a reduction of `x` joins."""
    n = 1
    for i in axes_of(x, axis):
        n *= x.shape[i]
    return n


def _sum(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    return lambda g: spread(g, x, axis)


def _mean(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    return lambda g: spread(g / count(x, axis), x, axis)


def _mean_of(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = np._NoValue,
    *,
    where: Any = np._NoValue,
) -> Any:
    """Return what `np.mean` returns; the mean of all numbers, which losses end with, sooner."""
    plain = axis is dtype is out is None and keepdims is where is np._NoValue
    if plain and type(a) is np.ndarray and a.dtype.char in "fd" and a.size:
        total = np.add.reduce(a, axis=None)
        return type(total)(float(total) / a.size)
    return np.mean(a, axis, dtype, out, keepdims, where=where)


def _extreme(ans: Any, x: Any, axis: Any = None, **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        # Elements that tie share the gradient evenly.
        chosen = np.equal(x, kept(ans, x, axis))
        n = np.count_nonzero(chosen, axis=axes_of(x, axis), keepdims=True)
        return np.where(
            chosen, kept(g, x, axis) / np.maximum(n, 1).astype(g.dtype), g.dtype.type(0)
        )

    return vjp


def _prod(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        if np.all(np.not_equal(x, 0)):
            return times(kept(ans, x, axis) / x, kept(g, x, axis))
        return kept(g, x, axis) * _products_of_others(x, axes_of(x, axis))

    return vjp


def _products_of_others(x: Any, axes: tuple[int, ...]) -> Any:
    """Return for each element the product of those that it is multiplied with, zeros and all."""
    free = tuple(i for i in range(x.ndim) if i not in axes)
    order = free + axes
    moved = np.transpose(x, order)
    flat = moved.reshape(moved.shape[: len(free)] + (-1,))
    before = np.ones_like(flat)
    after = np.ones_like(flat)
    np.cumprod(flat[..., :-1], axis=-1, out=before[..., 1:])
    after[..., :-1] = np.cumprod(flat[..., :0:-1], axis=-1)[..., ::-1]
    return np.transpose((before * after).reshape(moved.shape), np.argsort(order))


def _var(
    ans: Any,
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    **kwargs: Any,
) -> Any:
    def vjp(g: Any) -> Any:
        scale = 2.0 / max(count(x, axis) - ddof, 0) if count(x, axis) > ddof else np.nan
        return times(x - np.mean(x, axis=axes_of(x, axis), keepdims=True), scale * kept(g, x, axis))

    return vjp


def _std(
    ans: Any,
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    **kwargs: Any,
) -> Any:
    def vjp(g: Any) -> Any:
        # Where nothing varies the deviation has a kink; its gradient there is 0, as in PyTorch.
        still = np.equal(ans, 0)
        per_var = np.where(still, np.zeros_like(ans), g / (2 * np.where(still, 1, ans)))
        return _var(None, x, axis, ddof=ddof)(per_var.astype(g.dtype, copy=False))

    return vjp


def _cumsum(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        if axis is None:
            return np.cumsum(g[::-1])[::-1].reshape(x.shape)
        return np.flip(np.cumsum(np.flip(g, axis), axis), axis)

    return vjp


def _cumprod(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        flat, along = (x.reshape(-1), 0) if axis is None else (x, axis)
        rows = np.moveaxis(flat, along, -1)
        gs = np.moveaxis(g, along, -1)
        total = np.zeros_like(rows)
        # d ans[k] / d x[i] is the product of all x[j], j <= k, but x[i]: exact where some are zero.
        for i in range(rows.shape[-1]):
            others = rows.copy()
            others[..., i] = 1
            total[..., i] = np.sum(gs[..., i:] * np.cumprod(others, axis=-1)[..., i:], axis=-1)
        return np.moveaxis(total, -1, along).reshape(x.shape)

    return vjp


def _nansum(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    return lambda g: np.where(np.isnan(x), g.dtype.type(0), spread(g, x, axis))


def _nanmean(ans: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        n = np.count_nonzero(~np.isnan(x), axis=axes_of(x, axis), keepdims=True).astype(g.dtype)
        return np.where(np.isnan(x), g.dtype.type(0), kept(g, x, axis) / n)

    return vjp


define(np.sum, _sum, reads=("",), refuses=REFUSED, holomorphic=True)
HANDLERS[np.mean] = define(
    _mean_of, _mean, reads=("",), name="numpy.mean", register=False, refuses=REFUSED,
    holomorphic=True,
)  # fmt: skip
define(np.prod, _prod, reads=("ans x",), refuses=REFUSED)
define(np.var, _var, reads=("x",), refuses=REFUSED)
define(np.std, _std, reads=("ans x",), refuses=REFUSED)
for _function in (np.max, np.min, np.nanmax, np.nanmin):
    define(_function, _extreme, reads=("ans x",), refuses=REFUSED)
HANDLERS[np.amax] = HANDLERS[np.max]
HANDLERS[np.amin] = HANDLERS[np.min]
define(np.cumsum, _cumsum, reads=("",), holomorphic=True)
define(np.cumprod, _cumprod, reads=("x",))
define(np.nansum, _nansum, reads=("x",), refuses=REFUSED)
define(np.nanmean, _nanmean, reads=("x",), refuses=REFUSED)


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.logaddexp.reduce(x, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]


def _logsumexp_x(ans: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    def vjp(g: Any) -> Any:
        log = kept(ans, x, axis)
        return times(np.exp(x - np.where(np.isfinite(log), log, 0)), kept(g, x, axis))

    return vjp


_logaddexp_reduce = define(
    _logsumexp, _logsumexp_x, reads=("ans x",), name="numpy.logaddexp.reduce", register=False
)


def _reduction(function: Any, name: str) -> Any:
    def call(
        x: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        **kwargs: Any,
    ) -> Any:
        # A ufunc's reduce goes along the first axis unless told otherwise.
        for key, value in [("out", out), *kwargs.items()]:
            if not is_default(value):
                raise TypeError(f"{name}: {key}= is not supported on differentiable objects")
        extra = {} if dtype is None else {"dtype": dtype}
        return function(x, axis=axis, keepdims=keepdims, **extra)

    return call


HANDLERS[np.add, "reduce"] = _reduction(np.sum, "numpy.add.reduce")
HANDLERS[np.multiply, "reduce"] = _reduction(np.prod, "numpy.multiply.reduce")
HANDLERS[np.maximum, "reduce"] = _reduction(np.max, "numpy.maximum.reduce")
HANDLERS[np.minimum, "reduce"] = _reduction(np.min, "numpy.minimum.reduce")
HANDLERS[np.logaddexp, "reduce"] = _reduction(_logaddexp_reduce, "numpy.logaddexp.reduce")


@handle((np.add, "accumulate"))
def accumulate(x: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """As ``numpy.add.accumulate``."""
    return np.cumsum(x, axis=axis, dtype=dtype, out=None if out == (None,) else out)


@handle(np.average)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """As `numpy.average`, without `returned`."""
    if returned:
        raise TypeError("numpy.average: returned= is not supported on differentiable objects")
    if weights is None:
        return np.mean(a, axis=axis, keepdims=bool(keepdims))
    if not isinstance(weights, Differentiable):
        weights = np.asarray(weights)
    if weights.shape != a.shape:
        if axis is None or isinstance(axis, tuple):
            raise TypeError(
                f"numpy.average: weights of shape {weights.shape} need the shape of a, {a.shape}, "
                "or one axis"
            )
        if weights.shape != (a.shape[axis],):
            raise ValueError(
                f"numpy.average: weights of shape {weights.shape} do not fit axis {axis} of shape "
                f"{a.shape}"
            )
        shape = [1] * a.ndim
        shape[axis] = -1
        weights = np.reshape(weights, shape)
    total = np.sum(np.broadcast_to(weights, a.shape), axis=axis, keepdims=bool(keepdims))
    return np.sum(a * weights, axis=axis, keepdims=bool(keepdims)) / total


plain(
    np.argmax,
    np.argmin,
    np.nanargmax,
    np.nanargmin,
    np.argsort,
    np.argpartition,
    np.argwhere,
    np.flatnonzero,
    np.nonzero,
    np.count_nonzero,
    np.searchsorted,
    np.digitize,
    np.lexsort,
    np.all,
    np.any,
    np.unique,
    np.isin,
    np.histogram,
    np.bincount,
)
for _logical in (np.logical_and, np.logical_or, np.logical_xor):

    def _reduce(x: Any, *args: Any, ufunc: Any = _logical, **kwargs: Any) -> Any:
        return ufunc.reduce(np.asarray(x), *args, **kwargs)

    HANDLERS[_logical, "reduce"] = _reduce
