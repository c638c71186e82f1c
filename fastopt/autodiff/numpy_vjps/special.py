"""Ufuncs of scipy.special: known once the caller has imported it, which fastopt does not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fastopt.autodiff.numpy_vjps._define import define, times
from fastopt.autodiff.tensor import FINDERS

# What the functions of scipy.special need of each other: f(ans, x, special) -> derivative by x.
_UNARY: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "expit": ("ans", lambda ans, x, special: ans * (1 - ans)),
    "log_expit": ("x", lambda ans, x, special: special.expit(-x)),
    "logit": ("x", lambda ans, x, special: 1 / (x * (1 - x))),
    "erf": ("x", lambda ans, x, special: (2 / math.sqrt(math.pi)) * np.exp(-np.square(x))),
    "erfc": ("x", lambda ans, x, special: (-2 / math.sqrt(math.pi)) * np.exp(-np.square(x))),
    "ndtr": ("x", lambda ans, x, special: np.exp(-0.5 * np.square(x)) / math.sqrt(2 * math.pi)),
    "log_ndtr": (
        "ans x",
        lambda ans, x, special: np.exp(-0.5 * np.square(x) - ans) / math.sqrt(2 * math.pi),
    ),
    "gammaln": ("x", lambda ans, x, special: special.psi(x)),
    "psi": ("x", lambda ans, x, special: special.polygamma(1, x)),
    "entr": ("x", lambda ans, x, special: -np.log(x) - 1),
    "exp10": ("ans", lambda ans, x, special: math.log(10) * ans),
    "i0": ("x", lambda ans, x, special: special.i1(x)),
    "j0": ("x", lambda ans, x, special: -special.j1(x)),
}


def _xlogy_x(ans: Any, x: Any, y: Any) -> Any:
    # Where x = 0 hides a logarithm that is not defined, there is no gradient, as in PyTorch.
    return lambda g: times(np.log(np.where(np.equal(x, 0) & np.less_equal(y, 0), 1, y)), g)


def _find(ufunc: np.ufunc) -> Any:
    """Return the recorded form of a ufunc of scipy.special, made when first asked for, or None."""
    special = sys.modules.get("scipy.special")
    name = ufunc.__name__
    if special is None or getattr(special, name, None) is not ufunc:
        return None
    options: dict[str, Any] = {
        "elementwise": True,
        "refuses": ("out", "where"),
        "name": f"scipy.special.{name}",
    }
    if name in _UNARY:
        reads, slope = _UNARY[name]

        def maker(ans: Any, x: Any) -> Any:
            return lambda g: times(slope(ans, x, special), g)

        return define(ufunc, maker, reads=(reads,), **options)
    if name == "xlogy":
        # As x log y has it: 0 for x = 0, whatever y.
        return define(
            ufunc,
            _xlogy_x,
            lambda ans, x, y: lambda g: g * np.where(np.equal(x, 0), np.zeros_like(x), x / y),
            reads=("x y", "x y"),
            **options,
        )
    return None


FINDERS.append(_find)
