# cython: language_level=3, freethreading_compatible=True
# distutils: language = c++
"""The thread pool, for Python and for other kernels (see ``_pool.pxd``).

How many threads there are to be by default is decided in ``fastopt/threads.py``; until then
there is one.
"""

cdef extern from "pool.hpp" namespace "fastopt" nogil:
    const int kMaxThreads
    void c_parallel_for "fastopt::parallel_for"(
        task_fn fn, void* context, Py_ssize_t n_tasks, int max_threads
    ) noexcept
    int c_num_threads "fastopt::num_threads"() noexcept
    void c_set_num_threads "fastopt::set_num_threads"(int n) noexcept


MAX_THREADS = kMaxThreads


cdef void parallel_for(
    task_fn fn, void* context, Py_ssize_t n_tasks, int max_threads
) noexcept nogil:
    c_parallel_for(fn, context, n_tasks, max_threads)


cdef int num_threads() noexcept nogil:
    return c_num_threads()


def get_num_threads():
    return c_num_threads()


def set_num_threads(int n):
    """Set the number of threads; a value outside 1 to ``MAX_THREADS`` is moved to the nearer."""
    c_set_num_threads(n)
