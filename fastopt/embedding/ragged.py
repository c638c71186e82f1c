"""Bags of ids: the forms in which they are given, made one.

A bag is what one row of a pooled look-up adds up. Whatever form the caller uses becomes `Bags`: all
ids one after the other, and the offsets at which the bags begin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastopt import _sparse
from fastopt._arrays import index_array, shown
from fastopt.autodiff import Differentiable
from fastopt.autodiff.at_hand import record

Array = np.ndarray[Any, Any]


class RaggedIds(NamedTuple):
    """Bags of ids of different length, for `embedding_lookup_sparse`.

    Bag ``b`` holds ``ids[offsets[b]:offsets[b + 1]]``, as a row of a CSR matrix does: `offsets` has
    one entry more than there are bags, begins with 0 and ends with ``len(ids)``. (PyTorch's
    ``EmbeddingBag`` calls this ``include_last_offset=True``.) Bags may be empty, the last ones too.

    Parameters
    ----------
    ids : array_like of int, shape (n,)
        The ids of all bags, one bag after the other.
    offsets : array_like of int, shape (n_bags + 1,)
        Where each bag begins, and the end of the last.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = np.array([[1.0], [10.0], [100.0]])
    >>> bags = fo.RaggedIds([0, 2, 1], [0, 2, 2, 3])
    >>> fo.embedding_lookup_sparse(table, bags, None, combiner="sum")
    array([[101.],
           [  0.],
           [ 10.]])
    """

    ids: Any
    offsets: Any


class Bags(NamedTuple):
    """Checked bags.

    `columns` are the column positions that came with the ids (None if they had none), `order` how
    the stored entries were sorted by bag (None if they were), `shape` the leading shape of the
    result.
    """

    ids: Array
    offsets: Array
    shape: tuple[int, ...]
    columns: Array | None = None
    order: Array | None = None

    @property
    def counts(self) -> Array:
        """The number of ids in each bag."""
        return np.diff(self.offsets)

    def bag_of_each(self) -> Array:
        """Return the bag that each id is in."""
        return np.repeat(np.arange(self.offsets.size - 1), self.counts)


def as_bags(value: Any, name: str, keep: bool = True) -> Bags:
    """Return bags from any form in which ids are given.

    Parameters
    ----------
    value : scipy.sparse matrix or array, RaggedIds, tuple of (ids, offsets), or list of lists
        The ids. Of a sparse matrix the stored data are the ids and each row is a bag; an
        n-dimensional sparse array has a bag for each index of its leading axes.
    name : str
        What the ids are called in error messages.
    keep : bool
        Whether the ids are wanted after the look-up: then they are copied where the caller could
        change them.

    Raises
    ------
    TypeError
        If `value` is of no such form, or ids are not integers.
    ValueError
        If ids and offsets, or the arrays of a sparse matrix, do not fit together.
    """
    if _sparse.is_scipy_sparse(value):
        entries = _entries_of(value, name)
        ids = index_array(entries.ids, f"the ids stored in {name}")
        return entries._replace(ids=_own(ids, entries.ids) if keep else ids)
    if type(value) is RaggedIds or (type(value) is tuple and len(value) == 2):
        given, offsets = (x._read() if isinstance(x, Differentiable) else x for x in value)
        ids = index_array(given, f"the ids of {name}")
        checked = _checked_offsets(offsets, ids.size, f"the offsets of {name}")
        if checked[-1] != ids.size:
            raise ValueError(
                f"the offsets of {name} end with {checked[-1]}, but there are {ids.size} ids; they "
                f"hold one entry more than there are bags, the last being the number of ids"
            )
        return Bags(_own(ids, given) if keep else ids, checked, (checked.size - 1,))
    if isinstance(value, list):
        lists = [
            index_array(bag._read() if isinstance(bag, Differentiable) else bag, f"{name}[{b}]")
            for b, bag in enumerate(value)
        ]
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([bag.size for bag in lists], out=offsets[1:])
        # The first array makes concatenate work for no bags at all, and int32 stay int32.
        ids = np.concatenate([np.empty(0, np.int32), *lists])
        return Bags(ids, offsets, (len(lists),))
    raise TypeError(
        f"{name} must be a scipy.sparse matrix of ids, fastopt.RaggedIds(ids, offsets) or a list "
        f"of lists of ids, got {shown(value)}"
    )


def as_weights(value: Any, bags: Bags, ids_name: str, name: str) -> Any:
    """Return one weight an id, aligned with `bags.ids`, as a 1-D array, Variable or Tensor.

    Raises
    ------
    TypeError
        If `value` is of no form that weights have, or not of real numbers.
    ValueError
        If it does not hold one weight for each id, at the same positions.
    """
    n = bags.ids.size
    if isinstance(value, Differentiable):
        if value.shape != (n,):
            raise ValueError(f"{name} of shape {value.shape} do not fit {n} ids in {ids_name}")
        if value.dtype.kind not in "fiu":
            raise TypeError(f"{name} must be real numbers, got dtype {value.dtype}")
        return value if bags.order is None else taken(value, bags.order)
    if _sparse.is_scipy_sparse(value):
        entries = _entries_of(value, name)
        if (
            entries.shape != bags.shape
            or not np.array_equal(entries.offsets, bags.offsets)
            or bags.columns is None
            or entries.columns is None
            or not np.array_equal(entries.columns, bags.columns)
        ):
            raise ValueError(
                f"{name} must have its entries where {ids_name} has them: {entries.ids.size} "
                f"weights in {entries.shape} rows do not fit {n} ids in {bags.shape} rows, or lie "
                f"elsewhere (a conversion may have dropped stored zeros)"
            )
        return _real(entries.ids, name)
    if isinstance(value, list) and value and all(np.ndim(bag) == 1 for bag in value):
        counts = [len(bag) for bag in value]
        if counts != bags.counts.tolist():
            raise ValueError(
                f"{name} must have as many entries in each bag as {ids_name}, got {counts} weights "
                f"for {bags.counts.tolist()} ids"
            )
        return _real(np.concatenate(value), name)
    if value is None or isinstance(value, (str, bytes, dict, set)):
        raise TypeError(f"{name} must be None or hold one real number an id, got {shown(value)}")
    weights = _real(value, name)
    if weights.shape != (n,):
        raise ValueError(f"{name} of shape {weights.shape} do not fit {n} ids in {ids_name}")
    return weights if bags.order is None else weights[bags.order]


def taken(weights: Any, order: Array) -> Any:
    """Return ``weights[order]``, each weight at most once, with a gradient that is always dense.

    An optimizer would do different things to a variable whose gradient is dense for one batch and
    sparse for another.
    """
    if not isinstance(weights, Differentiable):
        return weights[order]
    shape, dtype = weights.shape, weights.dtype

    def vjp(g: Array) -> Array:
        out = np.zeros(shape, dtype)
        out[order] = g
        return out

    return record("take", weights._read()[order], [(weights, vjp)])


def _real(value: Any, name: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}: {shown(value)}")
    return array


def _own(array: Array, given: Any) -> Array:
    """Return `array`, copied if the caller could change it before the backward pass reads it."""
    return (
        array.copy()
        if isinstance(given, np.ndarray) and np.may_share_memory(array, given)
        else array
    )


def _checked_offsets(offsets: Any, n: int, name: str) -> Array:
    """Return offsets as int64 that rise from 0 to at most `n`."""
    given = offsets
    offsets = index_array(offsets, name).astype(np.int64, copy=False)
    if offsets.size == 0 or offsets[0] != 0:
        raise ValueError(
            f"{name} must begin with 0 and hold one entry more than there are bags, got "
            f"{shown(given)}"
        )
    falls = offsets[1:] < offsets[:-1]  # compared: a difference may overflow
    if falls.any():
        bag = int(np.argmax(falls))
        raise ValueError(
            f"{name} must not decrease: {offsets[bag + 1]} follows {offsets[bag]} at position "
            f"{bag + 1}"
        )
    if offsets[-1] > n:
        raise ValueError(f"{name} end with {offsets[-1]}, beyond the {n} entries there are")
    return _own(offsets, given)


def _entries_of(matrix: Any, name: str) -> Bags:
    """Return the stored entries of a sparse matrix by row, those of a row as they are stored."""
    shape = tuple(int(n) for n in matrix.shape)
    if len(shape) < 2:
        raise ValueError(
            f"{name} must have a row for each bag, got a sparse array of shape {shape}"
        )
    kind = matrix.format
    if kind in ("csr", "csc"):
        data, positions = np.asarray(matrix.data), np.asarray(matrix.indices)
        offsets = _checked_offsets(matrix.indptr, min(data.size, positions.size), f"{name}.indptr")
        n_lines = shape[0] if kind == "csr" else shape[1]
        if offsets.size != n_lines + 1:
            raise ValueError(f"{name} is malformed: {offsets.size} offsets for {n_lines} lines")
        data, positions = data[: offsets[-1]], positions[: offsets[-1]]
        if kind == "csr":
            return Bags(data, offsets, shape[:1], positions)
        columns = np.repeat(np.arange(n_lines), np.diff(offsets))
        return _sorted_by_bag(positions, columns, data, shape[:1], name)
    if kind in ("dia", "bsr"):
        raise TypeError(
            f"{name} must list ids one by one, which the {kind} format does not; use CSR"
        )
    coo = matrix if kind == "coo" else matrix.tocoo()
    coords = tuple(coo.coords) if hasattr(coo, "coords") else (coo.row, coo.col)
    try:
        rows = np.ravel_multi_index(tuple(c.astype(np.int64) for c in coords[:-1]), shape[:-1])
    except ValueError as error:
        raise ValueError(f"{name} is malformed: entries outside its shape {shape}") from error
    return _sorted_by_bag(rows, coords[-1], np.asarray(coo.data), shape[:-1], name)


def _sorted_by_bag(
    rows: Array, columns: Array, data: Array, shape: tuple[int, ...], name: str
) -> Bags:
    """Return entries ordered by row, those of a row as they came."""
    n_bags = int(np.prod(shape, dtype=np.int64))
    if not rows.size == columns.size == data.size:
        raise ValueError(f"{name} is malformed: {rows.size} positions for {data.size} entries")
    if rows.size and not (0 <= rows.min() and rows.max() < n_bags):
        raise ValueError(f"{name} is malformed: row {rows.max()} of {n_bags}")
    offsets = np.zeros(n_bags + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_bags), out=offsets[1:])
    if rows.size and np.any(rows[1:] < rows[:-1]):
        order = np.argsort(rows, kind="stable")
        return Bags(data[order], offsets, shape, np.asarray(columns)[order], order)
    return Bags(data, offsets, shape, columns)
