"""The thread pool, for other kernels: ``cimport`` this, never ``pool.hpp``.

Only the module ``_pool`` is linked with the pool, so the process has one.
"""

# A task returns nothing, raises nothing and doesn't touch Python.
ctypedef void (*task_fn)(void* context, Py_ssize_t task) noexcept nogil

# Calls fn(context, task) once for each task in [0, n_tasks), on at most min(max_threads,
# num_threads()) threads; the caller is one of them. Returns when all are done.
cdef void parallel_for(
    task_fn fn, void* context, Py_ssize_t n_tasks, int max_threads
) noexcept nogil
# What drivers in C++ are given to call it by.
ctypedef void (*parallel_fn)(
    task_fn fn, void* context, Py_ssize_t n_tasks, int max_threads
) noexcept nogil

cdef int num_threads() noexcept nogil
