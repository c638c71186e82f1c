// Rules that sum over a row before they update it: one row, by blocks of columns.
//
// The borders of blocks depend on the width of a row alone, so a row's sums, and with them its
// update, are the same bits wherever its gradient comes from and on however many threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "table.h"

namespace fastopt {

constexpr std::int64_t kReducedBlock = 2048;  // elements of a block

struct Reduced {
  char* w;
  char* half;  // the weights in 16 bits, of which w is the float32 master; or null
  const run_table* functions;
  int half_type;
  char* const* slots;
  int n_slots;
  std::int64_t width;      // elements of a row
  std::int64_t item_size;  // bytes
  int type;
  const rule_entry* rule;
  const void* h;
  double rate;  // the part of the weights that decays before

  // `gradient(column, n)` returns n elements of the row's gradient from a column on. It is asked
  // for every block twice, unless there is but one.
  template <class Gradient>
  void update(std::int64_t row, Gradient gradient) const noexcept {
    if (width == 0) return;
    double sums[FASTOPT_MAX_SUMS] = {};
    double factors[FASTOPT_MAX_FACTORS];
    const void* g = nullptr;
    for (std::int64_t column = 0; column < width; column += kReducedBlock) {
      const std::int64_t n = std::min(kReducedBlock, width - column);
      void* at[FASTOPT_MAX_SLOTS];
      void* weights = locate(row, column, at);
      g = gradient(column, n);
      if (half != nullptr) functions->refresh[half_type](weights, half_at(row, column), n);
      if (rate != 0) functions->decay[type](weights, rate, n);
      rule->first[type](weights, g, at, h, sums, n);
    }
    void* at[FASTOPT_MAX_SLOTS];
    locate(row, 0, at);
    rule->between[type](at, h, sums, static_cast<double>(width), factors);
    for (std::int64_t column = 0; column < width; column += kReducedBlock) {
      const std::int64_t n = std::min(kReducedBlock, width - column);
      void* weights = locate(row, column, at);
      if (width > kReducedBlock) g = gradient(column, n);
      rule->second[type](weights, g, at, h, factors, n);
      if (half != nullptr) functions->narrow[half_type](half_at(row, column), weights, n);
    }
  }

 private:
  char* half_at(std::int64_t row, std::int64_t column) const noexcept {
    return half + (row * width + column) * 2;
  }
  void* locate(std::int64_t row, std::int64_t column, void** at) const noexcept {
    const std::int64_t offset = (row * width + column) * item_size;
    for (int s = 0; s < n_slots; ++s) {
      at[s] = slots[s] + (rule->row_slots >> s & 1 ? row * item_size : offset);
    }
    return w + offset;
  }
};

// Rows [lo, hi) under a dense gradient, which begins at the gradient of the whole variable.
inline void update_reduced_rows(char* w, char* half, const run_table* functions, int half_type,
                                char* const* slots, int n_slots, std::int64_t width, int type,
                                const rule_entry* rule, const void* h, double rate, const char* g,
                                std::int64_t lo, std::int64_t hi) noexcept {
  const std::int64_t item_size = type == 0 ? sizeof(float) : sizeof(double);
  const Reduced reduced{w,     half,      functions, half_type, slots, n_slots,
                        width, item_size, type,      rule,      h,     rate};
  for (std::int64_t row = lo; row < hi; ++row) {
    reduced.update(row, [&](std::int64_t column, std::int64_t) -> const void* {
      return g + (row * width + column) * item_size;
    });
  }
}

}  // namespace fastopt
