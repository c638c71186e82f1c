"""Products of matrices and tensors, and norms."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fastopt.autodiff.fitting import unbroadcast
from fastopt.autodiff.numpy_vjps._define import define, handle
from fastopt.autodiff.numpy_vjps.reductions import kept
from fastopt.autodiff.tensor import HANDLERS, Differentiable

# ---------------------------------------------------------------------- matmul


def _matrix(a: Any, axis: int) -> Any:
    """Give a vector the axis that `matmul` lends it."""
    return np.expand_dims(a, axis) if a.ndim == 1 else a


def _matmul_g(g: Any, x: Any, y: Any) -> Any:
    """Give the gradient of a product the axes that `matmul` dropped because x or y is a vector."""
    if x.ndim == 1:
        g = np.expand_dims(g, -1 if y.ndim == 1 else -2)
    return np.expand_dims(g, -1) if y.ndim == 1 else g


def _matmul_x(ans: Any, x: Any, y: Any) -> Any:
    def vjp(g: Any) -> Any:
        if x.ndim == 1 and y.ndim == 1:
            return g * y
        g = _matmul_g(g, x, y)
        total = np.matmul(g, np.swapaxes(_matrix(y, 1), -1, -2))
        return (
            unbroadcast(total, (1, *x.shape)).reshape(x.shape)
            if x.ndim == 1
            else unbroadcast(total, x.shape)
        )

    return vjp


def _matmul_y(ans: Any, x: Any, y: Any) -> Any:
    def vjp(g: Any) -> Any:
        if x.ndim == 1 and y.ndim == 1:
            return g * x
        if y.ndim <= 2 < x.ndim:
            # One product over all rows of the batch instead of a batch of products that are summed.
            rows = x.reshape(-1, x.shape[-1])
            return np.matmul(rows.T, g.reshape(rows.shape[0], *y.shape[1:]))
        g = _matmul_g(g, x, y)
        total = np.matmul(np.swapaxes(_matrix(x, 0), -1, -2), g)
        return (
            unbroadcast(total, (*y.shape, 1)).reshape(y.shape)
            if y.ndim == 1
            else unbroadcast(total, y.shape)
        )

    return vjp


define(
    np.matmul,
    _matmul_x,
    _matmul_y,
    reads=("y", "x"),
    refuses=("out", "axes", "axis"),
    holomorphic=True,
)


# ---------------------------------------------------------------------- tensordot, dot, inner,
# outer


def _axes_pair(axes: Any, a_ndim: int, b_ndim: int) -> tuple[list[int], list[int]]:
    if np.ndim(axes) == 0 and not isinstance(axes, (list, tuple)):
        n = operator.index(axes)
        return list(range(a_ndim - n, a_ndim)), list(range(n))
    first, second = axes
    first = [first] if np.ndim(first) == 0 else list(first)
    second = [second] if np.ndim(second) == 0 else list(second)
    return [int(i) % a_ndim for i in first], [int(i) % b_ndim for i in second]


def _tensordot_a(ans: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    return _tensordot_side(a, b, axes, 0)


def _tensordot_b(ans: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    return _tensordot_side(a, b, axes, 1)


def _tensordot_side(a: Any, b: Any, axes: Any, side: int) -> Any:
    def vjp(g: Any) -> Any:
        pair = _axes_pair(axes, a.ndim, b.ndim)
        mine, other = pair[side], pair[1 - side]
        x, y = (a, b) if side == 0 else (b, a)
        n_y = y.ndim - len(other)
        free_x = [i for i in range(x.ndim) if i not in mine]
        free_y = [i for i in range(y.ndim) if i not in other]
        # The free axes of a come first in the result, those of b last.
        of_y = list(range(g.ndim - n_y, g.ndim)) if side == 0 else list(range(n_y))
        total = np.tensordot(g, y, (of_y, free_y))
        # Now the free axes of x stand first, then the contracted ones in the order in which y has
        # them.
        contracted = [mine[other.index(i)] for i in sorted(other)]
        return np.transpose(total, np.argsort(free_x + contracted))

    return vjp


define(np.tensordot, _tensordot_a, _tensordot_b, reads=("a b", "a b"), holomorphic=True)


def _arrays(*items: Any) -> list[Any]:
    return [x if isinstance(x, Differentiable) else np.asarray(x) for x in items]


def _refuse_out(name: str, out: Any) -> None:
    if out is not None:
        raise TypeError(f"{name}: out= is not supported on differentiable objects")


@handle(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """As `numpy.dot`."""
    _refuse_out("numpy.dot", out)
    a, b = _arrays(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return np.multiply(a, b)
    if b.ndim <= 2:
        return np.matmul(a, b)
    return np.tensordot(a, b, ([-1], [-2]))


@handle(np.inner)
def inner(a: Any, b: Any) -> Any:
    """As `numpy.inner`."""
    a, b = _arrays(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return np.multiply(a, b)
    return np.tensordot(a, b, ([-1], [-1]))


@handle(np.outer, np.linalg.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """As `numpy.outer`."""
    _refuse_out("numpy.outer", out)
    a, b = _arrays(a, b)
    return np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1)))


@handle(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    """As `numpy.vdot`, of real arrays."""
    a, b = _arrays(a, b)
    if "c" in (a.dtype.kind, b.dtype.kind):
        raise TypeError("numpy.vdot is not differentiated for complex arguments")
    return np.matmul(np.ravel(a), np.ravel(b))


@handle(np.kron)
def kron(a: Any, b: Any) -> Any:
    """As `numpy.kron`."""
    a, b = _arrays(a, b)
    n = max(a.ndim, b.ndim)
    a = np.reshape(a, (1,) * (n - a.ndim) + a.shape)
    b = np.reshape(b, (1,) * (n - b.ndim) + b.shape)
    wide_a = np.reshape(a, [m for pair in zip(a.shape, (1,) * n, strict=True) for m in pair])
    wide_b = np.reshape(b, [m for pair in zip((1,) * n, b.shape, strict=True) for m in pair])
    return np.reshape(wide_a * wide_b, [p * q for p, q in zip(a.shape, b.shape, strict=True)])


HANDLERS[np.linalg.matmul] = HANDLERS[np.matmul]
HANDLERS[np.linalg.tensordot] = HANDLERS[np.tensordot]

# ---------------------------------------------------------------------- square matrices


def _transposed(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


def _solve_a(ans: Any, a: Any, b: Any) -> Any:
    def vjp(g: Any) -> Any:
        g, x = (g[..., None], ans[..., None]) if b.ndim == 1 else (g, ans)
        by_b = np.linalg.solve(_transposed(a), g)
        return unbroadcast(-np.matmul(by_b, _transposed(x)), a.shape)

    return vjp


def _solve_b(ans: Any, a: Any, b: Any) -> Any:
    def vjp(g: Any) -> Any:
        if b.ndim > 1:
            return unbroadcast(np.linalg.solve(_transposed(a), g), b.shape)
        # A vector b stands for one column in each of a batch of systems.
        by_b = np.linalg.solve(_transposed(a), g[..., None])[..., 0]
        return unbroadcast(by_b, b.shape)

    return vjp


define(np.linalg.solve, _solve_a, _solve_b, reads=("ans a", "a"))
define(
    np.linalg.inv,
    lambda ans, a: lambda g: -np.matmul(np.matmul(_transposed(ans), g), _transposed(ans)),
    reads=("ans",),
)
define(
    np.linalg.det,
    lambda ans, a: lambda g: (g * ans)[..., None, None] * _transposed(np.linalg.inv(a)),
    reads=("ans a",),
)

# ---------------------------------------------------------------------- norms


def _two_norm(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sqrt(np.sum(np.square(x), axis=axis, keepdims=keepdims))


def _two_norm_x(ans: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    def vjp(g: Any) -> Any:
        # At zero the norm has a kink; its gradient there is 0, as in PyTorch.
        norm = kept(ans, x, axis)
        ratio = kept(g, x, axis) / np.where(np.equal(norm, 0), np.ones_like(norm), norm)
        return x * np.where(np.equal(norm, 0), np.zeros_like(ratio), ratio)

    return vjp


_two = define(_two_norm, _two_norm_x, reads=("ans x",), name="numpy.linalg.norm", register=False)


@handle(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """As `numpy.linalg.norm`; no gradient for orders that need singular values."""
    if x.dtype.kind == "c":
        raise TypeError("numpy.linalg.norm is not differentiated for complex arguments")
    if axis is None:
        if ord is None:
            return _two(x, tuple(range(x.ndim)), keepdims)
        axes = tuple(range(x.ndim))
    else:
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (operator.index(axis),)
    axes = tuple(i % x.ndim for i in axes)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"numpy.linalg.norm: improper number of axes {axes} for ord {ord!r}")


def _vector_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord is None or ord == 2:
        return _two(x, axes, keepdims)
    if isinstance(ord, str):
        raise ValueError(f"numpy.linalg.norm: invalid norm order {ord!r} for vectors")
    size = np.abs(x)
    if ord == np.inf:
        return np.max(size, axis=axes, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axes, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return np.sum(np.not_equal(x, 0).astype(x.dtype), axis=axes, keepdims=keepdims)
    return np.sum(size**ord, axis=axes, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord is None or ord in ("fro", "f"):
        return _two(x, axes, keepdims)
    row, column = axes
    if ord in (1, -1):
        summed, picked = row, column
    elif ord in (np.inf, -np.inf):
        summed, picked = column, row
    elif ord in (2, -2, "nuc"):
        raise TypeError(
            f"numpy.linalg.norm: ord={ord!r} of a matrix needs singular values and is not "
            "differentiated"
        )
    else:
        raise ValueError(f"numpy.linalg.norm: invalid norm order {ord!r} for matrices")
    sums = np.sum(np.abs(x), axis=summed, keepdims=True)
    result = (np.max if ord > 0 else np.min)(sums, axis=picked, keepdims=True)
    return result if keepdims else np.squeeze(result, axis=axes)


@handle(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """As `numpy.linalg.vector_norm`."""
    axes = tuple(range(x.ndim)) if axis is None else axis
    axes = axes if isinstance(axes, tuple) else (axes,)
    return _vector_norm(x, ord, tuple(i % x.ndim for i in axes), keepdims)


@handle(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """As `numpy.linalg.matrix_norm`."""
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)
