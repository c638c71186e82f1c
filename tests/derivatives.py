"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastopt.autodiff import gradients
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]


def dense(gradient: Any) -> Array:
    """Return a gradient as an array."""
    return gradient.to_dense() if isinstance(gradient, IndexedSlices) else np.asarray(gradient)


def numeric_gradients(
    f: Callable[..., Any], values: Sequence[Array], weights: Array, step: float = 1e-6
) -> list[Array]:
    """Return central differences of ``sum(weights * f(*values))`` by each element, in float64."""
    values = [np.array(v, np.float64) for v in values]
    result = []
    for v in values:
        slope = np.zeros(v.shape)
        for place in np.ndindex(v.shape):
            middle = v[place]
            total = []
            for moved in (middle + step, middle - step):
                v[place] = moved
                total.append(np.sum(weights * np.asarray(f(*values), np.float64)))
            v[place] = middle
            slope[place] = (total[0] - total[1]) / (2 * step)
        result.append(slope)
    return result


def check(f: Callable[..., Any], *values: Any, dtype: Any = np.float64, seed: int = 0) -> list[Any]:
    """Check and return the gradients of `f`, whose arguments become variables of `dtype`.

    Central differences of step 1e-6 are right to about 1e-9 of functions of order one; float32
    gradients to a few of its units of rounding, of which a sum of n terms has up to n.
    """
    arrays = [np.asarray(v, dtype) for v in values]
    variables = [Variable(a, name=f"x{i}") for i, a in enumerate(arrays)]
    y = f(*variables)
    assert y.dtype == np.dtype(dtype)
    weights = np.random.default_rng(seed).normal(size=y.shape)
    got = gradients(y, variables, grad_ys=weights.astype(dtype))
    rtol, atol = {2: (1e-2, 4e-3), 4: (1e-4, 1e-5), 8: (1e-6, 1e-7)}[np.dtype(dtype).itemsize]
    expected = numeric_gradients(f, arrays, weights)
    for gradient, slope, variable in zip(got, expected, variables, strict=True):
        assert gradient.dtype == variable.dtype
        np.testing.assert_allclose(dense(gradient), slope, rtol=rtol, atol=atol)
    return got
