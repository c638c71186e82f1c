# cython: language_level=3
# distutils: language = c++
"""Kernels on their way back to Python: see ``turns.hpp``."""

cdef extern from "turns.hpp" namespace "fastopt" nogil:
    cdef cppclass Turns:
        void leave() noexcept
        void come_back() noexcept

# Never destroyed: threads may outlive the interpreter's modules.
cdef Turns* turns = new Turns()


cdef void leave_python() noexcept nogil:
    turns.leave()


cdef void return_to_python() noexcept nogil:
    turns.come_back()
