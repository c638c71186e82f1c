"""Many narrow inputs of a layer as one matrix.

A product with few columns of input takes a BLAS several times as long, element for element, as one
with many. Where the inputs are rows of dozens of tables, copying them side by side costs a fraction
of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fastopt._kernels import _nn
from fastopt.autodiff.primitives import defvjp_argnums
from fastopt.autodiff.tensor import Differentiable
from fastopt.nn.numerics import Array
from fastopt.nn.recorded import recorded

_MANY = 4  # inputs
_NARROW = 64  # columns, on average, below which they are joined


def joined(inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the inputs, or, if there are many narrow ones, all of them in one.

    What does not go together, or is not of float32 or float64 altogether, stays as it is.
    """
    if len(inputs) < _MANY:
        return inputs
    width = 0
    for x in inputs:
        if not isinstance(x, Differentiable | np.ndarray) or not x.ndim:
            return inputs
        if x.shape[:-1] != inputs[0].shape[:-1] or x.dtype != inputs[0].dtype:
            return inputs
        width += x.shape[-1]
    if width >= _NARROW * len(inputs) or inputs[0].dtype.char not in "fd":
        return inputs
    return (_join(*inputs),)


@recorded
def _join(*inputs: Any) -> Array:
    arrays = [np.ascontiguousarray(x) for x in inputs]
    columns = [0, *accumulate(x.shape[-1] for x in arrays)]
    out = np.empty((*arrays[0].shape[:-1], columns[-1]), arrays[0].dtype)
    _nn.join_columns(list(zip(columns, arrays, strict=False)), out)
    return out


def _split(argnums: Sequence[int], inputs: Sequence[Any], g: Array) -> list[Array]:
    columns = [0, *accumulate(x.shape[-1] for x in inputs)]
    wide = np.ascontiguousarray(g)
    parts = [np.empty(inputs[i].shape, wide.dtype) for i in argnums]
    _nn.split_columns(wide, [(columns[i], part) for i, part in zip(argnums, parts, strict=True)])
    return parts


defvjp_argnums(
    _join, lambda argnums, ans, args, kwargs: lambda g: _split(argnums, args, g), reads=()
)
