"""`embedding_lookup`: rows of a table by their ids."""

from __future__ import annotations

from typing import Any

from fastopt.autodiff.at_hand import record
from fastopt.autodiff.recording import current
from fastopt.embedding.clipping import Clip, checked_max_norm
from fastopt.embedding.quantized import QuantizedTable
from fastopt.embedding.tables import Array, Part, Tables, as_ids
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Any:
    """Look up rows of a table by their ids.

    Parameters
    ----------
    params : Variable, Tensor, QuantizedTable or array_like, shape (rows, ...), or list of them
        The table. Several tables together form one, their rows of one shape and dtype.
    ids : array_like of int
        Row numbers, of any shape.
    partition_strategy : {"mod", "div"}
        How ids are spread over P tables. "mod": table ``id % P``, row ``id // P``. "div": each
        table holds consecutive ids, the first ones one row more if the rows do not divide evenly.
        Without effect if there is one table.
    name : str, optional
        What messages call the look-up, and the name of the resulting Tensor.
    validate_indices : bool
        Without effect, as in TensorFlow: ids are always checked.
    max_norm : float, optional
        Rows with a larger L2 norm are scaled to it. The table does not change.

    Returns
    -------
    Tensor or ndarray, shape ``ids.shape + table.shape[1:]``
        A Tensor if a table is a Variable or Tensor. The gradient of a Variable is an
        `IndexedSlices` that lists the ids as they came, repeated ones repeatedly; that of a
        computed table is dense.

    Raises
    ------
    TypeError
        If `ids` are not integers.
    ValueError
        If there is no table, the tables do not fit together, the strategy is unknown, or `max_norm`
        is negative.
    IndexError
        If an id is negative or not less than the number of rows. There is no wrap-around.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), name="table")
    >>> rows = fo.embedding_lookup(table, [[2, 0]])
    >>> rows.shape
    (1, 2, 2)
    >>> (gradient,) = fo.gradients(rows, [table])
    >>> gradient.indices
    array([2, 0])
    """
    limit = None if max_norm is None else checked_max_norm(max_norm)
    what = "ids" if name is None else f"ids of {name!r}"
    if limit is None and isinstance(params, (Variable, QuantizedTable)) and params.ndim:
        return _rows_of_one(params, ids, what, "embedding_lookup" if name is None else name)
    tables = Tables(params, partition_strategy)
    flat, shape = as_ids(ids, what)
    parts = tables.locate(flat, shape, what)
    rows = tables.gather(parts, flat.size)
    clip = None if limit is None else Clip(rows, limit)
    out = rows.reshape(shape + tables.row_shape)
    if not tables.is_differentiable:
        return out
    return record(
        "embedding_lookup" if name is None else name,
        out,
        [
            (tables.tables[part.table], _row_gradient(tables, part, flat.size, clip))
            for part in parts
        ],
    )


def _rows_of_one(table: Variable | QuantizedTable, ids: Any, what: str, name: str) -> Any:
    """Return rows of one table: most look-ups are no more than this, and many are small."""
    trained = isinstance(table, Variable)
    records = trained and current().records
    flat, shape = as_ids(ids, what, keep=records)
    try:
        rows = table._read_rows(flat)
    except IndexError:
        Tables(table, "mod").check_range(flat, shape, what)
        raise
    full = table.shape
    out = rows if len(shape) == 1 else rows.reshape(shape + full[1:])
    if not trained:
        return out

    def vjp(g: Array) -> IndexedSlices:
        return IndexedSlices._unchecked(g.reshape((flat.size, *full[1:])), flat, full)

    return record(name, out, [(table, vjp)])


def _row_gradient(tables: Tables, part: Part, n: int, clip: Clip | None) -> Any:
    shape = tables.tables[part.table].shape
    row_shape = tables.row_shape

    def vjp(g: Array) -> IndexedSlices:
        values = g.reshape((n, *row_shape))
        if part.places is not None:
            values = values[part.places]
        if clip is not None:
            values = clip.backward(values, part.places)
        return IndexedSlices._unchecked(values, part.rows, shape)

    return vjp
