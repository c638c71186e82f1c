# cython: language_level=3
# distutils: language = c++
"""The gradient of weighted sums of rows: bags, the other way round.

Arrays are C-contiguous, aligned and of native byte order: the caller has seen to it. Dtypes,
shapes and row numbers are checked.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._plain cimport is_plain
from ._pool cimport num_threads, parallel_fn, parallel_for
from ._rows import pooled_gather
from ._rows cimport Bad, c_pooled_gather
from ._step_memory import empty
from ._turns cimport leave_python, return_to_python

cnp.import_array()

cdef extern from "transpose.hpp" namespace "fastopt" nogil:
    cdef cppclass RowMaps:
        pass

    int64_t NO_MAP "fastopt::kNoMap"

    cdef cppclass Transpose[T]:
        const int64_t* offsets
        int64_t n_bags
        const int32_t* own
        const void* ids
        cbool wide
        const T* coefficients
        int64_t n_rows
        int64_t number(RowMaps* maps, uint32_t* number, void* unique, int64_t n) noexcept
        @staticmethod
        cbool is_narrow(int64_t width) noexcept
        int64_t number_and_sum(
            RowMaps* maps, uint32_t* number, void* unique, int64_t n, const T* g, T* sums,
            int64_t width, parallel_fn parallel, int threads,
        ) noexcept
        void turn(
            const uint32_t* number, int64_t n_unique, int64_t* starts, int32_t* bags, T* turned
        ) noexcept

cdef enum:
    KEEP_GIL = 1 << 13      # look-ups that are numbered sooner than another thread wakes up

ctypedef fused element:
    float
    double

# Never destroyed: threads may outlive the interpreter's modules.
cdef RowMaps* row_maps = new RowMaps()


cdef inline bint is_real(object array) noexcept:
    cdef int type_num
    if not isinstance(array, np.ndarray):
        return False
    type_num = cnp.PyArray_TYPE(<cnp.ndarray>array)
    return type_num == cnp.NPY_FLOAT or type_num == cnp.NPY_DOUBLE


cdef inline bint has_row_numbers(object array) noexcept:
    """Say whether an array holds int32 or int64, of which there are two of one size."""
    return (
        isinstance(array, np.ndarray)
        and cnp.PyArray_ISINTEGER(<cnp.ndarray>array)
        and cnp.PyArray_ISSIGNED(<cnp.ndarray>array)
        and cnp.PyArray_ITEMSIZE(<cnp.ndarray>array) >= 4
    )


cdef int check(object array, str name, object dtype, int ndim) except -1:
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array):
        raise TypeError(f"{name} must be an aligned C-contiguous array of native byte order")
    if array.dtype != dtype or (ndim and array.ndim != ndim):
        raise ValueError(f"{name} must be {dtype}, not {array.dtype} of shape {array.shape}")
    return 0


cdef object summed(
    element zero, cnp.ndarray g, cnp.ndarray offsets, cnp.ndarray ids, object coefficients,
    int64_t n_rows, object own,
):
    cdef Transpose[element] job
    cdef int64_t n = cnp.PyArray_DIM(ids, 0), n_bags = cnp.PyArray_DIM(offsets, 0) - 1
    cdef int64_t n_unique, width = 1
    cdef cnp.ndarray numbers, rows, sums, starts, bags
    cdef uint32_t* number
    cdef void* unique
    cdef int64_t* first
    cdef int32_t* bag
    cdef element* turned = NULL
    cdef element* out
    cdef const element* above = <const element*>cnp.PyArray_DATA(g)
    cdef int axis, threads = num_threads()
    cdef bint narrow
    numbers = empty((n,), np.dtype(np.uint32))
    rows = empty((n + 1,), (<object>ids).dtype)
    number = <uint32_t*>cnp.PyArray_DATA(numbers)
    unique = cnp.PyArray_DATA(rows)
    job.offsets = <const int64_t*>cnp.PyArray_DATA(offsets)
    job.n_bags = n_bags
    job.own = NULL
    if own is not None:
        job.own = <const int32_t*>cnp.PyArray_DATA(<cnp.ndarray>own)
    job.ids = cnp.PyArray_DATA(ids)
    job.wide = cnp.PyArray_ITEMSIZE(ids) == 8
    job.coefficients = NULL
    if coefficients is not None:
        job.coefficients = <const element*>cnp.PyArray_DATA(<cnp.ndarray>coefficients)
    job.n_rows = n_rows
    for axis in range(1, cnp.PyArray_NDIM(g)):
        width *= cnp.PyArray_DIM(g, axis)
    narrow = job.is_narrow(width)
    if narrow:
        sums = empty((min(n, n_rows), *(<object>g).shape[1:]), g.dtype)
        out = <element*>cnp.PyArray_DATA(sums)
        with nogil:
            leave_python()
            n_unique = job.number_and_sum(
                row_maps, number, unique, n, above, out, width, parallel_for, threads
            )
            return_to_python()
    elif n <= KEEP_GIL:
        n_unique = job.number(row_maps, number, unique, n)
    else:
        with nogil:
            n_unique = job.number(row_maps, number, unique, n)
    if n_unique == NO_MAP:
        return None
    if n_unique < 0:
        raise IndexError(
            f"index {ids[-1 - n_unique]} at position {-1 - n_unique} is out of range for "
            f"{n_rows} rows"
        )
    found = rows[:n_unique]
    if narrow:
        return sums[:n_unique], found
    total = empty((n_unique, *(<object>g).shape[1:]), g.dtype)
    starts = empty((n_unique + 1,), np.dtype(np.int64))
    bags = empty((n,), np.dtype(np.int32))
    first = <int64_t*>cnp.PyArray_DATA(starts)
    bag = <int32_t*>cnp.PyArray_DATA(bags)
    weights = None
    if coefficients is not None:
        weights = empty((n,), g.dtype)
        turned = <element*>cnp.PyArray_DATA(<cnp.ndarray>weights)
    with nogil:
        leave_python()
        job.turn(number, n_unique, first, bag, turned)
        return_to_python()
    pooled_gather(g, bags, starts, weights, None, total)
    return total, found


def checked_bags(g, offsets, int64_t n, coefficients, Py_ssize_t n_bags=-1):
    """Return a copy of offsets that may be trusted: what walks them would write anywhere else.

    Parameters
    ----------
    g : ndarray, shape (n_bags, ...), float32 or float64
    offsets : ndarray, shape (n_bags + 1,), int64
    n : int
        The number of look-ups.
    coefficients : ndarray, shape (n,), or None
        Of the dtype of ``g``.
    n_bags : int, optional
        The number of bags, if it is not that of rows of ``g``.

    Raises
    ------
    TypeError, ValueError
        If an array is not as described, or the offsets don't rise from 0 to ``n``.
    """
    if not is_real(g) or g.ndim == 0:
        raise TypeError("g must be an array of float32 or float64, with an axis of bags")
    check(g, "g", g.dtype, 0)
    check(offsets, "offsets", np.dtype(np.int64), 1)
    cdef Py_ssize_t k
    cdef const int64_t* given = <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>offsets)
    if n_bags < 0:
        n_bags = g.shape[0]
    cdef cnp.ndarray kept = empty((n_bags + 1,), np.dtype(np.int64))
    cdef int64_t* start = <int64_t*>cnp.PyArray_DATA(kept)
    cdef bint rises = offsets.shape[0] == n_bags + 1
    if rises:
        for k in range(n_bags + 1):
            start[k] = given[k]
        for k in range(n_bags):
            rises &= start[k] <= start[k + 1]
    if not rises or start[0] != 0 or start[n_bags] != n:
        raise ValueError(f"offsets must rise from 0 to {n} over {n_bags} bags")
    if coefficients is not None:
        check(coefficients, "coefficients", g.dtype, 1)
        if coefficients.shape[0] != n:
            raise ValueError(f"{coefficients.shape[0]} coefficients do not fit {n} ids")
    return kept


cdef cnp.ndarray checked_rows(object bags, int64_t n_rows):
    """Return a copy of row numbers that may be trusted, as int32."""
    if not has_row_numbers(bags):
        raise TypeError("bags must be an array of int32 or int64")
    check(bags, "bags", bags.dtype, 1)
    cdef Py_ssize_t k, n = bags.shape[0], bad = -1
    cdef cnp.ndarray kept = empty((n,), np.dtype(np.int32))
    cdef int32_t* row = <int32_t*>cnp.PyArray_DATA(kept)
    cdef const void* given = cnp.PyArray_DATA(<cnp.ndarray>bags)
    cdef bint wide = bags.dtype.itemsize == 8
    cdef int64_t x
    for k in range(n):
        x = (<const int64_t*>given)[k] if wide else (<const int32_t*>given)[k]
        row[k] = <int32_t>x
        if not 0 <= x < n_rows and bad < 0:
            bad = k
    if bad >= 0:
        raise IndexError(f"bags[{bad}] is {bags[bad]}, out of range for {n_rows} rows of g")
    return kept


def sum_by_row(g, offsets, ids, coefficients, int64_t n_rows, bags=None):
    """Return what each row gets: the sum of ``coefficients[k] * g[b]`` over its look-ups.

    Parameters
    ----------
    g : ndarray, shape (n_bags, ...), float32 or float64
        What the rows of bag b get.
    offsets : ndarray, shape (n_bags + 1,), int64
        Where each bag starts in ``ids``; from 0 to ``len(ids)``.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    coefficients : ndarray, shape (n,), or None
        A factor for each look-up, of the dtype of ``g``.
    n_rows : int
        Number of rows of the table.
    bags : ndarray, shape (n_bags,), int32 or int64, optional
        Which row of ``g`` the rows of each bag get, if it is not that of the bag's number.

    Returns
    -------
    tuple of ndarray, or None
        Sums, shape (n_unique, ...), and the row of each, by first appearance; look-ups of a row are
        added in their order. None, and nothing was done, if the table has too many rows for a map
        of them, or too many other threads use maps just now.

    Raises
    ------
    IndexError
        If an id is outside ``[0, n_rows)``, or one of ``bags`` is no row of ``g``.
    """
    if not has_row_numbers(ids):
        raise TypeError("ids must be an array of int32 or int64")
    check(ids, "ids", ids.dtype, 1)
    n = ids.shape[0]
    if n_rows < 0:
        raise ValueError(f"n_rows must not be negative, not {n_rows}")
    if bags is None:
        offsets = checked_bags(g, offsets, n, coefficients)
    else:
        offsets = checked_bags(g, offsets, n, coefficients, len(bags))
    if n >= 2**32 - 1 or g.shape[0] >= 2**31:
        return None
    if bags is not None:
        bags = checked_rows(bags, g.shape[0])
    if cnp.PyArray_TYPE(<cnp.ndarray>g) == cnp.NPY_FLOAT:
        return summed[float](0, g, offsets, ids, coefficients, n_rows, bags)
    return summed[double](0, g, offsets, ids, coefficients, n_rows, bags)


cdef inline bint is_of(object array, int ndim, int type_num) noexcept:
    return (
        is_plain(array)
        and cnp.PyArray_NDIM(<cnp.ndarray>array) == ndim
        and cnp.PyArray_TYPE(<cnp.ndarray>array) == type_num
    )


cdef bint both(
    element zero, cnp.ndarray first, cnp.ndarray ids, cnp.ndarray second, cnp.ndarray others,
    cnp.ndarray starts, cnp.ndarray weights, cnp.ndarray values, cnp.ndarray sums,
    cnp.ndarray rows, int64_t* n_unique,
):
    """Compute both gradients of products; say whether all went well, if not nothing is lost."""
    cdef Transpose[element] job
    cdef Bad bad
    cdef int64_t n = cnp.PyArray_DIM(ids, 0), total = cnp.PyArray_DIM(others, 0), k, x
    cdef int64_t width = cnp.PyArray_DIM(first, 1), first_rows = cnp.PyArray_DIM(first, 0)
    cdef int64_t second_rows = cnp.PyArray_DIM(second, 0)
    cdef cnp.ndarray own = empty((n,), np.dtype(np.int32))
    cdef cnp.ndarray numbers = empty((total,), np.dtype(np.uint32))
    cdef int32_t* row = <int32_t*>cnp.PyArray_DATA(own)
    cdef uint32_t* number = <uint32_t*>cnp.PyArray_DATA(numbers)
    cdef const void* id = cnp.PyArray_DATA(ids)
    cdef const void* table = cnp.PyArray_DATA(second)
    cdef const element* above = <const element*>cnp.PyArray_DATA(first)
    cdef const int64_t* start = <const int64_t*>cnp.PyArray_DATA(starts)
    cdef void* to = cnp.PyArray_DATA(values)
    cdef element* out = <element*>cnp.PyArray_DATA(sums)
    cdef void* unique = cnp.PyArray_DATA(rows)
    cdef bint fine, wide = cnp.PyArray_ITEMSIZE(ids) == 8
    cdef int type_ = 0 if sizeof(element) == 4 else 1, threads = num_threads()
    job.offsets = start
    job.n_bags = n
    job.own = row
    job.ids = cnp.PyArray_DATA(others)
    job.wide = cnp.PyArray_ITEMSIZE(others) == 8
    job.coefficients = <const element*>cnp.PyArray_DATA(weights)
    job.n_rows = second_rows
    with nogil:
        leave_python()
        fine = start[0] == 0 and start[n] == total
        for k in range(n):
            x = (<const int64_t*>id)[k] if wide else (<const int32_t*>id)[k]
            row[k] = <int32_t>x
            fine &= 0 <= x < first_rows and start[k] <= start[k + 1]
        if fine:
            bad = c_pooled_gather(
                table, second_rows, width, type_, -1, job.ids, job.wide, total, start, n, NULL,
                job.coefficients, NULL, to, functions(), parallel_for, threads,
            )
            fine = bad.id < 0 and bad.bag < 0
        if fine:
            n_unique[0] = job.number_and_sum(
                row_maps, number, unique, total, above, out, width, parallel_for,
                threads,
            )
            fine = n_unique[0] >= 0
        return_to_python()
    return fine


def pair_gradients(first, ids, second, others, starts, weights):
    """Return what the rows of both tables get from their products, if all is as it mostly is.

    Parameters
    ----------
    first, second : ndarray, shape (R, width) and (S, width), float32 or float64
        Tables of one dtype.
    ids : ndarray, shape (n,), int32 or int64
        Row numbers of `first`.
    others : ndarray, shape (m,), int32 or int64
        Row numbers of `second`.
    starts : ndarray, shape (n + 1,), int64
        Where the others of each id begin, from 0 to m.
    weights : ndarray, shape (m,)
        The gradient of each product, of the dtype of the tables. Its memory must not change
        meanwhile, nor that of `starts`.

    Returns
    -------
    tuple of ndarray, or None
        What each of `ids` gets, shape (n, width); what rows of `second` get, and these, by first
        appearance. None if an argument is anything else, rows are too long or too many to be
        numbered on the way, or too many other threads number just now.
    """
    if type(first) is not np.ndarray or cnp.PyArray_NDIM(<cnp.ndarray>first) != 2:
        return None
    cdef int type_num = cnp.PyArray_TYPE(<cnp.ndarray>first)
    if type_num != cnp.NPY_FLOAT and type_num != cnp.NPY_DOUBLE:
        return None
    if not (is_of(first, 2, type_num) and is_of(second, 2, type_num)):
        return None
    if not (is_of(weights, 1, type_num) and is_of(starts, 1, cnp.NPY_INT64)):
        return None
    for numbers in (ids, others):
        if not is_of(numbers, 1, cnp.NPY_INT32) and not is_of(numbers, 1, cnp.NPY_INT64):
            return None
    cdef int64_t n = len(ids), m = len(others), width = first.shape[1], n_unique = 0
    if second.shape[1] != width or starts.shape[0] != n + 1 or weights.shape[0] != m or m == 0:
        return None
    if m >= 2**32 - 1 or first.shape[0] >= 2**31 or n >= 2**31:
        return None
    dtype = (<object>first).dtype
    cdef bint narrow, fine
    if type_num == cnp.NPY_FLOAT:
        narrow = Transpose[float].is_narrow(width)
    else:
        narrow = Transpose[double].is_narrow(width)
    if not narrow or width == 0:
        return None
    values = empty((n, width), dtype)
    sums = empty((min(m, second.shape[0]), width), dtype)
    rows = empty((m + 1,), others.dtype)
    if type_num == cnp.NPY_FLOAT:
        fine = both[float](
            0, first, ids, second, others, starts, weights, values, sums, rows, &n_unique
        )
    else:
        fine = both[double](
            0, first, ids, second, others, starts, weights, values, sums, rows, &n_unique
        )
    return (values, sums[:n_unique], rows[:n_unique]) if fine else None
