# cython: language_level=3
# distutils: language = c++
"""Look-ups of tables of 8 bits.

Arrays are C-contiguous, aligned and of native byte order: the caller has seen to it. Dtypes,
shapes and row numbers are checked, so that nothing is read or written out of bounds.
"""

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._plain cimport is_plain
from ._pool cimport num_threads, parallel_fn, parallel_for
from ._typedefs cimport run_table

cnp.import_array()

cdef extern from "quantized.hpp" namespace "fastopt" nogil:
    ctypedef struct Bad:
        int64_t id
        int64_t bag

    Bad c_lookup "fastopt::lookup_quantized"(
        const void* rows, int64_t n_rows, int64_t width, const void* ids, cbool wide,
        int64_t n_ids, const int64_t* offsets, int64_t n_bags, const float* weights,
        const float* scales, float* out, const run_table* functions, parallel_fn parallel,
        int threads,
    ) noexcept


cdef const void* data(object array, str name, object dtype, tuple shape) except? NULL:
    """Return where an array of this dtype and shape begins."""
    if not is_plain(array):
        raise TypeError(f"{name} must be an aligned C-contiguous array of native byte order")
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"{name} must have dtype {dtype} and shape {shape}, not {array.dtype} {array.shape}"
        )
    return cnp.PyArray_DATA(<cnp.ndarray>array)


def lookup(rows, ids, offsets, weights, scales, out):
    """Sum the rows of each bag: ``out[b] = scales[b] * sum(weights[k] * row[ids[k]])``.

    The sum is over ``k`` in ``offsets[b]:offsets[b + 1]``, in this order. Without ``weights`` or
    ``scales`` these factors are absent. Without ``offsets`` no sum is made:
    ``out[k] = row[ids[k]]``.

    Parameters
    ----------
    rows : ndarray, shape (R, width + 8), uint8
        Of each row the codes, then a float32 scale and a float32 bias.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    offsets : ndarray, shape (n_bags + 1,), int64, or None
        Where each bag starts in ``ids``, and where the last one ends.
    weights : ndarray, shape (n,), float32, or None
        A factor for each id; None without ``offsets``.
    scales : ndarray, shape (n_bags,), float32, or None
        A factor for each bag; None without ``offsets``.
    out : ndarray, shape (n_bags, width) or (n, width), float32
        The result.

    Raises
    ------
    IndexError
        If an id is outside ``[0, R)``; ``out`` is unspecified then.
    """
    cdef int64_t n_rows, n, n_bags = 0
    if type(rows) is not np.ndarray or rows.ndim != 2 or rows.shape[1] < 8:
        raise ValueError("rows must be an array of two dimensions, the second at least 8")
    if type(ids) is not np.ndarray or ids.ndim != 1 or ids.dtype not in (np.int32, np.int64):
        raise TypeError("ids must be a one-dimensional array, int32 or int64")
    n_rows, n = rows.shape[0], ids.shape[0]
    cdef const void* r = data(rows, "rows", np.dtype(np.uint8), rows.shape)
    cdef const void* i = data(ids, "ids", ids.dtype, ids.shape)
    cdef const void* starts = NULL
    cdef const void* w = NULL
    cdef const void* s = NULL
    if offsets is not None:
        if type(offsets) is not np.ndarray or offsets.ndim != 1 or offsets.shape[0] == 0:
            raise ValueError("offsets must be an array of one dimension and not empty")
        starts = data(offsets, "offsets", np.dtype(np.int64), offsets.shape)
        n_bags = offsets.shape[0] - 1
        if weights is not None:
            w = data(weights, "weights", np.dtype(np.float32), (n,))
        if scales is not None:
            s = data(scales, "scales", np.dtype(np.float32), (n_bags,))
    elif weights is not None or scales is not None:
        raise ValueError("weights and scales are of bags, of which there are none without offsets")
    n_out = ids.shape[0] if offsets is None else n_bags
    cdef void* o = <void*>data(out, "out", np.dtype(np.float32), (n_out, rows.shape[1] - 8))
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    cdef cbool wide = ids.dtype.itemsize == 8
    cdef int64_t width = rows.shape[1] - 8
    cdef int threads = num_threads()
    cdef Bad bad
    with nogil:
        bad = c_lookup(
            r, n_rows, width, i, wide, n, <const int64_t*>starts, n_bags, <const float*>w,
            <const float*>s, <float*>o, functions(), parallel_for, threads,
        )
    if bad.bag >= 0:
        raise ValueError(
            f"offsets of bag {bad.bag} are not within the {n} ids: "
            f"{offsets[bad.bag]} to {offsets[bad.bag + 1]}"
        )
    if bad.id >= 0:
        raise IndexError(
            f"index {ids[bad.id]} at position {bad.id} is out of range for {n_rows} rows"
        )
