"""The table of run functions that this process uses."""

from ._typedefs cimport run_table

cdef const run_table* functions() noexcept nogil
