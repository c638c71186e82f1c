"""Deferred decay, for the plan."""

from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool

from ._pool cimport parallel_fn
from ._typedefs cimport run_table


cdef extern from "decay.hpp" namespace "fastopt" nogil:
    cdef cppclass Decay:
        int moving
        int over
        int root
        int lr_scalar
        int epsilon_scalar
        double epsilon
        void add_shrinking(int slot, int scalar, double value, double factor) except +
        void set_moments(
            int32_t window, int32_t reach, double centre, int n_moments, const double* values
        ) except +
        cbool fits(const double* scalars) noexcept

    cdef cppclass DecayPtr:
        const Decay* get() noexcept

    DecayPtr shared(Decay* decay) except +


cdef extern from "deferred.hpp" namespace "fastopt" nogil:
    cdef cppclass Deferred:
        Deferred(
            char* w, char* half, int half_type, char** slots, int n_slots, int64_t n_rows,
            int64_t width, int type, cbool at_once, const run_table* functions,
        ) except +
        void lock() noexcept
        cbool try_lock() noexcept
        void unlock() noexcept
        void lock_shared() noexcept
        void unlock_shared() noexcept
        int32_t clock() noexcept
        cbool pending() noexcept
        const int32_t* last() noexcept
        int64_t made_up() noexcept
        void settle_all(parallel_fn parallel, int threads) noexcept
        void settle_rows(
            const void* ids, cbool wide, int64_t n, parallel_fn parallel, int threads
        ) noexcept
        cbool many_wait(const void* ids, cbool wide, int64_t n) noexcept
        cbool settle_and_gather(
            const void* ids, cbool wide, int64_t n, void* out, parallel_fn parallel, int threads
        ) noexcept
        cbool gather(
            const void* ids, cbool wide, int64_t n, void* out, parallel_fn parallel, int threads
        ) noexcept


# What a rule does to untouched elements, with the numbers that stay from step to step.
cdef class Constants:
    cdef DecayPtr decay


cdef class Ledger:
    cdef Deferred* deferred
    cdef readonly object rule
    cdef readonly object w
    cdef readonly object half
    cdef readonly tuple slots


cdef Constants make_constants(str rule, int type, const double* scalars)
