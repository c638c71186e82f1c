# cython: language_level=3
# distutils: language = c++
"""NumPy's memory during a training step: blocks are kept and given out again.

NumPy asks a handler for the memory of arrays (NEP 49), and remembers with each array which handler
that was. Handlers belong to a context, so that what one thread does in its step is no concern of
another.
"""

from cpython.pycapsule cimport PyCapsule_New
from libc.stddef cimport size_t
from libc.string cimport strcpy

import numpy as np

cimport numpy as cnp

cnp.import_array()


cdef extern from "step_memory.hpp" namespace "fastopt" nogil:
    cdef cppclass StepMemory:
        void* allocate(size_t size) noexcept
        void* allocate_zeroed(size_t size) noexcept
        void* reallocate(void* data, size_t size) noexcept
        void free(void* data) noexcept
        void empty() noexcept
        size_t kept() noexcept
        size_t limit() noexcept
        void set_limit(size_t size) noexcept


cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyDataMemAllocator:
        void* ctx
        void* (*malloc)(void* ctx, size_t size) noexcept nogil
        void* (*calloc)(void* ctx, size_t n, size_t size) noexcept nogil
        void* (*realloc)(void* ctx, void* data, size_t size) noexcept nogil
        void (*free)(void* ctx, void* data, size_t size) noexcept nogil

    ctypedef struct PyDataMem_Handler:
        char name[127]
        unsigned char version
        PyDataMemAllocator allocator

    object PyDataMem_SetHandler(object handler)
    object PyDataMem_GetHandler()


# Never destroyed: arrays may outlive the interpreter's modules.
cdef StepMemory* memory = new StepMemory()


cdef void* allocate(void* ctx, size_t size) noexcept nogil:
    return memory.allocate(size)


cdef void* allocate_zeroed(void* ctx, size_t n, size_t size) noexcept nogil:
    if size != 0 and n > (<size_t>-1) // size:
        return NULL
    return memory.allocate_zeroed(n * size)


cdef void* reallocate(void* ctx, void* data, size_t size) noexcept nogil:
    return memory.reallocate(data, size)


cdef void free_block(void* ctx, void* data, size_t size) noexcept nogil:
    memory.free(data)


cdef PyDataMem_Handler handler
strcpy(handler.name, b"fastopt_step_memory")
handler.version = 1
handler.allocator.ctx = NULL
handler.allocator.malloc = allocate
handler.allocator.calloc = allocate_zeroed
handler.allocator.realloc = reallocate
handler.allocator.free = free_block

cdef object capsule = PyCapsule_New(&handler, b"mem_handler", NULL)


cdef class step_memory:
    """Context manager in which the arrays that NumPy makes come from the kept blocks.

    It belongs to the thread (its context) that enters it. Arrays made inside may live on outside.
    """

    cdef object outer

    def __enter__(self):
        self.outer = PyDataMem_SetHandler(capsule)

    def __exit__(self, *error):
        PyDataMem_SetHandler(self.outer)
        self.outer = None


def empty(shape, dtype):
    """Return an array, not initialised, that comes from the kept blocks in a step or outside.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype

    Returns
    -------
    ndarray
    """
    outer = PyDataMem_SetHandler(capsule)
    try:
        return np.empty(shape, dtype)
    finally:
        PyDataMem_SetHandler(outer)


def empty_cache():
    """Give the blocks that are kept back to the system.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.empty_cache()
    """
    memory.empty()


def kept_bytes():
    """Return how many bytes are kept."""
    return memory.kept()


def get_limit():
    """Return how many bytes are kept at most."""
    return memory.limit()


def set_limit(size_t size):
    """Keep at most this many bytes; 0 turns the cache off."""
    memory.set_limit(size)
