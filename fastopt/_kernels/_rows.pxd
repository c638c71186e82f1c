"""Look-ups of rows of checked arrays."""

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool

from ._pool cimport parallel_fn
from ._typedefs cimport run_table

cdef extern from "rows.hpp" namespace "fastopt" nogil:
    ctypedef struct Bad:
        int64_t id
        int64_t bag

    Bad c_pooled_gather "fastopt::pooled_gather"(
        const void* table, int64_t n_rows, int64_t width, int type, int half_type,
        const void* ids, cbool wide, int64_t n_ids, const int64_t* offsets, int64_t n_bags,
        const int64_t* order, const void* weights, const void* scales, void* out,
        const run_table* functions,
        parallel_fn parallel, int threads,
    ) noexcept
