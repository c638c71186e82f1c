# cython: language_level=3
"""Losses and what their derivatives need, in one pass over the numbers.

Arrays are C-contiguous, aligned and of native byte order: this is checked, as are dtypes and sizes,
so that nothing is read or written out of bounds.
"""

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._plain cimport is_plain
from ._pool cimport num_threads, parallel_for
from ._turns cimport leave_python, return_to_python
from ._typedefs cimport run_table

cnp.import_array()

cdef enum:
    KEEP_GIL = 1 << 13      # numbers that are computed sooner than another thread wakes up
    CHUNK = 1 << 13         # numbers of a task
    ALONE = 1 << 15         # below, the caller works alone


cdef struct Job:
    const run_table* functions
    const float* labels
    const float* logits
    float* loss
    float* slope
    Py_ssize_t n
    int strange             # written by any thread, only ever to 1


cdef void cross_entropy_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef Job* job = <Job*>context
    cdef Py_ssize_t lo = task * CHUNK, n = min(<Py_ssize_t>CHUNK, job.n - lo)
    cdef float* slope = NULL if job.slope == NULL else job.slope + lo
    if not job.functions.sigmoid_cross_entropy(
        job.labels + lo, job.logits + lo, job.loss + lo, slope, n
    ):
        job.strange = 1


cdef inline bint is_like(object array, object other) noexcept:
    """Say whether an array has as many numbers, of the same type, in a row."""
    return (
        is_plain(array)
        and cnp.PyArray_TYPE(<cnp.ndarray>array) == cnp.PyArray_TYPE(<cnp.ndarray>other)
        and cnp.PyArray_SIZE(<cnp.ndarray>array) == cnp.PyArray_SIZE(<cnp.ndarray>other)
    )


def fits(labels, logits):
    """Say whether `sigmoid_cross_entropy` takes these arrays: float32, of one shape."""
    if type(logits) is not np.ndarray or cnp.PyArray_TYPE(<cnp.ndarray>logits) != cnp.NPY_FLOAT:
        return False
    return is_like(logits, logits) and is_like(labels, logits) and labels.shape == logits.shape


def sigmoid_cross_entropy(labels, logits, loss, slope):
    """Compute ``max(x, 0) - x * z + log(1 + exp(-abs(x)))`` of each logit x and label z.

    Parameters
    ----------
    labels, logits : ndarray, float32
        Of one shape.
    loss : ndarray
        Where the losses go; of as many numbers.
    slope : ndarray or None
        Where the derivatives by the logits go, ``sigmoid(x) - z``.

    Returns
    -------
    bool
        Whether all losses are finite. An infinite logit costs nothing where its label agrees, which
        the formula doesn't say.
    """
    if not fits(labels, logits):
        raise TypeError("labels and logits must be C-contiguous arrays of float32 of one shape")
    for out in (loss, slope):
        if out is None and out is not loss:
            continue
        if not is_like(out, logits) or not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>out):
            raise TypeError("what is written must be like the logits, and writable")
    cdef Job job
    cdef int threads = num_threads()
    job.functions = functions()
    job.labels = <const float*>cnp.PyArray_DATA(<cnp.ndarray>labels)
    job.logits = <const float*>cnp.PyArray_DATA(<cnp.ndarray>logits)
    job.loss = <float*>cnp.PyArray_DATA(<cnp.ndarray>loss)
    job.slope = NULL if slope is None else <float*>cnp.PyArray_DATA(<cnp.ndarray>slope)
    job.n = cnp.PyArray_SIZE(<cnp.ndarray>logits)
    job.strange = 0
    if job.n <= KEEP_GIL:
        cross_entropy_task(&job, 0)
        return job.strange == 0
    with nogil:
        leave_python()
        parallel_for(
            cross_entropy_task, &job, (job.n + CHUNK - 1) // CHUNK, 1 if job.n < ALONE else threads
        )
        return_to_python()
    return job.strange == 0


def squared_error(labels, predictions, difference):
    """Return the mean of the squares of ``predictions - labels``.

    Parameters
    ----------
    labels, predictions : ndarray, float32 or float64
        Of one dtype, with as many numbers, at least one.
    difference : ndarray
        Like them: where the differences go.

    Returns
    -------
    float
        Summed up in float64 in an order that depends on the number of terms alone.
    """
    if type(predictions) is not np.ndarray or not cnp.PyArray_SIZE(<cnp.ndarray>predictions):
        raise TypeError("predictions must be an array that is not empty")
    cdef int type_num = cnp.PyArray_TYPE(<cnp.ndarray>predictions)
    if type_num != cnp.NPY_FLOAT and type_num != cnp.NPY_DOUBLE:
        raise TypeError(f"predictions must be float32 or float64, not {predictions.dtype}")
    for array in (predictions, labels, difference):
        if not is_like(array, predictions):
            raise TypeError("labels, predictions and their difference must be alike")
    if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>difference):
        raise TypeError("difference must be writable")
    cdef Py_ssize_t n = cnp.PyArray_SIZE(<cnp.ndarray>predictions)
    cdef const void* a = cnp.PyArray_DATA(<cnp.ndarray>predictions)
    cdef const void* b = cnp.PyArray_DATA(<cnp.ndarray>labels)
    cdef void* out = cnp.PyArray_DATA(<cnp.ndarray>difference)
    cdef int type_ = 0 if type_num == cnp.NPY_FLOAT else 1
    cdef double total
    if n <= KEEP_GIL:
        subtract(type_, out, a, b, n)
        return functions().squares[type_](out, n) / n
    with nogil:
        leave_python()
        subtract(type_, out, a, b, n)
        total = functions().squares[type_](out, n)
        return_to_python()
    return total / n


cdef void subtract(
    int type_, void* out, const void* a, const void* b, Py_ssize_t n
) noexcept nogil:
    cdef Py_ssize_t i
    if type_ == 0:
        for i in range(n):
            (<float*>out)[i] = (<const float*>a)[i] - (<const float*>b)[i]
    else:
        for i in range(n):
            (<double*>out)[i] = (<const double*>a)[i] - (<const double*>b)[i]
