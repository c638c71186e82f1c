"""Plans of the kernels, kept from step to step with what else is known of their variables.

A plan serves one thread at a time. So plans wait in lists, from which a thread takes one and to
which it brings it back; threads that apply at once have a plan each.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from fastopt._batch import Outcome, constrain, ordered_locks
from fastopt._kernels._counters import raise_versions
from fastopt._kernels._deferred import Ledger
from fastopt._kernels._plan import Plan
from fastopt._pairs import Pair
from fastopt.deferred_rows import OWNERS
from fastopt.optimizers._decay import Decay
from fastopt.variable import Variable

_NO_PAIRS: list[Any] = []


class Plans(dict[tuple[int, int], list["PlanBatch"]]):
    """Batches that wait to be used, by number of pairs and id of the first variable."""

    __slots__ = ("__weakref__",)


class PlanBatch:
    """Some variables, each once, with a plan for them."""

    __slots__ = (
        "bound",
        "constrained",
        "decay",
        "epoch",
        "graph",
        "key",
        "ledgers",
        "locks",
        "ops",
        "plan",
        "plans",
        "refs",
    )

    def __init__(
        self,
        plan: Plan,
        variables: Sequence[Variable],
        ledgers: Sequence[Ledger | None],
        decay: Decay | None,
        plans: Plans,
    ) -> None:
        self.plan = plan
        self.ledgers = ledgers
        self.decay = decay
        self.epoch = -1
        self.key = (len(variables), id(variables[0]))
        self.locks = ordered_locks(variables)
        self.ops = (None,) * len(variables)
        self.constrained = any(var.constraint is not None for var in variables)
        self.graph = variables[0].graph
        self.plans = plans
        self.bound: list[Any] = _NO_PAIRS
        key, shelf = self.key, weakref.ref(plans)

        def forget(_: Any) -> None:
            # A plan holds on to the memory of its variables; it must go with the first of them.
            if (known := shelf()) is not None:
                known.pop(key, None)

        self.refs = tuple(weakref.ref(var, forget) for var in variables)

    def bind(self, pairs: list[Any]) -> bool:
        """Take the gradients, if they and the variables fit the plan exactly."""
        if self.plan.bind(pairs):
            self.bound = pairs
            return True
        return False

    def run(self, optimizer: Any) -> Outcome:
        """Update the variables and bring the plan back."""
        plan = self.plan
        try:
            if self.epoch != OWNERS.epoch:
                self.take_over()
            call = optimizer._call
            optimizer._sweep(self, self.bound, call.values, call.scalars, call.own)
            raise_versions(self.bound)
            if self.constrained:
                every_row = optimizer._moves_every_row()
                for gradient, var in self.bound:
                    constrain(var, gradient, every_row)
            return self.ops, plan.rows_touched, plan.dense_parameters
        finally:
            self.release()

    def take_over(self) -> None:
        """Have the variables to ourselves: no other ledger has rows waiting."""
        variables = (ref() for ref in self.refs)
        self.epoch = OWNERS.take_over(zip(variables, self.ledgers, strict=True))

    def release(self) -> None:
        """Let go of the gradients and bring the plan back."""
        self.plan.release()
        self.bound = _NO_PAIRS
        waiting = self.plans.get(self.key)
        if waiting is not None:  # else one of the variables is gone
            waiting.append(self)


class RepeatedBatch:
    """Pairs that name a variable more than once: batches that run one after the other."""

    __slots__ = ("_batches", "locks", "refs")

    def __init__(self, batches: list[PlanBatch], variables: Sequence[Variable]) -> None:
        self._batches = batches
        self.refs = tuple(weakref.ref(var) for var in variables)
        self.locks = ordered_locks(variables)

    def run(self, optimizer: Any) -> Outcome:
        """Update the variables, each as often as it is named."""
        ops: tuple[Any, ...] = ()
        rows = parameters = 0
        for batch in self._batches:
            more_ops, more_rows, more_parameters = batch.run(optimizer)
            ops += more_ops
            rows += more_rows
            parameters += more_parameters
        return ops, rows, parameters


def rounds(pairs: list[Pair]) -> list[list[Pair]]:
    """Split pairs into lists that name a variable once each, keeping the order for every variable.

    Variables share no memory, so the order between them is free.
    """
    if len({id(var) for _, var in pairs}) == len(pairs):
        return [pairs]
    times: dict[int, int] = {}
    found: list[list[Pair]] = []
    for pair in pairs:
        nth = times.get(id(pair[1]), 0)
        times[id(pair[1])] = nth + 1
        if nth == len(found):
            found.append([])
        found[nth].append(pair)
    return found
