"""A batch: the pairs of one call, ready to be run.

Whoever makes a batch has checked the pairs, made the slots and prepared the step. `HookBatch` calls
an optimizer's hooks pair by pair; kernel optimizers have a batch with a `Plan`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastopt._slots import Journal
from fastopt.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from fastopt._pairs import Pair
    from fastopt.graph import Graph
    from fastopt.optimizer import Optimizer
    from fastopt.variable import Variable

Outcome = tuple[Any, int, int]


class Batch(Protocol):
    """What `Optimizer` needs of a batch."""

    refs: tuple[weakref.ref[Variable], ...]
    locks: tuple[Any, ...]

    def run(self, optimizer: Any) -> Outcome:
        """Update everything; return what the hooks returned, rows and dense parameters updated."""


class KeptBatch(Batch, Protocol):
    """A batch of variables that is kept from step to step."""

    graph: Graph

    def release(self) -> None:
        """Let go of the gradients without running."""


class HookBatch:
    """Pairs whose updates are made by the hooks of a rule."""

    __slots__ = ("_journal", "_pairs", "locks", "refs")

    def __init__(self, pairs: list[Pair], journal: Journal | None = None) -> None:
        self._pairs = pairs
        self._journal = journal
        self.refs = tuple(weakref.ref(var) for _, var in pairs)
        self.locks = ordered_locks(var for _, var in pairs)

    def run(self, optimizer: Optimizer) -> Outcome:
        ops: list[Any] = []
        rows = parameters = 0
        # Looked at once a call: which of the two families of hooks does this class fill in?
        resource = _fills_in_resource_sparse(type(optimizer))
        for gradient, var in self._pairs:
            try:
                if isinstance(gradient, IndexedSlices):
                    if resource:
                        op = optimizer._resource_apply_sparse_duplicate_indices(
                            gradient.values, var, gradient.indices
                        )
                    else:
                        op = optimizer._apply_sparse_duplicate_indices(gradient, var)
                    rows += gradient.grouping(var.shape[0]).n_unique
                else:
                    op = optimizer._resource_apply_dense(gradient, var)
                    parameters += gradient.size
            except BaseException:
                if not ops and self._journal is not None:
                    self._journal.undo()
                raise
            constrain(var, gradient)
            ops.append(op)
        return ops, rows, parameters


def constrain(var: Variable, gradient: Any, every_row: bool = False) -> None:
    """Put a variable back where its constraint wants it.

    After a sparse gradient that is done for its rows, which the constraint must be made for, unless
    the update has moved every row.
    """
    if var.constraint is None:
        return
    if every_row or not isinstance(gradient, IndexedSlices):
        var.assign(var.constraint(var))
        return
    touched = gradient.grouping(var.shape[0]).unique_sorted()
    rows = np.asarray(var.constraint(var._read_rows(touched)))
    var.scatter_update(IndexedSlices(rows, touched))


def ordered_locks(variables: Iterable[Variable]) -> tuple[Any, ...]:
    """Return the locks of variables in an order that is the same for everybody, each once."""
    return tuple(var._lock for _, var in sorted({id(var): var for var in variables}.items()))


def _fills_in_resource_sparse(cls: type[Optimizer]) -> bool:
    from fastopt.optimizer import Optimizer

    return any(
        getattr(cls, name) is not getattr(Optimizer, name)
        for name in ("_resource_apply_sparse_duplicate_indices", "_resource_apply_sparse")
    )
