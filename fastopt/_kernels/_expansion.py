"""How far and how finely the steps that an element has missed are summed up.

In step j that it has missed, an element moves by ``lr_j * first**j * m / (s * q_j + eps)``,
``q_j = ratio**j``: ``s`` is the root of the slot in the denominator. With a number ``c`` among the
``q_j``, ``a = s * c + eps`` and ``r = s / a``, which is at most ``1 / c``,

    1 / (s * q_j + eps) = 1 / (a - s * (c - q_j)) = 1 / a * sum over k of (r * (c - q_j))**k

for any ``s`` and ``eps``. So a sum over steps is one over the moments
``M_k = sum over j of lr_j * first**j * (c - q_j)**k``, which are the same for all elements. For the
first ``window`` steps a few moments are enough; what comes after them is a window again, with the
shrunk slots. After ``reach`` steps no element moves any more that one could see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MOST_STEPS = 4096  # in a window; a step adds to the moments of as many steps
_FAR = 1e-30  # how small epsilon may be against the root for `reach` to hold


@dataclass(frozen=True)
class Expansion:
    """What sums up steps.

    Attributes
    ----------
    window : int
        Steps that one set of moments covers, at least 1.
    reach : int
        Steps after which nothing moves; 0 if nothing moves at all.
    centre : float
        ``c`` above.
    coefficients : ndarray, shape (window, n_moments)
        ``first**j * (centre - ratio**j)**k`` for the steps j from 1.
    """

    window: int
    reach: int
    centre: float
    coefficients: Array

    @property
    def n_moments(self) -> int:
        """Number of moments, at least 1."""
        return int(self.coefficients.shape[1])


@lru_cache(maxsize=64)
def expansion(first: float, ratio: float, single: bool) -> Expansion:
    """Return the expansion for a slot that shrinks by `first` over a root that shrinks by `ratio`.

    Parameters
    ----------
    first : float
        In [0, 1).
    ratio : float
        In [0, 1].
    single : bool
        For float32, otherwise for float64.
    """
    tail, tolerance, most = (1e-9, 2.0**-26, 7) if single else (1e-18, 2.0**-55, 15)
    reach = _reach(first, ratio, tail)
    if reach == 0:
        return Expansion(1, 0, 1.0, np.zeros((1, 1)))
    window = min(reach, MOST_STEPS)
    found = _window(first, ratio, window, tolerance, most)
    if found is None:
        # The longest window that few moments cover; a single step needs only one.
        good = 1
        while window - good > 1:
            middle = (good + window) // 2
            if _window(first, ratio, middle, tolerance, most) is None:
                window = middle
            else:
                good = middle
        window = good
        found = _window(first, ratio, window, tolerance, most)
        assert found is not None
    centre, coefficients = found
    coefficients.flags.writeable = False
    return Expansion(window, reach, centre, coefficients)


def _reach(first: float, ratio: float, tail: float) -> int:
    if first == 0.0:
        return 0
    steps = math.log(tail) / math.log(first)
    if 0.0 < ratio < 1.0:
        # While the root is large against epsilon, steps shrink by first / ratio only.
        far = steps + math.log(_FAR) / math.log(ratio)
        steps = min(far, math.log(tail) / math.log(first / ratio)) if first < ratio else far
    return min(math.ceil(steps), 2**30)


def _window(
    first: float, ratio: float, window: int, tolerance: float, most: int
) -> tuple[float, Array] | None:
    """Return the centre and the coefficients, or None if more than `most` moments are needed."""
    j = np.arange(1, window + 1, dtype=np.float64)
    q = ratio**j
    weights = first**j
    total = np.cumsum(weights)
    centre = float((weights * q).sum() / total[-1])
    if window == 1 or ratio == 1.0:
        centre = float(q[0])
        return centre, weights[:, None].copy()
    if centre == 0.0:
        return None
    distance = np.abs(q - centre) / centre
    if distance.max() >= 1.0:
        return None
    rest = weights / (1.0 - distance)
    for n in range(1, most + 1):
        rest *= distance
        # Relative to what the steps up to any j amount to.
        if (np.cumsum(rest) / total).max() <= tolerance:
            return centre, weights[:, None] * (centre - q)[:, None] ** np.arange(n)
    return None
