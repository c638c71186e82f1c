// The dense driver: whole variables, any rule.
//
// Variables are cut into segments, whose borders depend on sizes alone, and tasks of about as many
// elements each: a long variable is several tasks, many short ones are one. It knows no rule: runs
// are called by pointer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "pool.hpp"
#include "reduced.hpp"
#include "table.h"
#include "table.hpp"

namespace fastopt {

// A variable of a plan. The gradient, and whether there is a dense one, change from step to step.
struct DensePart {
  const Table* table;
  std::int64_t n;  // elements
  const char* const* g;
  const int* sparse;
};

// The scalars of a step, in both compute types; with a stride of 0 all variables have the same.
// And what part of each variable's weights decays before; or null.
struct StepScalars {
  const float* f32;
  const double* f64;
  std::int64_t stride;
  const double* rates;

  double rate_of(std::int64_t k) const noexcept { return rates == nullptr ? 0.0 : rates[k]; }

  const void* of(std::int64_t k, int type) const noexcept {
    if (type == 0) return f32 + k * stride;
    return f64 + k * stride;
  }
};

class DenseUpdate {
 public:
  static constexpr std::int64_t kChunk = 1 << 14;  // elements of a task
  static constexpr std::int64_t kAlone = 1 << 16;  // elements below which the caller works alone
  static constexpr std::int64_t kBlock = 1 << 11;  // weights at work in the first cache

  // Segments that a variable of n elements may need: those of whole rows may be half a chunk.
  static std::int64_t segments_of(std::int64_t n) noexcept { return 2 + 2 * (n / kChunk); }

  // False: no memory.
  bool reserve(const rule_entry* rule, std::int64_t n_parts, std::int64_t n_segments) noexcept {
    rule_ = rule;
    n_parts_ = n_parts;
    parts_.reset(new (std::nothrow) DensePart[n_parts + 1]);
    segments_.reset(new (std::nothrow) Segment[n_segments + 1]);
    task_start_.reset(new (std::nothrow) std::int64_t[n_segments + 2]);
    sums_.reset(new (std::nothrow) double[(n_segments + 1) * FASTOPT_MAX_SUMS]);
    factors_.reset(new (std::nothrow) double[(n_parts + 1) * FASTOPT_MAX_FACTORS]);
    return parts_ && segments_ && task_start_ && sums_ && factors_;
  }
  void set_part(std::int64_t k, const DensePart& part) noexcept { parts_[k] = part; }

  // Which variables have a dense gradient is not what it was.
  void mixture_changed() noexcept { stale_ = true; }

  // Rules that sum over a variable need more than a walk.
  bool is_walk() const noexcept { return rule_->reduction != kOverVariable; }

  // Updates all variables with a dense gradient, which have n elements in all.
  void run(const StepScalars& scalars, const run_table* functions, std::int64_t n,
           parallel_fn parallel, int threads) noexcept {
    scalars_ = scalars;
    functions_ = functions;
    if (!is_walk()) {
      if (stale_) make_tasks();
      run_in_halves(parallel, n < kAlone ? 1 : threads);
    } else if (n < kAlone || threads == 1) {
      walk(scalars, functions);
    } else {
      if (stale_) make_tasks();
      parallel(&walk_task, this, n_tasks_, threads);
    }
  }

  // The same in the calling thread, without tasks.
  void walk(const StepScalars& scalars, const run_table* functions) noexcept {
    scalars_ = scalars;
    functions_ = functions;
    for (std::int64_t k = 0; k < n_parts_; ++k) {
      if (!*parts_[k].sparse) update(k, 0, n_items(parts_[k]));
    }
  }

 private:
  static constexpr int kOverRow = 1, kOverVariable = 2;  // what a rule sums over

  // Elements [lo, hi) of a variable, or rows under a rule that sums over rows.
  struct Segment {
    std::int64_t part, lo, hi;
  };

  std::int64_t n_items(const DensePart& part) const noexcept {
    if (rule_->reduction == kOverRow) return part.n ? part.table->n_rows : 0;
    return part.n;
  }

  void update(std::int64_t k, std::int64_t lo, std::int64_t hi) const noexcept {
    const DensePart& part = parts_[k];
    const Table& table = *part.table;
    if (rule_->reduction) {
      update_reduced_rows(table, functions_, scalars_.of(k, table.type), scalars_.rate_of(k),
                          *part.g, lo, hi);
      return;
    }
    if (table.half == nullptr) {
      run_rule(k, lo, hi - lo, table.w + lo * table.item_size());
      return;
    }
    float copy[kBlock];
    for (; lo < hi; lo += kBlock) {
      const std::int64_t n = std::min(kBlock, hi - lo);
      void* weights = table.open(functions_, lo, n, 0, copy);
      run_rule(k, lo, n, weights);
      table.close(functions_, lo, n, weights);
    }
  }

  void run_rule(std::int64_t k, std::int64_t lo, std::int64_t n, void* weights) const noexcept {
    const Table& table = *parts_[k].table;
    void* slots[FASTOPT_MAX_SLOTS];
    table.locate(0, lo, slots);
    table.run(weights, *parts_[k].g + lo * table.item_size(), slots, scalars_.of(k, table.type),
              scalars_.rate_of(k), n);
  }

  void make_tasks() noexcept {
    std::int64_t n_segments = 0, in_task = 0;
    n_tasks_ = 0;
    task_start_[0] = 0;
    for (std::int64_t k = 0; k < n_parts_; ++k) {
      if (*parts_[k].sparse) continue;
      const std::int64_t n = n_items(parts_[k]);
      const std::int64_t size = n ? parts_[k].n / n : 1;
      const std::int64_t step = std::max<std::int64_t>(kChunk / size, 1);
      for (std::int64_t lo = 0; lo < n; lo += step) {
        const std::int64_t hi = std::min(lo + step, n);
        segments_[n_segments++] = Segment{k, lo, hi};
        in_task += (hi - lo) * size;
        if (in_task >= kChunk) {
          task_start_[++n_tasks_] = n_segments;
          in_task = 0;
        }
      }
    }
    if (in_task) task_start_[++n_tasks_] = n_segments;
    stale_ = false;
  }

  static void walk_task(void* self, std::ptrdiff_t task) noexcept {
    const DenseUpdate& u = *static_cast<const DenseUpdate*>(self);
    for (std::int64_t s = u.task_start_[task]; s < u.task_start_[task + 1]; ++s) {
      u.update(u.segments_[s].part, u.segments_[s].lo, u.segments_[s].hi);
    }
  }

  // Sums over each variable, by segments and then over them in their order; then the update.
  void run_in_halves(parallel_fn parallel, int threads) noexcept {
    parallel(&half_task<false>, this, n_tasks_, threads);
    std::int64_t s = 0;
    for (std::int64_t k = 0; k < n_parts_; ++k) {
      double sums[FASTOPT_MAX_SUMS] = {};
      for (; s < task_start_[n_tasks_] && segments_[s].part == k; ++s) {
        for (int i = 0; i < FASTOPT_MAX_SUMS; ++i) sums[i] += sums_[s * FASTOPT_MAX_SUMS + i];
      }
      const int type = parts_[k].table->type;
      rule_->between[type](nullptr, scalars_.of(k, type), sums, static_cast<double>(parts_[k].n),
                           &factors_[k * FASTOPT_MAX_FACTORS]);
    }
    parallel(&half_task<true>, this, n_tasks_, threads);
  }

  template <bool second>
  static void half_task(void* self, std::ptrdiff_t task) noexcept {
    DenseUpdate& u = *static_cast<DenseUpdate*>(self);
    for (std::int64_t s = u.task_start_[task]; s < u.task_start_[task + 1]; ++s) {
      u.half_segment<second>(s);
    }
  }

  template <bool second>
  void half_segment(std::int64_t s) noexcept {
    const Segment& segment = segments_[s];
    const Table& table = *parts_[segment.part].table;
    const double rate = scalars_.rate_of(segment.part);
    const void* h = scalars_.of(segment.part, table.type);
    const double* factors = &factors_[segment.part * FASTOPT_MAX_FACTORS];
    double* sums = &sums_[s * FASTOPT_MAX_SUMS];
    if (!second) std::fill_n(sums, FASTOPT_MAX_SUMS, 0.0);
    // A copy is made block by block, and has to decay in both halves.
    float copy[kBlock];
    const std::int64_t step = table.has_copies() ? kBlock : segment.hi - segment.lo;
    for (std::int64_t lo = segment.lo; lo < segment.hi; lo += step) {
      const std::int64_t n = std::min(step, segment.hi - lo);
      const char* g = *parts_[segment.part].g + lo * table.item_size();
      void* slots[FASTOPT_MAX_SLOTS];
      table.locate(0, lo, slots);
      if (second) {
        void* weights = table.w + lo * table.item_size();
        if (table.has_copies()) weights = table.open(functions_, lo, n, rate, copy);
        rule_->second[table.type](weights, g, slots, h, factors, n);
        table.close(functions_, lo, n, weights);
      } else {
        void* weights = table.open(functions_, lo, n, rate, copy);
        rule_->first[table.type](weights, g, slots, h, sums, n);
      }
    }
  }

  const rule_entry* rule_ = nullptr;
  std::int64_t n_parts_ = 0, n_tasks_ = 0;
  std::unique_ptr<DensePart[]> parts_;
  std::unique_ptr<Segment[]> segments_;
  std::unique_ptr<std::int64_t[]> task_start_;  // segments of a task, and behind the last the end
  std::unique_ptr<double[]> sums_, factors_;    // of segments, of variables
  bool stale_ = true;
  StepScalars scalars_{};
  const run_table* functions_ = nullptr;
};

}  // namespace fastopt
