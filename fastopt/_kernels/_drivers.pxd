"""The parts of a plan that are C++, as it calls them."""

from libc.stdint cimport int64_t, uint32_t
from libcpp cimport bool as cbool

from ._deferred cimport DecayPtr, Deferred
from ._pool cimport parallel_fn
from ._typedefs cimport rule_entry, run_table


cdef extern from "sparse.hpp" namespace "fastopt" nogil:
    cdef cppclass Table:
        char* w
        char* slots[8]
        int n_slots
        int64_t n_rows
        int64_t width
        int type
        const rule_entry* rule
        bint every_row
        char* half
        int half_type
        Deferred* deferred
        bint decay_listed
        uint32_t key

    cdef cppclass SparseUpdate:
        int64_t rows_touched(parallel_fn parallel, int threads) noexcept


cdef extern from "sweep.hpp" namespace "fastopt" nogil:
    cdef cppclass SparseSweep:
        void reserve(size_t n) except +
        void clear() noexcept
        void add(
            SparseUpdate* update, const Table* table, const void* list, const void* indices,
            cbool indices64, int64_t n,
        ) noexcept
        int64_t load(parallel_fn parallel, int threads) noexcept
        void set(size_t k, const void* values, const void* scalars, double rate) noexcept
        cbool prepare(parallel_fn parallel, int threads) noexcept
        void run(const run_table* functions, parallel_fn parallel) noexcept


cdef extern from "dense.hpp" namespace "fastopt" nogil:
    struct DensePart:
        const Table* table
        int64_t n
        const char** g
        const int* sparse

    struct StepScalars:
        const float* f32
        const double* f64
        int64_t stride
        const double* rates

    cdef cppclass DenseUpdate:
        @staticmethod
        int64_t segments_of(int64_t n) noexcept
        cbool reserve(const rule_entry* rule, int64_t n_parts, int64_t n_segments) noexcept
        void set_part(int64_t k, const DensePart& part) noexcept
        void mixture_changed() noexcept
        cbool is_walk() noexcept
        void run(
            const StepScalars& scalars, const run_table* functions, int64_t n,
            parallel_fn parallel, int threads,
        ) noexcept
        void walk(const StepScalars& scalars, const run_table* functions) noexcept


cdef extern from "ledgers.hpp" namespace "fastopt" nogil:
    cdef cppclass Ledgers:
        void reserve(size_t n) except +
        void add(
            int64_t variable, Table* table, Deferred* deferred, const int* sparse
        ) noexcept
        size_t size() noexcept
        int64_t variable(size_t i) noexcept
        cbool updates(size_t i) noexcept
        void set_decay(size_t i, const DecayPtr* decay) noexcept
        cbool choose(cbool waits, const double* rates) noexcept
        cbool begin(const double* rates, parallel_fn parallel, int threads) noexcept
        void end(
            cbool done, const double* scalars, int64_t stride, const double* rates,
            parallel_fn parallel, int threads,
        ) noexcept


cdef extern from "spans.hpp" namespace "fastopt" nogil:
    cdef cppclass Spans:
        void reserve(size_t n) except +
        void add(const void* data, size_t size) noexcept
        cbool close() noexcept
        cbool meet(const void* data, size_t size) noexcept
