# cython: language_level=3
# distutils: language = c++
"""What a layer does beside its product, in one pass each: bias, relu, their derivatives, columns.

Arrays are C-contiguous, aligned and of native byte order, float32 or float64: this is checked, as
are shapes, so that nothing is read or written out of bounds.
"""

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

import numpy as np

cimport numpy as cnp

from ._plain cimport is_plain
from ._pool cimport num_threads, parallel_fn, parallel_for

cnp.import_array()

cdef extern from "nn.hpp" namespace "fastopt" nogil:
    void c_bias_relu "fastopt::bias_relu"[T](
        void* out, const void* bias, cbool relu, int64_t n, int64_t width,
        parallel_fn parallel, int threads,
    ) noexcept
    int64_t c_layer_tasks "fastopt::layer_tasks"(int64_t n, int64_t width) noexcept
    void c_mask "fastopt::mask"[T](
        const void* g, const void* y, void* out, void* partial, void* sum, int64_t n,
        int64_t width, parallel_fn parallel, int threads,
    ) noexcept

    cdef struct Piece:
        char* data
        int64_t offset
        int64_t size
    void copy_columns(
        char* wide, const Piece* pieces, int64_t n_pieces, cbool join, int64_t n, int64_t width,
        parallel_fn parallel, int threads,
    ) noexcept


def fits(array):
    """Say whether an array is one of those that the functions of this module take."""
    if not is_plain(array):
        return False
    cdef int type_ = cnp.PyArray_TYPE(<cnp.ndarray>array)
    return type_ == cnp.NPY_FLOAT or type_ == cnp.NPY_DOUBLE


cdef int check(object array, str name, int type_, Py_ssize_t size) except -1:
    if not fits(array):
        raise TypeError(f"{name} must be an aligned, C-contiguous array of float32 or float64")
    if (
        cnp.PyArray_TYPE(<cnp.ndarray>array) != type_
        or cnp.PyArray_SIZE(<cnp.ndarray>array) != size
    ):
        raise ValueError(f"{name} has {array.dtype} {array.shape}, which doesn't go with the other")
    return 0


cdef Py_ssize_t width_of(object array, str name) except -1:
    if not fits(array):
        raise TypeError(f"{name} must be an aligned, C-contiguous array of float32 or float64")
    cdef cnp.ndarray a = array
    return cnp.PyArray_DIM(a, cnp.PyArray_NDIM(a) - 1) if cnp.PyArray_NDIM(a) else 1


def bias_relu(out, bias, bint relu):
    """Add a bias to every row in place, then replace what is negative by 0.

    Parameters
    ----------
    out : ndarray, shape (..., N)
        Changed in place.
    bias : ndarray, shape (N,), or None
        Of the dtype of ``out``.
    relu : bool
        Whether to replace. NaN stays NaN.
    """
    cdef Py_ssize_t width = width_of(out, "out")
    cdef cnp.ndarray o = out
    cdef int type_ = cnp.PyArray_TYPE(o), threads = num_threads()
    cdef int64_t n = cnp.PyArray_SIZE(o) // width if width else 0
    cdef void* data = cnp.PyArray_DATA(o)
    cdef const void* b = NULL
    if not cnp.PyArray_ISWRITEABLE(o):
        raise ValueError("out is read-only")
    if bias is not None:
        check(bias, "bias", type_, width)
        b = cnp.PyArray_DATA(<cnp.ndarray>bias)
    with nogil:
        if type_ == cnp.NPY_FLOAT:
            c_bias_relu[float](data, b, relu, n, width, parallel_for, threads)
        else:
            c_bias_relu[double](data, b, relu, n, width, parallel_for, threads)


def mask(g, y=None, bint sums=False, out=None):
    """Return ``g`` where ``y > 0`` and 0 elsewhere, and the sums of its columns.

    Parameters
    ----------
    g : ndarray, shape (..., N)
        A gradient.
    y : ndarray, optional
        What relu returned, of the shape and dtype of `g`. Without it nothing is replaced, and the
        first result is `g` itself.
    sums : bool
        Whether to sum; otherwise the second result is None.
    out : ndarray, optional
        Where to write the first result, if something is replaced; new memory by default.

    Returns
    -------
    tuple of (ndarray, ndarray or None)
        The sums have shape (N,). Up to 256 rows are added in the dtype of `g`, the sums of these
        in float64.
    """
    cdef Py_ssize_t width = width_of(g, "g")
    cdef cnp.ndarray a = g
    cdef int type_ = cnp.PyArray_TYPE(a), threads = num_threads()
    cdef int64_t n = cnp.PyArray_SIZE(a) // width if width else 0
    cdef const void* data = cnp.PyArray_DATA(a)
    cdef const void* mask_data = NULL
    cdef void* out_data = NULL
    cdef void* partial_data = NULL
    cdef void* sum_data = NULL
    sum_, partial = None, None
    if y is not None:
        check(y, "y", type_, cnp.PyArray_SIZE(a))
        mask_data = cnp.PyArray_DATA(<cnp.ndarray>y)
        if out is None:
            out = np.empty(g.shape, g.dtype)
        check(out, "out", type_, cnp.PyArray_SIZE(a))
        if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>out):
            raise ValueError("out is read-only")
        out_data = cnp.PyArray_DATA(<cnp.ndarray>out)
    else:
        out = g
    if sums:
        sum_ = np.empty(width, g.dtype)
        partial = np.empty((c_layer_tasks(n, width), width), g.dtype)
        sum_data = cnp.PyArray_DATA(<cnp.ndarray>sum_)
        partial_data = cnp.PyArray_DATA(<cnp.ndarray>partial)
    if y is None and not sums:
        return g, None
    with nogil:
        if type_ == cnp.NPY_FLOAT:
            c_mask[float](
                data, mask_data, out_data, partial_data, sum_data, n, width,
                parallel_for, threads,
            )
        else:
            c_mask[double](
                data, mask_data, out_data, partial_data, sum_data, n, width,
                parallel_for, threads,
            )
    return out, sum_


cdef int take_columns(object wide, list pieces, bint join) except -1:
    cdef Py_ssize_t width = width_of(wide, "the wide matrix"), column, columns
    cdef cnp.ndarray w = wide
    cdef cnp.ndarray narrow
    cdef int type_ = cnp.PyArray_TYPE(w), threads = num_threads()
    cdef Py_ssize_t size = cnp.PyArray_ITEMSIZE(w)
    cdef int64_t n = cnp.PyArray_SIZE(w) // width if width else 0
    cdef vector[Piece] found
    if join and not cnp.PyArray_ISWRITEABLE(w):
        raise ValueError("the wide matrix is read-only")
    for column, piece in pieces:
        columns = width_of(piece, "a piece")
        check(piece, "a piece", type_, n * columns)
        narrow = piece
        if not 0 <= column <= width - columns:
            raise ValueError(f"{columns} columns from {column} on are not among {width}")
        if not join and not cnp.PyArray_ISWRITEABLE(narrow):
            raise ValueError("a piece is read-only")
        found.push_back(Piece(<char*>cnp.PyArray_DATA(narrow), column * size, columns * size))
    with nogil:
        copy_columns(
            <char*>cnp.PyArray_DATA(w), found.data(), found.size(), join, n, width * size,
            parallel_for, threads,
        )
    return 0


def join_columns(list pieces, out):
    """Write matrices side by side into one.

    Parameters
    ----------
    pieces : list of (int, ndarray)
        The column where each begins, and the matrix, of shape (..., K).
    out : ndarray, shape (..., N)
        Of the dtype of the pieces. Columns that are in no piece stay as they are.
    """
    take_columns(out, pieces, True)


def split_columns(joined, list pieces):
    """Write columns of a matrix to matrices of their own.

    Parameters
    ----------
    joined : ndarray, shape (..., N)
    pieces : list of (int, ndarray)
        The column where each begins, and where it goes, of shape (..., K).
    """
    take_columns(joined, pieces, False)
