# cython: language_level=3
"""Shrink rows of an array by a factor, in place: ``a = a - a * rate``.

The difference form: ``1 - rate`` rounded to float32 would lose the digits of a small rate, and lose
them in the same direction at every step. What becomes subnormal becomes 0, as in the rules.

Arrays are C-contiguous, aligned, writable, of native byte order, float32 or float64, and rows are
ascending, without repetition and in range: the caller has seen to it. Types are checked.
"""

from libc.stdint cimport int64_t

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._half cimport half_type
from ._pool cimport num_threads, parallel_for

cnp.import_array()

cdef enum:
    CHUNK = 1 << 14    # elements of a task
    ALONE = 1 << 16    # elements below which the caller works alone

cdef extern from "element.h" nogil:
    float flush_f32(float x) noexcept
    double flush_f64(double x) noexcept

ctypedef enum Which:
    ALL
    LISTED
    OTHERS

ctypedef struct shrink_job:
    char* a
    char* half         # of which a is the float32 master; or NULL
    int half_type
    int type
    double rate
    Py_ssize_t n_rows
    Py_ssize_t width
    Py_ssize_t task_rows
    const int64_t* rows
    Py_ssize_t n_listed
    Which which


cdef void shrink_f32(float* a, float rate, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        a[i] = flush_f32(a[i] - a[i] * rate)


cdef void shrink_f64(double* a, double rate, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        a[i] = flush_f64(a[i] - a[i] * rate)


cdef void shrink_range(shrink_job* job, Py_ssize_t lo, Py_ssize_t hi) noexcept nogil:
    cdef Py_ssize_t n = (hi - lo) * job.width
    cdef float* master
    if job.half != NULL:
        master = <float*>job.a + lo * job.width
        functions().refresh[job.half_type](master, job.half + 2 * lo * job.width, n)
        shrink_f32(master, <float>job.rate, n)
        functions().narrow[job.half_type](job.half + 2 * lo * job.width, master, n)
    elif job.type == cnp.NPY_FLOAT:
        shrink_f32(<float*>job.a + lo * job.width, <float>job.rate, n)
    else:
        shrink_f64(<double*>job.a + lo * job.width, job.rate, n)


cdef void shrink_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef shrink_job* job = <shrink_job*>context
    cdef Py_ssize_t lo = task * job.task_rows
    cdef Py_ssize_t hi = min(lo + job.task_rows, job.n_rows)
    cdef Py_ssize_t a = 0, b = job.n_listed, middle
    if job.which == ALL:
        shrink_range(job, lo, hi)
        return
    while a < b:  # the first listed row that isn't before lo
        middle = (a + b) >> 1
        if job.rows[middle] < lo:
            a = middle + 1
        else:
            b = middle
    while a < job.n_listed and job.rows[a] < hi:
        if job.which == LISTED:
            shrink_range(job, job.rows[a], job.rows[a] + 1)
        else:
            shrink_range(job, lo, job.rows[a])
            lo = job.rows[a] + 1
        a += 1
    if job.which == OTHERS:
        shrink_range(job, lo, hi)


def shrink(array, double rate, rows=None, bint others=False, half=None):
    """Shrink an array, or rows of it, by ``1 - rate``.

    Parameters
    ----------
    array : ndarray
        Of any shape; rows are indices along the first axis.
    rate : float
        Rounded once to the array's dtype.
    rows : ndarray of int64, optional
        The rows: ascending, each once. Default: all.
    others : bool
        Shrink the rows that are not listed instead.
    half : ndarray, optional
        The same numbers in float16 or bfloat16, of which `array` is the float32 master.
    """
    cdef shrink_job job
    cdef cnp.ndarray table, listed
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY(<cnp.ndarray>array):
        raise TypeError("array must be a writable, aligned, C-contiguous array")
    table = array
    job.type = cnp.PyArray_TYPE(table)
    if job.type != cnp.NPY_FLOAT and job.type != cnp.NPY_DOUBLE:
        raise TypeError(f"array must be float32 or float64, not {array.dtype}")
    job.n_rows = cnp.PyArray_DIM(table, 0) if cnp.PyArray_NDIM(table) else 1
    job.width = cnp.PyArray_SIZE(table) // job.n_rows if job.n_rows else 0
    job.rows = NULL
    job.n_listed = 0
    job.which = ALL
    if rows is not None:
        listed = rows
        if (
            cnp.PyArray_TYPE(listed) != cnp.NPY_INT64
            or cnp.PyArray_NDIM(listed) != 1
            or not cnp.PyArray_ISCARRAY_RO(listed)
        ):
            raise TypeError("rows must be a C-contiguous array of int64 with one axis")
        job.rows = <const int64_t*>cnp.PyArray_DATA(listed)
        job.n_listed = cnp.PyArray_DIM(listed, 0)
        job.which = OTHERS if others else LISTED
    job.a = <char*>cnp.PyArray_DATA(table)
    job.half = NULL
    if half is not None:
        job.half_type = half_type(half, array, "half")
        job.half = <char*>cnp.PyArray_DATA(<cnp.ndarray>half)
    job.rate = rate
    job.task_rows = max(<Py_ssize_t>1, CHUNK // max(<Py_ssize_t>1, job.width))
    with nogil:
        parallel_for(
            shrink_task, &job, (job.n_rows + job.task_rows - 1) // job.task_rows,
            1 if job.n_rows * job.width < ALONE else num_threads(),
        )
