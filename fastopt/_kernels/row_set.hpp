// The different rows of many look-ups, ascending, and each look-up's number among them.
//
// Passes are shared among threads by look-ups or by rows; where there are many look-ups every
// thread marks rows in bits of its own, which are then joined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pool.hpp"
#include "table.h"
#include "transpose.hpp"

namespace fastopt {

class RowSet {
 public:
  static constexpr int kMostParts = 8;
  // Look-ups below which the caller works alone. Not more: a thread that has nothing to do for a
  // while goes to sleep, and the step waits for it when it is wanted again.
  static constexpr std::int64_t kAlone = 1 << 15;
  static constexpr std::int64_t kTask = 1 << 13;   // look-ups that are a task

  // Whether to go through the table's bits costs little beside the look-ups.
  static bool suits(std::int64_t n, std::int64_t n_rows) noexcept {
    return n > 0 && n < INT32_MAX && n_rows <= 128 * n && n_rows <= UINT32_MAX;
  }
  static int n_parts(std::int64_t n, int threads) noexcept {
    return n < kAlone ? 1 : std::clamp(threads, 1, kMostParts);
  }
  static std::int64_t n_words(std::int64_t n_rows) noexcept { return (n_rows + 63) / 64; }

  RowSet(const void* ids, bool wide, std::int64_t n, std::int64_t n_rows, int threads,
         const run_table* functions) noexcept
      : ids_(ids), wide_(wide), n_(n), n_rows_(n_rows), words_(n_words(n_rows)), threads_(threads),
        parts_(n_parts(n, threads)), functions_(functions) {}

  // Finds the rows: `bits` are n_parts x n_words, `counts` 2 n_words, `rows`, as wide as the
  // look-ups, n, and `numbers` n. Returns how many rows there are, or -1 - k if look-up k is no
  // row.
  std::int64_t find(std::uint64_t* bits, row_count* counts, void* rows, std::uint32_t* numbers,
                    parallel_fn parallel) noexcept {
    bits_ = bits;
    counts_ = counts;
    rows_ = rows;
    numbers_ = numbers;
    parallel(mark, this, parts_, parts_);
    const std::int64_t bad = *std::min_element(found_, found_ + parts_);
    if (bad != INT64_MAX) return -1 - bad;
    std::int64_t total = 0;
    if (parts_ > 1) {
      parallel(merge, this, parts_, parts_);
      for (int p = 0; p < parts_; ++p) {
        first_[p] = total;
        total += found_[p];
        end_[p] = total;
      }
      parallel(list, this, parts_, parts_);
    } else {
      first_[0] = 0;
      end_[0] = n_;
      list(this, 0);
      total = found_[0];
    }
    parallel(number, this, (n_ + kTask - 1) / kTask, n_ < kAlone ? 1 : threads_);
    return total;
  }

 private:
  std::int64_t cut(std::int64_t size, std::ptrdiff_t p) const noexcept { return size * p / parts_; }

  static void mark(void* self, std::ptrdiff_t p) noexcept {
    RowSet& s = *static_cast<RowSet*>(self);
    std::uint64_t* bits = s.bits_ + p * s.words_;
    std::memset(bits, 0, static_cast<std::size_t>(s.words_) * sizeof(std::uint64_t));
    s.found_[p] =
        s.functions_->mark_rows(bits, s.n_rows_, s.ids_, s.wide_, s.numbers_, s.cut(s.n_, p),
                                s.cut(s.n_, p + 1));
  }
  static void merge(void* self, std::ptrdiff_t p) noexcept {
    RowSet& s = *static_cast<RowSet*>(self);
    s.found_[p] = s.functions_->merge_marks(s.bits_, s.parts_ - 1, s.words_, s.cut(s.words_, p),
                                            s.cut(s.words_, p + 1));
  }
  static void list(void* self, std::ptrdiff_t p) noexcept {
    RowSet& s = *static_cast<RowSet*>(self);
    s.found_[p] = s.functions_->list_rows(s.bits_, s.counts_, s.rows_, s.wide_, s.cut(s.words_, p),
                                          s.cut(s.words_, p + 1), s.first_[p], s.end_[p]);
  }
  static void number(void* self, std::ptrdiff_t t) noexcept {
    RowSet& s = *static_cast<RowSet*>(self);
    s.functions_->number_rows(s.counts_, s.numbers_, t * kTask, std::min(s.n_, (t + 1) * kTask));
  }

  const void* ids_;
  bool wide_;
  std::int64_t n_, n_rows_, words_;
  int threads_, parts_;
  const run_table* functions_;
  std::uint64_t* bits_ = nullptr;
  row_count* counts_ = nullptr;
  void* rows_ = nullptr;
  std::uint32_t* numbers_ = nullptr;
  // Of each part: the first bad look-up or how many rows; where its rows stand.
  std::int64_t found_[kMostParts], first_[kMostParts], end_[kMostParts];
};

// out[b] = sum of coefficients[k] * values[numbers[k]] over the look-ups of bag b, in order.
struct SumProducts {
  static constexpr std::int64_t kTask = 1 << 13;  // look-ups that are a task, about

  const std::uint32_t* numbers;
  const std::int64_t* offsets;
  std::int64_t n_bags, n;
  const void* coefficients;
  const void* values;
  void* out;
  int type;  // 0: float32, 1: float64
  const run_table* functions;

  std::int64_t chunk() const noexcept {
    return std::max<std::int64_t>(1, kTask * n_bags / std::max<std::int64_t>(1, n));
  }
  void run(parallel_fn parallel, int threads) const noexcept {
    SumProducts self = *this;
    parallel(task, &self, (n_bags + chunk() - 1) / chunk(), n < RowSet::kAlone ? 1 : threads);
  }
  static void task(void* self, std::ptrdiff_t t) noexcept {
    const SumProducts& s = *static_cast<const SumProducts*>(self);
    s.functions->sum_products[s.type](s.numbers, s.offsets, s.coefficients, s.values, s.out,
                                      t * s.chunk(), std::min(s.n_bags, (t + 1) * s.chunk()));
  }
};

// sums[numbers[k]] += coefficients[k] * g[b] over the look-ups of all bags, in order.
template <class T>
void sum_by_number(const std::uint32_t* numbers, const std::int64_t* offsets, std::int64_t n_bags,
                   const T* coefficients, const T* g, T* sums, std::int64_t n_unique) noexcept {
  Transpose<T> bags{};
  bags.offsets = offsets;
  bags.n_bags = n_bags;
  bags.coefficients = coefficients;
  Progress all;
  all.reach(n_bags == 0 ? 0 : offsets[n_bags]);
  bags.sum_singles(numbers, g, sums, n_unique, all);
}

}  // namespace fastopt
