// Moving rows between tables and batches: gather, pooled gather, scatter-add, sums by group.
//
// Row numbers are checked where they are read; a bad one is skipped and its position reported.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fetch.h"
#include "grouping.hpp"
#include "ids.hpp"
#include "pool.hpp"
#include "radix_sort.hpp"
#include "table.h"

namespace fastopt {

constexpr std::int64_t kTaskBytes = 1 << 16;
constexpr std::int64_t kAloneBytes = 1 << 18;  // below, the caller works alone

// Adds rows; short ones without a call.
struct RowAdder {
  int type;
  std::int64_t width;
  void (*add_run)(void*, const void*, const void*, std::ptrdiff_t);
  void (*add_scaled_run)(void*, const void*, double, std::ptrdiff_t);

  RowAdder(int type_, std::int64_t width_, const run_table* functions)
      : type(type_),
        width(width_),
        add_run(functions->add[type_]),
        add_scaled_run(functions->add_scaled[type_]) {}

  std::int64_t row_size() const noexcept { return width * (type == 0 ? 4 : 8); }
  void add(char* to, const char* from) const noexcept {
    if (width >= 8) {
      add_run(to, to, from, width);
    } else if (type == 0) {
      add_short<float>(to, from);
    } else {
      add_short<double>(to, from);
    }
  }
  void add_scaled(char* to, const char* from, double c) const noexcept {
    if (width >= 8) {
      add_scaled_run(to, from, c, width);
    } else if (type == 0) {
      add_scaled_short<float>(to, from, static_cast<float>(c));
    } else {
      add_scaled_short<double>(to, from, c);
    }
  }

 private:
  template <class T>
  void add_short(char* to, const char* from) const noexcept {
    T* t = reinterpret_cast<T*>(to);
    const T* f = reinterpret_cast<const T*>(from);
    for (std::int64_t j = 0; j < width; ++j) t[j] = t[j] + f[j];
  }
  template <class T>
  void add_scaled_short(char* to, const char* from, T c) const noexcept {
    T* t = reinterpret_cast<T*>(to);
    const T* f = reinterpret_cast<const T*>(from);
    for (std::int64_t j = 0; j < width; ++j) t[j] = t[j] + c * f[j];
  }
};

inline void copy_row(char* to, const char* from, std::int64_t size) noexcept {
  switch (size) {  // a constant size is copied without a call
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    case 32:
      std::memcpy(to, from, 32);
      break;
    case 64:
      std::memcpy(to, from, 64);
      break;
    case 128:
      std::memcpy(to, from, 128);
      break;
    case 256:
      std::memcpy(to, from, 256);
      break;
    default:
      std::memcpy(to, from, static_cast<std::size_t>(size));
  }
}

inline void fetch_lines(const char* row, std::int64_t size) noexcept {
  FASTOPT_FETCH_LINES(row, size, false, 2);
}

inline std::int64_t prefetch_distance(std::int64_t row_size) noexcept {
  return row_size <= 64 ? 64 : row_size <= 256 ? 32 : row_size <= 512 ? 16 : 8;
}

// Into the first cache, which holds 32 KiB at least.
inline std::int64_t near_distance(std::int64_t row_size) noexcept {
  return std::clamp<std::int64_t>(4096 / std::max<std::int64_t>(1, row_size), 4, 64);
}

// Whether rows may begin within a cache line.
inline bool ragged(const void* table, std::int64_t row_size) noexcept {
  return reinterpret_cast<std::uintptr_t>(table) % 64 != 0 || row_size % 64 != 0;
}

// Look-ups whose result is larger than this many bytes are written around the caches: it would
// push out everything else, and each line would be read before it is written. Smaller ones are not,
// since a model reads its look-ups at once.
constexpr std::int64_t kStreamBytes = std::int64_t{24} << 20;

struct Gather {
  gather_job job;
  std::int64_t n, chunk;
  const run_table* functions;
  FirstBad bad;

  static void task(void* self, std::ptrdiff_t t) noexcept {
    Gather& g = *static_cast<Gather*>(self);
    g.bad.report(g.functions->gather(&g.job, t * g.chunk, std::min(g.n, (t + 1) * g.chunk)));
  }
};

// Returns the position of the first bad id, or -1.
inline std::int64_t gather(const void* table, std::int64_t n_rows, std::int64_t row_size,
                           const void* ids, bool wide, std::int64_t n, void* out,
                           const run_table* functions, parallel_fn parallel,
                           int threads) noexcept {
  const bool lines = row_size % 64 == 0 && reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
  const bool stream = lines && n * row_size >= kStreamBytes;
  Gather g{{}, n, 0, functions, {}};
  g.job = gather_job{table, n_rows, row_size, ids, out, 0, wide, ragged(table, row_size), stream};
  g.job.ahead = stream ? 64 : near_distance(row_size);
  // The shortest row, too, takes its time: it comes from anywhere.
  const std::int64_t cost = std::max<std::int64_t>(16, row_size);
  g.chunk = std::max<std::int64_t>(64, kTaskBytes / cost);
  const std::int64_t tasks = (n + g.chunk - 1) / g.chunk;
  parallel(Gather::task, &g, tasks, n * cost < kAloneBytes ? 1 : threads);
  return g.bad.position();
}

// Bags of a table of float32 or float64.
struct SumBags {
  bag_job job;
  std::int64_t n_bags, chunk;
  void (*sum)(const bag_job*, std::ptrdiff_t, std::ptrdiff_t, bag_errors*);
  FirstBad bad_id, bad_bag;

  static void task(void* self, std::ptrdiff_t t) noexcept {
    SumBags& s = *static_cast<SumBags*>(self);
    bag_errors errors{INT64_MAX, INT64_MAX};
    s.sum(&s.job, t * s.chunk, std::min(s.n_bags, (t + 1) * s.chunk), &errors);
    s.bad_id.report(errors.id);
    s.bad_bag.report(errors.bag);
  }
};

// Bags of a table of 16 bits, widened block by block and summed in float32.
struct SumWidenedBags {
  static constexpr std::int64_t kBlock = 512;  // elements widened at a time

  const bag_job& job;
  std::int64_t n_bags, chunk;
  const RowAdder& adder;
  void (*scale)(void*, double, std::ptrdiff_t);
  void (*widen)(void*, const void*, std::ptrdiff_t);
  FirstBad bad_id, bad_bag;

  void add(float* sum, const char* row, const float* weight) const noexcept {
    alignas(64) float block[kBlock];
    for (std::int64_t column = 0; column < job.width; column += kBlock) {
      const std::int64_t n = std::min(kBlock, job.width - column);
      widen(block, row + column * 2, n);
      if (weight == nullptr) {
        adder.add_run(sum + column, sum + column, block, n);
      } else {
        adder.add_scaled_run(sum + column, block, *weight, n);
      }
    }
  }
  void bag(std::int64_t b) noexcept {
    const Ids ids{job.ids, job.wide != 0, static_cast<std::uint64_t>(job.n_rows)};
    const char* table = static_cast<const char*>(job.table);
    const float* weights = static_cast<const float*>(job.weights);
    float* sum = static_cast<float*>(job.out) + b * job.width;
    const std::int64_t row_size = 2 * job.width;
    const std::int64_t a = job.order == nullptr ? b : job.order[b];
    const bool known = a >= 0 && a < job.n_bags;
    const std::int64_t lo = known ? job.offsets[a] : -1, hi = known ? job.offsets[a + 1] : -1;
    std::memset(sum, 0, static_cast<std::size_t>(4 * job.width));
    if (lo < 0 || hi < lo || hi > job.n_ids) {
      bad_bag.report(b);
      return;
    }
    for (std::int64_t k = lo; k < hi; ++k) {
      if (k + job.ahead < job.n_ids) {
        const std::int64_t later = ids.at(k + job.ahead);
        if (ids.in_range(later)) fetch_lines(table + later * row_size, row_size);
      }
      const std::int64_t row = ids.at(k);
      if (ids.in_range(row)) {
        add(sum, table + row * row_size, weights == nullptr ? nullptr : weights + k);
      } else {
        bad_id.report(k);
      }
    }
    if (job.scales != nullptr) scale(sum, static_cast<const float*>(job.scales)[b], job.width);
  }
  static void task(void* self, std::ptrdiff_t t) noexcept {
    SumWidenedBags& s = *static_cast<SumWidenedBags*>(self);
    const std::int64_t hi = std::min(s.n_bags, (t + 1) * s.chunk);
    for (std::int64_t b = t * s.chunk; b < hi; ++b) s.bag(b);
  }
};

inline bag_job bags_of_rows(const void* table, std::int64_t n_rows, std::int64_t width,
                            std::int64_t row_size, const void* ids, bool wide, std::int64_t n_ids,
                            const std::int64_t* offsets, std::int64_t n_bags,
                            const std::int64_t* order, const void* weights, const void* scales,
                            void* out) noexcept {
  return {table,  n_rows, width,   ids,    n_ids, offsets,
          n_bags, order,  weights, scales, out,   near_distance(row_size),
          wide,   ragged(table, row_size)};
}

// How bags are shared among threads.
struct BagTasks {
  std::int64_t chunk, n;
  bool alone;

  BagTasks(std::int64_t n_ids, std::int64_t n_bags, std::int64_t row_size) noexcept {
    const std::int64_t bytes = (n_ids + n_bags) * row_size;
    const std::int64_t some = std::max<std::int64_t>(1, n_bags);
    const std::int64_t per_bag = std::max<std::int64_t>(1, bytes / some);
    chunk = std::max<std::int64_t>(1, 4 * kTaskBytes / per_bag);
    n = (n_bags + chunk - 1) / chunk;
    alone = bytes < kAloneBytes;
  }
};

struct Bad {
  std::int64_t id, bag;  // positions, or -1
};

// half_type: 0: the table is float16, 1: bfloat16, summed in float32; -1: it is of the type.
inline Bad pooled_gather(const void* table, std::int64_t n_rows, std::int64_t width, int type,
                         int half_type, const void* ids, bool wide, std::int64_t n_ids,
                         const std::int64_t* offsets, std::int64_t n_bags,
                         const std::int64_t* order, const void* weights, const void* scales,
                         void* out, const run_table* functions,
                         parallel_fn parallel, int threads) noexcept {
  const RowAdder adder(type, width, functions);
  const std::int64_t row_size = half_type < 0 ? adder.row_size() : 2 * width;
  bag_job job = bags_of_rows(table, n_rows, width, row_size, ids, wide, n_ids, offsets, n_bags,
                             order, weights, scales, out);
  const auto [chunk, tasks, alone] = BagTasks(n_ids, n_bags, adder.row_size());
  const int used = alone ? 1 : threads;
  if (half_type < 0) {
    SumBags s{job, n_bags, chunk, functions->sum_bags[type], {}, {}};
    parallel(SumBags::task, &s, tasks, used);
    return {s.bad_id.position(), s.bad_bag.position()};
  }
  job.ahead = prefetch_distance(2 * width);
  SumWidenedBags s{job, n_bags, chunk, adder, functions->scale[0], functions->widen[half_type],
                   {},  {}};
  parallel(SumWidenedBags::task, &s, tasks, used);
  return {s.bad_id.position(), s.bad_bag.position()};
}

// table[row of item] += values[position of item], duplicates in order of arrival.
struct ScatterAdd {
  Grouper& grouper;
  char* table;
  const char* values;
  const RowAdder& adder;

  template <class Word>
  void bucket(std::int64_t b) noexcept {
    const std::int64_t n = grouper.bucket(b).hi - grouper.bucket(b).lo, size = adder.row_size();
    const std::int64_t ahead = prefetch_distance(size);
    const Item<Word>* items = grouper.items<Word>(b);
    for (std::int64_t k = 0; k < n; ++k) {
      if (k + ahead < n) {
        fetch_lines(table + static_cast<std::int64_t>(items[k + ahead].row) * size, size);
        fetch_lines(values + static_cast<std::int64_t>(items[k + ahead].position) * size, size);
      }
      adder.add(table + static_cast<std::int64_t>(items[k].row) * size,
                values + static_cast<std::int64_t>(items[k].position) * size);
    }
  }
  static void task(void* self, std::ptrdiff_t b) noexcept {
    ScatterAdd& s = *static_cast<ScatterAdd*>(self);
    s.grouper.wide() ? s.bucket<std::uint64_t>(b) : s.bucket<std::uint32_t>(b);
  }
};

// Returns as Grouper::load; unless that is kFine nothing was added.
inline std::int64_t scatter_add(void* table, std::int64_t n_rows, std::int64_t width, int type,
                                const void* ids, bool wide, std::int64_t n, const void* values,
                                const run_table* functions, parallel_fn parallel,
                                int threads) noexcept {
  const RowAdder adder(type, width, functions);
  const int used = n * adder.row_size() < kAloneBytes ? 1 : threads;
  Grouper grouper;
  const std::int64_t status = grouper.load(ids, wide, n, n_rows, 0, false, parallel, used);
  if (status != Grouper::kFine) return status;
  if (!grouper.partition(parallel, used)) return Grouper::kNoMemory;
  ScatterAdd s{grouper, static_cast<char*>(table), static_cast<const char*>(values), adder};
  parallel(ScatterAdd::task, &s, grouper.n_buckets(), used);
  return Grouper::kFine;
}

// out[s] = factor * sum of values[positions[k]] over the k of a group, in order.
struct SumGroups {
  const std::int64_t* positions;
  const std::int64_t* starts;
  const std::int64_t* order;  // group of each row of out, null: as they are
  const char* values;
  char* out;
  std::int64_t n_groups, chunk;
  double factor;
  void (*scale)(void*, double, std::ptrdiff_t);
  const RowAdder& adder;

  static void task(void* self, std::ptrdiff_t t) noexcept {
    const SumGroups& g = *static_cast<const SumGroups*>(self);
    const std::int64_t hi = std::min(g.n_groups, (t + 1) * g.chunk), size = g.adder.row_size();
    for (std::int64_t s = t * g.chunk; s < hi; ++s) {
      const std::int64_t group = g.order == nullptr ? s : g.order[s];
      char* sum = g.out + s * size;
      copy_row(sum, g.values + g.positions[g.starts[group]] * size, size);
      for (std::int64_t k = g.starts[group] + 1; k < g.starts[group + 1]; ++k) {
        g.adder.add(sum, g.values + g.positions[k] * size);
      }
      if (g.factor != 1.0) g.scale(sum, g.factor, g.adder.width);
    }
  }
};

inline void sum_groups(const std::int64_t* positions, const std::int64_t* starts,
                       const std::int64_t* order, std::int64_t n_groups, std::int64_t n,
                       const void* values, std::int64_t width, int type, void* out, double factor,
                       const run_table* functions, parallel_fn parallel, int threads) noexcept {
  const RowAdder adder(type, width, functions);
  const std::int64_t bytes = n * adder.row_size();
  SumGroups g{positions, starts, order, static_cast<const char*>(values), static_cast<char*>(out),
              n_groups,  0,      factor, functions->scale[type], adder};
  g.chunk = std::max<std::int64_t>(1, kTaskBytes / std::max<std::int64_t>(1, adder.row_size()));
  parallel(SumGroups::task, &g, (n_groups + g.chunk - 1) / g.chunk,
           bytes < kAloneBytes ? 1 : threads);
}

}  // namespace fastopt
