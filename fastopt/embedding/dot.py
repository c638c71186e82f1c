"""`embedding_dot`: inner products of rows of two tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._kernels._dots import pair_dots, row_dots
from fastopt._kernels._rows import pooled_gather
from fastopt._kernels._transpose import pair_gradients, sum_by_row
from fastopt.autodiff.at_hand import record
from fastopt.embedding.lookup import embedding_lookup
from fastopt.embedding.pooled_gradient import entries_gradient
from fastopt.embedding.quantized import QuantizedTable
from fastopt.embedding.tables import Array, Tables, as_ids, fits_kernels
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable


def embedding_dot(
    params: Any, ids: Any, other_params: Any, other_ids: Any, name: str | None = None
) -> Any:
    """Inner products of rows of two tables.

    What the scores of matrix factorisation and of skip-gram models are: ``sum(users[u] *
    items[i])`` for pairs of ids, or for one id and several candidates. It costs less than look-ups
    and a product, since no row is copied, neither here nor on the way back.

    Parameters
    ----------
    params : Variable, Tensor or array_like, shape (rows, ...)
        The first table.
    ids : array_like of int
        Its row numbers, of any shape.
    other_params : Variable, Tensor or array_like, shape (other_rows, ...)
        The second table, with rows of the same shape; it may be the first one again.
    other_ids : array_like of int, shape ``ids.shape + (...)``
        Its row numbers: for each of `ids` one, or several along further axes.
    name : str, optional
        What messages call the products, and the name of the resulting Tensor.

    Returns
    -------
    Tensor or ndarray, shape ``other_ids.shape``
        A Tensor if a table is a Variable or Tensor. The gradient of the first table, if it is a
        Variable, is an `IndexedSlices` that lists `ids` as they came; that of the second one lists
        each of `other_ids` once.

    Raises
    ------
    TypeError
        If ids are not integers.
    ValueError
        If the rows of the tables, or the shapes of the ids, do not fit each other.
    IndexError
        If an id is negative or not less than the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> users = fo.Variable(np.array([[1.0, 2.0], [3.0, 4.0]]), name="users")
    >>> items = fo.Variable(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), name="items")
    >>> fo.embedding_dot(users, [0, 1], items, [[0, 2], [1, 2]]).numpy()
    array([[1., 3.],
           [4., 7.]])
    """
    what = "embedding_dot" if name is None else name
    if type(params) is Variable and type(other_params) is Variable:
        made = _of_variables(what, params, ids, other_params, other_ids)
        if made is not None:
            return made
    first, second = Tables(params, "mod"), Tables(other_params, "mod")
    if first.row_shape != second.row_shape:
        raise ValueError(
            f"the rows of {second.name_of(0)} must have the shape of those of {first.name_of(0)}: "
            f"{second.row_shape} and {first.row_shape}"
        )
    flat, shape = as_ids(ids, f"ids of {what!r}")
    other_flat, other_shape = as_ids(other_ids, f"other_ids of {what!r}")
    if other_shape[: len(shape)] != shape:
        raise ValueError(
            f"other_ids must have the shape of ids, and further axes or none; got {other_shape} "
            f"for ids of shape {shape}"
        )
    first.check_range(flat, shape, f"ids of {what!r}")
    second.check_range(other_flat, other_shape, f"other_ids of {what!r}")
    tables = [tables.tables[0] for tables in (first, second)]
    if any(isinstance(table, QuantizedTable) for table in first.tables + second.tables):
        return _by_lookups(params, ids, other_params, other_ids, len(shape), len(other_shape))
    at_hand = [_values(table, rows) for table, rows in zip(tables, (flat, other_flat), strict=True)]
    one_each = len(first.tables) == len(second.tables) == 1
    if not one_each or first.dtype != second.dtype or not all(map(_fits, at_hand)):
        return _by_lookups(params, ids, other_params, other_ids, len(shape), len(other_shape))
    out = np.empty(other_flat.size, first.dtype)
    row_dots(at_hand[0], flat, at_hand[1], other_flat, out)
    out = out.reshape(other_shape)
    if not (first.is_differentiable or second.is_differentiable):
        return out
    starts = np.arange(flat.size + 1) * (other_flat.size // max(1, flat.size))
    return _recorded(what, out, tables, flat, other_flat, starts, at_hand)


def _of_variables(
    what: str, first: Variable, ids: Any, second: Variable, other_ids: Any
) -> Any | None:
    """Return the products in one go, or None: there is something to convert, or to complain of."""
    rows, others = first._at_hand(), second._at_hand()
    if rows is None or others is None:
        return None
    found = pair_dots(rows, ids, others, other_ids)
    if found is None:
        return None
    return _recorded(what, found[0], [first, second], *found[1:], [rows, others])


def _recorded(
    what: str,
    out: Array,
    tables: list[Any],
    ids: Array,
    others: Array,
    starts: Array,
    at_hand: list[Array],
) -> Any:
    """Return the products as a tensor; the others of each id begin at `starts`."""

    def first_vjp(g: Array) -> IndexedSlices:
        shape = tables[0].shape
        values = np.empty((ids.size, *shape[1:]), g.dtype)
        weights = np.ascontiguousarray(g).reshape(-1)
        pooled_gather(_values(tables[1], others), others, starts, weights, None, values)
        return IndexedSlices._unchecked(values, ids, shape)

    def second_vjp(g: Array) -> IndexedSlices:
        shape = tables[1].shape
        weights = np.ascontiguousarray(g).reshape(-1)
        rows = _values(tables[0], ids)
        summed = sum_by_row(rows, starts, others, weights, shape[0], ids)
        if summed is None:  # too many threads sum just now, or there are too many rows
            bags = np.repeat(ids, np.diff(starts))
            return entries_gradient(rows, bags, weights, others, shape)
        return IndexedSlices._unchecked(*summed, shape)

    def together(g: Array) -> list[IndexedSlices] | None:
        weights = np.ascontiguousarray(g).reshape(-1)
        first, second = _values(tables[0], ids), _values(tables[1], others)
        found = pair_gradients(first, ids, second, others, starts, weights)
        if found is None:
            return None
        return [
            IndexedSlices._unchecked(found[0], ids, first.shape),
            IndexedSlices._unchecked(found[1], found[2], second.shape),
        ]

    inputs = [(tables[0], first_vjp), (tables[1], second_vjp)]
    if isinstance(tables[0], Variable) and isinstance(tables[1], Variable):
        return record(what, out, inputs, at_hand, together)
    return record(what, out, inputs, at_hand)


def _fits(array: Array) -> bool:
    return fits_kernels(array) and array.dtype.char in "fd" and type(array) is np.ndarray


def _values(table: Any, ids: Array) -> Array:
    """Return a table's value as it is now; only rows in `ids` may be looked at."""
    if isinstance(table, Variable):
        return table._read_at(ids)
    return table if isinstance(table, np.ndarray) else np.asarray(table._read())


def _by_lookups(
    params: Any, ids: Any, other_params: Any, other_ids: Any, ndim: int, other_ndim: int
) -> Any:
    rows, others = embedding_lookup(params, ids), embedding_lookup(other_params, other_ids)
    middle = (1,) * (other_ndim - ndim)
    rows = rows.reshape(rows.shape[:ndim] + middle + rows.shape[ndim:])
    axes = tuple(range(other_ndim, others.ndim))
    return np.sum(rows * others, axis=axes) if axes else rows * others
