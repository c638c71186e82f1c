// Inner products of rows of two tables, without copies of the rows.
//
// Row numbers are checked where they are read; a bad one is skipped and its position reported.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fetch.h"
#include "ids.hpp"
#include "pool.hpp"
#include "rows.hpp"
#include "table.h"

namespace fastopt {

struct RowDots {
  const char *first, *second;  // tables
  Ids ids, others;
  std::int64_t n, per_row, width, chunk;
  char* out;
  int type;
  double (*dot)(const void*, const void*, std::ptrdiff_t);
  FirstBad bad_id, bad_other;

  void put(std::int64_t at, double x) noexcept {
    if (type == 0)
      reinterpret_cast<float*>(out)[at] = static_cast<float>(x);
    else
      reinterpret_cast<double*>(out)[at] = x;
  }
  static void task(void* self, std::ptrdiff_t t) noexcept {
    RowDots& d = *static_cast<RowDots*>(self);
    const std::int64_t size = d.width * (d.type == 0 ? 4 : 8), ahead = prefetch_distance(size);
    const std::int64_t hi = std::min(d.n, (t + 1) * d.chunk), end = hi * d.per_row;
    for (std::int64_t i = t * d.chunk; i < hi; ++i) {
      if (i + ahead < hi) {
        const std::int64_t later = d.ids.at(i + ahead);
        if (d.ids.in_range(later)) fetch_lines(d.first + later * size, size);
      }
      const std::int64_t row = d.ids.at(i);
      if (!d.ids.in_range(row)) {
        d.bad_id.report(i);
        continue;
      }
      for (std::int64_t at = i * d.per_row; at < (i + 1) * d.per_row; ++at) {
        if (at + ahead < end) {
          const std::int64_t later = d.others.at(at + ahead);
          if (d.others.in_range(later)) fetch_lines(d.second + later * size, size);
        }
        const std::int64_t other = d.others.at(at);
        if (d.others.in_range(other))
          d.put(at, d.dot(d.first + row * size, d.second + other * size, d.width));
        else
          d.bad_other.report(at);
      }
    }
  }
};

struct BadPair {
  std::int64_t id, other;  // positions, or -1
};

// out[i * per_row + k] = first[ids[i]] . second[others[i * per_row + k]]
inline BadPair row_dots(const void* first, std::int64_t first_rows, const void* second,
                        std::int64_t second_rows, std::int64_t width, int type, const void* ids,
                        bool ids_wide, const void* others, bool others_wide, std::int64_t n,
                        std::int64_t per_row, void* out, const run_table* functions,
                        parallel_fn parallel, int threads) noexcept {
  RowDots d{static_cast<const char*>(first),
            static_cast<const char*>(second),
            {ids, ids_wide, static_cast<std::uint64_t>(first_rows)},
            {others, others_wide, static_cast<std::uint64_t>(second_rows)},
            n,
            per_row,
            width,
            0,
            static_cast<char*>(out),
            type,
            functions->dot[type],
            {},
            {}};
  const std::int64_t each = (1 + per_row) * std::max<std::int64_t>(1, width) * (type == 0 ? 4 : 8);
  d.chunk = std::max<std::int64_t>(1, kTaskBytes / each);
  parallel(RowDots::task, &d, (n + d.chunk - 1) / d.chunk, n * each < kAloneBytes ? 1 : threads);
  return {d.bad_id.position(), d.bad_other.position()};
}

}  // namespace fastopt
