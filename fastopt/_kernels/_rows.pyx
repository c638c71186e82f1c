# cython: language_level=3
# distutils: language = c++
"""Rows between tables and batches.

Arrays are C-contiguous, aligned and of native byte order: the caller has seen to it. Dtypes,
shapes and row numbers are checked, so that nothing is read or written out of bounds.
"""

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._half cimport half_number
from ._pool cimport num_threads, parallel_for
from ._turns cimport leave_python, return_to_python
from ._typedefs cimport run_table

cnp.import_array()

cdef extern from "rows.hpp" namespace "fastopt" nogil:
    int64_t c_gather "fastopt::gather"(
        const void* table, int64_t n_rows, int64_t row_size, const void* ids, cbool wide,
        int64_t n, void* out, const run_table* functions, parallel_fn parallel, int threads,
    ) noexcept
    int64_t c_scatter_add "fastopt::scatter_add"(
        void* table, int64_t n_rows, int64_t width, int type, const void* ids, cbool wide,
        int64_t n, const void* values, const run_table* functions, parallel_fn parallel,
        int threads,
    ) noexcept


cdef int check_array(object array, str name) except -1:
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array):
        raise TypeError(f"{name} must be an aligned C-contiguous array of native byte order")
    return 0


cdef int check_writable(object array, str name) except -1:
    check_array(array, name)
    if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>array):
        raise ValueError(f"{name} is read-only")
    return 0


cdef int check_ids(object ids) except -1:
    check_array(ids, "ids")
    if ids.ndim != 1:
        raise ValueError(f"ids must have one dimension, not shape {ids.shape}")
    if ids.dtype != np.int32 and ids.dtype != np.int64:
        raise TypeError(f"ids must be int32 or int64, not {ids.dtype}")
    return 0


cdef int check_same(object array, str name, object dtype, tuple shape) except -1:
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"{name} must have dtype {dtype} and shape {shape}, not {array.dtype} {array.shape}"
        )
    return 0


cdef int check_status(int64_t status, object ids, object table) except -1:
    if status >= 0:
        raise IndexError(
            f"index {ids[status]} at position {status} is out of range for {table.shape[0]} rows"
        )
    if status == -2:
        raise MemoryError(f"no memory to group {ids.size} indices")
    return 0


cdef int float_type(object array, str name) except -1:
    if array.dtype == np.float32:
        return 0
    if array.dtype == np.float64:
        return 1
    raise TypeError(f"{name} must be float32 or float64, not {array.dtype}")


cdef int64_t row_width(object table) except -1:
    cdef int64_t width = 1, n
    for n in table.shape[1:]:
        width *= n
    return width


cdef int check_table(object table) except -1:
    check_array(table, "table")
    if table.ndim == 0 or table.dtype.hasobject:
        raise ValueError("table must have at least one dimension and hold numbers")
    return 0


def gather(table, ids, out):
    """Copy rows: ``out[k] = table[ids[k]]``.

    Parameters
    ----------
    table : ndarray, shape (R, ...)
        Any dtype that holds no objects.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    out : ndarray, shape (n, ...)
        Of the dtype of ``table``.

    Raises
    ------
    IndexError
        If an id is outside ``[0, R)``; ``out`` is unspecified then.
    """
    check_table(table)
    check_ids(ids)
    check_writable(out, "out")
    check_same(out, "out", table.dtype, (ids.shape[0], *table.shape[1:]))
    cdef int64_t n_rows = table.shape[0], n = ids.shape[0], status
    cdef int64_t row_size = row_width(table) * table.dtype.itemsize
    cdef cbool wide = ids.dtype.itemsize == 8
    cdef const void* t = cnp.PyArray_DATA(<cnp.ndarray>table)
    cdef const void* i = cnp.PyArray_DATA(<cnp.ndarray>ids)
    cdef void* o = cnp.PyArray_DATA(<cnp.ndarray>out)
    cdef int threads = num_threads()
    with nogil:
        leave_python()
        status = c_gather(
            t, n_rows, row_size, i, wide, n, o, functions(), parallel_for, threads
        )
        return_to_python()
    check_status(status, ids, table)


def scatter_add(table, ids, values):
    """Add rows in place: ``table[ids[k]] += values[k]``, repeated ids in order of arrival.

    Parameters
    ----------
    table : ndarray, shape (R, ...), float32 or float64
        Changed in place.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    values : ndarray, shape (n, ...)
        Of the dtype of ``table``; doesn't overlap it.

    Raises
    ------
    IndexError
        If an id is outside ``[0, R)``; nothing was added then.
    """
    check_table(table)
    check_writable(table, "table")
    check_ids(ids)
    check_array(values, "values")
    check_same(values, "values", table.dtype, (ids.shape[0], *table.shape[1:]))
    cdef int type = float_type(table, "table")
    cdef int64_t n_rows = table.shape[0], width = row_width(table), n = ids.shape[0], status
    cdef cbool wide = ids.dtype.itemsize == 8
    cdef void* t = cnp.PyArray_DATA(<cnp.ndarray>table)
    cdef const void* i = cnp.PyArray_DATA(<cnp.ndarray>ids)
    cdef const void* v = cnp.PyArray_DATA(<cnp.ndarray>values)
    cdef int threads = num_threads()
    with nogil:
        status = c_scatter_add(
            t, n_rows, width, type, i, wide, n, v, functions(), parallel_for, threads
        )
    check_status(status, ids, table)


def pooled_gather(table, ids, offsets, weights, scales, out, order=None):
    """Sum the rows of each bag: ``out[b] = scales[b] * sum(weights[k] * table[ids[k]])``.

    The sum is over ``k`` in ``offsets[b]:offsets[b + 1]``, in this order. Without ``weights`` or
    ``scales`` these factors are absent.

    Parameters
    ----------
    table : ndarray, shape (R, ...), float16, bfloat16, float32 or float64
        The rows.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    offsets : ndarray, shape (n_bags + 1,), int64
        Where each bag starts in ``ids``, and where the last one ends.
    weights : ndarray, shape (n,), or None
        A factor for each id, of the dtype of ``out``.
    scales : ndarray, shape (n_bags,), or None
        A factor for each bag, of the dtype of ``out``.
    out : ndarray, shape (n_bags, ...)
        Of the dtype of ``table``; float32 for one of 16 bits.
    order : ndarray, shape (n_bags,), int64, or None
        Row b of ``out`` is bag ``order[b]``, times ``scales[b]``.

    Raises
    ------
    IndexError
        If an id is outside ``[0, R)``; ``out`` is unspecified then.
    """
    check_table(table)
    check_ids(ids)
    check_array(offsets, "offsets")
    check_writable(out, "out")
    if offsets.ndim != 1 or offsets.dtype != np.int64 or offsets.shape[0] == 0:
        raise ValueError("offsets must be int64, of one dimension and not empty")
    cdef int half = half_number(table.dtype)
    cdef int type = 0 if half >= 0 else float_type(table, "table")
    cdef int64_t n_rows = table.shape[0], width = row_width(table)
    cdef int64_t n = ids.shape[0], n_bags = offsets.shape[0] - 1
    dtype = np.dtype(np.float32) if half >= 0 else table.dtype
    check_same(out, "out", dtype, (n_bags, *table.shape[1:]))
    cdef const void* w = NULL
    cdef const void* s = NULL
    if weights is not None:
        check_array(weights, "weights")
        check_same(weights, "weights", dtype, (n,))
        w = cnp.PyArray_DATA(<cnp.ndarray>weights)
    if scales is not None:
        check_array(scales, "scales")
        check_same(scales, "scales", dtype, (n_bags,))
        s = cnp.PyArray_DATA(<cnp.ndarray>scales)
    cdef const int64_t* turns = NULL
    if order is not None:
        check_array(order, "order")
        check_same(order, "order", np.dtype(np.int64), (n_bags,))
        turns = <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>order)
    cdef cbool wide = ids.dtype.itemsize == 8
    cdef const void* t = cnp.PyArray_DATA(<cnp.ndarray>table)
    cdef const void* i = cnp.PyArray_DATA(<cnp.ndarray>ids)
    cdef const int64_t* starts = <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>offsets)
    cdef void* o = cnp.PyArray_DATA(<cnp.ndarray>out)
    cdef int threads = num_threads()
    cdef Bad bad
    with nogil:
        leave_python()
        bad = c_pooled_gather(
            t, n_rows, width, type, half, i, wide, n, starts, n_bags, turns, w, s, o,
            functions(), parallel_for, threads,
        )
        return_to_python()
    if bad.bag >= 0:
        bag = bad.bag if order is None else int(order[bad.bag])
        if not 0 <= bag < n_bags:
            raise ValueError(f"order[{bad.bag}] is {bag}, which is none of {n_bags} bags")
        raise ValueError(
            f"offsets of bag {bag} are not within the {n} ids: "
            f"{offsets[bag]} to {offsets[bag + 1]}"
        )
    check_status(bad.id, ids, table)
