# cython: language_level=3
"""Arrays of 16-bit floats, widened to float32 and rounded back.

Arrays are C-contiguous, aligned and of native byte order: the caller has seen to it, and it is
checked.
"""

from libc.stdint cimport int64_t, uint32_t

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._pool cimport num_threads, parallel_for

cnp.import_array()

cdef enum:
    CHUNK = 1 << 14    # elements of a task
    ALONE = 1 << 17    # elements below which the caller works alone

ctypedef struct convert_job:
    void (*run)(void* out, const void* a, Py_ssize_t n) noexcept nogil
    void (*run_random)(
        void* out, const void* a, uint32_t key, int64_t first, Py_ssize_t n
    ) noexcept nogil
    uint32_t key
    char* out
    const char* a
    Py_ssize_t out_size
    Py_ssize_t a_size
    Py_ssize_t n


cdef void convert_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef convert_job* job = <convert_job*>context
    cdef Py_ssize_t lo = task * CHUNK
    cdef Py_ssize_t n = min(<Py_ssize_t>CHUNK, job.n - lo)
    cdef char* out = job.out + lo * job.out_size
    cdef const char* a = job.a + lo * job.a_size
    if job.run_random:
        job.run_random(out, a, job.key, lo, n)
    else:
        job.run(out, a, n)


cdef enum:
    USER_DTYPES = 256       # NumPy's NPY_USERDEF: from here on dtypes are those of others


cdef int half_number(object dtype) except? -1:
    """Return 0 for float16, 1 for bfloat16, -1 for any other dtype."""
    cdef cnp.dtype known = dtype
    if 0 <= known.type_num < USER_DTYPES:  # NumPy makes a dtype's name anew each time
        return 0 if known.type == c"e" else -1
    return 1 if dtype.name == "bfloat16" else -1


cdef int number_of(object dtype, str what) except -1:
    cdef int number = half_number(dtype)
    if number < 0:
        raise TypeError(f"{what} must be float16 or bfloat16, not {dtype}")
    return number


cdef int half_type(object half, object master, str what) except -1:
    """Check an array of 16-bit numbers, and its float32 master if it has one; return the type."""
    if not isinstance(half, np.ndarray) or not cnp.PyArray_ISCARRAY(<cnp.ndarray>half):
        raise ValueError(
            f"{what} must be a writable, aligned, C-contiguous array of native byte order"
        )
    if master is not None and (half.shape != master.shape or master.dtype != np.float32):
        raise ValueError(
            f"{what} has shape {half.shape}: its master must be float32 of this shape, "
            f"not {master.dtype} {master.shape}"
        )
    return number_of(half.dtype, what)


cdef int convert(object array, object out, convert_job* job) except -1:
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array):
        raise TypeError("array must be an aligned C-contiguous array of native byte order")
    job.a = <const char*>cnp.PyArray_DATA(<cnp.ndarray>array)
    job.out = <char*>cnp.PyArray_DATA(<cnp.ndarray>out)
    job.n = cnp.PyArray_SIZE(<cnp.ndarray>array)
    with nogil:
        parallel_for(
            convert_task, job, (job.n + CHUNK - 1) // CHUNK,
            1 if job.n < ALONE else num_threads(),
        )
    return 0


def widen(array):
    """Return a float16 or bfloat16 array in float32."""
    cdef convert_job job
    job.run_random = NULL
    job.run = functions().widen[number_of(array.dtype, "array")]
    job.a_size = 2
    job.out_size = 4
    out = np.empty(array.shape, np.float32)
    convert(array, out, &job)
    return out


def narrow(array, dtype, key=None):
    """Return a float32 array in float16 or bfloat16.

    Rounded to nearest, ties to even; with a key, an integer below 2**32, up or down at random, so
    that the expectation is the number itself.
    """
    cdef convert_job job
    cdef int number
    dtype = np.dtype(dtype)
    number = number_of(dtype, "dtype")
    job.run = functions().narrow[number]
    job.run_random = NULL
    if key is not None:
        job.run_random = functions().narrow_random[number]
        job.key = key
    job.a_size = 4
    job.out_size = 2
    out = np.empty(array.shape, dtype)
    if array.dtype != np.float32:
        raise TypeError(f"array must be float32, not {array.dtype}")
    convert(array, out, &job)
    return out
