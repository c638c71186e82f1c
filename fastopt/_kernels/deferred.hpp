// What untouched rows of a table have missed, and the making up for it.
//
// A rule such as Adam changes every row in every step, also those without a gradient, and so does
// the decay of weights before a step of any rule. What that is is known beforehand (decay.hpp). So
// it is not done in the step: a row remembers the step at which it was last up to date, and what it
// has missed is made up for in one go when it is next updated or read. The clock counts the steps
// since all rows were up to date at once.
//
// Locks: steps and everything else that writes hold the mutex, look-ups hold it shared; but they
// take it whole and write, if it is free and many of their rows wait: the step that follows finds
// these up to date. Nobody waits for the mutex, or needs it, with the interpreter's lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <shared_mutex>
#include <thread>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/types.h>
#include <unistd.h>
#endif

#include "decay.hpp"
#include "fetch.h"
#include "ids.hpp"
#include "pool.hpp"
#include "table.h"

namespace fastopt {

class Deferred {
 public:
  static constexpr std::int64_t kAlone = 1 << 15;  // elements below which the caller works alone
  static constexpr std::int64_t kTask = 1 << 14;   // elements of a task
  static constexpr std::int64_t kBlock = 512;      // elements of a buffer
  static constexpr std::int64_t kMostEntries = 1 << 16;  // steps, of small tables

  // The mutex. In a child that was forked while a thread of the parent held it, it is a new one.
  void lock() noexcept {
    after_fork();
    mutex_.lock();
  }
  bool try_lock() noexcept {
    after_fork();
    return mutex_.try_lock();
  }
  void unlock() noexcept { mutex_.unlock(); }
  void lock_shared() noexcept {
    after_fork();
    mutex_.lock_shared();
  }
  void unlock_shared() noexcept { mutex_.unlock_shared(); }

  // half: the weights in 16 bits, of which w is the float32 master; or null.
  Deferred(char* w, char* half, int half_type, char* const* slots, int n_slots, std::int64_t n_rows,
           std::int64_t width, int type, bool at_once, const run_table* functions)
      : w_(w),
        half_(half),
        half_type_(half_type),
        n_slots_(n_slots),
        n_rows_(n_rows),
        width_(width),
        type_(type),
        item_size_(type == 0 ? 4 : 8),
        row_size_(width * item_size_),
        at_once_(at_once),
        functions_(functions),
        // After so many steps all rows are made up for at once, so that entries take no more
        // memory. That is the work of 16 rows for each of these steps.
        limit_(static_cast<std::int32_t>(std::min<std::int64_t>(
            std::max<std::int64_t>(kMostEntries, n_rows / 16), 1 << 29))) {
    std::copy_n(slots, n_slots, slots_);
  }
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() { std::free(last_); }

  std::int64_t n_rows() const noexcept { return n_rows_; }
  std::int64_t row_size() const noexcept { return row_size_; }
  std::int32_t clock() const noexcept { return missed_.clock(); }
  bool pending() const noexcept { return clock() != 0; }
  // The step at which each row was last up to date; null before the first step.
  const std::int32_t* last() const noexcept { return last_; }
  const void* last_of(std::int64_t row) const noexcept { return last_ + row; }
  // Rows made up for since the beginning.
  std::int64_t made_up() const noexcept { return made_up_.load(std::memory_order_relaxed); }

  // ---- a step, under the mutex: begin, touch each row once or more, end

  // False: no memory, and no step. What rows have missed may have been made up for. `rate` is the
  // part of all weights that decays in this step; that of the rows it touches is the caller's.
  bool begin(const DecayPtr& decay, double rate, parallel_fn parallel, int threads) noexcept {
    const std::int32_t t = clock();
    if (t != 0 && (t >= limit_ || rate >= 1 || !decay->same(missed_.decay()))) {
      settle_all(parallel, threads);
    }
    if (last_ == nullptr) {
      last_ = static_cast<std::int32_t*>(std::calloc(n_rows_, sizeof(std::int32_t)));
      if (last_ == nullptr) return false;
      in_large_pages(last_, n_rows_ * sizeof(std::int32_t));
    }
    if (!missed_.begin(decay)) return false;
    mark_ = clock() + 1;
    return true;
  }

  // Makes up for what a row has missed; its numbers are at w, half and slots, which may be copies.
  void touch(std::int64_t row, void* w, void* half, void* const* slots) noexcept {
    if (last_[row] < clock()) bring_row(last_[row], w, half, slots);
    last_[row] = mark_;
  }

  // The same, but where the walk's own loop can make up for it nothing is done yet: true, and what
  // has been missed as row_walk has it.
  bool touch_late(std::int64_t row, void* w, void* const* slots, double* numbers) noexcept {
    if (!missed_.read_late(last_[row], numbers)) {
      touch(row, w, nullptr, slots);
      return false;
    }
    last_[row] = mark_;
    return true;
  }

  void abort() noexcept { mark_ = clock(); }

  void end(double lr, double rate, parallel_fn parallel, int threads) noexcept {
    missed_.end(lr, rate);
    // A factor that is not positive has no logarithm.
    if (at_once_ || rate >= 1) settle_all(parallel, threads);
  }

  // ---- outside of steps, under the mutex

  // Makes up for everything; the clock begins anew.
  void settle_all(parallel_fn parallel, int threads) noexcept {
    if (!pending()) return;
    chunk_ = std::max<std::int64_t>(1, kTask / std::max<std::int64_t>(1, width_));
    parallel(settle_chunk, this, (n_rows_ + chunk_ - 1) / chunk_,
             n_rows_ * width_ < kAlone ? 1 : threads);
    missed_.forget();
    mark_ = 0;
  }

  // Makes up for some rows; numbers that are not rows are skipped.
  void settle_rows(const void* ids, bool wide, std::int64_t n, parallel_fn parallel,
                   int threads) noexcept {
    if (pending()) for_ids(settle_ids, ids, wide, n, nullptr, parallel, threads);
  }

  // Copies rows that it has brought up to date. False: one of the ids is no row.
  bool settle_and_gather(const void* ids, bool wide, std::int64_t n, void* out,
                         parallel_fn parallel, int threads) noexcept {
    return for_ids(settle_and_gather_ids, ids, wide, n, static_cast<char*>(out), parallel, threads);
  }

  // ---- under the mutex, or shared

  // Copies rows as they would be, and changes nothing. False: one of the ids is no row.
  bool gather(const void* ids, bool wide, std::int64_t n, void* out, parallel_fn parallel,
              int threads) noexcept {
    return for_ids(gather_ids, ids, wide, n, static_cast<char*>(out), parallel, threads);
  }
  // Whether many of these rows wait, as far as a few tell. To bring them up to date pays for
  // rows that come again, in this look-up or the next. How many are many hardly matters: of fewer
  // than one in eight it takes as long as to copy them, but that keeps nobody else from looking.
  bool many_wait(const void* ids, bool wide, std::int64_t n) const noexcept {
    if (!pending()) return false;
    const Ids rows = ids_of(ids, wide);
    const std::int64_t step = n / kProbes + 1;
    std::int64_t waiting = 0, looked = 0;
    for (std::int64_t k = 0; k < n; k += step, ++looked) {
      const std::int64_t row = rows.at(k);
      waiting += rows.in_range(row) && last_[row] < clock();
    }
    return waiting * kFew > looked;
  }

 private:
  static constexpr std::int64_t kProbes = 256;  // rows that tell for all of a look-up
  static constexpr std::int64_t kFew = 8;       // one in so many
  static constexpr std::int32_t kBusy = -1;  // in `last`: somebody is bringing the row up to date

  Ids ids_of(const void* ids, bool wide) const noexcept {
    return {ids, wide, static_cast<std::uint64_t>(n_rows_)};
  }

  struct LookUps {
    Deferred* self;
    Ids ids;
    std::int64_t n, chunk, ahead;
    char* out;
    std::atomic<bool> bad{false};

    // The row of look-up k, or -1; those that come later are fetched.
    std::int64_t next(std::int64_t k) noexcept {
      if (k + 2 * ahead < n && self->last_ != nullptr) {
        const std::int64_t later = ids.at(k + 2 * ahead);
        if (ids.in_range(later)) __builtin_prefetch(self->last_ + later);
      }
      if (k + ahead < n) {
        const std::int64_t later = ids.at(k + ahead);
        if (ids.in_range(later)) self->fetch_row(later);
      }
      const std::int64_t row = ids.at(k);
      if (ids.in_range(row)) return row;
      bad.store(true, std::memory_order_relaxed);
      return -1;
    }
  };

  bool for_ids(task_fn task, const void* ids, bool wide, std::int64_t n, char* out,
               parallel_fn parallel, int threads) noexcept {
    const std::int64_t width = std::max<std::int64_t>(1, width_);
    const std::int64_t chunk = std::max<std::int64_t>(64, kTask / width);
    const std::int64_t ahead = row_size_ <= 64 ? 32 : row_size_ <= 256 ? 16 : 8;
    LookUps context{this, ids_of(ids, wide), n, chunk, ahead, out};
    parallel(task, &context, (n + chunk - 1) / chunk, n * width_ < kAlone ? 1 : threads);
    return !context.bad.load(std::memory_order_relaxed);
  }

  static void gather_ids(void* context, std::ptrdiff_t task) noexcept {
    LookUps& c = *static_cast<LookUps*>(context);
    const std::int64_t hi = std::min(c.n, (task + 1) * c.chunk);
    for (std::int64_t k = task * c.chunk; k < hi; ++k) {
      const std::int64_t row = c.next(k);
      if (row >= 0) c.self->copy_row(row, c.out + k * c.self->row_size_);
    }
  }
  static void settle_and_gather_ids(void* context, std::ptrdiff_t task) noexcept {
    LookUps& c = *static_cast<LookUps*>(context);
    Deferred& d = *c.self;
    const std::int64_t hi = std::min(c.n, (task + 1) * c.chunk);
    std::int64_t done = 0;
    for (std::int64_t k = task * c.chunk; k < hi; ++k) {
      const std::int64_t row = c.next(k);
      if (row < 0) continue;
      std::int32_t t0;
      if (d.last_ != nullptr && d.take(row, &t0)) {
        void* slots[FASTOPT_MAX_SLOTS];
        d.slots_at(row * d.row_size_, slots);
        d.bring_row(t0, d.w_ + row * d.row_size_, d.half_at(row), slots);
        d.copy_stored(row, c.out + k * d.row_size_);
        __atomic_store_n(d.last_ + row, d.clock(), __ATOMIC_RELEASE);
        ++done;
      } else {
        d.copy_stored(row, c.out + k * d.row_size_);
      }
    }
    d.made_up_.fetch_add(done, std::memory_order_relaxed);
  }
  // Takes a row that waits from all others; false: it is up to date, also if somebody else had it.
  bool take(std::int64_t row, std::int32_t* t0) noexcept {
    std::int32_t found = __atomic_load_n(last_ + row, __ATOMIC_ACQUIRE);
    while (found < clock()) {
      if (found == kBusy) {
        std::this_thread::yield();
        found = __atomic_load_n(last_ + row, __ATOMIC_ACQUIRE);
      } else if (__atomic_compare_exchange_n(last_ + row, &found, kBusy, false, __ATOMIC_ACQUIRE,
                                             __ATOMIC_ACQUIRE)) {
        *t0 = found;
        return true;
      }
    }
    return false;
  }
  static void settle_ids(void* context, std::ptrdiff_t task) noexcept {
    LookUps& c = *static_cast<LookUps*>(context);
    Deferred& d = *c.self;
    const std::int64_t hi = std::min(c.n, (task + 1) * c.chunk);
    std::int64_t done = 0;
    for (std::int64_t k = task * c.chunk; k < hi; ++k) {
      const std::int64_t row = c.next(k);
      if (row < 0) continue;
      // A row may be listed twice: whoever comes first makes up for it.
      std::int32_t t0 = __atomic_load_n(d.last_ + row, __ATOMIC_RELAXED);
      if (t0 >= d.clock() || !__atomic_compare_exchange_n(d.last_ + row, &t0, d.clock(), false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        continue;
      }
      void* slots[FASTOPT_MAX_SLOTS];
      d.slots_at(row * d.row_size_, slots);
      d.bring_row(t0, d.w_ + row * d.row_size_, d.half_at(row), slots);
      ++done;
    }
    d.made_up_.fetch_add(done, std::memory_order_relaxed);
  }
  static void settle_chunk(void* context, std::ptrdiff_t task) noexcept {
    Deferred& d = *static_cast<Deferred*>(context);
    const std::int64_t hi = std::min(d.n_rows_, (task + 1) * d.chunk_);
    std::int64_t done = 0;
    for (std::int64_t row = task * d.chunk_; row < hi; ++row) {
      if (d.last_[row] < d.clock()) {
        void* slots[FASTOPT_MAX_SLOTS];
        d.slots_at(row * d.row_size_, slots);
        d.bring_row(d.last_[row], d.w_ + row * d.row_size_, d.half_at(row), slots);
        ++done;
      }
      d.last_[row] = 0;
    }
    d.made_up_.fetch_add(done, std::memory_order_relaxed);
  }

  void slots_at(std::int64_t offset, void** slots) const noexcept {
    for (int s = 0; s < n_slots_; ++s) slots[s] = slots_[s] + offset;
  }
  // The row's slots too, if it waits.
  void fetch_row(std::int64_t row) const noexcept {
    const std::int64_t at = row * row_size_;
    fetch(w_ + at, row_size_);
    if (last_ == nullptr || __atomic_load_n(last_ + row, __ATOMIC_RELAXED) >= clock()) return;
    for (int s = 0; s < n_slots_; ++s) fetch(slots_[s] + at, row_size_);
  }

  void copy_stored(std::int64_t row, char* out) const noexcept {
    std::memcpy(out, w_ + row * row_size_, static_cast<std::size_t>(row_size_));
    if (half_ != nullptr) functions_->refresh[half_type_](out, half_at(row), width_);
  }
  // The row as it would be, with nothing changed.
  void copy_row(std::int64_t row, char* out) const noexcept {
    const std::int64_t offset = row * row_size_;
    copy_stored(row, out);
    if (!pending() || last_[row] >= clock()) return;
    void* slots[FASTOPT_MAX_SLOTS];
    const Decay& d = missed_.decay();
    slots_at(offset, slots);
    if (d.reach <= d.window || clock() - last_[row] <= d.window) {
      missed_.bring(last_[row], out, slots, width_, false, type_, functions_);
      return;
    }
    // From window to window slots shrink: here copies of them.
    alignas(64) char buffers[2][kBlock * 8];
    for (std::int64_t column = 0; column < width_; column += kBlock) {
      const std::int64_t n = std::min(kBlock, width_ - column), at = offset + column * item_size_;
      std::fill_n(slots, FASTOPT_MAX_SLOTS, nullptr);
      slots[d.moving] = buffers[0];
      slots[d.over] = buffers[1];
      std::memcpy(buffers[0], slots_[d.moving] + at, static_cast<std::size_t>(n * item_size_));
      std::memcpy(buffers[1], slots_[d.over] + at, static_cast<std::size_t>(n * item_size_));
      missed_.bring(last_[row], out + column * item_size_, slots, n, true, type_, functions_);
    }
  }

  // Brings a whole row to the clock. What somebody has written to its 16 bits counts.
  void bring_row(std::int32_t t0, void* w, void* half, void* const* slots) const noexcept {
    if (half != nullptr) functions_->refresh[half_type_](w, half, width_);
    missed_.bring(t0, w, slots, width_, true, type_, functions_);
    if (half != nullptr) functions_->narrow[half_type_](half, w, width_);
  }
  char* half_at(std::int64_t row) const noexcept {
    return half_ == nullptr ? nullptr : half_ + row * width_ * 2;
  }

  // Looked up at random, as the rows are: with fewer pages their places are known more often.
  static void in_large_pages(void* p, std::size_t size) noexcept {
#ifdef MADV_HUGEPAGE
    constexpr std::size_t page = 4096, least = 1 << 22;
    const std::size_t skip = (page - reinterpret_cast<std::uintptr_t>(p) % page) % page;
    if (size >= least) {
      madvise(static_cast<char*>(p) + skip, (size - skip) / page * page, MADV_HUGEPAGE);
    }
#else
    (void)p, (void)size;
#endif
  }

  // Threads that held the mutex, or rows, don't exist in a child. What they were doing is half
  // done, as it is with arrays that no ledger looks after.
  void after_fork() noexcept {
#if defined(__unix__) || defined(__APPLE__)
    const pid_t here = getpid();
    pid_t owner = pid_.load(std::memory_order_acquire);
    if (owner == here) return;
    if (owner != 0 && pid_.compare_exchange_strong(owner, 0)) {
      new (&mutex_) std::shared_mutex;
      for (std::int64_t row = 0; last_ != nullptr && row < n_rows_; ++row) {
        if (last_[row] == kBusy) last_[row] = clock();
      }
      pid_.store(here, std::memory_order_release);
    }
    while (pid_.load(std::memory_order_acquire) != here) std::this_thread::yield();
#endif
  }

  std::shared_mutex mutex_;
#if defined(__unix__) || defined(__APPLE__)
  std::atomic<pid_t> pid_{getpid()};  // whose threads may hold it
#endif
  char* w_;
  char* half_;
  int half_type_;
  char* slots_[FASTOPT_MAX_SLOTS] = {};
  int n_slots_;
  std::int64_t n_rows_, width_;
  int type_;
  std::int64_t item_size_, row_size_;
  bool at_once_;                  // nothing is left for later when a step ends
  const run_table* functions_;
  std::int32_t limit_;

  MissedSteps missed_;
  std::int32_t mark_ = 0;         // what `last` of a row becomes when it is touched
  std::int32_t* last_ = nullptr;
  std::int64_t chunk_ = 1;        // rows of a task
  std::atomic<std::int64_t> made_up_{0};
};

}  // namespace fastopt
