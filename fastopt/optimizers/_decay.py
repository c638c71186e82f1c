"""Decoupled weight decay: ``w = w - rate * w`` before a rule's own update [1]_.

It knows no rule, so every rule can have it.

.. [1] I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastopt._kernels._shrink import shrink
from fastopt._validate import Real
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

WEIGHT_DECAY = Real(ge=0)


class Weights(NamedTuple):
    """What a rule works on: a variable's storage, or the float32 master of 16-bit storage."""

    array: np.ndarray[Any, Any]
    half: np.ndarray[Any, Any] | None


# Scalars of the rule and rate of decay, by id of the variables that have settings of their own.
Own = Mapping[int, tuple[tuple[float, ...], float]]


@dataclass(frozen=True)
class Decay:
    """How an optimizer lets weights decay.

    Attributes
    ----------
    times_learning_rate : bool
        The rate is ``weight_decay * learning_rate``, not ``weight_decay`` alone.
    listed_rows_only : bool
        With a sparse gradient only the rows that it lists decay.
    """

    times_learning_rate: bool = False
    listed_rows_only: bool = False

    def rate(self, values: Mapping[str, Any]) -> float:
        """Return the part of a weight that goes in this step."""
        rate: float = values["weight_decay"]
        return rate * values["learning_rate"] if self.times_learning_rate else rate

    def apply(self, gradient: Any, var: Variable, rate: float, weights: Weights) -> None:
        """Let the weights of one variable decay, each once."""
        rows = None
        if self.listed_rows_only and isinstance(gradient, IndexedSlices):
            rows = listed_rows(gradient, var)
            var._read_at(rows)  # what these have missed comes before
        else:
            var._read()
        shrink(weights.array, rate, rows, half=weights.half)


def listed_rows(slices: IndexedSlices, var: Variable) -> np.ndarray[Any, Any]:
    """Return the rows that slices list, ascending, each once."""
    return slices.grouping(var.shape[0]).unique_sorted().astype(np.int64, copy=False)
