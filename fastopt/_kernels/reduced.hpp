// Rules that sum over a row before they update it: one row, by blocks of columns.
//
// The borders of blocks depend on the width of a row alone, so a row's sums, and with them its
// update, are the same bits wherever its gradient comes from and on however many threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "table.h"
#include "table.hpp"

namespace fastopt {

constexpr std::int64_t kReducedBlock = 2048;  // elements of a block

struct Reduced {
  const Table& table;
  const run_table* functions;
  const void* h;
  double rate;  // the part of the weights that decays before

  // `gradient(column, n)` returns n elements of the row's gradient from a column on. It is asked
  // for every block twice, unless there is but one.
  template <class Gradient>
  void update(std::int64_t row, Gradient gradient) const noexcept {
    if (table.width == 0) return;
    const rule_entry* rule = table.rule;
    const bool blocks = table.width > kReducedBlock;
    double sums[FASTOPT_MAX_SUMS] = {};
    double factors[FASTOPT_MAX_FACTORS];
    float copy[kReducedBlock];
    const void* g = nullptr;
    void* weights = nullptr;
    void* at[FASTOPT_MAX_SLOTS];
    for (std::int64_t column = 0; column < table.width; column += kReducedBlock) {
      const std::int64_t n = std::min(kReducedBlock, table.width - column);
      const std::int64_t element = row * table.width + column;
      table.locate(row, element, at);
      g = gradient(column, n);
      weights = table.open(functions, element, n, rate, copy);
      rule->first[table.type](weights, g, at, h, sums, n);
    }
    table.locate(row, row * table.width, at);
    rule->between[table.type](at, h, sums, static_cast<double>(table.width), factors);
    for (std::int64_t column = 0; column < table.width; column += kReducedBlock) {
      const std::int64_t n = std::min(kReducedBlock, table.width - column);
      const std::int64_t element = row * table.width + column;
      table.locate(row, element, at);
      if (blocks) {
        g = gradient(column, n);
        // The copy was overwritten by that of the next block; others are as they were left.
        weights = table.w + element * table.item_size();
        if (table.has_copies()) weights = table.open(functions, element, n, rate, copy);
      }
      rule->second[table.type](weights, g, at, h, factors, n);
      table.close(functions, element, n, weights);
    }
  }
};

// Rows [lo, hi) under a dense gradient, which begins at the gradient of the whole variable.
inline void update_reduced_rows(const Table& table, const run_table* functions, const void* h,
                                double rate, const char* g, std::int64_t lo,
                                std::int64_t hi) noexcept {
  const Reduced reduced{table, functions, h, rate};
  for (std::int64_t row = lo; row < hi; ++row) {
    reduced.update(row, [&](std::int64_t column, std::int64_t) -> const void* {
      return g + (row * table.width + column) * table.item_size();
    });
  }
}

}  // namespace fastopt
