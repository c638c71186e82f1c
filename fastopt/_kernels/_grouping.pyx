# cython: language_level=3
# distutils: language = c++
"""Which stored rows of a sparse gradient share an index.

Arrays are C-contiguous and of native byte order; that indices are in range is checked here.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._pool cimport num_threads, parallel_fn, parallel_for
from ._typedefs cimport run_table

cnp.import_array()

cdef extern from "grouping.hpp" namespace "fastopt" nogil:
    cdef cppclass Grouper:
        int64_t load(
            const void* indices, cbool indices64, int64_t n, int64_t n_rows, int64_t bucket_rows,
            cbool sorts, parallel_fn parallel, int threads,
        ) noexcept

    int64_t sort_all(
        Grouper& grouper, int64_t* positions, int64_t* unique, int64_t* starts,
        parallel_fn parallel, int threads,
    ) noexcept

cdef extern from "rows.hpp" namespace "fastopt" nogil:
    void sum_groups(
        const int64_t* positions, const int64_t* starts, const int64_t* order, int64_t n_groups,
        int64_t n, const void* values, int64_t width, int type, void* out,
        double factor, const run_table* functions, parallel_fn parallel, int threads,
    ) noexcept

cdef extern from "group_squares.hpp" namespace "fastopt" nogil:
    int64_t groups_of_task(int64_t row_size) noexcept
    double squares_of_groups(
        const int64_t* positions, const int64_t* starts, int64_t n_groups, int64_t n,
        const void* values, int64_t width, int type, double* partial, const run_table* functions,
        parallel_fn parallel, int threads,
    ) noexcept

ctypedef fused index_t:
    int32_t
    int64_t


cdef cnp.ndarray as_indices(object indices):
    if not isinstance(indices, np.ndarray) or indices.ndim != 1:
        raise ValueError("indices must be an array of one dimension")
    if indices.dtype != np.int32 and indices.dtype != np.int64:
        raise TypeError(f"indices must be int32 or int64, not {indices.dtype}")
    return np.ascontiguousarray(indices)


cdef Py_ssize_t first_bad(const index_t* p, Py_ssize_t n, uint64_t limit) noexcept nogil:
    # A row is bad where it, or the last one minus it, has a sign: vectors of the base level know no
    # comparison of unsigned numbers.
    cdef Py_ssize_t lo, hi, k
    cdef uint64_t signs64
    cdef uint32_t signs32, last32 = <uint32_t>(min(limit, <uint64_t>1 << 31) - 1)
    cdef bint bad
    for lo in range(0, n, 1024):
        hi = min(lo + 1024, n)
        if index_t is int64_t:
            signs64 = 0
            for k in range(lo, hi):
                signs64 |= <uint64_t>p[k] | (limit - 1 - <uint64_t>p[k])
            bad = signs64 >> 63
        else:
            signs32 = 0
            for k in range(lo, hi):
                signs32 |= <uint32_t>p[k] | (last32 - <uint32_t>p[k])
            bad = signs32 >> 31
        if bad:
            for k in range(lo, hi):
                if <uint64_t><int64_t>p[k] >= limit:
                    return k
    return -1


def find_out_of_range(indices, Py_ssize_t n_rows):
    """Return the position of the first index outside ``[0, n_rows)``, -1 if there is none."""
    cdef cnp.ndarray array = as_indices(indices)
    cdef const void* p = cnp.PyArray_DATA(array)
    cdef Py_ssize_t n = cnp.PyArray_DIM(array, 0), position
    cdef bint wide = cnp.PyArray_ITEMSIZE(array) == 8
    if n_rows < 0:
        raise ValueError(f"n_rows must not be negative, not {n_rows}")
    with nogil:
        if wide:
            position = first_bad(<const int64_t*>p, n, <uint64_t>n_rows)
        else:
            position = first_bad(<const int32_t*>p, n, <uint64_t>n_rows)
    return position


cdef class Grouping:
    """Which stored rows share an index; computed once, reused.

    Parameters
    ----------
    indices : ndarray, shape (n,), int32 or int64
        Row numbers.
    n_rows : int
        Number of rows of the table.

    Raises
    ------
    IndexError
        If an index is outside ``[0, n_rows)``.
    """

    cdef readonly Py_ssize_t n_unique
    cdef readonly Py_ssize_t n_rows
    cdef Py_ssize_t n
    cdef object dtype
    cdef cnp.ndarray positions  # of all look-ups, by row, those of a row in order of arrival
    cdef cnp.ndarray starts     # where in positions each unique row starts
    cdef cnp.ndarray unique     # the unique rows, ascending
    cdef cnp.ndarray order      # the unique rows' numbers, by first appearance; made when asked for

    def __cinit__(self, indices, Py_ssize_t n_rows):
        cdef cnp.ndarray array = as_indices(indices)
        cdef Py_ssize_t n = cnp.PyArray_DIM(array, 0)
        cdef const void* data = cnp.PyArray_DATA(array)
        cdef bint wide = cnp.PyArray_ITEMSIZE(array) == 8
        cdef Grouper* grouper
        cdef int64_t status
        cdef int64_t* positions
        cdef int64_t* unique
        cdef int64_t* starts
        cdef int threads = num_threads()
        if n_rows < 0:
            raise ValueError(f"n_rows must not be negative, not {n_rows}")
        self.n = n
        self.n_rows = n_rows
        self.dtype = array.dtype
        self.positions = np.empty(n, np.int64)
        self.unique = np.empty(n, np.int64)
        self.starts = np.empty(n + 1, np.int64)
        positions = <int64_t*>cnp.PyArray_DATA(self.positions)
        unique = <int64_t*>cnp.PyArray_DATA(self.unique)
        starts = <int64_t*>cnp.PyArray_DATA(self.starts)
        grouper = new Grouper()
        with nogil:
            status = grouper.load(
                data, wide, n, n_rows, 0, True, parallel_for, threads
            )
            if status == -1:
                self.n_unique = sort_all(
                    grouper[0], positions, unique, starts, parallel_for, threads
                )
            del grouper
        if status >= 0:
            raise IndexError(
                f"index {array[status]} at position {status} is out of range for {n_rows} rows"
            )
        if status != -1 or self.n_unique < 0:
            raise MemoryError(f"no memory to group {n} indices")
        self.unique = self.unique[: self.n_unique].astype(self.dtype)
        self.starts = self.starts[: self.n_unique + 1].copy()

    def __len__(self):
        """Return the number of look-ups."""
        return self.n

    cdef cnp.ndarray by_appearance(self):
        cdef cnp.ndarray marks, order
        cdef int64_t* mark
        cdef int64_t* out
        cdef const int64_t* positions
        cdef const int64_t* starts
        cdef Py_ssize_t u, k, n_found = 0
        if self.order is None:
            # Rows are marked where they first appear; a sort would cost more.
            marks = np.empty(self.n, np.int64)
            order = np.empty(self.n_unique, np.int64)
            mark = <int64_t*>cnp.PyArray_DATA(marks)
            out = <int64_t*>cnp.PyArray_DATA(order)
            positions = <const int64_t*>cnp.PyArray_DATA(self.positions)
            starts = <const int64_t*>cnp.PyArray_DATA(self.starts)
            with nogil:
                for k in range(self.n):
                    mark[k] = -1
                for u in range(self.n_unique):
                    mark[positions[starts[u]]] = u
                for k in range(self.n):
                    # Written whether or not it counts: a branch would be foreseen badly.
                    if n_found < self.n_unique:
                        out[n_found] = mark[k]
                        n_found += mark[k] >= 0
            self.order = order
        return self.order

    def unique_in_order(self):
        """Return the unique indices by first appearance, shape (n_unique,)."""
        return self.unique[self.by_appearance()]

    def unique_sorted(self):
        """Return the unique indices in ascending order, shape (n_unique,)."""
        return self.unique.copy()

    def groups(self):
        """Return which look-ups belong together.

        Returns
        -------
        positions : ndarray, shape (n,)
            Look-ups ``positions[starts[u]:starts[u + 1]]`` have the u-th index of `unique_sorted`,
            in order of arrival. Not to be written.
        starts : ndarray, shape (n_unique + 1,)
            Not to be written.
        order : ndarray, shape (n_unique,)
            The numbers u by first appearance. Not to be written.
        """
        return self.positions, self.starts, self.by_appearance()

    def squares_of_sums(self, values):
        """Return the sum of the squares of what `sum_rows` returns, without making that.

        Parameters
        ----------
        values : ndarray, shape (n, ...), float32 or float64
            One row for each look-up.

        Returns
        -------
        float
            Accumulated in float64 in a fixed order.
        """
        cdef cnp.ndarray array = self.rows_of(values)
        cdef int type = 0 if values.dtype == np.float32 else 1
        cdef int64_t width = cnp.PyArray_SIZE(array) // self.n if self.n else 0
        cdef const int64_t* positions = <const int64_t*>cnp.PyArray_DATA(self.positions)
        cdef const int64_t* starts = <const int64_t*>cnp.PyArray_DATA(self.starts)
        cdef const void* data = cnp.PyArray_DATA(array)
        cdef Py_ssize_t chunk = groups_of_task(width * (4 if type == 0 else 8))
        cdef double* partial
        cdef double total
        cdef int threads = num_threads()
        if values.dtype != np.float32 and values.dtype != np.float64:
            raise TypeError(f"values must be float32 or float64, not {values.dtype}")
        partial = <double*>malloc(sizeof(double) * (self.n_unique // chunk + 1))
        if partial == NULL:
            raise MemoryError(f"no memory to sum {self.n_unique} rows")
        with nogil:
            total = squares_of_groups(
                positions, starts, self.n_unique, self.n, data, width, type, partial, functions(),
                parallel_for, threads,
            )
            free(partial)
        return total

    cdef cnp.ndarray rows_of(self, object values):
        if not isinstance(values, np.ndarray) or values.ndim == 0 or values.shape[0] != self.n:
            raise ValueError(
                f"values must have one row for each of {self.n} indices, "
                f"not shape {np.shape(values)}"
            )
        return np.ascontiguousarray(values)

    def sum_rows(self, values, bint sort=False, double factor=1.0):
        """Sum the rows of ``values`` that share an index, in order of arrival.

        Parameters
        ----------
        values : ndarray, shape (n, ...)
            One row for each look-up.
        sort : bool
            Order the result by index, and not by first appearance.
        factor : float
            What the sums are multiplied by, in the dtype of ``values``.

        Returns
        -------
        summed : ndarray, shape (n_unique, ...)
            A new array of the dtype of ``values``.
        unique : ndarray, shape (n_unique,)
            The index of each row.
        """
        cdef cnp.ndarray array
        cdef cnp.ndarray out
        cdef cnp.ndarray order
        cdef const int64_t* order_p = NULL
        cdef const int64_t* positions = <const int64_t*>cnp.PyArray_DATA(self.positions)
        cdef const int64_t* starts = <const int64_t*>cnp.PyArray_DATA(self.starts)
        cdef int type, threads = num_threads()
        cdef int64_t width
        cdef const void* data
        cdef void* result
        array = self.rows_of(values)
        unique = self.unique_sorted() if sort else self.unique_in_order()
        if values.dtype != np.float32 and values.dtype != np.float64:
            out = self._sum_any(values, sort)
            return out if factor == 1.0 else out * values.dtype.type(factor), unique
        out = np.empty((self.n_unique, *values.shape[1:]), values.dtype)
        if not sort:
            order = self.by_appearance()
            order_p = <const int64_t*>cnp.PyArray_DATA(order)
        type = 0 if values.dtype == np.float32 else 1
        width = cnp.PyArray_SIZE(array) // self.n if self.n else 0
        data = cnp.PyArray_DATA(array)
        result = cnp.PyArray_DATA(out)
        with nogil:
            sum_groups(
                positions, starts, order_p, self.n_unique, self.n, data, width, type, result,
                factor, functions(), parallel_for, threads,
            )
        return out, unique

    def _sum_any(self, values, sort):
        """Sum rows of a dtype that has no kernel."""
        group = np.repeat(np.arange(self.n_unique), np.diff(self.starts))
        if not sort:
            rank = np.empty(self.n_unique, np.int64)
            rank[self.by_appearance()] = np.arange(self.n_unique)
            group = rank[group]
        out = np.zeros((self.n_unique, *values.shape[1:]), values.dtype)
        np.add.at(out, group, values[self.positions])
        return out
