"""Rows of tables that are of no use: which they are, and how to go on without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt._arrays import shown
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable
from fastopt.wrapper import OptimizerWrapper

Array = np.ndarray[Any, Any]


def zero_rows(var: Variable) -> Array:
    """Return the rows of a table in which every element is zero.

    After training with `GroupFtrlOptimizer` these are the features of no use, and those that were
    never seen, if the table started from zeros.

    Parameters
    ----------
    var : Variable
        A table, of one axis at least.

    Returns
    -------
    ndarray of int64
        The row numbers, ascending.

    Raises
    ------
    TypeError
        If `var` is not a variable.
    ValueError
        If it has no axes.

    See Also
    --------
    count_zero_rows : How many there are.
    prune_zero_rows : The table without them, with the state of its optimizer.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.array([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]), name="table")
    >>> fo.zero_rows(table)
    array([1])
    """
    return np.flatnonzero(~_used(var, "zero_rows"))


def count_zero_rows(var: Variable) -> int:
    """Return how many rows of a table consist of zeros.

    Parameters
    ----------
    var : Variable
        A table, of one axis at least.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If `var` is not a variable.
    ValueError
        If it has no axes.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> fo.count_zero_rows(fo.Variable(np.array([0.0, 3.0, -0.0]), name="weights"))
    2
    """
    used = _used(var, "count_zero_rows")
    return int(used.size - np.count_nonzero(used))


def prune_zero_rows(
    var: Variable,
    optimizers: Optimizer | Sequence[Optimizer] = (),
    *,
    name: str | None = None,
) -> tuple[Array, Variable]:
    """Return a table without its rows of zeros, with which training goes on.

    What optimizers remember about the rows that stay, and settings that `configure` gave the table,
    move to the smaller table: a step with it changes those rows by the same bits as one with the
    larger table, whose other rows have no gradient, would have. The larger table stays as it is,
    without slots.

    Parameters
    ----------
    var : Variable
        A table, of one axis at least.
    optimizers : Optimizer or sequence of Optimizer, optional
        Those that train it. Of wrappers the wrapped one.
    name : str, optional
        The name of the smaller table; made unique. Slots are named after it, as they are in a
        program that makes a table of this name and restores a checkpoint. Default:
        ``<name of the table>_pruned``.

    Returns
    -------
    kept : ndarray of int64, shape (n_kept,)
        Which row of `var` each row of the smaller table was, ascending. Row ``old`` is now row
        ``np.searchsorted(kept, old)``.
    pruned : Variable, shape (n_kept, ...)
        The smaller table.

    Raises
    ------
    TypeError
        If `var` is not a variable, `optimizers` are no optimizers, or `name` no string.
    ValueError
        If `var` has no axes, or an optimizer has collected gradients for it that have not been
        applied. Nothing has changed then.

    Notes
    -----
    Rules whose step depends on the whole variable (LAMB, LARS) see a smaller one from now on. A
    moving average of the table isn't moved.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.zeros((3, 2)), name="table")
    >>> opt = fo.GroupFtrlOptimizer(1.0, 0.0, l21_regularization_strength=1.0)
    >>> slices = fo.IndexedSlices(np.array([[1.0, -1.0], [3.0, 4.0]]), [0, 2])
    >>> done = opt.apply_gradients([(slices, table)])
    >>> kept, smaller = fo.prune_zero_rows(table, opt)
    >>> kept, smaller.numpy().round(6)
    (array([2]), array([[-0.717157, -0.717157]]))
    >>> opt.get_slot(smaller, "linear").numpy()
    array([[3., 4.]])
    >>> ids = np.array([2, 2])  # as the data has them
    >>> np.searchsorted(kept, ids)
    array([0, 0])
    """
    owner = "prune_zero_rows"
    used = _used(var, owner)
    keepers = _innermost(optimizers, var, owner)
    if name is None:
        name = f"{var.name}_pruned"
    elif not isinstance(name, str) or not name:
        raise TypeError(f"{owner}: name must be a string that is not empty, got {shown(name)}")
    kept = np.flatnonzero(used)
    moves = [(keeper, keeper._rows_of_slots(var, kept)) for keeper in keepers]
    with var.graph.as_default():
        pruned = Variable(var._read_rows(kept), var.trainable, name, constraint=var.constraint)
    for keeper, rows in moves:
        keeper._move_slots(var, pruned, rows)
    return kept, pruned


def _used(var: Any, owner: str) -> Array:
    """Return which rows of a variable are not zero."""
    if not isinstance(var, Variable):
        raise TypeError(f"{owner}: var must be a fastopt Variable, got {shown(var)}")
    if not var.shape:
        raise ValueError(f"{owner}: variable {var.name!r} has no rows: its shape is ()")
    value = var._read()
    if value.ndim == 1:
        return np.asarray(value != 0)
    return np.asarray(value.any(axis=tuple(range(1, value.ndim))))


def _innermost(optimizers: Any, var: Variable, owner: str) -> list[Optimizer]:
    """Return the optimizers that have slots, once each."""
    listed = [optimizers] if isinstance(optimizers, Optimizer) else optimizers
    if not isinstance(listed, list | tuple):
        raise TypeError(f"{owner}: optimizers must be optimizers, got {shown(optimizers)}")
    found: list[Optimizer] = []
    for each in listed:
        if not isinstance(each, Optimizer):
            raise TypeError(f"{owner}: optimizers must be optimizers, got {shown(each)}")
        while isinstance(each, OptimizerWrapper):
            if each._has_collected(var):
                raise ValueError(
                    f"{owner}: {each._label()} has collected gradients of {var.name!r} that have"
                    " not been applied"
                )
            each = each._optimizer
        if not any(each is other for other in found):
            found.append(each)
    return found
