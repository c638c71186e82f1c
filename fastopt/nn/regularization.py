"""What keeps a model from learning its examples by heart: dropout and the squared norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt._kernels._lists import sum_of_squares
from fastopt.autodiff import Differentiable, defvjp
from fastopt.nn.numerics import Array, as_floating, widened
from fastopt.nn.recorded import recorded


def l2_loss(t: Any) -> Any:
    """Half the sum of squares, ``sum(t ** 2) / 2``.

    Parameters
    ----------
    t : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.

    Returns
    -------
    Tensor or ndarray
        0-d, of the dtype of `t`. The sum is taken in float64 and in a fixed order.

    Raises
    ------
    TypeError
        If `t` does not hold real numbers.

    Examples
    --------
    >>> import fastopt as fo
    >>> float(fo.nn.l2_loss([3.0, 4.0]))
    12.5
    """
    return _l2_loss(t)


@recorded
def _l2_loss(t: Any) -> Any:
    t = as_floating(t, "t")
    if t.dtype.itemsize > 8:  # extended precision has no kernel
        return np.sum(t * t) / 2
    wide = widened(t)
    total = sum_of_squares([np.ascontiguousarray(wide, dtype=wide.dtype.newbyteorder("="))])
    return np.asarray(total / 2, dtype=t.dtype)


def dropout(
    x: Any,
    rate: float,
    noise_shape: Sequence[int | None] | None = None,
    seed: int | None = None,
    *,
    rng: np.random.Generator | None = None,
) -> Any:
    """Set a random part of the elements to zero and scale the others up.

    Each element is kept with probability ``1 - rate`` and then divided by ``1 - rate``, so that the
    expected value does not change.

    Parameters
    ----------
    x : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.
    rate : float
        The part to drop, at least 0 and less than 1. At 0, nothing is drawn and `x` is unchanged.
    noise_shape : sequence of int or None, optional
        Shape of the random decisions, broadcast against `x`: an axis of size 1 keeps or drops its
        elements together. `None` as an entry means the size of that axis of `x`.
    seed : int, optional
        Seed of the decisions of this call: the same seed drops the same elements in every call.
    rng : numpy.random.Generator, optional
        Where the decisions are drawn from, if they should differ from call to call and still be
        reproducible. Without `seed` and `rng` they cannot be repeated.

    Returns
    -------
    Tensor or ndarray
        Of the shape and dtype of `x`.

    Raises
    ------
    TypeError
        If `x` does not hold real numbers, or `rng` is not a Generator.
    ValueError
        If `rate` is outside its range, `noise_shape` does not broadcast to the shape of `x`, or
        both `seed` and `rng` are given.

    Notes
    -----
    Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15
    (2014).

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> fo.nn.dropout(np.ones(5), rate=0.5, seed=1)
    array([2., 2., 0., 2., 0.])
    """
    probability = float(rate)
    if not 0 <= probability < 1:
        raise ValueError(f"rate must be at least 0 and less than 1, got {rate!r}")
    if rng is None:
        rng = np.random.default_rng(seed)
    elif seed is not None:
        raise ValueError(f"only one of seed and rng can be given, got seed={seed!r} and {rng!r}")
    elif not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    if not isinstance(x, Differentiable):
        x = as_floating(x, "x")
    decisions = _noise_shape(noise_shape, x.shape)
    if probability == 0:
        return x
    return _keep_and_scale(x, rng.random(decisions) >= probability, 1 / (1 - probability))


def _noise_shape(
    noise_shape: Sequence[int | None] | None, shape: tuple[int, ...]
) -> tuple[int, ...]:
    if noise_shape is None:
        return shape
    given = tuple(noise_shape)
    if len(given) == len(shape):
        filled = tuple(size if n is None else int(n) for n, size in zip(given, shape, strict=True))
        if all(n in (1, size) for n, size in zip(filled, shape, strict=True)):
            return filled
    raise ValueError(
        f"noise_shape must have an entry for each axis of x, None or 1 or its size; got {given} "
        f"for x of shape {shape}"
    )


@recorded
def _keep_and_scale(x: Any, keep: Array, scale: float) -> Any:
    return np.asarray(x * scale) * keep


defvjp(_l2_loss, lambda ans, t: lambda g: t * g, reads=[["t"]])
defvjp(
    _keep_and_scale,
    lambda ans, x, keep, scale: lambda g: np.asarray(g * scale) * keep,
    reads=[["keep"]],
)
