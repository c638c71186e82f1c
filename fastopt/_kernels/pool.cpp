// A small thread pool for short parallel loops.
//
// One 64-bit word holds a region: tasks not yet handed out, helpers at work, helpers allowed.
// A worker joins by one compare-and-swap that also takes its first task. So every helper counted
// in the word has a task in its hands, the caller never waits for one that has none, and a worker
// that comes late finds no task and touches nothing. The other fields of the region are plain:
// they change only while the word says "no tasks, no helpers".
//
// The caller takes the first tasks and the helpers the others, each in ascending order. Whoever
// has done its own goes on from the far end of what the others have. So in step after step each
// finds in the cache of its own core what it left there, and memory is read in streams.
//
// The pool serves one region at a time. A thread that finds it busy (a second caller, or a task
// that itself calls parallel_for) does its work alone.
//
// fork() copies only the calling thread, so the workers are stopped before it, once the region at
// work has ended, and are made anew at the next need on either side.

#include "pool.hpp"

#include "pause.hpp"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace fastopt {
namespace {

using Clock = std::chrono::steady_clock;

// How long the caller polls for its helpers' last tasks before it sleeps.
constexpr auto kCallerSpin = std::chrono::microseconds(100);
constexpr int kPollsPerClock = 16;

std::atomic<int> wanted_threads{1};
std::atomic<int> wanted_spin{200};

// How long a worker polls for the next region before it sleeps.
Clock::duration longest_poll() {
    return std::chrono::microseconds(wanted_spin.load(std::memory_order_relaxed));
}

// The word: bits 0-11 helpers at work, 12-23 helpers allowed, 24-63 tasks not yet handed out.
using Word = std::uint64_t;
constexpr Word kOneHelper = 1;
constexpr int kAllowedShift = 12;
constexpr Word kHelperMask = (Word{1} << kAllowedShift) - 1;
constexpr int kTaskShift = 24;
constexpr Word kOneTask = Word{1} << kTaskShift;
constexpr std::ptrdiff_t kMaxTasks = (std::ptrdiff_t{1} << (64 - kTaskShift)) - 1;
static_assert(kMaxThreads <= static_cast<int>(kHelperMask));

Word tasks_left(Word word) { return word >> kTaskShift; }
Word helpers_at_work(Word word) { return word & kHelperMask; }
Word helpers_allowed(Word word) { return (word >> kAllowedShift) & kHelperMask; }
bool wants_helper(Word word) {
    return tasks_left(word) != 0 && helpers_at_work(word) < helpers_allowed(word);
}

// Polls until done() or until the time is over; the clock is read only now and then.
template <class Done>
bool poll(Done done, Clock::duration limit) {
    const Clock::time_point end = Clock::now() + limit;
    do {
        for (int i = 0; i < kPollsPerClock; ++i) {
            if (done()) return true;
            pause_core();
        }
    } while (Clock::now() < end);
    return done();
}

// Expects the next region as long after this one as it came the last time after the same kernel,
// called after the same other one: a training step calls its kernels in the same order again and
// again. Touched only by the thread that has acquired the pool.
class Forecast {
public:
    void begin(task_fn fn) {
        *gap_ = Clock::now() - end_;
        const auto bits = reinterpret_cast<std::uintptr_t>(fn);
        history_ = history_ << 32 | static_cast<std::uint32_t>(bits ^ bits >> 32);
        gap_ = &gaps_[history_ * 0x9e3779b97f4a7c15u >> (64 - kBits)];
    }
    void end() { end_ = Clock::now(); }

    // The time from the end of the region at work to the next; at first, none.
    Clock::duration gap() const { return *gap_; }

private:
    static constexpr int kBits = 8;
    Clock::duration gaps_[1 << kBits] = {};
    Clock::duration* gap_ = gaps_;
    std::uint64_t history_ = 0;  // the last two kernels
    Clock::time_point end_ = Clock::now();
};

class Pool {
public:
    bool try_acquire() {
        if (forks_pending_.load(std::memory_order_relaxed) != 0) return false;
        bool expected = false;
        return busy_.compare_exchange_strong(expected, true, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }
    void release() { busy_.store(false, std::memory_order_release); }

    // The pool is acquired. 2 <= n_threads, 1 <= n_tasks <= kMaxTasks.
    void run(task_fn fn, void* context, std::ptrdiff_t n_tasks, int n_threads) {
        const int helpers = std::min(n_threads - 1, grow(n_threads - 1));
        forecast_.begin(fn);
        // With more threads than processors a polling worker would only delay the others.
        const bool soon = forecast_.gap() < longest_poll() && n_workers_ < processors_;
        polls_.store(soon, std::memory_order_relaxed);
        fn_ = fn;
        context_ = context;
        n_tasks_ = n_tasks;
        split_ = n_tasks / (helpers + 1);
        helped_.store(0, std::memory_order_relaxed);
        // Sequentially consistent, like all operations by which one side announces and then looks
        // whether the other side sleeps: one of the two always sees the other.
        word_.store(static_cast<Word>(n_tasks) << kTaskShift |
                    static_cast<Word>(helpers) << kAllowedShift);
        if (helpers != 0) wake(static_cast<int>(std::min<std::ptrdiff_t>(helpers, n_tasks - 1)));
        for (std::ptrdiff_t done = 0; take(); ++done) {
            fn(context, done < split_ ? done : n_tasks - 1 - (done - split_));
        }
        wait_for_helpers();
        forecast_.end();
    }

    void before_fork() {
        forks_pending_.fetch_add(1);
        while (!acquire_past_forks()) std::this_thread::sleep_for(std::chrono::microseconds(50));
        stop_workers();
    }
    void after_fork_in_parent() {
        release();
        forks_pending_.fetch_sub(1);
    }
    void after_fork_in_child() {
        forks_pending_.store(0);  // other threads that were about to fork don't exist here
        release();
    }

    // At process exit. The pool stays acquired: threads that still run do their work alone. A
    // region that doesn't end soon (its thread may be dead) must not keep the process from ending.
    void shut_down() {
        for (int i = 0; i < 20000; ++i) {
            if (acquire_past_forks()) {
                stop_workers();
                return;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }

private:
    bool acquire_past_forks() { return !busy_.exchange(true, std::memory_order_acquire); }

    // Claims one of the tasks for a thread that takes part already; which one, its side says.
    bool take() {
        Word word = word_.load(std::memory_order_relaxed);
        do {
            if (tasks_left(word) == 0) return false;
        } while (!word_.compare_exchange_weak(word, word - kOneTask, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return true;
    }

    // Makes this worker a helper and claims its first task, if the region at work wants one.
    bool join() {
        Word word = word_.load(std::memory_order_relaxed);
        do {
            if (!wants_helper(word)) return false;
        } while (!word_.compare_exchange_weak(word, word - kOneTask + kOneHelper,
                                              std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return true;
    }

    // The task that a helper has claimed. No other has it, for all claims together are no more than
    // there are tasks.
    std::ptrdiff_t claimed() {
        const std::ptrdiff_t done = helped_.fetch_add(1, std::memory_order_relaxed);
        return done < n_tasks_ - split_ ? split_ + done : n_tasks_ - 1 - done;
    }

    // From here on the caller may return: nothing of the region is touched any more.
    void leave() {
        const Word before = word_.fetch_sub(kOneHelper);
        if (helpers_at_work(before) == 1 && caller_sleeps_.load()) {
            { std::lock_guard<std::mutex> lock(mutex_); }
            all_left_.notify_one();
        }
    }

    void wait_for_helpers() {
        const auto none = [this] { return helpers_at_work(word_.load()) == 0; };
        if (none() || poll(none, kCallerSpin)) return;
        std::unique_lock<std::mutex> lock(mutex_);
        caller_sleeps_.store(true);
        all_left_.wait(lock, none);
        caller_sleeps_.store(false);
    }

    void wake(int wanted) {
        const int sleeping = sleepers_.load();
        if (sleeping == 0) return;
        { std::lock_guard<std::mutex> lock(mutex_); }
        if (wanted >= sleeping) {
            work_.notify_all();
        } else {
            for (int i = 0; i < wanted; ++i) work_.notify_one();
        }
    }

    void work() {
        const auto called = [this] {
            return wants_helper(word_.load()) || stop_.load(std::memory_order_acquire);
        };
        while (!stop_.load(std::memory_order_acquire)) {
            if (join()) {
                const task_fn fn = fn_;
                void* const context = context_;
                do {
                    fn(context, claimed());
                } while (take());
                leave();
            }
            if (polls_.load(std::memory_order_relaxed) && poll(called, longest_poll())) continue;
            std::unique_lock<std::mutex> lock(mutex_);
            sleepers_.fetch_add(1);
            work_.wait(lock, called);
            sleepers_.fetch_sub(1);
        }
    }

    // Makes workers until there are `wanted`, or the system refuses. Returns how many there are.
    int grow(int wanted) {
        if (n_workers_ >= wanted || n_workers_ >= most_workers_) return n_workers_;
        // Signals belong to the threads of the program. Those that a fault in the thread itself
        // raises stay open, so that a handler such as faulthandler can report them.
        sigset_t blocked, previous;
        sigfillset(&blocked);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) {
            sigdelset(&blocked, fault);
        }
        pthread_sigmask(SIG_SETMASK, &blocked, &previous);
        try {
            while (n_workers_ < wanted) {
                workers_[n_workers_] = std::thread([this] { work(); });
                ++n_workers_;
            }
        } catch (const std::system_error&) {
            most_workers_ = n_workers_;  // asking again in every region would cost too much
        } catch (const std::bad_alloc&) {
            most_workers_ = n_workers_;
        }
        pthread_sigmask(SIG_SETMASK, &previous, nullptr);
        processors_ = processors();
        return n_workers_;
    }

    void stop_workers() {
        stop_.store(true);
        { std::lock_guard<std::mutex> lock(mutex_); }
        work_.notify_all();
        for (int i = 0; i < n_workers_; ++i) workers_[i].join();
        n_workers_ = 0;
        most_workers_ = kMaxThreads;
        stop_.store(false);
    }

    // Those that this thread, and with it the workers it makes, may run on.
    static int processors() {
#if defined(__linux__)
        cpu_set_t allowed;
        if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
#endif
        return static_cast<int>(std::thread::hardware_concurrency());
    }

    // The words that are polled lie on cache lines of their own.
    alignas(64) std::atomic<Word> word_{0};
    alignas(64) std::atomic<bool> busy_{false};
    std::atomic<int> forks_pending_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> caller_sleeps_{false};
    std::atomic<bool> stop_{false};
    std::atomic<bool> polls_{false};
    std::mutex mutex_;
    std::condition_variable work_;      // workers sleep here
    std::condition_variable all_left_;  // the caller sleeps here

    // The region at work.
    task_fn fn_ = nullptr;
    void* context_ = nullptr;
    std::ptrdiff_t n_tasks_ = 0;
    std::ptrdiff_t split_ = 0;               // the tasks from here on are the helpers'
    std::atomic<std::ptrdiff_t> helped_{0};  // claimed by helpers

    // Touched only by the thread that has acquired the pool.
    std::thread workers_[kMaxThreads];
    int n_workers_ = 0;
    int most_workers_ = kMaxThreads;
    int processors_ = 0;
    Forecast forecast_;
};

// Never destroyed: threads of the program may outlive the static objects.
Pool& pool() {
    static Pool* const instance = [] {
        Pool* made = new Pool;
        pthread_atfork([] { pool().before_fork(); }, [] { pool().after_fork_in_parent(); },
                       [] { pool().after_fork_in_child(); });
        return made;
    }();
    return *instance;
}

struct StopAtExit {
    ~StopAtExit() { pool().shut_down(); }
};

}  // namespace

void parallel_for(task_fn fn, void* context, std::ptrdiff_t n_tasks, int max_threads) noexcept {
    const int allowed = std::min(max_threads, num_threads());
    const int threads = static_cast<int>(std::min<std::ptrdiff_t>(allowed, n_tasks));
    if (threads >= 2 && n_tasks <= kMaxTasks && pool().try_acquire()) {
        static const StopAtExit stop_at_exit;
        pool().run(fn, context, n_tasks, threads);
        pool().release();
        return;
    }
    for (std::ptrdiff_t task = 0; task < n_tasks; ++task) fn(context, task);
}

int num_threads() noexcept { return wanted_threads.load(std::memory_order_relaxed); }

void set_spin(int microseconds) noexcept {
    wanted_spin.store(std::clamp(microseconds, 0, kMaxSpin), std::memory_order_relaxed);
}

void set_num_threads(int n) noexcept {
    wanted_threads.store(std::clamp(n, 1, kMaxThreads), std::memory_order_relaxed);
}

}  // namespace fastopt

extern "C" int fastopt_get_num_threads() { return fastopt::num_threads(); }
extern "C" void fastopt_set_num_threads(int n) { fastopt::set_num_threads(n); }
