// All tables of a step at once.
//
// Loading, scattering and walking are a parallel loop each over the tasks of all tables: dozens of
// small tables cost no more loops than a single one, and threads share the work of all. Tables with
// the same list of look-ups load, scatter and sort it once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "grouping.hpp"
#include "pool.hpp"
#include "sparse.hpp"
#include "table.h"
#include "table.hpp"

namespace fastopt {

class SparseSweep {
 public:
  // Makes room for n tables. May throw std::bad_alloc; nothing else does.
  void reserve(std::size_t n) {
    parts_.reserve(n);
    starts_.reserve(n + 1);
  }
  void clear() noexcept { parts_.clear(); }

  // Look-ups of the same `list` are the same.
  void add(SparseUpdate* update, const Table* table, const void* list, const void* indices,
           bool indices64, std::int64_t n) noexcept {
    Part part{};
    part.update = update;
    part.table = table;
    part.list = list;
    part.indices = indices;
    part.indices64 = indices64;
    part.n = n;
    parts_.push_back(part);
  }

  // Returns as Grouper::load.
  std::int64_t load(parallel_fn parallel, int threads) noexcept {
    std::int64_t total = 0;
    for (Part& part : parts_) {
      const Part* other = loaded_before(part);
      part.shares = other != nullptr;
      if (part.shares) {
        part.update->share(*other->update);
        continue;
      }
      if (!part.update->begin_load(*part.table, part.indices, part.indices64, part.n, threads)) {
        return Grouper::kNoMemory;
      }
      total += part.n;
    }
    for_tasks<&SparseSweep::chunks_to_load, &SparseSweep::load_chunk>(parallel, threads, total);
    std::int64_t status = Grouper::kFine;
    for (Part& part : parts_) {
      const std::int64_t found = part.shares ? Grouper::kFine : part.update->grouper().end_load();
      if (status == Grouper::kFine) status = found;
      part.indices = nullptr;
    }
    return status;
  }

  // What the next prepare and run are given for a table, by its place in the order of add().
  void set(std::size_t k, const void* values, const void* scalars, double rate) noexcept {
    parts_[k].values = values;
    parts_[k].scalars = scalars;
    parts_[k].rate = rate;
  }

  // False: no memory, nothing was changed.
  bool prepare(parallel_fn parallel, int threads) noexcept {
    std::int64_t work = 0, look_ups = 0;
    for (const Part& part : parts_) work += part.update->work(*part.table);
    threads_ = work < SparseUpdate::kAlone ? 1 : threads;
    for (Part& part : parts_) {
      part.next = nullptr;
      part.follows = false;
      part.scatters = false;
      if (!part.update->prepare(*part.table, part.rate != 0, threads_)) return false;
      if (part.update->lists_many()) threads_ = threads;
      if (!part.update->by_buckets()) continue;
      follow(part);
      part.scatters = !part.follows && !part.update->grouper().partitioned();
      if (part.scatters) look_ups += part.n;
    }
    for (const Part& part : parts_) {
      if (part.scatters) part.update->grouper().begin_scatter();
    }
    for_tasks<&SparseSweep::chunks_to_scatter, &SparseSweep::scatter_chunk>(parallel, threads_,
                                                                           look_ups);
    for (const Part& part : parts_) {
      if (part.scatters) part.update->grouper().end_scatter();
    }
    return true;
  }

  void run(const run_table* functions, parallel_fn parallel) noexcept {
    for (const Part& part : parts_) {
      part.update->begin_run(*part.table, part.values, part.scalars, part.rate, functions);
    }
    for_tasks<&SparseSweep::tasks_to_run, &SparseSweep::run_task>(parallel, threads_, kMany);
    for (const Part& part : parts_) part.update->end_run();
  }

 private:
  struct Part {
    SparseUpdate* update;
    const Table* table;
    const void* list;
    const void* indices;
    bool indices64;
    std::int64_t n;
    const void* values;
    const void* scalars;
    double rate;
    bool shares;    // the look-ups of an earlier one
    bool scatters;  // look-ups into buckets
    bool follows;   // its buckets are walked by the tasks of an earlier one
    Part* next;     // that follows
  };

  const Part* loaded_before(const Part& part) const noexcept {
    for (const Part& other : parts_) {
      if (&other == &part) break;
      if (other.list == part.list && !other.shares &&
          SparseUpdate::may_share(*other.table, *part.table)) {
        return &other;
      }
    }
    return nullptr;
  }
  // A bucket is sorted, and counted, where it is first walked: so one task walks it for all.
  void follow(Part& part) noexcept {
    for (Part& other : parts_) {
      if (&other == &part) return;
      if (&other.update->grouper() == &part.update->grouper() && other.update->by_buckets()) {
        part.follows = true;
        Part* last = &other;
        while (last->next != nullptr) last = last->next;
        last->next = &part;
        return;
      }
    }
  }

  static std::int64_t chunks_to_load(const Part& part) noexcept {
    return part.shares ? 0 : part.update->grouper().n_chunks();
  }
  static void load_chunk(const Part& part, std::ptrdiff_t t) noexcept {
    Grouper::load_task(&part.update->grouper(), t);
  }
  static std::int64_t chunks_to_scatter(const Part& part) noexcept {
    return part.scatters ? part.update->grouper().n_chunks() : 0;
  }
  static void scatter_chunk(const Part& part, std::ptrdiff_t t) noexcept {
    Grouper::scatter_task(&part.update->grouper(), t);
  }
  static std::int64_t tasks_to_run(const Part& part) noexcept {
    return part.follows ? 0 : part.update->n_tasks();
  }
  static void run_task(const Part& part, std::ptrdiff_t t) noexcept {
    for (const Part* p = &part; p != nullptr; p = p->next) p->update->run_task(t);
  }

  // Look-ups of tables that are a chunk each, from which on threads share what is no more than a
  // copy.
  static constexpr std::int64_t kMany = 8 * Grouper::kChunkItems;

  // One loop over the tasks of all tables, table by table.
  template <std::int64_t (*count)(const Part&) noexcept,
            void (*run)(const Part&, std::ptrdiff_t) noexcept>
  void for_tasks(parallel_fn parallel, int threads, std::int64_t look_ups) noexcept {
    bool small = look_ups < kMany;
    starts_.assign(1, 0);
    for (const Part& part : parts_) {
      const std::ptrdiff_t n = count(part);
      small = small && n <= 1;
      starts_.push_back(starts_.back() + n);
    }
    const auto task = [](void* self, std::ptrdiff_t t) noexcept {
      const SparseSweep& s = *static_cast<const SparseSweep*>(self);
      const auto after = std::upper_bound(s.starts_.begin(), s.starts_.end(), t);
      const std::ptrdiff_t k = after - s.starts_.begin() - 1;
      run(s.parts_[static_cast<std::size_t>(k)], t - s.starts_[static_cast<std::size_t>(k)]);
    };
    if (starts_.back() > 0) parallel(task, this, starts_.back(), small ? 1 : threads);
  }

  std::vector<Part> parts_;
  std::vector<std::ptrdiff_t> starts_;  // of each table's tasks, and the end of the last
  int threads_ = 1;
};

}  // namespace fastopt
