"""Gradients that fit: the incoming ones to the ys, and those of derivatives to their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._kernels import _nn
from fastopt.autodiff.aggregation import Patch
from fastopt.autodiff.primitives import is_inexact
from fastopt.autodiff.tensor import Differentiable
from fastopt.indexed_slices import IndexedSlices

_FIRST = (0,)


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient down to the shape of an argument that was broadcast."""
    extra = g.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1
    )
    if not axes:
        return g
    if axes == _FIRST and extra == len(shape) == 1 and _nn.fits(g):
        return _nn.mask(g, None, True)[1]  # of a bias: NumPy takes five times as long
    return np.sum(g, axis=axes, dtype=g.dtype).reshape(shape)


def fit(term: Any, parent: Any, operation: Any, argnum: int) -> Any:
    """Give a gradient the dtype and shape of what it belongs to."""
    if type(term) is np.ndarray and term.shape == parent.shape and term.dtype == parent.dtype:
        if term.dtype.kind != "c":
            return term  # By far the most frequent case.
    if isinstance(term, IndexedSlices):
        return _fit_slices(term, parent, operation, argnum)
    if isinstance(term, Patch):
        return term  # Indexing changes no dtype.
    if type(term) is not np.ndarray and not isinstance(term, np.generic):
        term = np.asarray(term)
    shape = parent.shape
    if term.shape != shape:
        if not operation.elementwise:
            raise ValueError(
                f"{operation.name}: the gradient of argument {argnum} has shape {term.shape}, the "
                f"argument has shape {shape}"
            )
        term = unbroadcast(term, shape)
    dtype = parent.dtype
    if dtype.kind == "c" and not operation.holomorphic:
        raise TypeError(f"{operation.name} is not differentiated for complex arguments")
    if term.dtype != dtype:
        kind = term.dtype.kind
        if kind not in "fciub" and not is_inexact(term.dtype):
            raise TypeError(
                f"{operation.name}: the gradient of argument {argnum} has dtype {term.dtype}, the "
                f"argument has dtype {dtype}"
            )
        if kind == "c" and dtype.kind != "c":
            term = term.real
        term = term.astype(dtype)
    return term


def _fit_slices(term: IndexedSlices, parent: Any, operation: Any, argnum: int) -> IndexedSlices:
    shape = parent.shape
    if term.values.shape[1:] != shape[1:] or not shape or term.dense_shape not in (None, shape):
        raise ValueError(
            f"{operation.name}: the gradient of argument {argnum} has rows of shape "
            f"{term.values.shape[1:]} and dense_shape {term.dense_shape}, the argument has shape "
            f"{shape}"
        )
    if term.dtype != parent.dtype or term.dense_shape is None:
        term = IndexedSlices(term.values.astype(parent.dtype, copy=False), term.indices, shape)
    return term


def seed(y: Differentiable, grad_y: Any, position: int) -> Any:
    """Return the incoming gradient of a y, ones if None is given, in memory of its own."""
    if grad_y is None:
        if y.dtype.kind == "c":
            raise TypeError(
                f"gradients of complex tensors must set grad_ys (ys[{position}] is {y.name!r} of "
                f"dtype {y.dtype})"
            )
        return np.ones(y.shape, y.dtype) if y.shape else y.dtype.type(1)
    if isinstance(grad_y, IndexedSlices):
        grad_y = grad_y.to_dense()
    g = np.array(grad_y)
    real = g.dtype.kind in "iuf" or (g.dtype.kind != "c" and is_inexact(g.dtype))
    if not (g.dtype.kind == "c" if y.dtype.kind == "c" else real):
        kind = "complex" if y.dtype.kind == "c" else "real"
        raise TypeError(
            f"grad_ys[{position}] has dtype {g.dtype}, but ys[{position}], {y.name!r} of dtype "
            f"{y.dtype}, needs a {kind} one"
        )
    if g.shape != y.shape:
        raise ValueError(
            f"grad_ys[{position}] has shape {g.shape}, but ys[{position}], {y.name!r}, has shape "
            f"{y.shape}"
        )
    return g.astype(y.dtype, copy=False)
