// The row numbers of look-ups in a table, checked where they are read.
#pragma once

#include <atomic>
#include <cstdint>

#include "ids.h"

namespace fastopt {

struct Ids {
  const void* data;
  bool wide;
  std::uint64_t n_rows;

  std::int64_t at(std::int64_t k) const noexcept { return id_at(data, wide, k); }
  bool in_range(std::int64_t row) const noexcept {
    return static_cast<std::uint64_t>(row) < n_rows;
  }
};

// The position of the first id that is no row, of all that tasks report; -1 without any.
class FirstBad {
 public:
  void report(std::int64_t position) noexcept {
    std::int64_t seen = first_.load(std::memory_order_relaxed);
    while (position < seen &&
           !first_.compare_exchange_weak(seen, position, std::memory_order_relaxed)) {
    }
  }
  std::int64_t position() const noexcept {
    const std::int64_t first = first_.load(std::memory_order_relaxed);
    return first == INT64_MAX ? -1 : first;
  }

 private:
  std::atomic<std::int64_t> first_{INT64_MAX};
};

}  // namespace fastopt
