"""One table, or several that form one: where the row of an id is, and its reading."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastopt._arrays import index_array, is_half, plain_array, possible_ids
from fastopt._kernels import _grouping, _rows
from fastopt._kernels._step_memory import empty
from fastopt.autodiff import Differentiable
from fastopt.embedding.quantized import QuantizedTable

Array = np.ndarray[Any, Any]

_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class Part(NamedTuple):
    """The ids that one table holds.

    `rows` are their rows in that table, `places` their positions among all ids; None if there is no
    other table.
    """

    table: int
    rows: Array
    places: Array | None


class Tables:
    """What `params` of a look-up stand for.

    Parameters
    ----------
    params : Variable, Tensor, QuantizedTable or array_like, or list or tuple of them
        One table, or the parts of one in order.
    partition_strategy : str
        How ids are spread over several tables: "mod" or "div". Of one table it is not looked at.

    Attributes
    ----------
    tables : list of (Differentiable, QuantizedTable or ndarray)
    n_rows : int
        Of all tables together.
    row_shape : tuple of int
    dtype : dtype

    Raises
    ------
    TypeError
        If something is no table.
    ValueError
        If there is no table, a table has no rows axis, the tables differ in row shape or dtype, or
        the strategy is neither "mod" nor "div".
    """

    def __init__(self, params: Any, partition_strategy: str) -> None:
        if params is None:
            raise ValueError("params must be a table or a list of tables, got None")
        listed = isinstance(params, (list, tuple))
        given = list(params) if listed else [params]
        if not given:
            raise ValueError("params must hold at least one table, got an empty list")
        self._listed = listed
        self.tables = [
            t
            if isinstance(t, (Differentiable, QuantizedTable))
            else plain_array(t, f"params[{p}]" if listed else "params")
            for p, t in enumerate(given)
        ]
        first = self.tables[0]
        for p, t in enumerate(self.tables):
            if t.ndim == 0:
                raise ValueError(
                    f"{self.name_of(p)} must have an axis of rows, got a 0-d array; the table is"
                    " the first argument, the ids are the second"
                )
            if t.shape[1:] != first.shape[1:]:
                raise ValueError(
                    f"the tables of params must have rows of one shape: {self.name_of(p)} has "
                    f"{t.shape[1:]}, {self.name_of(0)} has {first.shape[1:]}"
                )
            if t.dtype != first.dtype:
                raise ValueError(
                    f"the tables of params must have one dtype: {self.name_of(p)} has {t.dtype}, "
                    f"{self.name_of(0)} has {first.dtype}"
                )
        if len(given) > 1 and partition_strategy not in ("mod", "div"):
            raise ValueError(
                f'partition_strategy must be "mod" or "div", got {partition_strategy!r}'
            )
        self.partition_strategy = partition_strategy
        self.n_rows = sum(t.shape[0] for t in self.tables)
        self.row_shape: tuple[int, ...] = first.shape[1:]
        self.dtype: np.dtype[Any] = first.dtype

    def name_of(self, p: int) -> str:
        """Return what messages call table `p`."""
        table = self.tables[p]
        if isinstance(table, Differentiable):
            return f"table {table.name!r}"
        return f"params[{p}]" if self._listed else "params"

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients may flow into a table."""
        return any(isinstance(t, Differentiable) for t in self.tables)

    def locate(self, ids: Array, shape: tuple[int, ...], name: str) -> list[Part]:
        """Return where the rows of 1-D `ids` are, table by table.

        Parameters
        ----------
        ids : ndarray, shape (n,)
            int32 or int64, C-contiguous.
        shape : tuple of int
            The shape in which the caller gave them, to say where a wrong one stands.
        name : str
            What the caller calls them.

        Raises
        ------
        IndexError
            If an id is negative or not less than the number of rows.
        """
        self.check_range(ids, shape, name)
        n_tables = len(self.tables)
        if n_tables == 1:
            return [Part(0, ids, None)]
        if self.partition_strategy == "mod":
            owner, row = ids % n_tables, ids // n_tables
        else:
            small, extra = divmod(self.n_rows, n_tables)
            owner = ids // (small + 1)
            row = ids % (small + 1)
            if small:
                # The first `extra` tables have one row more than the others.
                late = (ids - extra) // small
                is_late = late > owner
                owner = np.where(is_late, late, owner)
                row = np.where(owner < extra, row, (ids - extra) % small)
        parts = []
        for p, table in enumerate(self.tables):
            places = np.flatnonzero(owner == p)
            rows = np.ascontiguousarray(row[places], dtype=ids.dtype)
            position = _grouping.find_out_of_range(rows, table.shape[0])
            if position >= 0:
                raise IndexError(
                    f"{name}: id {int(ids[places[position]])} belongs to row {int(rows[position])} "
                    f"of {self.name_of(p)} (strategy {self.partition_strategy!r}), which has "
                    f"{table.shape[0]} rows"
                )
            parts.append(Part(p, rows, places))
        return parts

    def gather(self, parts: list[Part], n: int) -> Array:
        """Return the rows of `n` located ids as a fresh array of shape ``(n, *row_shape)``."""
        if parts[0].places is None:
            return _rows_of(self.tables[0], parts[0].rows)
        out = np.empty((n, *self.row_shape), self.dtype)
        for part in parts:
            out[part.places] = _rows_of(self.tables[part.table], part.rows)
        return out

    def check_range(
        self, ids: Array, shape: tuple[int, ...], name: str, chosen: Array | None = None
    ) -> None:
        """Check that ids are row numbers; only those at the positions `chosen` if these are given.

        Raises
        ------
        IndexError
            If one is not; the first is named with its position.
        """
        looked_at = ids if chosen is None else ids[chosen]
        position = _grouping.find_out_of_range(looked_at, self.n_rows)
        if position < 0:
            return
        if chosen is not None:
            position = int(chosen[position])
        place = ", ".join(str(int(i)) for i in np.unravel_index(position, shape))
        where = f"position {place}" if len(shape) == 1 else f"position ({place})"
        if not shape:
            where = "its only position"
        whole = self.name_of(0)
        if len(self.tables) > 1:
            whole += " and its other parts"
        raise IndexError(
            f"{name}: id {int(ids[position])} at {where} is out of range for {whole} of "
            f"{self.n_rows} rows"
        )


def as_ids(ids: Any, name: str, keep: bool = True) -> tuple[Array, tuple[int, ...]]:
    """Return `ids` as a 1-D array, and their shape.

    With `keep` it is an array that the caller cannot change any more: the gradient keeps it, and
    the caller may fill its buffer with the next batch by then.

    Raises
    ------
    TypeError
        If they are not integers, or some are masked.
    """
    array = possible_ids(ids._read() if isinstance(ids, Differentiable) else ids, name)
    line = array if array.ndim == 1 else array.reshape(-1)
    flat = index_array(line, name)
    if keep and (flat is line or np.may_share_memory(flat, array)):
        flat = flat.copy()
    return flat, array.shape


def fits_kernels(array: Array) -> bool:
    """Say whether the kernels can read an array as it is."""
    flags = array.flags
    known = array.dtype in _KERNEL_DTYPES or (is_half(array.dtype) and array.dtype.isnative)
    return known and flags.c_contiguous and flags.aligned


def _rows_of(table: Any, ids: Array) -> Array:
    if isinstance(table, (Differentiable, QuantizedTable)):
        return table._read_rows(ids)
    if fits_kernels(table):
        out = empty((ids.size, *table.shape[1:]), table.dtype)
        _rows.gather(table, ids, out)
        return out
    return np.take(table, ids, axis=0)
