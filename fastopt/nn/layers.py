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
from fastopt.nn.blocks import blocks, run
from fastopt.nn.joined import joined
from fastopt.nn.numerics import Array
from fastopt.nn.recorded import recorded


def linear(x: Any, w: Any, b: Any = None, activation: Callable[[Any], Any] | None = None) -> Any:
    """Dense layer, ``activation(x @ w + b)``, in one operation.

    It costs less than the same written with operators: the bias and `relu` take one pass over the
    product, their derivatives another, and several inputs are copied into one only where they are
    many and narrow, such as rows of dozens of tables.

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

    With a BLAS of one thread (``OPENBLAS_NUM_THREADS=1`` in the environment) the rows of large
    products are shared among as many threads as `get_num_threads` says.

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
    inputs = joined(inputs)
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
        if () in shapes:
            raise ValueError(
                f"an input must have at least one axis, got {shown(inputs[shapes.index(())])}"
            )
        if any(shape[:-1] != shapes[0][:-1] for shape in shapes):
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

    def blocks(self, width: int) -> list[slice]:
        """Return the rows of the batch that are computed together."""
        return blocks(math.prod(self.lead), self.ends[-1], width)


def _forward(w: Any, b: Any, inputs: Sequence[Any], with_relu: bool) -> Array:
    w = np.asarray(w)
    b = None if b is None else np.asarray(b)
    x = _Inputs(inputs, w, b)
    width = w.shape[1]
    out = np.empty((math.prod(x.lead), width), np.result_type(x.matrices[0], w))
    # Memory of the threads that help would be fresh from the system each time.
    more = np.empty_like(out) if len(inputs) > 1 else out
    alike = _nn.fits(out) and (b is None or (_nn.fits(b) and b.dtype == out.dtype))

    def block(_: int, rows: slice) -> None:
        part = out[rows]
        for i, (matrix, weights) in enumerate(x.slices()):
            if i == 0:
                np.matmul(matrix[rows], w[weights], out=part)
            else:
                np.add(part, np.matmul(matrix[rows], w[weights], out=more[rows]), out=part)
        if alike and (with_relu or b is not None):
            _nn.bias_relu(part, b, with_relu)

    run(block, x.blocks(width))
    if not alike:
        out = out if b is None else out + b
        out = np.maximum(out, 0) if with_relu else out
    return out if len(x.lead) == 1 else out.reshape(*x.lead, width)


@recorded
def _linear(w: Any, b: Any, *inputs: Any) -> Any:
    return _forward(w, b, inputs, False)


@recorded
def _linear_relu(w: Any, b: Any, *inputs: Any) -> Any:
    return _forward(w, b, inputs, True)


def _masked_and_summed(
    g: Array, y: Array | None, sums: bool, out: Array
) -> tuple[Array, Array | None]:
    """Return `g` where `y` is positive, 0 elsewhere, and the sums of its columns if wanted."""
    if _nn.fits(g):
        return _nn.mask(g, y, sums, out)
    g = g if y is None else np.where(np.greater(y, 0), g, g.dtype.type(0))
    return g, np.sum(g, axis=0, dtype=g.dtype) if sums else None


def _pull(
    argnums: Sequence[int], y: Array | None, args: Sequence[Any], g: Array
) -> list[Array | None]:
    w = np.asarray(args[0])
    x = _Inputs(args[2:], w, None)
    n, width = math.prod(x.lead), w.shape[1]
    y = None if y is None else y.reshape(n, width)
    g = np.ascontiguousarray(g.reshape(n, width))
    parts = x.blocks(width)
    dtype = np.result_type(x.matrices[0], g)
    masked = g if y is None else np.empty_like(g)
    # A product without sums takes a BLAS twice as long.
    multiply = np.multiply if width == 1 else np.matmul
    # Sums over the batch, one for each block.
    w_terms = np.empty((len(parts), *w.shape), dtype) if 0 in argnums else None
    b_terms = np.empty((len(parts), width), g.dtype) if 1 in argnums else None
    terms: dict[int, Array] = {
        i: np.empty((n, x.ends[i - 1] - x.ends[i - 2]), np.result_type(g, w))
        for i in argnums
        if i > 1
    }

    def block(at: int, rows: slice) -> None:
        part, sums = _masked_and_summed(
            g[rows], None if y is None else y[rows], b_terms is not None, masked[rows]
        )
        if b_terms is not None:
            b_terms[at] = sums
        if w_terms is not None:
            for matrix, weights in x.slices():
                np.matmul(matrix[rows].T, part, out=w_terms[at, weights])
        for i, term in terms.items():
            multiply(part, w[x.ends[i - 2] : x.ends[i - 1]].T, out=term[rows])

    run(block, parts)
    if w_terms is not None:
        terms[0] = _added(w_terms)
    if b_terms is not None:
        terms[1] = _added(b_terms)
    if len(x.lead) != 1:
        for i in terms.keys() - {0, 1}:
            terms[i] = terms[i].reshape(*x.lead, terms[i].shape[1])
    return [terms[i] for i in argnums]


def _added(terms: Array) -> Array:
    """Return the sum over the first axis."""
    return terms[0] if len(terms) == 1 else np.add.reduce(terms, axis=0, dtype=terms.dtype)


defvjp_argnums(_linear, lambda argnums, ans, args, kwargs: lambda g: _pull(argnums, None, args, g))
defvjp_argnums(
    _linear_relu, lambda argnums, ans, args, kwargs: lambda g: _pull(argnums, ans, args, g)
)
