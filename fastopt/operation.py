"""`Operation`: what a call of `apply_gradients` leaves in the caller's hand."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from fastopt._kernels._counters import StepRecord

if TYPE_CHECKING:
    from fastopt.variable import Variable


class Operation(StepRecord):
    """The record of one update of variables, as `apply_gradients` and `minimize` return it.

    TensorFlow's operation is a promise that a session runs later. Here the work is done when the
    call returns, so there is nothing to run: an `Operation` says what was done. It is good for
    logging and for finding out where a step's time goes (how many rows of the tables, how many
    dense numbers), and code that keeps or collects TensorFlow's ``train_op`` finds the same object
    in the same place (``GraphKeys.TRAIN_OP``). It is returned in eager mode too, where TensorFlow
    returns ``None``.

    An operation doesn't keep variables alive.

    Attributes
    ----------
    name : str
        The `name` given to the call; the optimizer's name if none was.
    type : str
        The kind of operation: the class of the optimizer that did it.
    sparse_rows : int
        Rows updated by sparse gradients. Repeated rows of one gradient count once.
    dense_parameters : int
        Numbers updated by dense gradients.
    step : int or float or None
        The value of `global_step` after the call; ``None`` if none was given.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.zeros((1000, 4)), name="table")
    >>> bias = fo.Variable(np.zeros(4), name="bias")
    >>> slices = fo.IndexedSlices(np.ones((3, 4)), [7, 9, 7])
    >>> optimizer = fo.GradientDescentOptimizer(0.1)
    >>> done = optimizer.apply_gradients([(slices, table), (np.ones(4), bias)])
    >>> done.sparse_rows, done.dense_parameters
    (2, 4)
    """

    __slots__ = ("__weakref__",)

    _variables: tuple[weakref.ref[Variable], ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that were updated, in the order of the call, as far as they still exist."""
        return tuple(v for ref in self._variables if (v := ref()) is not None)

    def __repr__(self) -> str:
        variables = _counted(len(self._variables), "variable")
        parts = [f"<Operation {self.name!r} {self.type}: {variables}"]
        if self.dense_parameters:
            parts.append(_counted(self.dense_parameters, "dense parameter"))
        if self.sparse_rows:
            parts.append(_counted(self.sparse_rows, "sparse row"))
        if self.step is not None:
            parts.append(f"step {self.step}")
        return ", ".join(parts) + ">"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
