# cython: language_level=3
"""The rows of a matrix in compressed form that have an entry, as dense rows.

Arrays have one axis, are C-contiguous, aligned and of native byte order: it is checked. Whatever
they hold, and whoever changes it meanwhile, nothing is read or written out of bounds.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

import numpy as np

cimport numpy as cnp

from ._pool cimport num_threads, parallel_for

from ._step_memory import empty

cnp.import_array()

cdef enum:
    TASK = 1 << 14     # elements of a task
    ALONE = 1 << 16    # elements below which the caller works alone

ctypedef struct fill_job:
    const int64_t* starts   # where the entries of each touched row start, and where the last end
    const void* columns
    const char* data
    char* out
    Py_ssize_t n_rows
    Py_ssize_t width
    Py_ssize_t chunk
    bint wide               # columns are int64
    int type                # of the entries: 0 float32, 1 float64
    int bad                 # set by whoever finds a column out of range

ctypedef fused index_t:
    int32_t
    int64_t

ctypedef fused entry_t:
    float
    double


cdef Py_ssize_t count_touched(
    const index_t* p, Py_ssize_t n_rows, Py_ssize_t n_entries
) noexcept nogil:
    """Return how many rows have entries, -1 if offsets don't rise from 0 to what there is."""
    cdef Py_ssize_t row, n = 0, falls = 0
    for row in range(n_rows):
        n += p[row + 1] != p[row]
        falls += p[row + 1] < p[row]
    if falls or p[0] != 0 or p[n_rows] > n_entries:
        return -1
    return n


cdef Py_ssize_t list_touched(
    const index_t* p, Py_ssize_t n_rows, int64_t* touched, int64_t* starts, Py_ssize_t n
) noexcept nogil:
    """List them; both arrays have room for n + 1. Return how many were found."""
    cdef Py_ssize_t row, k = 0
    for row in range(n_rows):
        touched[k] = row
        starts[k] = p[row]
        k += p[row + 1] != p[row]
        k = min(k, n)
    starts[k] = p[n_rows]
    return k


cdef bint fill_rows(
    const fill_job* job, const index_t* columns, const entry_t* data, Py_ssize_t lo, Py_ssize_t hi
) noexcept nogil:
    cdef Py_ssize_t k, j
    cdef uint64_t column, width = job.width
    cdef entry_t* row
    memset(job.out + lo * job.width * <Py_ssize_t>sizeof(entry_t), 0,
           (hi - lo) * job.width * sizeof(entry_t))
    for k in range(lo, hi):
        row = <entry_t*>job.out + k * job.width
        for j in range(job.starts[k], job.starts[k + 1]):
            column = <uint64_t><int64_t>columns[j]
            if column >= width:
                return True
            row[column] += data[j]
    return False


cdef void fill_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef fill_job* job = <fill_job*>context
    cdef Py_ssize_t lo = task * job.chunk, hi = min(lo + job.chunk, job.n_rows)
    cdef const int32_t* narrow = <const int32_t*>job.columns
    cdef const int64_t* wide = <const int64_t*>job.columns
    cdef bint bad
    if job.type == 0:
        if job.wide:
            bad = fill_rows(job, wide, <const float*>job.data, lo, hi)
        else:
            bad = fill_rows(job, narrow, <const float*>job.data, lo, hi)
    elif job.wide:
        bad = fill_rows(job, wide, <const double*>job.data, lo, hi)
    else:
        bad = fill_rows(job, narrow, <const double*>job.data, lo, hi)
    if bad:
        mark(&job.bad)


cdef extern from *:
    """
    static void fastopt_mark(int* flag) { __atomic_store_n(flag, 1, __ATOMIC_RELAXED); }
    """
    void mark "fastopt_mark"(int* flag) noexcept nogil


cdef bint is_vector(object array, object dtypes) except -1:
    return (
        isinstance(array, np.ndarray)
        and array.ndim == 1
        and array.dtype in dtypes
        and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array)
    )


def touched_rows(indptr, columns, data, Py_ssize_t width):
    """Return the rows that have an entry, whatever its value, as dense rows.

    Parameters
    ----------
    indptr : ndarray of int32 or int64, shape (n_rows + 1,)
        Where the entries of each row start.
    columns : ndarray of int32 or int64, shape (n,)
        The column of each entry. Entries of the same place add up in their order.
    data : ndarray of float32 or float64, shape (m,)
        The entries, as many as are used at least.
    width : int
        The number of columns.

    Returns
    -------
    touched : ndarray of int64, shape (n_touched,)
        The numbers of the rows, ascending.
    values : ndarray, shape (n_touched, width)

    ``None`` if the arrays are others or don't describe a matrix.
    """
    cdef fill_job job
    cdef Py_ssize_t n_rows, n, k, n_entries
    cdef cnp.ndarray offsets, touched, starts, values
    cdef const void* p
    cdef int64_t* at
    cdef int64_t* ids
    cdef bint wide
    integers = (np.dtype(np.int32), np.dtype(np.int64))
    floats = (np.dtype(np.float32), np.dtype(np.float64))
    if not (
        is_vector(indptr, integers) and is_vector(columns, integers) and is_vector(data, floats)
    ):
        return None
    n_rows = indptr.shape[0] - 1
    n_entries = min(columns.shape[0], data.shape[0])
    if n_rows < 0 or width < 0:
        return None
    offsets = indptr
    p = cnp.PyArray_DATA(offsets)
    wide = cnp.PyArray_ITEMSIZE(offsets) == 8
    with nogil:
        if wide:
            n = count_touched(<const int64_t*>p, n_rows, n_entries)
        else:
            n = count_touched(<const int32_t*>p, n_rows, n_entries)
    if n < 0:
        return None
    touched = np.empty(n + 1, np.int64)
    starts = np.empty(n + 1, np.int64)
    ids = <int64_t*>cnp.PyArray_DATA(touched)
    at = <int64_t*>cnp.PyArray_DATA(starts)
    with nogil:
        if wide:
            k = list_touched(<const int64_t*>p, n_rows, ids, at, n)
        else:
            k = list_touched(<const int32_t*>p, n_rows, ids, at, n)
    # What was read now counts, should somebody have changed it in between.
    if k != n or at[0] < 0 or at[n] > n_entries:
        return None
    for k in range(n):
        if at[k + 1] < at[k]:
            return None
    values = empty((n, width), data.dtype)
    job.starts = at
    job.columns = cnp.PyArray_DATA(<cnp.ndarray>columns)
    job.data = <const char*>cnp.PyArray_DATA(<cnp.ndarray>data)
    job.out = <char*>cnp.PyArray_DATA(values)
    job.n_rows = n
    job.width = width
    job.chunk = max(<Py_ssize_t>1, TASK // max(<Py_ssize_t>1, width))
    job.wide = cnp.PyArray_ITEMSIZE(<cnp.ndarray>columns) == 8
    job.type = 0 if data.dtype == floats[0] else 1
    job.bad = 0
    with nogil:
        parallel_for(
            fill_task, &job, (n + job.chunk - 1) // job.chunk,
            1 if n * width < ALONE else num_threads(),
        )
    if job.bad:
        return None
    return touched[:n], values
