"""How weights decay before the update of a rule: ``w = w - rate * w`` [1]_.

It knows no rule, so every rule can have it. Plans do it in the sweep of the update; rows that a
sparse gradient doesn't list decay when they are next wanted (`fastopt.deferred_rows`).

.. [1] I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastopt._validate import Real

WEIGHT_DECAY = Real(ge=0)

# Scalars of the rule and rate of decay, by id of the variables that have settings of their own.
Own = Mapping[int, tuple[tuple[float, ...], float]]


@dataclass(frozen=True)
class Decay:
    """How an optimizer lets weights decay.

    Attributes
    ----------
    times_learning_rate : bool
        The rate is the hyperparameter times the learning rate, not the hyperparameter alone.
    listed_rows_only : bool
        With a sparse gradient only the rows that it lists decay.
    hyperparameter : str
        The name of the hyperparameter.
    """

    times_learning_rate: bool = False
    listed_rows_only: bool = False
    hyperparameter: str = "weight_decay"

    def rate(self, values: Mapping[str, Any]) -> float:
        """Return the part of a weight that goes in this step."""
        rate: float = values[self.hyperparameter]
        return rate * values["learning_rate"] if self.times_learning_rate else rate

    def happens(self, values: Mapping[str, Any]) -> bool:
        """Whether weights may decay, with these hyperparameters as they are kept."""
        kept = values.get(self.hyperparameter, 0.0)
        return not (type(kept) is float and kept == 0.0)
