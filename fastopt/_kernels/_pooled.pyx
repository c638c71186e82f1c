# cython: language_level=3
# distutils: language = c++
"""Pooled look-ups whose arguments are as they mostly are: checked, kept and summed in one go.

Nothing is trusted. What isn't as it mostly is isn't done, and the caller says what is wrong.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._plain cimport is_plain
from ._pool cimport num_threads, parallel_fn, parallel_for
from ._step_memory import empty
from ._turns cimport leave_python, return_to_python
from ._typedefs cimport run_table

cnp.import_array()

cdef extern from "pooled.hpp" namespace "fastopt" nogil:
    ctypedef struct PooledJob:
        const void* table
        int64_t n_rows
        int64_t width
        int type
        const void* ids
        cbool wide
        int64_t n_ids
        const int64_t* offsets
        int64_t n_bags
        int combiner
        const void* weights
        void* coefficients
        void* scales
        void* kept_ids
        void* out

    cbool c_pooled "fastopt::pooled"(
        const PooledJob& job, const run_table* functions, parallel_fn parallel, int threads,
    ) noexcept

cdef enum:
    KEEP_GIL = 1 << 12      # elements that are summed sooner than another thread wakes up

cdef dict COMBINERS = {"mean": 0, "sqrtn": 1, "sum": 2}


cdef inline bint is_line(object array) noexcept:
    return is_plain(array) and cnp.PyArray_NDIM(<cnp.ndarray>array) == 1


cdef inline bint are_ids(object array) noexcept:
    return is_line(array) and cnp.PyArray_TYPE(<cnp.ndarray>array) in (
        cnp.NPY_INT32, cnp.NPY_INT64
    )


cdef cnp.ndarray checked_offsets(cnp.ndarray given, int64_t n):
    """Return a copy of offsets as int64, or None if they don't rise from 0 to n."""
    cdef Py_ssize_t k, size = cnp.PyArray_DIM(given, 0)
    cdef const void* data = cnp.PyArray_DATA(given)
    cdef bint rises = True
    if size == 0:
        return None
    cdef cnp.ndarray kept = empty((size,), np.dtype(np.int64))
    cdef int64_t* start = <int64_t*>cnp.PyArray_DATA(kept)
    if cnp.PyArray_ITEMSIZE(given) == 8:
        memcpy(start, data, size * sizeof(int64_t))
    else:
        for k in range(size):
            start[k] = (<const int32_t*>data)[k]
    for k in range(size - 1):
        rises &= start[k] <= start[k + 1]
    return kept if rises and start[0] == 0 and start[size - 1] == n else None


cdef inline void* data_of(object array) noexcept:
    return NULL if array is None else cnp.PyArray_DATA(<cnp.ndarray>array)


cdef bint summed(
    cnp.ndarray table, cnp.ndarray ids, cnp.ndarray offsets, int combiner, object weights,
    object coefficients, object scales, object kept, cnp.ndarray out,
):
    """Sum the rows of checked arrays; say whether all ids were rows."""
    cdef PooledJob job
    cdef int axis, threads = num_threads()
    cdef bint known
    job.table = cnp.PyArray_DATA(table)
    job.n_rows = cnp.PyArray_DIM(table, 0)
    job.width = 1
    for axis in range(1, cnp.PyArray_NDIM(table)):
        job.width *= cnp.PyArray_DIM(table, axis)
    job.type = 0 if cnp.PyArray_TYPE(table) == cnp.NPY_FLOAT else 1
    job.ids = cnp.PyArray_DATA(ids)
    job.wide = cnp.PyArray_ITEMSIZE(ids) == 8
    job.n_ids = cnp.PyArray_DIM(ids, 0)
    job.offsets = <const int64_t*>cnp.PyArray_DATA(offsets)
    job.n_bags = cnp.PyArray_DIM(offsets, 0) - 1
    job.combiner = combiner
    job.weights = data_of(weights)
    job.coefficients = data_of(coefficients)
    job.scales = data_of(scales)
    job.kept_ids = data_of(kept)
    job.out = cnp.PyArray_DATA(out)
    if (job.n_ids + job.n_bags) * job.width <= KEEP_GIL:
        return c_pooled(job, functions(), parallel_for, threads)
    with nogil:
        leave_python()
        known = c_pooled(job, functions(), parallel_for, threads)
        return_to_python()
    return known


def pooled(table, ids, offsets, weights, combiner, bint keep):
    """Combine the rows of bags of ids, if all is as it mostly is.

    Parameters
    ----------
    table : ndarray, shape (R, ...), float32 or float64
        The rows.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    offsets : ndarray, shape (n_bags + 1,), int32 or int64
        Where each bag starts in `ids`, and where the last one ends.
    weights : ndarray, shape (n,), or None
        A factor for each id, of the dtype of `table`.
    combiner : {"mean", "sqrtn", "sum"}
        Bags are divided by the sum of their weights, the root of the sum of the squares of these,
        or not at all.
    keep : bool
        Whether what is returned is wanted later on: then none of it is the caller's memory.

    Returns
    -------
    tuple or None
        The bags, shape (n_bags, ...); the ids; the offsets, int64; the divided weights, if there
        are weights, else None; the factor of each bag, if there are no weights and the combiner
        isn't "sum", else None. None if an argument is anything else, or an id is out of range.
    """
    if not (is_plain(table) and are_ids(ids) and are_ids(offsets)):
        return None
    cdef cnp.ndarray rows = table
    cdef int type_num = cnp.PyArray_TYPE(rows), ndim = cnp.PyArray_NDIM(rows)
    if type_num not in (cnp.NPY_FLOAT, cnp.NPY_DOUBLE) or ndim == 0 or cnp.PyArray_SIZE(rows) == 0:
        return None
    cdef object number = COMBINERS.get(combiner) if type(combiner) is str else None
    if number is None:
        return None
    cdef int64_t n = cnp.PyArray_DIM(<cnp.ndarray>ids, 0)
    if weights is not None and not (
        is_line(weights)
        and cnp.PyArray_TYPE(<cnp.ndarray>weights) == type_num
        and cnp.PyArray_DIM(<cnp.ndarray>weights, 0) == n
    ):
        return None
    cdef cnp.ndarray starts = checked_offsets(offsets, n)
    if starts is None:
        return None
    cdef object dtype = (<object>rows).dtype, kept = None, coefficients = None, scales = None
    cdef Py_ssize_t n_bags = cnp.PyArray_DIM(starts, 0) - 1
    cdef cnp.ndarray out = empty((n_bags, *(<object>rows).shape[1:]), dtype)
    if keep:
        kept = empty((n,), (<object>ids).dtype)
    if weights is not None:
        if keep or combiner != "sum":
            coefficients = empty((n,), dtype)
    elif combiner != "sum":
        scales = empty((n_bags,), dtype)
    if not summed(rows, ids, starts, number, weights, coefficients, scales, kept, out):
        return None
    return (
        out, ids if kept is None else kept, starts,
        weights if coefficients is None else coefficients, scales,
    )
