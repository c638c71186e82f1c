"""The variables of a plan, for the plan."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

cimport numpy as cnp

from ._deferred cimport Ledger
from ._drivers cimport DenseUpdate, Ledgers, Spans, SparseUpdate, Table
from ._typedefs cimport rule_entry

# What a plan knows of a variable, and of the gradient that is bound to it.
cdef struct Part:
    PyObject* key           # compared, never followed
    Table table
    Py_ssize_t n            # elements
    int ndim
    cnp.npy_intp* shape     # a copy: setting an array's shape frees the old one
    int type_num
    Py_ssize_t nbytes
    PyObject* held          # the gradient's array; a reference of ours while it is bound
    PyObject* indices       # likewise, of a sparse one
    int64_t n_look_ups
    const char* g           # the dense gradient, or the rows of a sparse one
    const char* apart       # a gradient at this address is known to overlap nothing
    bint sparse
    SparseUpdate* update    # made when the first sparse gradient comes
    bint has_ledger
    bint dense_only         # a sparse gradient does not fit
    uint32_t rounding_key


cdef class Life:
    cdef bint dead
    cdef bint busy
    cdef list arrays


cdef class Parts:
    cdef Part* parts
    cdef cnp.npy_intp* dims
    cdef Py_ssize_t n_parts
    cdef const rule_entry* rule
    cdef Life life
    cdef list references
    cdef list shapes
    cdef Ledgers ledgers
    cdef Spans spans            # memory of weights and slots
    cdef DenseUpdate dense

    cdef int find_rule(self, str rule, str untouched) except -1
    cdef object set_weight(self, Py_ssize_t k, object weight, object half)
    cdef int set_half(self, Py_ssize_t k, object half, cnp.ndarray master) except -1
    cdef int set_slots(self, Py_ssize_t k, object slots, object dtype, tuple shape) except -1
    cdef int add_ledger(
        self, Py_ssize_t k, Ledger ledger, object array, object half, object slots
    ) except -1
