"""Sparse matrices of other libraries, read as rows.

A gradient that a sparse matrix stands for touches the rows that have a stored entry, whatever the
entry's value. Only those rows are made dense. Entries stored twice add up in the order in which
they are stored. The matrix itself is only read: no sorting, no summing, no conversion in place.

Neither SciPy nor PyTorch is imported: if an object of theirs is passed, its library is loaded
already.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from fastopt._arrays import contiguous, index_array, real_array
from fastopt._kernels._csr import touched_rows

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """The touched rows of a sparse array: `values[k]` belongs to row `indices[k]` of `shape`."""

    values: Array
    indices: Array
    shape: tuple[int, ...]


def is_scipy_sparse(value: Any) -> bool:
    """Say whether `value` is a scipy.sparse array or matrix, without importing scipy."""
    scipy_sparse = sys.modules.get("scipy.sparse")
    return scipy_sparse is not None and bool(scipy_sparse.issparse(value))


def rows_of_scipy(matrix: Any, name: str) -> Rows:
    """Return the touched rows of a scipy.sparse array or matrix of any format.

    Parameters
    ----------
    matrix : scipy.sparse array or matrix
        One- or more-dimensional; unsorted entries, repeated entries, stored zeros and mixed widths
        of index arrays are allowed.
    name : str
        What the matrix is called in error messages.

    Raises
    ------
    TypeError
        If the entries are not real numbers.
    ValueError
        If the matrix is malformed: entries outside its shape, offsets that decrease or arrays of
        unequal length. scipy itself does not look, and its compiled code then reads wild memory.
    """
    shape = tuple(int(n) for n in matrix.shape)
    kind = matrix.format
    if kind == "csr":
        return rows_of_csr(matrix.indptr, matrix.indices, matrix.data, shape, name)
    if kind == "csc":
        counts = _checked_counts(matrix.indptr, shape[1], len(matrix.indices), name)
        columns = np.repeat(np.arange(shape[1]), counts)
        coords: tuple[Array, ...] = (np.asarray(matrix.indices)[: columns.size], columns)
        data = matrix.data[: columns.size]
    elif kind == "dia":
        coords, data = _entries_of_dia(matrix.data, matrix.offsets, shape)
    else:
        if kind == "bsr":  # the conversion below copies blocks by offsets that it trusts
            _checked_counts(
                matrix.indptr, shape[0] // matrix.blocksize[0], len(matrix.indices), name
            )
        try:
            coo = matrix.tocoo(copy=False)
        except (ValueError, IndexError) as error:  # as far as scipy looks
            raise ValueError(f"{name} is malformed: {error}") from error
        coords = tuple(coo.coords) if hasattr(coo, "coords") else (coo.row, coo.col)
        data = coo.data
    return rows_of_entries(coords, data, shape, name)


def rows_of_csr(indptr: Any, columns: Any, data: Any, shape: tuple[int, ...], name: str) -> Rows:
    """Return the touched rows of a compressed-row matrix given by its three arrays."""
    if len(shape) == 2 and np.shape(indptr) == (shape[0] + 1,):
        found = touched_rows(indptr, columns, data, shape[1])
        if found is not None:
            return Rows(found[1], found[0], shape)
    # Other dtypes and layouts; and what is malformed, to say how.
    if len(shape) == 1:  # one line of entries, and each of them is a row of the gradient
        n = int(_checked_counts(indptr, 1, len(columns), name)[0])
        return rows_of_entries((np.asarray(columns)[:n],), np.asarray(data)[:n], shape, name)
    counts = _checked_counts(indptr, shape[0], len(columns), name)
    touched = np.flatnonzero(counts)
    n = int(counts.sum())
    places = np.repeat(np.arange(touched.size), counts[touched])
    return _filled(touched, places, (np.asarray(columns)[:n],), np.asarray(data)[:n], shape, name)


def rows_of_entries(coords: tuple[Any, ...], data: Any, shape: tuple[int, ...], name: str) -> Rows:
    """Return the touched rows of a sparse array given entry by entry.

    Parameters
    ----------
    coords : tuple of array_like
        One array of positions for each of the leading dimensions of `shape`.
    data : array_like
        One number, or one block of the remaining dimensions, an entry.
    shape : tuple of int
        The shape of the whole array.
    name : str
        What the array is called in error messages.
    """
    rows = index_array(coords[0], f"the row indices of {name}")
    values = real_array(data, f"the data of {name}")
    _check_entries(values, shape[len(coords) :], name)
    _check_positions(rows, shape[0], values.shape[0], 0, name)
    if len(coords) == 1:  # nothing to gather: the entries are whole rows, and may repeat
        return Rows(contiguous(values), rows, shape)
    touched, places = np.unique(rows, return_inverse=True)
    return _filled(touched, places, coords[1:], values, shape, name)


def _filled(
    touched: Array,
    places: Array,
    coords: tuple[Any, ...],
    data: Any,
    shape: tuple[int, ...],
    name: str,
) -> Rows:
    """Add entry k to position `coords[..., k]` of dense row `places[k]`, in order."""
    entries = real_array(data, f"the data of {name}")
    n_sparse = 1 + len(coords)
    _check_entries(entries, shape[n_sparse:], name)
    keys = places.astype(np.int64)
    for axis, coord in enumerate(coords, start=1):
        positions = index_array(coord, f"the indices of axis {axis} of {name}")
        _check_positions(positions, shape[axis], entries.shape[0], axis, name)
        # Keys that overflow are never used: so many elements cannot be allocated below.
        keys = keys * shape[axis] + positions
    width = math.prod(shape[1:n_sparse])
    values = np.zeros((touched.size * width, *shape[n_sparse:]), entries.dtype)
    if keys.size:
        np.add.at(values, keys, entries)
    return Rows(values.reshape((touched.size, *shape[1:])), touched, shape)


def _entries_of_dia(
    data: Any, offsets: Any, shape: tuple[int, ...]
) -> tuple[tuple[Array, ...], Array]:
    """Return positions and data of a diagonal matrix with its stored zeros.

    scipy's own conversion drops them, and a row whose entries are all zero would not be touched.
    """
    columns = np.arange(np.shape(data)[1])
    rows = columns - np.asarray(offsets, dtype=np.int64)[:, None]
    inside = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    columns = np.broadcast_to(columns, rows.shape)
    return (rows[inside], columns[inside]), np.asarray(data)[inside]


def _checked_counts(indptr: Any, n_lines: int, n_entries: int, name: str) -> Array:
    """Return how many entries each row (or column) of a compressed matrix has."""
    offsets = index_array(indptr, f"indptr of {name}").astype(np.int64, copy=False)
    if (
        offsets.size != n_lines + 1
        or offsets[0] != 0
        or offsets[-1] > n_entries
        or np.any(offsets[1:] < offsets[:-1])  # compared: a difference may overflow
    ):
        raise ValueError(
            f"{name} is malformed: indptr must rise from 0 over {n_lines + 1} offsets to at most "
            f"{n_entries}, the number of stored entries"
        )
    return np.diff(offsets)


def _check_entries(entries: Array, block: tuple[int, ...], name: str) -> None:
    """Check that an entry is a number, or a block of the dense dimensions."""
    if entries.ndim == 0 or entries.shape[1:] != block:
        raise ValueError(
            f"{name} is malformed: its data have shape {entries.shape}, an entry has shape {block}"
        )


def _check_positions(positions: Array, size: int, n_entries: int, axis: int, name: str) -> None:
    """Check that there is one position an entry, and that none lies outside the shape."""
    if positions.size != n_entries:
        raise ValueError(
            f"{name} is malformed: {positions.size} indices along axis {axis} and {n_entries} "
            f"entries"
        )
    if positions.size and not (0 <= positions.min() and positions.max() < size):
        bad = int(np.argmax((positions < 0) | (positions >= size)))
        raise ValueError(
            f"{name} is malformed: index {int(positions[bad])} of entry {bad} is outside axis "
            f"{axis} of size {size}"
        )
