"""One check for every derivative: against central differences, in float64 and float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastopt.autodiff import Tensor, gradients
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]

# A central difference of step h in float64 errs by about h**2 from curvature and 1e-16 / h from
# rounding.
STEP = 1e-5
RTOL, ATOL = 2e-6, 2e-8


def dense(gradient: Any) -> Array:
    """Return a gradient as an array."""
    return gradient.to_dense() if isinstance(gradient, IndexedSlices) else gradient


def differences(f: Callable[..., Any], args: Sequence[Any], argnum: int, weights: Array) -> Array:
    """Return central differences of ``sum(weights * f(*args))`` by each element of one argument."""
    args = list(args)
    x = args[argnum] = np.array(args[argnum], np.float64)
    slope = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        middle = x[place]
        totals = []
        for moved in (middle + STEP, middle - STEP):
            x[place] = moved
            totals.append(np.sum(weights * np.asarray(f(*args), np.float64)))
        x[place] = middle
        slope[place] = (totals[0] - totals[1]) / (2 * STEP)
    return slope


def check(
    f: Callable[..., Any],
    *args: Any,
    argnums: Sequence[int] | None = None,
    leaf: Callable[..., Any] = Tensor,
) -> None:
    """Check value, gradients, shapes and dtypes of `f` at `args`.

    Parameters
    ----------
    f : callable
        Of the arguments, made of NumPy functions.
    *args
        Arrays, or constants at positions that are not in `argnums`.
    argnums : sequence of int, optional
        The positions of what to differentiate by; all by default.
    leaf : callable
        Makes something differentiable of an array.
    """
    positions = list(range(len(args)) if argnums is None else argnums)
    plain = [np.array(a, np.float64) if i in positions else a for i, a in enumerate(args)]
    expected = np.asarray(f(*plain))
    weights = np.random.default_rng(expected.size).normal(size=expected.shape)
    for dtype in (np.float64, np.float32):
        given = [leaf(np.asarray(a, dtype)) if i in positions else a for i, a in enumerate(plain)]
        y = f(*given)
        assert isinstance(y, Tensor), "nothing was recorded"
        assert y.shape == expected.shape
        assert y.dtype == dtype, f"{np.dtype(dtype)} became {y.dtype}"
        exact = dtype is np.float64
        np.testing.assert_allclose(
            np.asarray(y), expected, rtol=1e-13 if exact else 1e-4, atol=1e-13 if exact else 1e-5
        )
        got = gradients(y, [given[i] for i in positions], grad_ys=weights.astype(dtype))
        for i, g in zip(positions, got, strict=True):
            assert g is not None, f"argument {i} is not connected"
            assert g.shape == plain[i].shape
            assert g.dtype == dtype
            np.testing.assert_allclose(
                dense(g),
                differences(f, plain, i, weights),
                rtol=RTOL if exact else 1e-3,
                atol=ATOL if exact else 1e-4,
                err_msg=f"argument {i} in {np.dtype(dtype)}",
            )
    # Of something computed: where the derivative of `f` reads no values, it sees a node.
    leaves = [Tensor(a) if i in positions else a for i, a in enumerate(plain)]
    given = [leaf_ * 1.0 if isinstance(leaf_, Tensor) else leaf_ for leaf_ in leaves]
    again = gradients(f(*given), [leaves[i] for i in positions], grad_ys=weights)
    for i, g in zip(positions, again, strict=True):
        np.testing.assert_allclose(g, differences(f, plain, i, weights), rtol=RTOL, atol=ATOL)
    # One argument at a time: what the derivative of one reads must be kept even if no other is
    # wanted.
    for i in positions if len(positions) > 1 else ():
        given = [Variable(a) if j == i else a for j, a in enumerate(plain)]
        (g,) = gradients(f(*given), given[i], grad_ys=weights)
        np.testing.assert_allclose(
            dense(g), differences(f, plain, i, weights), rtol=RTOL, atol=ATOL
        )


def normal(*shape: int, seed: int = 0, away: float = 0.0) -> Array:
    """Return numbers of either sign, none nearer to zero than `away`."""
    x = np.random.default_rng(seed + 17 * len(shape)).normal(size=shape)
    return x + away * np.sign(x)


def positive(*shape: int, seed: int = 0) -> Array:
    """Return numbers between 0.3 and 2.3."""
    return np.random.default_rng(seed).uniform(0.3, 2.3, size=shape)


def between(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Return numbers between two bounds."""
    return np.random.default_rng(seed).uniform(low, high, size=shape)


def apart(*shape: int, seed: int = 0) -> Array:
    """Return numbers no two of which are closer than 0.1, in random order."""
    n = int(np.prod(shape))
    x = np.arange(n) * 0.1 - n / 20 + 0.03
    return np.random.default_rng(seed).permutation(x).reshape(shape)
