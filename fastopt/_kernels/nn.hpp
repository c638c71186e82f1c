// One pass over the rows of a layer: bias and relu forward; mask and sum of columns backward; many
// narrow matrices side by side in one, and back.
//
// Only comparisons and sums, element by element, in an order that the sizes alone decide: the bits
// are the same for every number of threads. Wider registers than the baseline's bring little.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pool.hpp"

namespace fastopt {

constexpr std::int64_t kLayerTask = 1 << 14;   // elements of a task
constexpr std::int64_t kLayerAlone = 1 << 17;  // elements up to which the caller works alone
constexpr std::int64_t kLayerRows = 256;       // rows that are summed before they meet others

struct Layer {
  std::int64_t n_rows, width, task_rows, n_tasks;
  Layer(std::int64_t rows, std::int64_t columns)
      : n_rows(rows),
        width(columns),
        task_rows(std::clamp<std::int64_t>(kLayerTask / std::max<std::int64_t>(1, columns), 1,
                                           kLayerRows)),
        n_tasks((rows + task_rows - 1) / task_rows) {}
  std::int64_t rows_of(std::ptrdiff_t t) const {
    return std::min(task_rows, n_rows - t * task_rows);
  }
  int threads(int wanted) const { return n_rows * width <= kLayerAlone ? 1 : wanted; }
};

// NaN stays NaN, and -0 becomes 0.
template <class T>
inline T positive_part(T x) {
  return x <= 0 ? T(0) : x;
}

template <class T>
inline void add_bias_rows(T* out, const T* bias, bool relu, std::int64_t n,
                          std::int64_t width) {
  if (bias == nullptr) {
    if (relu)
      for (std::int64_t i = 0; i < n * width; ++i) out[i] = positive_part(out[i]);
    return;
  }
  for (std::int64_t r = 0; r < n; ++r, out += width) {
    if (relu)
      for (std::int64_t j = 0; j < width; ++j) out[j] = positive_part(out[j] + bias[j]);
    else
      for (std::int64_t j = 0; j < width; ++j) out[j] = out[j] + bias[j];
  }
}

template <class T>
inline void choose(const T* __restrict g, const T* __restrict y, T* __restrict out,
                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T value = g[i];  // read in any case, so that the choice needs no branch
    out[i] = y[i] > 0 ? value : T(0);
  }
}

// Four rows are added to each other before they are added to the sums, which stay in memory.
template <class T>
inline void add_rows(const T* __restrict g, T* __restrict sums, std::int64_t n,
                     std::int64_t width) {
  for (; n >= 4; n -= 4, g += 4 * width)
    for (std::int64_t j = 0; j < width; ++j)
      sums[j] += (g[j] + g[width + j]) + (g[2 * width + j] + g[3 * width + j]);
  for (; n > 0; --n, g += width)
    for (std::int64_t j = 0; j < width; ++j) sums[j] += g[j];
}

// out = g where y > 0, else 0; without y nothing is written. sums = sum of these rows.
template <class T>
inline void mask_rows(const T* g, const T* y, T* out, T* sums, std::int64_t n,
                      std::int64_t width) {
  if (sums == nullptr) return choose(g, y, out, n * width);
  for (std::int64_t j = 0; j < width; ++j) sums[j] = 0;
  if (y == nullptr) return add_rows(g, sums, n, width);
  // Few enough rows that they are still in the nearest cache when they are added.
  const std::int64_t few = 4 * std::max<std::int64_t>(1, 512 / std::max<std::int64_t>(1, width));
  for (std::int64_t lo = 0; lo < n; lo += few) {
    const std::int64_t rows = std::min(few, n - lo), at = lo * width;
    choose(g + at, y + at, out + at, rows * width);
    add_rows(out + at, sums, rows, width);
  }
}

template <class T>
struct BiasRelu {
  Layer layer;
  T* out;
  const T* bias;  // or null
  bool relu;

  static void task(void* self, std::ptrdiff_t t) noexcept {
    const BiasRelu& b = *static_cast<const BiasRelu*>(self);
    const std::int64_t lo = t * b.layer.task_rows, n = b.layer.rows_of(t);
    add_bias_rows(b.out + lo * b.layer.width, b.bias, b.relu, n, b.layer.width);
  }
};

template <class T>
struct Mask {
  Layer layer;
  const T *g, *y;  // y or null
  T *out, *sums;   // sums: n_tasks x width, or null

  static void task(void* self, std::ptrdiff_t t) noexcept {
    const Mask& m = *static_cast<const Mask*>(self);
    const std::int64_t at = t * m.layer.task_rows * m.layer.width;
    mask_rows(m.g + at, m.y == nullptr ? nullptr : m.y + at, m.y == nullptr ? nullptr : m.out + at,
              m.sums == nullptr ? nullptr : m.sums + t * m.layer.width, m.layer.rows_of(t),
              m.layer.width);
  }
};

template <class Job>
inline void run_layer(Job& job, parallel_fn parallel, int threads) noexcept {
  parallel(Job::task, &job, job.layer.n_tasks, job.layer.threads(threads));
}

template <class T>
inline void bias_relu(void* out, const void* bias, bool relu, std::int64_t n, std::int64_t width,
                      parallel_fn parallel, int threads) noexcept {
  BiasRelu<T> job{Layer(n, width), static_cast<T*>(out), static_cast<const T*>(bias), relu};
  run_layer(job, parallel, threads);
}

inline std::int64_t layer_tasks(std::int64_t n, std::int64_t width) {
  return Layer(n, width).n_tasks;
}

// sum gets the sums of columns; partial is memory of layer_tasks(n, width) rows.
template <class T>
inline void mask(const void* g, const void* y, void* out, void* partial, void* sum, std::int64_t n,
                 std::int64_t width, parallel_fn parallel, int threads) noexcept {
  Mask<T> job{Layer(n, width), static_cast<const T*>(g), static_cast<const T*>(y),
              static_cast<T*>(out), static_cast<T*>(partial)};
  run_layer(job, parallel, threads);
  if (sum == nullptr) return;
  for (std::int64_t j = 0; j < width; ++j) {
    double total = 0;
    for (std::int64_t t = 0; t < job.layer.n_tasks; ++t) total += job.sums[t * width + j];
    static_cast<T*>(sum)[j] = static_cast<T>(total);
  }
}

// Columns of a wide matrix that are a narrow one, which is contiguous.
struct Piece {
  char* data;
  std::int64_t offset, size;  // bytes in a row of the wide matrix
};

// A size that the compiler knows takes a few registers, any other one a call.
inline void copy_piece(char* to, const char* from, std::int64_t size) {
  switch (size) {
    case 32: std::memcpy(to, from, 32); return;
    case 64: std::memcpy(to, from, 64); return;
    case 128: std::memcpy(to, from, 128); return;
    default: std::memcpy(to, from, static_cast<std::size_t>(size));
  }
}

struct Columns {
  Layer layer;  // with a width in bytes
  char* wide;
  const Piece* pieces;
  std::int64_t n_pieces;
  bool join;  // into the wide matrix, otherwise from it

  static constexpr std::int64_t kRows = 16;  // copied of one piece before it is the next one's turn

  static void task(void* self, std::ptrdiff_t t) noexcept {
    const Columns& c = *static_cast<const Columns*>(self);
    const std::int64_t first = t * c.layer.task_rows, end = first + c.layer.rows_of(t);
    for (std::int64_t lo = first; lo < end; lo += kRows) {
      const std::int64_t hi = std::min(lo + kRows, end);
      for (std::int64_t p = 0; p < c.n_pieces; ++p) {
        const Piece piece = c.pieces[p];
        char* wide = c.wide + lo * c.layer.width + piece.offset;
        char* narrow = piece.data + lo * piece.size;
        for (std::int64_t r = lo; r < hi; ++r, wide += c.layer.width, narrow += piece.size) {
          c.join ? copy_piece(wide, narrow, piece.size) : copy_piece(narrow, wide, piece.size);
        }
      }
    }
  }
};

// Rows of `width` bytes.
inline void copy_columns(char* wide, const Piece* pieces, std::int64_t n_pieces, bool join,
                         std::int64_t n, std::int64_t width, parallel_fn parallel,
                         int threads) noexcept {
  Columns job{Layer(n, width), wide, pieces, n_pieces, join};
  run_layer(job, parallel, threads);
}

}  // namespace fastopt
