# cython: language_level=3
# distutils: language = c++
"""Inner products of rows of two tables.

Arrays are C-contiguous, aligned and of native byte order, float32 or float64: this is checked, as
are shapes and row numbers, so that nothing is read or written out of bounds.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._plain cimport is_plain
from ._pool cimport num_threads, parallel_fn, parallel_for
from ._turns cimport leave_python, return_to_python
from ._typedefs cimport run_table

cnp.import_array()

cdef extern from "dots.hpp" namespace "fastopt" nogil:
    ctypedef struct BadPair:
        int64_t id
        int64_t other

    BadPair c_row_dots "fastopt::row_dots"(
        const void* first, int64_t first_rows, const void* second, int64_t second_rows,
        int64_t width, int type, const void* ids, cbool ids_wide, const void* others,
        cbool others_wide, int64_t n, int64_t per_row, void* out, const run_table* functions,
        parallel_fn parallel, int threads,
    ) noexcept

cdef enum:
    KEEP_GIL = 1 << 12      # products that are made sooner than another thread wakes up


cdef int check(object array, str name) except -1:
    if not is_plain(array):
        raise TypeError(f"{name} must be an aligned C-contiguous array of native byte order")
    return 0


cdef int check_ids(object ids, str name) except -1:
    check(ids, name)
    if ids.ndim != 1 or (ids.dtype != np.int32 and ids.dtype != np.int64):
        raise ValueError(
            f"{name} must be int32 or int64 with one axis, not {ids.dtype} {ids.shape}"
        )
    return 0


cdef BadPair multiply(
    cnp.ndarray first, cnp.ndarray ids, cnp.ndarray second, cnp.ndarray others, cnp.ndarray out
):
    """Write the products of checked arrays; there is something to multiply."""
    cdef const void* a = cnp.PyArray_DATA(first)
    cdef const void* b = cnp.PyArray_DATA(second)
    cdef const void* i = cnp.PyArray_DATA(ids)
    cdef const void* j = cnp.PyArray_DATA(others)
    cdef void* o = cnp.PyArray_DATA(out)
    cdef int64_t first_rows = cnp.PyArray_DIM(first, 0), second_rows = cnp.PyArray_DIM(second, 0)
    cdef int64_t n = cnp.PyArray_SIZE(ids), total = cnp.PyArray_SIZE(others), per_row = total // n
    cdef int64_t width = 1
    cdef int d, threads = num_threads()
    cdef int type_ = 0 if cnp.PyArray_TYPE(first) == cnp.NPY_FLOAT else 1
    cdef cbool ids_wide = cnp.PyArray_ITEMSIZE(ids) == 8
    cdef cbool others_wide = cnp.PyArray_ITEMSIZE(others) == 8
    cdef BadPair bad
    for d in range(1, cnp.PyArray_NDIM(first)):
        width *= cnp.PyArray_DIM(first, d)
    if total * width <= KEEP_GIL:
        return c_row_dots(
            a, first_rows, b, second_rows, width, type_, i, ids_wide, j, others_wide, n, per_row,
            o, functions(), parallel_for, threads,
        )
    with nogil:
        leave_python()
        bad = c_row_dots(
            a, first_rows, b, second_rows, width, type_, i, ids_wide, j, others_wide, n, per_row,
            o, functions(), parallel_for, threads,
        )
        return_to_python()
    return bad


def row_dots(first, ids, second, others, out):
    """Multiply rows: ``out[i, k] = sum(first[ids[i]] * second[others[i, k]])``.

    Parameters
    ----------
    first : ndarray, shape (R, ...), float32 or float64
        A table.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    second : ndarray, shape (S, ...)
        A table of the dtype of `first`, with rows of the same shape.
    others : ndarray, shape (n * k,), int32 or int64
        Row numbers, k for each of `ids`.
    out : ndarray, shape (n * k,)
        Of the dtype of `first`; overlaps nothing else.

    Raises
    ------
    IndexError
        If a row number is out of range; `out` is unspecified then.
    """
    check(first, "first")
    check(second, "second")
    check(out, "out")
    check_ids(ids, "ids")
    check_ids(others, "others")
    if first.dtype != np.float32 and first.dtype != np.float64:
        raise TypeError(f"first must be float32 or float64, not {first.dtype}")
    if first.ndim == 0 or first.shape[1:] != second.shape[1:] or first.dtype != second.dtype:
        raise ValueError(
            f"tables must have rows alike, not {first.dtype} {first.shape} and {second.dtype} "
            f"{second.shape}"
        )
    cdef int64_t n = ids.shape[0], total = others.shape[0]
    if total % max(n, 1) or (n == 0 and total):
        raise ValueError(f"{total} others cannot be shared among {n} ids")
    if out.shape != (total,) or out.dtype != first.dtype or not out.flags.writeable:
        raise ValueError(
            f"out must be writable, {first.dtype} and of shape {(total,)}, not {out.dtype} "
            f"{out.shape}"
        )
    if n == 0 or total == 0:
        return
    cdef BadPair bad = multiply(first, ids, second, others, out)
    if bad.id >= 0:
        raise IndexError(
            f"ids[{bad.id}] is {ids[bad.id]}, out of range for {first.shape[0]} rows"
        )
    if bad.other >= 0:
        raise IndexError(
            f"others[{bad.other}] is {others[bad.other]}, out of range for {second.shape[0]} rows"
        )


cdef bint is_table(object array) noexcept:
    return (
        is_plain(array)
        and cnp.PyArray_TYPE(<cnp.ndarray>array) in (cnp.NPY_FLOAT, cnp.NPY_DOUBLE)
        and cnp.PyArray_NDIM(<cnp.ndarray>array) > 0
    )


cdef bint are_ids(object array) noexcept:
    return (
        is_plain(array)
        and cnp.PyArray_TYPE(<cnp.ndarray>array) in (cnp.NPY_INT32, cnp.NPY_INT64)
    )


cdef bint begins_as(cnp.ndarray long, cnp.ndarray short, int first, int end) noexcept:
    cdef int d
    if cnp.PyArray_NDIM(long) < end or cnp.PyArray_NDIM(short) < end:
        return False
    for d in range(first, end):
        if cnp.PyArray_DIM(long, d) != cnp.PyArray_DIM(short, d):
            return False
    return True


cdef cnp.ndarray flat_copy(cnp.ndarray ids):
    cdef cnp.npy_intp n = cnp.PyArray_SIZE(ids)
    cdef cnp.ndarray copy = cnp.PyArray_SimpleNew(1, &n, cnp.PyArray_TYPE(ids))
    memcpy(cnp.PyArray_DATA(copy), cnp.PyArray_DATA(ids), n * cnp.PyArray_ITEMSIZE(ids))
    return copy


def pair_dots(first, ids, second, others):
    """Multiply rows of two tables, if all is as it mostly is.

    Parameters
    ----------
    first : ndarray, shape (R, ...), float32 or float64
        A table.
    ids : ndarray, int32 or int64
        Row numbers, of any shape.
    second : ndarray, shape (S, ...)
        A table of the dtype of `first`, with rows of the same shape.
    others : ndarray, shape ``ids.shape + (...)``, int32 or int64
        Row numbers, k for each of `ids`.

    Returns
    -------
    tuple of ndarray, or None
        The products, of the shape of `others`; copies of `ids` and `others` with one axis; where
        the others of each id start, int64. None if an argument is anything else, there is nothing
        to multiply, or a row number is out of range.
    """
    if not (is_table(first) and is_table(second) and are_ids(ids) and are_ids(others)):
        return None
    cdef cnp.ndarray a = first, b = second
    cdef int ndim = cnp.PyArray_NDIM(a), type_num = cnp.PyArray_TYPE(a)
    if cnp.PyArray_NDIM(b) != ndim or not begins_as(b, a, 1, ndim):
        return None
    if cnp.PyArray_TYPE(b) != type_num or not begins_as(others, ids, 0, ids.ndim):
        return None
    cdef int64_t n = cnp.PyArray_SIZE(<cnp.ndarray>ids), total = cnp.PyArray_SIZE(others)
    if n == 0 or total == 0:
        return None
    if cnp.PyArray_DIM(a, 0) == 0 or cnp.PyArray_DIM(b, 0) == 0:
        return None
    cdef int64_t per_row = total // n, k
    cdef cnp.ndarray i = flat_copy(ids), j = flat_copy(others)
    cdef cnp.ndarray out = cnp.PyArray_SimpleNew(
        cnp.PyArray_NDIM(<cnp.ndarray>others), cnp.PyArray_DIMS(<cnp.ndarray>others), type_num
    )
    cdef BadPair bad = multiply(a, i, b, j, out)
    if bad.id >= 0 or bad.other >= 0:
        return None
    cdef cnp.npy_intp n_starts = n + 1
    cdef cnp.ndarray starts = cnp.PyArray_SimpleNew(1, &n_starts, cnp.NPY_INT64)
    cdef int64_t* start = <int64_t*>cnp.PyArray_DATA(starts)
    for k in range(n + 1):
        start[k] = k * per_row
    return out, i, j, starts
