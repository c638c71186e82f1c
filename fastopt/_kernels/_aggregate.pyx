# cython: language_level=3
"""Sums of many gradients.

Arrays are C-contiguous, aligned, of native byte order, float32 or float64: the caller has seen to
it, and it is checked.
"""

from libc.stdlib cimport free, malloc

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._pool cimport num_threads, parallel_for
from ._typedefs cimport run_table

cnp.import_array()

cdef enum:
    BLOCK = 2048       # elements summed while they are in the first cache
    CHUNK = 1 << 14    # elements of a task
    ALONE = 1 << 16    # elements below which the caller works alone

ctypedef struct sum_job:
    const void** terms
    Py_ssize_t n_terms
    void* out
    Py_ssize_t n
    int type


cdef int float_type(object array, str name) except -1:
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array):
        raise TypeError(f"{name} must be an aligned C-contiguous array of native byte order")
    if array.dtype == np.float32:
        return 0
    if array.dtype == np.float64:
        return 1
    raise TypeError(f"{name} must be float32 or float64, not {array.dtype}")


cdef void add_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef sum_job* job = <sum_job*>context
    cdef const run_table* table = functions()
    cdef Py_ssize_t size = 4 if job.type == 0 else 8
    cdef Py_ssize_t lo = task * CHUNK, hi = min(lo + CHUNK, job.n), n, k, at
    cdef char* out
    while lo < hi:
        n = min(<Py_ssize_t>BLOCK, hi - lo)
        at = lo * size
        out = <char*>job.out + at
        table.add[job.type](out, <const char*>job.terms[0] + at, <const char*>job.terms[1] + at, n)
        for k in range(2, job.n_terms):
            table.add[job.type](out, out, <const char*>job.terms[k] + at, n)
        lo += n


def add_n(arrays, out):
    """Write the sum of all arrays to ``out``, in one pass over memory, added left to right.

    Parameters
    ----------
    arrays : list of ndarray
        At least one, of one shape and dtype.
    out : ndarray
        Of the same shape and dtype. It may be the first of the arrays and overlaps no other.
    """
    cdef int type = float_type(out, "out")
    cdef sum_job job
    cdef Py_ssize_t k
    cdef list terms = list(arrays)
    if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>out):
        raise ValueError("out is read-only")
    if not terms:
        raise ValueError("arrays is empty")
    for k, term in enumerate(terms):
        if float_type(term, f"arrays[{k}]") != type or term.shape != out.shape:
            raise ValueError(
                f"arrays[{k}] must have dtype {out.dtype} and shape {out.shape}, "
                f"not {term.dtype} {term.shape}"
            )
    if len(terms) == 1:
        if terms[0] is not out:
            out[...] = terms[0]
        return
    job.terms = <const void**>malloc(sizeof(void*) * len(terms))
    if job.terms == NULL:
        raise MemoryError(f"no memory to add {len(terms)} arrays")
    for k in range(len(terms)):
        job.terms[k] = cnp.PyArray_DATA(<cnp.ndarray>terms[k])
    job.n_terms = len(terms)
    job.out = cnp.PyArray_DATA(<cnp.ndarray>out)
    job.n = cnp.PyArray_SIZE(<cnp.ndarray>out)
    job.type = type
    with nogil:
        parallel_for(
            add_task, &job, (job.n + CHUNK - 1) // CHUNK,
            1 if job.n * job.n_terms < ALONE else num_threads(),
        )
        free(job.terms)
