// One pass over the rows of a layer: bias and relu forward; mask and sum of columns backward.
//
// Only comparisons and sums, element by element, in an order that the sizes alone decide: the bits
// are the same for every number of threads, with wide registers and without.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define FASTOPT_WIDE __attribute__((target("avx2")))
#define FASTOPT_HAS_WIDE 1
#else
#define FASTOPT_WIDE
#define FASTOPT_HAS_WIDE 0
#endif
#if defined(__GNUC__)
#define FASTOPT_INLINE inline __attribute__((always_inline))
#else
#define FASTOPT_INLINE inline
#endif

namespace fastopt {

using parallel_fn = void (*)(void (*fn)(void*, std::ptrdiff_t), void* context, std::ptrdiff_t n,
                             int threads);

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
  int threads(int wanted) const { return n_rows * width <= kLayerAlone ? 1 : wanted; }
};

// NaN stays NaN, and -0 becomes 0.
template <class T>
FASTOPT_INLINE T positive_part(T x) {
  return x <= 0 ? T(0) : x;
}

template <class T>
FASTOPT_INLINE void add_bias_rows(T* out, const T* bias, bool relu, std::int64_t n,
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

// out = g where y > 0, else 0; without y nothing is written. sums = sum of these rows.
template <class T>
FASTOPT_INLINE void mask_rows(const T* __restrict g, const T* __restrict y, T* __restrict out,
                              T* __restrict sums, std::int64_t n, std::int64_t width) {
  if (sums == nullptr) {
    for (std::int64_t i = 0; i < n * width; ++i) out[i] = y[i] > 0 ? g[i] : T(0);
    return;
  }
  for (std::int64_t j = 0; j < width; ++j) sums[j] = 0;
  for (std::int64_t r = 0; r < n; ++r, g += width) {
    if (y == nullptr) {
      for (std::int64_t j = 0; j < width; ++j) sums[j] += g[j];
      continue;
    }
    for (std::int64_t j = 0; j < width; ++j) {
      const T kept = y[j] > 0 ? g[j] : T(0);
      out[j] = kept;
      sums[j] += kept;
    }
    y += width;
    out += width;
  }
}

template <class T>
struct BiasRelu {
  Layer layer;
  T* out;
  const T* bias;  // or null
  bool relu;

  FASTOPT_INLINE void rows(std::ptrdiff_t t) const {
    const std::int64_t lo = t * layer.task_rows;
    add_bias_rows(out + lo * layer.width, bias, relu, std::min(layer.task_rows, layer.n_rows - lo),
                  layer.width);
  }
  static void plain(void* self, std::ptrdiff_t t) { static_cast<BiasRelu*>(self)->rows(t); }
  FASTOPT_WIDE static void wide(void* self, std::ptrdiff_t t) {
    static_cast<BiasRelu*>(self)->rows(t);
  }
};

template <class T>
struct Mask {
  Layer layer;
  const T *g, *y;  // y or null
  T *out, *sums;   // sums: n_tasks x width, or null

  FASTOPT_INLINE void rows(std::ptrdiff_t t) const {
    const std::int64_t lo = t * layer.task_rows, at = lo * layer.width;
    mask_rows(g + at, y == nullptr ? nullptr : y + at, y == nullptr ? nullptr : out + at,
              sums == nullptr ? nullptr : sums + t * layer.width,
              std::min(layer.task_rows, layer.n_rows - lo), layer.width);
  }
  static void plain(void* self, std::ptrdiff_t t) { static_cast<Mask*>(self)->rows(t); }
  FASTOPT_WIDE static void wide(void* self, std::ptrdiff_t t) {
    static_cast<Mask*>(self)->rows(t);
  }
};

template <class Job>
inline void run_layer(Job& job, bool wide, parallel_fn parallel, int threads) {
  parallel(wide && FASTOPT_HAS_WIDE ? Job::wide : Job::plain, &job, job.layer.n_tasks,
           job.layer.threads(threads));
}

template <class T>
inline void bias_relu(void* out, const void* bias, bool relu, std::int64_t n, std::int64_t width,
                      bool wide, parallel_fn parallel, int threads) {
  BiasRelu<T> job{Layer(n, width), static_cast<T*>(out), static_cast<const T*>(bias), relu};
  run_layer(job, wide, parallel, threads);
}

inline std::int64_t layer_tasks(std::int64_t n, std::int64_t width) {
  return Layer(n, width).n_tasks;
}

// sum gets the sums of columns; partial is memory of layer_tasks(n, width) rows.
template <class T>
inline void mask(const void* g, const void* y, void* out, void* partial, void* sum, std::int64_t n,
                 std::int64_t width, bool wide, parallel_fn parallel, int threads) {
  Mask<T> job{Layer(n, width), static_cast<const T*>(g), static_cast<const T*>(y),
              static_cast<T*>(out), static_cast<T*>(partial)};
  run_layer(job, wide, parallel, threads);
  if (sum == nullptr) return;
  for (std::int64_t j = 0; j < width; ++j) {
    double total = 0;
    for (std::int64_t t = 0; t < job.layer.n_tasks; ++t) total += job.sums[t * width + j];
    static_cast<T*>(sum)[j] = static_cast<T>(total);
  }
}

}  // namespace fastopt
