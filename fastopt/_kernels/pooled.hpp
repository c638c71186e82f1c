// A pooled look-up in one go: factors of bags, copies of what the caller may change, and the sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pool.hpp"
#include "rows.hpp"
#include "table.h"

namespace fastopt {

// Divides by: the sum of the weights, the root of the sum of their squares, nothing.
enum Combiner { kMean, kRoot, kSum };

// Each task prepares the bags that it sums: their ids are in the cache then.
template <class T>
struct Pooled {
  SumBags sum;  // its offsets may be trusted
  int combiner;
  const T* weights;  // as given, or null
  T* coefficients;   // those of the sum, if they are not the weights themselves
  T* scales;         // where there are no weights, but for sums
  char* kept_ids;    // or null

  // Without weights: what a bag is multiplied by.
  void scale(std::int64_t b) const noexcept {
    const std::int64_t n = sum.job.offsets[b + 1] - sum.job.offsets[b];
    const double count = static_cast<double>(std::max<std::int64_t>(n, 1));
    scales[b] = static_cast<T>(1.0 / (combiner == kMean ? count : std::sqrt(count)));
  }
  // The weights of a bag, divided; in float64, where the divisor is small too.
  void divide(std::int64_t b) const noexcept {
    const std::int64_t lo = sum.job.offsets[b], hi = sum.job.offsets[b + 1];
    double total = 0;
    for (std::int64_t k = lo; k < hi; ++k) {
      const double w = weights[k];
      total += combiner == kMean ? w : w * w;
    }
    const double divisor = combiner == kMean ? total : std::sqrt(total);
    for (std::int64_t k = lo; k < hi; ++k) {
      coefficients[k] = divisor != 0 ? static_cast<T>(weights[k] / divisor) : T{0};
    }
  }

  static void task(void* self, std::ptrdiff_t t) noexcept {
    Pooled& p = *static_cast<Pooled*>(self);
    const bag_job& job = p.sum.job;
    const std::int64_t first = t * p.sum.chunk;
    const std::int64_t end = std::min(p.sum.n_bags, first + p.sum.chunk);
    const std::int64_t lo = job.offsets[first], n = job.offsets[end] - lo;
    if (p.kept_ids != nullptr && n > 0) {
      const std::int64_t size = job.wide ? 8 : 4;
      std::memcpy(p.kept_ids + lo * size, static_cast<const char*>(job.ids) + lo * size,
                  static_cast<std::size_t>(n * size));
    }
    if (p.coefficients != nullptr && p.combiner == kSum && n > 0) {
      std::memcpy(p.coefficients + lo, p.weights + lo, static_cast<std::size_t>(n) * sizeof(T));
    } else if (p.coefficients != nullptr) {
      for (std::int64_t b = first; b < end; ++b) p.divide(b);
    } else if (p.scales != nullptr) {
      for (std::int64_t b = first; b < end; ++b) p.scale(b);
    }
    SumBags::task(&p.sum, t);
  }
};

struct PooledJob {
  const void* table;
  std::int64_t n_rows, width;
  int type;  // 0: float32, 1: float64
  const void* ids;
  bool wide;
  std::int64_t n_ids;
  const std::int64_t* offsets;  // rise from 0 to n_ids
  std::int64_t n_bags;
  int combiner;
  const void* weights;
  void *coefficients, *scales, *kept_ids, *out;  // all but `out` may be null
};

template <class T>
bool pooled_of(const PooledJob& j, const run_table* functions, parallel_fn parallel,
               int threads) noexcept {
  const std::int64_t row_size = j.width * static_cast<std::int64_t>(sizeof(T));
  const BagTasks tasks(j.n_ids, j.n_bags, row_size);
  const void* factors = j.coefficients != nullptr ? j.coefficients : j.weights;
  const bag_job job = bags_of_rows(j.table, j.n_rows, j.width, row_size, j.ids, j.wide, j.n_ids,
                                   j.offsets, j.n_bags, nullptr, factors, j.scales, j.out);
  Pooled<T> p{{job, j.n_bags, tasks.chunk, functions->sum_bags[j.type], {}, {}},
              j.combiner,
              static_cast<const T*>(j.weights),
              static_cast<T*>(j.coefficients),
              static_cast<T*>(j.scales),
              static_cast<char*>(j.kept_ids)};
  parallel(Pooled<T>::task, &p, tasks.n, tasks.alone ? 1 : threads);
  return p.sum.bad_id.position() < 0;
}

// Returns whether all ids are rows of the table.
inline bool pooled(const PooledJob& job, const run_table* functions, parallel_fn parallel,
                   int threads) noexcept {
  return job.type == 0 ? pooled_of<float>(job, functions, parallel, threads)
                       : pooled_of<double>(job, functions, parallel, threads);
}

}  // namespace fastopt
