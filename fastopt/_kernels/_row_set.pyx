# cython: language_level=3
# distutils: language = c++
"""The different rows that look-ups name, found without a sort.

Arrays are C-contiguous, aligned and of native byte order: the caller has seen to it. Dtypes,
shapes and row numbers are checked.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._step_memory import empty
from ._transpose import checked_bags

from ._dispatch cimport functions
from ._pool cimport num_threads, parallel_fn, parallel_for
from ._typedefs cimport row_count, run_table

cnp.import_array()

cdef extern from "row_set.hpp" namespace "fastopt" nogil:
    cdef cppclass Finder "fastopt::RowSet":
        @staticmethod
        cbool suits(int64_t n, int64_t n_rows) noexcept
        @staticmethod
        int n_parts(int64_t n, int threads) noexcept
        @staticmethod
        int64_t n_words(int64_t n_rows) noexcept
        Finder(
            const void* ids, cbool wide, int64_t n, int64_t n_rows, int threads,
            const run_table* functions,
        ) noexcept
        int64_t find(
            uint64_t* bits, row_count* counts, void* rows, uint32_t* numbers, parallel_fn parallel
        ) noexcept

    cdef cppclass SumProducts:
        const uint32_t* numbers
        const int64_t* offsets
        int64_t n_bags
        int64_t n
        const void* coefficients
        const void* values
        void* out
        int type
        const run_table* functions
        void run(parallel_fn parallel, int threads) noexcept

    void sum_by_number[T](
        const uint32_t* numbers, const int64_t* offsets, int64_t n_bags, const T* coefficients,
        const T* g, T* sums, int64_t n_unique,
    ) noexcept


cdef class RowSet:
    """The rows that look-ups name, and each look-up's number among them.

    Parameters
    ----------
    ids : ndarray, shape (n,), int32 or int64
        Row numbers.
    n_rows : int
        Number of rows of the table.

    Attributes
    ----------
    rows : ndarray, shape (n_unique,), of the dtype of ``ids``
        Each row once, ascending.
    numbers : ndarray, shape (n,), int32
        ``rows[numbers]`` equals ``ids``. Read-only.

    Raises
    ------
    IndexError
        If an id is outside ``[0, n_rows)``.
    ValueError
        If it doesn't suit.
    """

    cdef readonly cnp.ndarray rows, numbers

    def __init__(self, ids, int64_t n_rows):
        if not isinstance(ids, np.ndarray) or ids.dtype not in (np.int32, np.int64):
            raise TypeError("ids must be an array of int32 or int64")
        if ids.ndim != 1 or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>ids):
            raise TypeError("ids must be an aligned one-dimensional C-contiguous array")
        cdef int64_t n = ids.shape[0]
        if not Finder.suits(n, n_rows):
            raise ValueError(f"{n} look-ups in {n_rows} rows are few")
        cdef int threads = num_threads()
        cdef cbool wide = ids.dtype.itemsize == 8
        cdef int64_t words = Finder.n_words(n_rows)
        cdef cnp.ndarray bits = empty((Finder.n_parts(n, threads) * words,), np.dtype(np.uint64))
        cdef cnp.ndarray counts = empty((2 * words,), np.dtype(np.uint64))
        cdef cnp.ndarray rows = empty((n,), ids.dtype)
        cdef cnp.ndarray numbers = empty((n,), np.dtype(np.int32))
        cdef uint64_t* bit = <uint64_t*>cnp.PyArray_DATA(bits)
        cdef row_count* count = <row_count*>cnp.PyArray_DATA(counts)
        cdef void* row = cnp.PyArray_DATA(rows)
        cdef uint32_t* number = <uint32_t*>cnp.PyArray_DATA(numbers)
        cdef const void* looked_up = cnp.PyArray_DATA(<cnp.ndarray>ids)
        cdef int64_t n_unique
        with nogil:
            n_unique = Finder(looked_up, wide, n, n_rows, threads, functions()).find(
                bit, count, row, number, parallel_for
            )
        if n_unique < 0:
            raise IndexError(
                f"index {ids[-1 - n_unique]} at position {-1 - n_unique} is out of range for "
                f"{n_rows} rows"
            )
        numbers.flags.writeable = False
        self.rows = rows[:n_unique]
        self.numbers = numbers

    @staticmethod
    def suits(int64_t n, int64_t n_rows):
        """Say whether ``n`` look-ups are enough to go through a bit of each of ``n_rows`` rows."""
        return Finder.suits(n, n_rows)

    def products(self, values, offsets, coefficients):
        """Return what each bag gets: the sum of ``coefficients[k] * values[u]`` over its look-ups.

        Here ``u`` is the number of look-up ``k``.

        Parameters
        ----------
        values : ndarray, shape (n_unique,), float32 or float64
            A number for each row.
        offsets : ndarray, shape (n_bags + 1,), int64
            Where each bag starts among the look-ups; from 0 to their number.
        coefficients : ndarray, shape (n,)
            A factor for each look-up, of the dtype of ``values``.

        Returns
        -------
        ndarray, shape (n_bags,)
            Look-ups of a bag are added in their order.
        """
        if not isinstance(values, np.ndarray) or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>values):
            raise TypeError("values must be an aligned C-contiguous array")
        if values.shape != (cnp.PyArray_DIM(self.rows, 0),):
            raise ValueError(f"values of shape {values.shape} do not fit {len(self.rows)} rows")
        cdef SumProducts job
        cdef cnp.ndarray sums = empty((len(offsets) - 1,), values.dtype)
        offsets = checked_bags(sums, offsets, self.numbers.shape[0], coefficients)
        job.numbers = <const uint32_t*>cnp.PyArray_DATA(self.numbers)
        job.offsets = <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>offsets)
        job.n_bags = sums.shape[0]
        job.n = self.numbers.shape[0]
        job.coefficients = cnp.PyArray_DATA(<cnp.ndarray>coefficients)
        job.values = cnp.PyArray_DATA(<cnp.ndarray>values)
        job.out = cnp.PyArray_DATA(sums)
        job.type = 0 if values.dtype == np.float32 else 1
        job.functions = functions()
        cdef int threads = num_threads()
        with nogil:
            job.run(parallel_for, threads)
        return sums

    def sums(self, g, offsets, coefficients):
        """Return what each row gets: the sum of ``coefficients[k] * g[b]`` over its look-ups.

        Parameters
        ----------
        g : ndarray, shape (n_bags,), float32 or float64
            What the rows of bag b get.
        offsets : ndarray, shape (n_bags + 1,), int64
            Where each bag starts among the look-ups; from 0 to their number.
        coefficients : ndarray, shape (n,), or None
            A factor for each look-up, of the dtype of ``g``.

        Returns
        -------
        ndarray, shape (n_unique,)
            Look-ups of a row are added in their order.
        """
        offsets = checked_bags(g, offsets, self.numbers.shape[0], coefficients)
        if g.ndim != 1:
            raise ValueError(f"g must have one dimension, not shape {g.shape}")
        cdef cnp.ndarray sums = empty((self.rows.shape[0],), g.dtype)
        cdef const uint32_t* number = <const uint32_t*>cnp.PyArray_DATA(self.numbers)
        cdef const int64_t* start = <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>offsets)
        cdef int64_t n_bags = g.shape[0], n_unique = self.rows.shape[0]
        cdef const void* factor = NULL
        cdef const void* above = cnp.PyArray_DATA(<cnp.ndarray>g)
        cdef void* out = cnp.PyArray_DATA(sums)
        cdef cbool single = g.dtype == np.float32
        if coefficients is not None:
            factor = cnp.PyArray_DATA(<cnp.ndarray>coefficients)
        with nogil:
            if single:
                sum_by_number[float](
                    number, start, n_bags, <const float*>factor, <const float*>above,
                    <float*>out, n_unique,
                )
            else:
                sum_by_number[double](
                    number, start, n_bags, <const double*>factor, <const double*>above,
                    <double*>out, n_unique,
                )
        return sums
