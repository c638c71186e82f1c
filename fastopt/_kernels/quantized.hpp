// Look-ups of tables of 8 bits, shared among threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pool.hpp"
#include "rows.hpp"
#include "table.h"

namespace fastopt {

struct QuantizedLookup {
  quantized_job job;
  std::int64_t n_out, chunk;
  void (*lookup)(const quantized_job*, std::ptrdiff_t, std::ptrdiff_t, bag_errors*);
  FirstBad bad_id, bad_bag;

  static void task(void* self, std::ptrdiff_t t) noexcept {
    QuantizedLookup& q = *static_cast<QuantizedLookup*>(self);
    bag_errors errors{INT64_MAX, INT64_MAX};
    q.lookup(&q.job, t * q.chunk, std::min(q.n_out, (t + 1) * q.chunk), &errors);
    q.bad_id.report(errors.id);
    q.bad_bag.report(errors.bag);
  }
};

// Without offsets each look-up is a result of its own; weights and scales must be null then.
inline Bad lookup_quantized(const void* rows, std::int64_t n_rows, std::int64_t width,
                            const void* ids, bool wide, std::int64_t n_ids,
                            const std::int64_t* offsets, std::int64_t n_bags, const float* weights,
                            const float* scales, float* out, const run_table* functions,
                            parallel_fn parallel, int threads) noexcept {
  const std::int64_t n_out = offsets == nullptr ? n_ids : n_bags;
  const std::int64_t row_size = width + 8, out_size = 4 * width;
  const bool lines = out_size % 64 == 0 && reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
  const bool stream = offsets == nullptr && lines && n_out * out_size >= kStreamBytes;
  const quantized_job job{rows,  n_rows,  width,  ids, n_ids,
                          offsets, weights, scales, out, near_distance(row_size),
                          wide,  stream};
  // As many elements a task as of float32 rows: the arithmetic is theirs.
  const std::int64_t bytes = (n_ids + n_out) * out_size;
  const std::int64_t each = bytes / std::max<std::int64_t>(1, n_out);
  QuantizedLookup q{job, n_out, 0, functions->lookup_quantized, {}, {}};
  q.chunk = std::max<std::int64_t>(1, 4 * kTaskBytes / std::max<std::int64_t>(1, each));
  parallel(QuantizedLookup::task, &q, (n_out + q.chunk - 1) / q.chunk,
           bytes < kAloneBytes ? 1 : threads);
  return {q.bad_id.position(), q.bad_bag.position()};
}

}  // namespace fastopt
