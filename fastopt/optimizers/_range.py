"""Whether the dtype in which a variable is updated holds what a step is made with.

Hyperparameters are float64, and checked as such without a variable at hand. In float32, of which
they become scalars of a rule, a number that is fine there may be infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype, shown
from fastopt.variable import Variable


def require_finite(
    owner: str, var: Variable, hyperparameters: Mapping[str, Any], numbers: Mapping[str, float]
) -> None:
    """Check the numbers that are made of the hyperparameters for one variable.

    Parameters
    ----------
    owner : str
        The class that has the hyperparameters.
    var : Variable
    hyperparameters : mapping
        By name, for messages: float where they are known.
    numbers : mapping of str to float
        What the update of the variable takes.

    Raises
    ------
    ValueError
        If one of them is not finite in the dtype in which the variable is updated.
    """
    dtype = compute_dtype(var.dtype)
    beyond = [name for name, number in numbers.items() if not _is_finite(number, dtype)]
    if not beyond:
        return
    where = f"in {dtype}, in which variable {var.name!r} is updated"
    for name, value in hyperparameters.items():
        if isinstance(value, float) and not _is_finite(value, dtype):
            raise ValueError(f"{owner}: {name} {value!r} is not finite {where}")
    made_of = ", ".join(
        f"{name} {value!r}" if isinstance(value, float) else f"{name} {shown(value)}"
        for name, value in hyperparameters.items()
        if isinstance(value, float) or callable(value) or hasattr(value, "dtype")
    )
    raise ValueError(
        f"{owner}: {beyond[0]} {numbers[beyond[0]]!r}, made of {made_of}, is not finite {where}"
    )


def _is_finite(number: float, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(dtype.type(number)))
