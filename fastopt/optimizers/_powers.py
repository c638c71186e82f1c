"""`PowersOptimizer`: rules that correct the bias of running averages by powers of their betas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fastopt._kernels._counters import Powers
from fastopt._validate import Constraint, Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer
from fastopt.schedules.base import at_step
from fastopt.variable import Variable

BETAS: dict[str, Constraint] = {
    "learning_rate": Real(),
    "beta1": Real(ge=0, lt=1),
    "beta2": Real(ge=0, lt=1),
    "epsilon": Real(ge=0),
}


class PowersOptimizer(KernelOptimizer):
    """Keeps the powers of the betas: the float64 variables ``beta1_power`` and so on.

    There is one of each for all variables of an optimizer. They start at the betas, and grow by
    them once a call: so they count calls.
    """

    _betas: ClassVar[tuple[str, ...]] = ("beta1", "beta2")
    _common = frozenset({"beta1", "beta2"})  # their powers are the optimizer's

    def _make_transient(self) -> None:
        super()._make_transient()
        # The powers that were used last, and the graph they belong to: found without a look-up.
        self._known_powers: tuple[Graph, Powers] | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_known_powers"]
        return state

    def _create_slots(self, var_list: list[Variable]) -> None:
        first = min(var_list, key=lambda var: var.name)
        for beta in self._betas:
            self._create_non_slot_variable(partial(self._read_now, beta), f"{beta}_power", first)
        self._known_powers = None
        super()._create_slots(var_list)

    def _read_now(self, hyperparameter: str) -> np.float64:
        kept = at_step(self._hyperparameters[hyperparameter], self._call.step)
        read = self._constraints[hyperparameter].read
        return np.float64(read(type(self).__name__, hyperparameter, kept))

    def _advance(self, values: Mapping[str, Any], graph: Graph) -> None:
        known = self._known_powers
        if known is None or known[0] is not graph:
            known = self._find_powers(graph)
        known[1].advance(values)

    def _powers(self, graph: Graph) -> tuple[float, ...]:
        """Return the powers of this step."""
        known = self._known_powers
        if known is None or known[0] is not graph:
            known = self._find_powers(graph)
        return known[1].read()

    def _find_powers(self, graph: Graph) -> tuple[Graph, Powers]:
        found = [self._get_non_slot_variable(f"{beta}_power", graph) for beta in self._betas]
        arrays = tuple(power._storage for power in found if power is not None)
        self._known_powers = known = graph, Powers(self._betas, arrays)
        return known
