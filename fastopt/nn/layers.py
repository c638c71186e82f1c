"""`linear`: a dense layer as one recorded operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fastopt._arrays import shown
from fastopt._kernels import _nn
from fastopt.autodiff.primitives import defvjp_argnums
from fastopt.nn.activations import relu
from fastopt.nn.numerics import Array
from fastopt.nn.recorded import recorded


def linear(x: Any, w: Any, b: Any = None, activation: Callable[[Any], Any] | None = None) -> Any:
    """Dense layer, ``activation(x @ w + b)``, in one operation.

    It costs less than the same written with operators: the bias and `relu` take one pass over the
    product, their derivatives another, and several inputs are not copied into one.

    Parameters
    ----------
    x : ndarray, Variable or Tensor, shape (..., K), or a list or tuple of them
        The input. A list or tuple stands for its items joined along the last axis; their other axes
        are the same.
    w : array_like, Variable or Tensor, shape (K, N)
        The weights; K is the sum over all inputs.
    b : array_like, Variable or Tensor, shape (N,), optional
        The bias.
    activation : callable, optional
        Applied to the sum. `relu` is computed together with it, anything else afterwards.

    Returns
    -------
    Tensor or ndarray, shape (..., N)
        Of the dtype of ``x @ w + b``.

    Raises
    ------
    TypeError
        If `activation` is not callable, or the arguments are not numbers.
    ValueError
        If the shapes do not fit each other.

    Notes
    -----
    Where the result of `relu` is 0, the gradient is exactly 0, whatever comes in.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.ones((3, 2)), name="w")
    >>> rows, more = np.array([[1.0, 2.0]]), np.array([[3.0]])
    >>> fo.nn.linear([rows, more], w, np.array([0.0, -9.0]), fo.nn.relu).numpy()
    array([[6., 0.]])
    """
    if activation is not None and not callable(activation):
        raise TypeError(
            f"activation must be a function such as fastopt.nn.relu, got {shown(activation)}"
        )
    inputs: Sequence[Any] = x if isinstance(x, list | tuple) else (x,)
    if not inputs:
        raise ValueError("x must hold at least one input, got an empty list")
    if activation is relu:
        return _linear_relu(w, b, *inputs)
    out = _linear(w, b, *inputs)
    return out if activation is None else activation(out)


class _Inputs:
    """The inputs of a layer as matrices of one dtype, and the rows of the weights for each.

    Attributes
    ----------
    lead : tuple of int
        All axes of the inputs but the last.
    matrices : list of ndarray
        Of shape (product of `lead`, last axis).
    ends : list of int
        The row of the weights where each input begins, and the end of the last.
    """

    __slots__ = ("lead", "matrices", "ends")

    def __init__(self, inputs: Sequence[Any], w: Array, b: Array | None) -> None:
        arrays = [np.asarray(a) for a in inputs]
        if w.ndim != 2:
            raise ValueError(f"w must be a matrix, got shape {w.shape}")
        if b is not None and b.shape != w.shape[1:]:
            raise ValueError(f"b must have shape {w.shape[1:]} as w has {w.shape}, got {b.shape}")
        shapes = [a.shape for a in arrays]
        if () in shapes or any(shape[:-1] != shapes[0][:-1] for shape in shapes):
            raise ValueError(
                f"inputs must have the same axes but for the last one, got shapes {shapes}"
            )
        self.ends = [0, *accumulate(shape[-1] for shape in shapes)]
        if self.ends[-1] != w.shape[0]:
            raise ValueError(
                f"w must have as many rows as the input has columns: {w.shape[0]} of {w.shape} "
                f"for {self.ends[-1]} of {' and '.join(map(str, shapes))}"
            )
        self.lead = shapes[0][:-1]
        if len(arrays) > 1:
            dtype = np.result_type(*arrays)
            arrays = [a.astype(dtype, copy=False) for a in arrays]
        n = math.prod(self.lead)
        self.matrices = [a if a.ndim == 2 else a.reshape(n, a.shape[-1]) for a in arrays]

    def slices(self) -> Iterator[tuple[Array, slice]]:
        """Yield each matrix and the rows of the weights that it meets."""
        for i, matrix in enumerate(self.matrices):
            yield matrix, slice(self.ends[i], self.ends[i + 1])


def _forward(w: Any, b: Any, inputs: Sequence[Any], with_relu: bool) -> Array:
    w = np.asarray(w)
    b = None if b is None else np.asarray(b)
    x = _Inputs(inputs, w, b)
    out: Any = None
    for matrix, rows in x.slices():
        product = np.matmul(matrix, w[rows])
        out = product if out is None else np.add(out, product, out=out)
    if b is not None and not (_nn.fits(b) and b.dtype == out.dtype):
        out = out + b
        b = None
    if not _nn.fits(out):
        out = out if b is None else out + b
        out = np.maximum(out, 0) if with_relu else out
    elif with_relu or b is not None:
        _nn.bias_relu(out, b, with_relu)
    return out if out.ndim == len(x.lead) + 1 else out.reshape(*x.lead, out.shape[-1])


@recorded
def _linear(w: Any, b: Any, *inputs: Any) -> Any:
    return _forward(w, b, inputs, False)


@recorded
def _linear_relu(w: Any, b: Any, *inputs: Any) -> Any:
    return _forward(w, b, inputs, True)


def _masked_and_summed(g: Array, y: Array | None, sums: bool) -> tuple[Array, Array | None]:
    """Return `g` where `y` is positive, 0 elsewhere, and the sums of its columns if wanted."""
    g = np.ascontiguousarray(g)
    if _nn.fits(g):
        return _nn.mask(g, y, sums)
    g = g if y is None else np.where(np.greater(y, 0), g, g.dtype.type(0))
    return g, np.sum(g, axis=0, dtype=g.dtype) if sums else None


def _pull(
    argnums: Sequence[int], y: Array | None, args: Sequence[Any], g: Array
) -> list[Array | None]:
    w, b = np.asarray(args[0]), args[1]
    x = _Inputs(args[2:], w, None)
    n, width = math.prod(x.lead), w.shape[1]
    y = None if y is None else y.reshape(n, width)
    g, b_gradient = _masked_and_summed(g.reshape(n, width), y, b is not None and 1 in argnums)
    terms: list[Array | None] = []
    for i in argnums:
        if i == 0:
            term = np.empty(w.shape, np.result_type(x.matrices[0], g))
            for matrix, rows in x.slices():
                np.matmul(matrix.T, g, out=term[rows])
            terms.append(term)
        elif i == 1:
            terms.append(b_gradient)
        else:
            term = np.matmul(g, w[x.ends[i - 2] : x.ends[i - 1]].T)
            terms.append(term if len(x.lead) == 1 else term.reshape(*x.lead, term.shape[-1]))
    return terms


defvjp_argnums(_linear, lambda argnums, ans, args, kwargs: lambda g: _pull(argnums, None, args, g))
defvjp_argnums(
    _linear_relu, lambda argnums, ans, args, kwargs: lambda g: _pull(argnums, ans, args, g)
)
