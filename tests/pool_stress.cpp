// Drives the pool from many sides at once; built by test_threads.py, also under ThreadSanitizer.
// Ends with status 0 and "ok" when every promise of pool.hpp was kept.

#include "pool.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

using fastopt::parallel_for;
using fastopt::set_num_threads;
using fastopt::set_spin;

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
            std::_Exit(1);                                                            \
        }                                                                             \
    } while (0)

namespace {

void nap(int microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

// Plain memory on purpose: the sanitizer sees whether the pool orders the accesses.
struct Counted {
    std::vector<long> calls;
    long factor;
};

void count(void* context, std::ptrdiff_t task) {
    auto* counted = static_cast<Counted*>(context);
    counted->calls[task] += counted->factor;
}

void check_region(std::ptrdiff_t n_tasks, int max_threads, long factor) {
    Counted counted{std::vector<long>(n_tasks, 0), factor};
    parallel_for(count, &counted, n_tasks, max_threads);
    for (const long calls : counted.calls) CHECK(calls == factor);
}

void every_task_runs_once() {
    for (const int threads : {1, 2, 3, 8}) {
        set_num_threads(threads);
        for (const std::ptrdiff_t n_tasks : {0, 1, 2, 3, 7, 64, 1000}) {
            for (long round = 1; round <= 50; ++round) check_region(n_tasks, 8, round);
        }
    }
    check_region(5, 0, 1);
    check_region(5, -3, 1);
    parallel_for(count, nullptr, -1, 8);
}

struct Together {
    std::atomic<int> now{0};
    std::atomic<int> most{0};
};

void meet(void* context, std::ptrdiff_t) {
    auto* together = static_cast<Together*>(context);
    const int now = ++together->now;
    int most = together->most.load();
    while (most < now && !together->most.compare_exchange_weak(most, now)) {
    }
    nap(100);
    --together->now;
}

void threads_are_capped() {
    set_num_threads(6);
    Together all;
    parallel_for(meet, &all, 200, 100);
    CHECK(all.most >= 2 && all.most <= 6);
    Together three;
    parallel_for(meet, &three, 200, 3);
    CHECK(three.most >= 2 && three.most <= 3);
    set_num_threads(2);
    Together two;
    parallel_for(meet, &two, 200, 6);
    CHECK(two.most == 2);
    set_num_threads(1);
    Together one;
    parallel_for(meet, &one, 20, 6);
    CHECK(one.most == 1);
}

struct Order {
    std::thread::id caller = std::this_thread::get_id();
    std::vector<std::ptrdiff_t> by_caller, by_helper;
};

void note_order(void* context, std::ptrdiff_t task) {
    auto* order = static_cast<Order*>(context);
    const bool own = std::this_thread::get_id() == order->caller;
    (own ? order->by_caller : order->by_helper).push_back(task);
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
}

// Whether the tasks ascend from `first` to `last`, and go on downwards from `far`.
bool ascend_and_then_help(const std::vector<std::ptrdiff_t>& tasks, std::ptrdiff_t first,
                          std::ptrdiff_t last, std::ptrdiff_t far) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        const auto done = static_cast<std::ptrdiff_t>(i);
        const std::ptrdiff_t beyond = done - (last - first + 1);
        if (tasks[i] != (beyond < 0 ? first + done : far - beyond)) return false;
    }
    return true;
}

void each_thread_keeps_to_its_share() {
    set_num_threads(2);
    for (int round = 0; round < 50; ++round) {
        Order order;
        parallel_for(note_order, &order, 101, 2);
        CHECK(order.by_caller.size() + order.by_helper.size() == 101);
        CHECK(ascend_and_then_help(order.by_caller, 0, 49, 100));
        CHECK(ascend_and_then_help(order.by_helper, 50, 100, 49));
    }
}

struct Nest {
    std::atomic<long> inner{0};
    std::atomic<int> strangers{0};
};

struct Inner {
    Nest* nest;
    std::thread::id thread;
};

void inner_task(void* context, std::ptrdiff_t) {
    auto* inner = static_cast<Inner*>(context);
    ++inner->nest->inner;
    if (std::this_thread::get_id() != inner->thread) ++inner->nest->strangers;
}

void outer_task(void* context, std::ptrdiff_t) {
    Inner inner{static_cast<Nest*>(context), std::this_thread::get_id()};
    parallel_for(inner_task, &inner, 10, 8);
}

void nested_calls_stay_in_their_thread() {
    set_num_threads(4);
    for (int round = 0; round < 50; ++round) {
        Nest nest;
        parallel_for(outer_task, &nest, 20, 4);
        CHECK(nest.inner == 200);
        CHECK(nest.strangers == 0);
    }
}

void many_callers_at_once() {
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([caller] {
            for (int round = 1; round <= 300; ++round) {
                if (caller == 0) set_num_threads(1 + round % 5);
                check_region(1 + (round * 7 + caller) % 40, 8, round);
                if (round % 100 == caller) nap(200);  // long enough for the workers to fall asleep
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
}

volatile sig_atomic_t signals_in_main = 0;
volatile sig_atomic_t signals_elsewhere = 0;
pthread_t main_thread;

void on_signal(int) {
    if (pthread_equal(pthread_self(), main_thread)) {
        ++signals_in_main;
    } else {
        ++signals_elsewhere;
    }
}

void signals_go_to_the_program() {
    set_num_threads(4);
    main_thread = pthread_self();
    signal(SIGUSR1, on_signal);
    for (int round = 0; round < 50; ++round) {
        Together together;
        parallel_for(meet, &together, 8, 4);
        kill(getpid(), SIGUSR1);
        nap(50);
    }
    CHECK(signals_in_main > 0);
    CHECK(signals_elsewhere == 0);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    CHECK(sigismember(&mask, SIGINT) == 0);
}

void fork_and_work(int threads) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        set_num_threads(threads);
        for (long round = 1; round <= 5; ++round) check_region(50, 8, round);
        Together together;
        parallel_for(meet, &together, 100, 8);
        CHECK(together.most >= 2);  // the child has workers of its own
        std::exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void both_sides_of_a_fork_work() {
    set_num_threads(3);
    for (int round = 0; round < 3; ++round) {
        check_region(50, 8, 1);
        fork_and_work(3);
    }
}

void forks_during_regions_of_other_threads() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    // In the child of a process that had other threads the sanitizers can't follow new threads
    // and may deadlock on their own allocator: there it only runs tasks and ends.
    const auto fork_once = [] {
        const pid_t child = fork();
        if (child == 0) {
            std::atomic<int> calls{0};
            const auto add = [](void* context, std::ptrdiff_t) {
                ++*static_cast<std::atomic<int>*>(context);
            };
            set_num_threads(1);
            parallel_for(add, &calls, 50, 8);
            std::_Exit(calls == 50 ? 0 : 1);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    };
#else
    const auto fork_once = [] { fork_and_work(3); };
#endif
    set_num_threads(3);
    std::atomic<bool> stop{false};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 2; ++caller) {
        callers.emplace_back([&stop] {
            while (!stop) {
                check_region(200, 8, 1);
                Together together;
                parallel_for(meet, &together, 4, 3);
            }
        });
    }
    std::thread other_forker([&fork_once] {
        for (int round = 0; round < 5; ++round) fork_once();
    });
    for (int round = 0; round < 5; ++round) fork_once();
    other_forker.join();
    stop = true;
    for (std::thread& caller : callers) caller.join();
}

}  // namespace

int main() {
    for (const int spin : {0, fastopt::kMaxSpin, 200}) {
        // Asleep, awake, and now the one, now the other.
        set_spin(spin);
        every_task_runs_once();
        many_callers_at_once();
        both_sides_of_a_fork_work();  // for which polling workers stop at once
    }
    every_task_runs_once();
    threads_are_capped();
    each_thread_keeps_to_its_share();
    nested_calls_stay_in_their_thread();
    many_callers_at_once();
    signals_go_to_the_program();
    both_sides_of_a_fork_work();
    forks_during_regions_of_other_threads();
    CHECK(fastopt_get_num_threads() == 3);
    fastopt_set_num_threads(0);
    CHECK(fastopt_get_num_threads() == 1);
    fastopt_set_num_threads(1 << 30);
    CHECK(fastopt_get_num_threads() == fastopt::kMaxThreads);
    std::puts("ok");
    return 0;  // the workers are stopped by static destructors
}
