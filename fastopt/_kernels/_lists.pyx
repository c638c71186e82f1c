# cython: language_level=3
"""What is done to all gradients of a step at once: norms, products, whether they are finite.

A call makes one pass over the arrays of a list, in pieces whose borders depend on their sizes
alone: a sum has the same bits for every number of threads. Arrays are C-contiguous, aligned and of
native byte order, float16, float32 or float64: the caller has seen to it, and it is checked.
Results of float16 numbers are computed in wider types.
"""

from libc.math cimport fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._half cimport half_number
from ._pool cimport num_threads, parallel_for
from ._typedefs cimport run_table

cnp.import_array()

cdef enum:
    FLOAT32 = 0
    FLOAT64 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    BLOCK = 2048       # elements that are worked on while they are in the first cache
    PIECE = 1 << 14    # elements of a piece at most, and of a task at least
    ALONE = 1 << 16    # elements below which the caller works alone

cdef double FLOAT32_TINY = np.finfo(np.float32).tiny
cdef double FLOAT32_MAX = np.finfo(np.float32).max

ctypedef struct piece:
    const char* a
    char* out
    Py_ssize_t n
    int type
    int out_type
    double result

ctypedef struct list_job:
    piece* pieces
    Py_ssize_t* tasks   # where in the pieces each task starts, and where the last one ends
    double factor
    double high
    Py_ssize_t last     # the last task if they are to be done from the end, else -1
    void (*work)(const list_job* job, piece* p) noexcept nogil


cdef inline int type_of(cnp.ndarray array) noexcept:
    """Return the number of a type that is known without a look at its name, or -1."""
    cdef int number = cnp.PyArray_TYPE(array)
    if number == cnp.NPY_FLOAT32:
        return FLOAT32
    if number == cnp.NPY_FLOAT64:
        return FLOAT64
    return FLOAT16 if number == cnp.NPY_FLOAT16 else -1


cdef inline bint is_fit(object array) noexcept:
    return (
        type(array) is np.ndarray
        and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array)
        and type_of(<cnp.ndarray>array) >= 0
    )


cdef inline Py_ssize_t item_size(int type) noexcept nogil:
    return 8 if type == FLOAT64 else 4 if type == FLOAT32 else 2


cdef void run_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef const list_job* job = <const list_job*>context
    cdef Py_ssize_t k
    if job.last >= 0:
        task = job.last - task
    for k in range(job.tasks[task], job.tasks[task + 1]):
        job.work(job, &job.pieces[k])


cdef class _Pieces:
    """The pieces of a list of arrays, and what came out for each array."""

    cdef list arrays
    cdef piece* pieces
    cdef Py_ssize_t* tasks
    cdef Py_ssize_t n_pieces, n_tasks, total

    def __cinit__(self, list arrays, list outs, bint any_half=False):
        """Check the arrays, and cut them. ``outs`` is a list of arrays of their sizes, or None.

        Where an entry is None there is nothing, and nothing comes out.
        """
        cdef Py_ssize_t k, at, n, filled = 0, most = 0
        cdef int type, out_type
        cdef cnp.ndarray array, other
        cdef const char* data
        cdef char* out
        cdef piece* one
        for k in range(len(arrays)):
            if arrays[k] is not None:
                most += cnp.PyArray_SIZE(self.checked(arrays[k], k, any_half)) // PIECE + 1
        self.arrays = arrays if outs is None else arrays + outs
        self.pieces = <piece*>malloc(sizeof(piece) * (most + 1))
        self.tasks = <Py_ssize_t*>malloc(sizeof(Py_ssize_t) * (most + 1))
        if self.pieces == NULL or self.tasks == NULL:
            raise MemoryError(f"no memory for {len(arrays)} arrays")
        self.tasks[0] = 0
        for k in range(len(arrays)):
            if arrays[k] is None:
                continue
            array = <cnp.ndarray>arrays[k]
            type = type_of(array)
            if type < 0:
                type = BFLOAT16
            data = <const char*>cnp.PyArray_DATA(array)
            out = NULL
            out_type = type
            if outs is not None:
                other = <cnp.ndarray>outs[k]
                out = <char*>cnp.PyArray_DATA(other)
                out_type = type_of(other)
            n = cnp.PyArray_SIZE(array)
            self.total += n
            at = 0
            while at < n:
                one = &self.pieces[self.n_pieces]
                one.a = data + at * item_size(type)
                one.out = out
                if out != NULL:
                    one.out += at * item_size(out_type)
                one.n = min(<Py_ssize_t>PIECE, n - at)
                one.type = type
                one.out_type = out_type
                one.result = 0
                filled += one.n
                at += PIECE
                self.n_pieces += 1
                if filled >= PIECE:
                    self.n_tasks += 1
                    self.tasks[self.n_tasks] = self.n_pieces
                    filled = 0
        if filled:
            self.n_tasks += 1
            self.tasks[self.n_tasks] = self.n_pieces

    def __dealloc__(self):
        free(self.pieces)
        free(self.tasks)

    cdef cnp.ndarray checked(self, object array, Py_ssize_t k, bint any_half):
        if is_fit(array):
            return <cnp.ndarray>array
        if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array):
            raise TypeError(
                f"arrays[{k}] must be an aligned C-contiguous array of native byte order"
            )
        if type_of(<cnp.ndarray>array) < 0 and not (any_half and half_number(array.dtype) == 1):
            raise TypeError(
                f"arrays[{k}] must be float16, float32 or float64, not {array.dtype}"
            )
        return <cnp.ndarray>array

    cdef int run(
        self, void (*work)(const list_job* job, piece* p) noexcept nogil, double factor=0,
        double high=0, bint from_end=False,
    ) except -1:
        cdef Py_ssize_t last = self.n_tasks - 1 if from_end else -1
        cdef list_job job = list_job(self.pieces, self.tasks, factor, high, last, work)
        with nogil:
            parallel_for(
                run_task, &job, self.n_tasks, 1 if self.total < ALONE else num_threads()
            )
        return 0

    cdef double sum(self):
        """Return the sum of the results of all pieces, in their order."""
        cdef Py_ssize_t k
        cdef double total = 0
        for k in range(self.n_pieces):
            total += self.pieces[k].result
        return total

    cdef list tops(self, Py_ssize_t n_arrays):
        """Return the largest result of each array's pieces; NaN if there is one."""
        cdef Py_ssize_t k, n, at = 0
        cdef double top, one
        cdef list found = []
        for k in range(n_arrays):
            n = 0 if self.arrays[k] is None else cnp.PyArray_SIZE(<cnp.ndarray>self.arrays[k])
            top = 0
            while n > 0:
                one = self.pieces[at].result
                if one > top or one != one:  # nothing is larger than NaN
                    top = one
                at += 1
                n -= PIECE
            found.append(top)
        return found


# ---------------------------------------------------------------------- pieces


cdef void squares_piece(const list_job* job, piece* p) noexcept nogil:
    cdef float[BLOCK] wide
    cdef Py_ssize_t at = 0, n
    if p.type != FLOAT16:
        p.result = functions().squares[p.type](p.a, p.n)
        return
    while at < p.n:
        n = min(<Py_ssize_t>BLOCK, p.n - at)
        functions().widen[0](wide, p.a + 2 * at, n)
        p.result = p.result + functions().squares[FLOAT32](wide, n)
        at += n


cdef inline double larger(double top, double one) noexcept nogil:
    return one if one > top or one != one else top


cdef void largest_piece(const list_job* job, piece* p) noexcept nogil:
    cdef float[BLOCK] wide
    cdef Py_ssize_t at = 0, n
    if p.type != FLOAT16:
        p.result = functions().largest[p.type](p.a, p.n)
        return
    while at < p.n:
        n = min(<Py_ssize_t>BLOCK, p.n - at)
        functions().widen[0](wide, p.a + 2 * at, n)
        p.result = larger(p.result, functions().largest[FLOAT32](wide, n))
        at += n


cdef inline bint is_plain(double factor) noexcept nogil:
    """Say whether float32 holds a factor as a normal number, or as one that is no number."""
    return FLOAT32_TINY <= fabs(factor) <= FLOAT32_MAX or factor != factor


cdef inline void multiply(
    const run_table* table, int type, char* out, const char* a, double factor, Py_ssize_t n
) noexcept nogil:
    if type == FLOAT16:
        table.times_once[1](out, a, factor, n)
    elif type == FLOAT64 or is_plain(factor):
        table.times[type](out, a, factor, n)
    else:
        table.times_once[0](out, a, factor, n)


cdef void times_piece(const list_job* job, piece* p) noexcept nogil:
    multiply(functions(), p.type, p.out, p.a, job.factor, p.n)


cdef void unscaled_piece(const list_job* job, piece* p) noexcept nogil:
    # What a block becomes is looked at while it is in the first cache.
    cdef const run_table* table = functions()
    cdef float[BLOCK] wide
    cdef float[BLOCK] product
    cdef Py_ssize_t at = 0, n, size = item_size(p.type), out_size = item_size(p.out_type)
    cdef const char* a
    cdef char* out
    while at < p.n:
        n = min(<Py_ssize_t>BLOCK, p.n - at)
        a = p.a + at * size
        out = p.out + at * out_size
        if p.type != FLOAT16:
            multiply(table, p.type, out, a, job.factor, n)
            p.result = larger(p.result, table.largest[p.type](out, n))
        else:
            table.widen[0](wide, a, n)
            if p.out_type == FLOAT16:
                multiply(table, FLOAT32, <char*>product, <const char*>wide, job.factor, n)
                table.narrow[0](out, product, n)
                table.widen[0](wide, out, n)
                p.result = larger(p.result, table.largest[FLOAT32](wide, n))
            else:
                multiply(table, FLOAT32, out, <const char*>wide, job.factor, n)
                p.result = larger(p.result, table.largest[FLOAT32](out, n))
        at += n


cdef void bounded_piece(const list_job* job, piece* p) noexcept nogil:
    cdef const run_table* table = functions()
    cdef float[BLOCK] wide
    cdef float[BLOCK] limited
    cdef Py_ssize_t at = 0, n
    if p.type != FLOAT16:
        table.bounded[p.type](p.out, p.a, job.factor, job.high, p.n)
        return
    while at < p.n:
        n = min(<Py_ssize_t>BLOCK, p.n - at)
        table.widen[0](wide, p.a + 2 * at, n)
        table.bounded[FLOAT32](limited, wide, job.factor, job.high, n)
        table.narrow[0](p.out + 2 * at, limited, n)
        at += n


cdef void follow_piece(const list_job* job, piece* p) noexcept nogil:
    cdef const run_table* table = functions()
    cdef float[BLOCK] wide
    cdef Py_ssize_t at = 0, n
    if p.type == p.out_type:
        table.follow[p.type](p.out, p.a, job.factor, p.n)
        return
    while at < p.n:
        n = min(<Py_ssize_t>BLOCK, p.n - at)
        table.widen[p.type - FLOAT16](wide, p.a + 2 * at, n)
        table.follow[FLOAT32](p.out + 4 * at, wide, job.factor, n)
        at += n


# ---------------------------------------------------------------------- lists


def fits(array):
    """Say whether an object is an array that the functions of this module take."""
    return is_fit(array)


def all_fit(list entries):
    """Say whether all entries of a list are None or fit."""
    for entry in entries:
        if entry is not None and not is_fit(entry):
            return False
    return True


cdef list made_like(list arrays, bint widen):
    cdef cnp.ndarray array
    cdef list outs = []
    cdef int number
    for k in range(len(arrays)):
        if arrays[k] is None:
            outs.append(None)
            continue
        if not is_fit(arrays[k]):
            raise TypeError(
                f"arrays[{k}] must be an aligned C-contiguous array of native byte order, "
                "float16, float32 or float64"
            )
        array = <cnp.ndarray>arrays[k]
        number = cnp.PyArray_TYPE(array)
        if widen and number == cnp.NPY_FLOAT16:
            number = cnp.NPY_FLOAT32
        outs.append(
            cnp.PyArray_EMPTY(cnp.PyArray_NDIM(array), cnp.PyArray_DIMS(array), number, False)
        )
    return outs


def sum_of_squares(list arrays):
    """Return the sum of the squares of all arrays, accumulated in float64 in a fixed order.

    An entry may be None.
    """
    cdef _Pieces pieces = _Pieces(arrays, None)
    pieces.run(squares_piece)
    return pieces.sum()


def largest(list arrays):
    """Return the largest magnitude in each array: 0 if it is empty, NaN if one is no number."""
    cdef _Pieces pieces = _Pieces(arrays, None)
    pieces.run(largest_piece)
    return pieces.tops(len(arrays))


def times(list arrays, double factor):
    """Return the arrays times a number, in their dtypes, as new arrays; None for None.

    A factor that float32 holds only as a subnormal number or not at all, and every factor of
    float16 numbers, is used in float64, and the product rounded once.
    """
    cdef list outs = made_like(arrays, False)
    cdef _Pieces pieces = _Pieces(arrays, outs)
    # What was read last, by whoever has found out the factor, may still be in cache.
    pieces.run(times_piece, factor, 0, True)
    return outs


def unscaled(list arrays, double factor, bint widen):
    """Return the arrays times a number as new arrays, and the largest magnitude in each of these.

    float16 numbers are multiplied in float32, and returned so if ``widen`` says it.
    """
    cdef list outs = made_like(arrays, widen)
    cdef _Pieces pieces = _Pieces(arrays, outs)
    pieces.run(unscaled_piece, factor)
    return outs, pieces.tops(len(arrays))


def bounded(array, double low, double high):
    """Return ``max(min(array, high), low)`` as a new array. The limits are numbers of its dtype."""
    cdef list arrays = [array]
    cdef list outs = made_like(arrays, False)
    cdef _Pieces pieces = _Pieces(arrays, outs)
    pieces.run(bounded_piece, low, high)
    return outs[0]


def follow(list averages, list arrays, double share):
    """Move averages in place: ``average -= (average - array) * share``.

    An average is float32 or float64; its array has its dtype and size, or 16 bits an element where
    the average has 32.
    """
    cdef cnp.ndarray average, array
    cdef Py_ssize_t k
    if len(averages) != len(arrays):
        raise ValueError(f"there are {len(averages)} averages and {len(arrays)} arrays")
    for k in range(len(arrays)):
        if not is_fit(averages[k]) or averages[k].dtype == np.float16:
            raise TypeError(f"averages[{k}] must be a C-contiguous float32 or float64 array")
        if not isinstance(arrays[k], np.ndarray):
            raise TypeError(f"arrays[{k}] must be an array")
        average, array = averages[k], arrays[k]
        if not cnp.PyArray_ISWRITEABLE(average):
            raise ValueError(f"averages[{k}] is read-only")
        if array.dtype != average.dtype and (
            average.dtype != np.float32 or half_number(array.dtype) < 0
        ):
            raise TypeError(f"arrays[{k}] is {array.dtype}, its average {average.dtype}")
        if cnp.PyArray_SIZE(array) != cnp.PyArray_SIZE(average):
            raise ValueError(
                f"arrays[{k}] has shape {arrays[k].shape}, its average {averages[k].shape}"
            )
    cdef _Pieces pieces = _Pieces(arrays, averages, True)
    pieces.run(follow_piece, share)


# ---------------------------------------------------------------------- rows of an average


ctypedef struct rows_job:
    char* average
    char* averaged
    const int64_t* ids
    const char* values
    const double* factors
    double share
    int type
    Py_ssize_t width
    Py_ssize_t n
    Py_ssize_t chunk


cdef void rows_task(void* context, Py_ssize_t task) noexcept nogil:
    cdef const rows_job* job = <const rows_job*>context
    cdef const run_table* table = functions()
    cdef Py_ssize_t size = job.width * item_size(job.type)
    cdef Py_ssize_t k, hi = min((task + 1) * job.chunk, job.n)
    cdef char* average
    cdef char* averaged
    for k in range(task * job.chunk, hi):
        average = job.average + <Py_ssize_t>job.ids[k] * size
        averaged = job.averaged + <Py_ssize_t>job.ids[k] * size
        if job.factors != NULL:
            table.catch_up[job.type](average, averaged, job.factors[k], job.width)
        else:
            table.follow[job.type](average, job.values + k * size, job.share, job.width)
            memcpy(averaged, job.values + k * size, size)


cdef int run_rows(object average, object averaged, object ids, rows_job* job) except -1:
    """Check what both functions take, and run."""
    cdef Py_ssize_t k, size
    cdef int64_t before = -1, n_rows
    for name, array in (("average", average), ("averaged", averaged)):
        if not is_fit(array) or array.dtype == np.float16 or not array.flags.writeable:
            raise TypeError(
                f"{name} must be a writable C-contiguous array, float32 or float64"
            )
    if average.ndim == 0 or averaged.shape != average.shape or averaged.dtype != average.dtype:
        raise ValueError(
            f"averaged must have dtype {average.dtype} and shape {average.shape}, "
            f"not {averaged.dtype} {averaged.shape}"
        )
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
        raise TypeError("ids must be an int64 array of one axis")
    if not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>ids):
        raise TypeError("ids must be C-contiguous")
    job.average = <char*>cnp.PyArray_DATA(<cnp.ndarray>average)
    job.averaged = <char*>cnp.PyArray_DATA(<cnp.ndarray>averaged)
    job.ids = <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>ids)
    job.type = type_of(<cnp.ndarray>average)
    job.n = cnp.PyArray_SIZE(<cnp.ndarray>ids)
    n_rows = average.shape[0]
    for k in range(job.n):
        if not before < job.ids[k] < n_rows:
            raise IndexError(f"ids must ascend within {n_rows} rows: {ids[k]} at position {k}")
        before = job.ids[k]
    job.width = cnp.PyArray_SIZE(<cnp.ndarray>average) // n_rows if n_rows else 0
    size = max(<Py_ssize_t>1, job.width)
    job.chunk = max(<Py_ssize_t>1, PIECE // size)
    with nogil:
        parallel_for(
            rows_task, job, (job.n + job.chunk - 1) // job.chunk,
            1 if job.n * size < ALONE else num_threads(),
        )
    return 0


def catch_up_rows(average, averaged, ids, factors):
    """Make up for missed steps: ``row = averaged + (row - averaged) * factor``, in float64.

    Parameters
    ----------
    average, averaged : ndarray, shape (n_rows, ...), float32 or float64
        The average, in which rows change, and what was averaged meanwhile.
    ids : ndarray of int64, shape (n,)
        Which rows, ascending.
    factors : ndarray of float64, shape (n,)
        One for each of them.
    """
    cdef rows_job job
    if not is_fit(factors) or factors.dtype != np.float64 or factors.shape != np.shape(ids):
        raise TypeError("factors must be float64, one for each id")
    job.values = NULL
    job.factors = <const double*>cnp.PyArray_DATA(<cnp.ndarray>factors)
    job.share = 0
    run_rows(average, averaged, ids, &job)


def follow_rows(average, averaged, ids, values, double share):
    """Move rows of an average: ``row -= (row - value) * share``, and ``averaged = value``.

    Parameters
    ----------
    average, averaged : ndarray, shape (n_rows, ...), float32 or float64
        The average, and what was averaged last; rows of both change.
    ids : ndarray of int64, shape (n,)
        Which rows, ascending.
    values : ndarray, shape (n, ...)
        New rows, of the dtype of the average.
    share : float
        How far they move.
    """
    cdef rows_job job
    if not is_fit(values) or values.dtype != average.dtype:
        raise TypeError(f"values must be a C-contiguous array of dtype {average.dtype}")
    if values.shape != (*np.shape(ids), *average.shape[1:]):
        raise ValueError(f"values have shape {values.shape}, not one row for each id")
    job.values = <const char*>cnp.PyArray_DATA(<cnp.ndarray>values)
    job.factors = NULL
    job.share = share
    run_rows(average, averaged, ids, &job)
