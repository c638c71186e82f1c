// The thread pool: everything that the rest of the library may know about it.
#pragma once

#include <cstddef>

#if defined(__GNUC__)
#define FASTOPT_EXPORT __attribute__((visibility("default")))
#else
#define FASTOPT_EXPORT
#endif

namespace fastopt {

// Must neither throw nor fork, nor wait for a task of its region that may not have begun. It may
// call parallel_for: the nested call does all its tasks itself.
using task_fn = void (*)(void* context, std::ptrdiff_t task);

constexpr int kMaxThreads = 1024;
constexpr int kMaxSpin = 1000000;

// Calls fn(context, task) once for each task in [0, n_tasks), and returns when all have returned.
// At most min(max_threads, num_threads()) threads take part, of which the caller is one. It begins
// with the first task, and they in the middle: neighbouring tasks tend to the same thread. What the
// caller wrote before is visible to the tasks, and what they wrote is visible to the caller
// afterwards. Never fails: without workers the caller does all.
void parallel_for(task_fn fn, void* context, std::ptrdiff_t n_tasks, int max_threads) noexcept;
// What drivers call it by: they are not linked with it.
using parallel_fn = void (*)(task_fn fn, void* context, std::ptrdiff_t n_tasks, int max_threads);

int num_threads() noexcept;
// Clamped to [1, kMaxThreads]. Counts from the next parallel_for on.
void set_num_threads(int n) noexcept;

// How many microseconds a worker polls for the next region before it sleeps, where that is expected
// to come within this time. With 0 it sleeps at once. Clamped to [0, kMaxSpin].
void set_spin(int microseconds) noexcept;

}  // namespace fastopt

// The names by which tools such as threadpoolctl steer the pool through the shared library.
extern "C" {
FASTOPT_EXPORT int fastopt_get_num_threads();
FASTOPT_EXPORT void fastopt_set_num_threads(int n);
}
