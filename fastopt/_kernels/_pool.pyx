# cython: language_level=3, freethreading_compatible=True
# distutils: language = c++
"""The thread pool, for Python and for other kernels (see ``_pool.pxd``).

How many threads there are to be by default is decided in ``fastopt/threads.py``; until then
there is one.
"""

cdef extern from "pool.hpp" namespace "fastopt" nogil:
    const int kMaxThreads
    const int kMaxSpin
    void c_parallel_for "fastopt::parallel_for"(
        task_fn fn, void* context, Py_ssize_t n_tasks, int max_threads
    ) noexcept
    int c_num_threads "fastopt::num_threads"() noexcept
    void c_set_num_threads "fastopt::set_num_threads"(int n) noexcept
    void c_set_spin "fastopt::set_spin"(int microseconds) noexcept


MAX_THREADS = kMaxThreads
MAX_SPIN = kMaxSpin


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


def set_spin(int microseconds):
    """Set how long a worker polls for more work, where that is expected soon, before it sleeps."""
    c_set_spin(microseconds)
