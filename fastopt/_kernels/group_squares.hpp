// The sum of squares of rows that are sums of other rows, which nobody needs otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fetch.h"
#include "pool.hpp"
#include "rows.hpp"
#include "table.h"

namespace fastopt {

constexpr std::int64_t kSquaresBlock = 2048;  // columns that are summed at once

// Tasks are runs of groups whose borders depend on the width of a row alone.
struct SquaresOfGroups {
  const std::int64_t* positions;
  const std::int64_t* starts;
  const char* values;
  double* partial;  // of each task
  std::int64_t n_groups, chunk, width, item_size;
  int type;
  const run_table* functions;

  const char* row(std::int64_t k) const noexcept {
    return values + positions[k] * width * item_size;
  }

  double group(std::int64_t s) const noexcept {
    alignas(64) char sum[kSquaresBlock * sizeof(double)];
    double total = 0;
    for (std::int64_t column = 0; column < width; column += kSquaresBlock) {
      const std::int64_t n = std::min(kSquaresBlock, width - column), at = column * item_size;
      const char* of = row(starts[s]) + at;
      if (starts[s + 1] - starts[s] > 1) {
        functions->add[type](sum, of, row(starts[s] + 1) + at, n);
        for (std::int64_t k = starts[s] + 2; k < starts[s + 1]; ++k) {
          functions->add[type](sum, sum, row(k) + at, n);
        }
        of = sum;
      }
      total += functions->squares[type](of, n);
    }
    return total;
  }
  static void task(void* self, std::ptrdiff_t t) noexcept {
    const SquaresOfGroups& g = *static_cast<const SquaresOfGroups*>(self);
    const std::int64_t hi = std::min(g.n_groups, (t + 1) * g.chunk);
    const std::int64_t size = g.width * g.item_size, end = g.starts[g.n_groups];
    const std::int64_t ahead = prefetch_distance(size);
    double total = 0;
    for (std::int64_t s = t * g.chunk; s < hi; ++s) {
      for (std::int64_t k = g.starts[s]; k < g.starts[s + 1] && k + ahead < end; ++k) {
        fetch_lines(g.row(k + ahead), size);
      }
      total += g.group(s);
    }
    g.partial[t] = total;
  }
};

constexpr std::int64_t groups_of_task(std::int64_t row_size) noexcept {
  return std::max<std::int64_t>(1, kTaskBytes / std::max<std::int64_t>(1, row_size));
}

// `partial` has room for a number for each `groups_of_task` groups.
inline double squares_of_groups(const std::int64_t* positions, const std::int64_t* starts,
                                std::int64_t n_groups, std::int64_t n, const void* values,
                                std::int64_t width, int type, double* partial,
                                const run_table* functions, parallel_fn parallel,
                                int threads) noexcept {
  const std::int64_t item_size = type == 0 ? 4 : 8;
  const std::int64_t chunk = groups_of_task(width * item_size);
  SquaresOfGroups g{positions, starts, static_cast<const char*>(values), partial, n_groups,
                    chunk,     width,  item_size, type, functions};
  const std::int64_t n_tasks = (n_groups + chunk - 1) / chunk;
  parallel(SquaresOfGroups::task, &g, n_tasks,
           n * width * item_size < kAloneBytes ? 1 : threads);
  double total = 0;
  for (std::int64_t t = 0; t < n_tasks; ++t) total += partial[t];
  return total;
}

}  // namespace fastopt
