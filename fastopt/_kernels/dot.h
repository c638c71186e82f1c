/* Inner products of two runs, in an order that depends on their length alone.

   Thirty-two running sums, whatever the width of a vector; they are added in halves. What doesn't
   fill all of them goes to the first sixteen, and what doesn't fill these is summed apart. */
#pragma once

#include <stddef.h>

#define FASTOPT_DOT(NAME, T)                                              \
  static inline double NAME(const void* first, const void* second, ptrdiff_t n) { \
    typedef T lanes __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias)); \
    const T* a = (const T*)first;                                         \
    const T* b = (const T*)second;                                        \
    lanes even = {0}, odd = {0};                                          \
    ptrdiff_t i = 0;                                                      \
    for (; i + 32 <= n; i += 32) {                                        \
      even = even + *(const lanes*)(a + i) * *(const lanes*)(b + i);      \
      odd = odd + *(const lanes*)(a + i + 16) * *(const lanes*)(b + i + 16); \
    }                                                                     \
    if (i + 16 <= n) {                                                    \
      even = even + *(const lanes*)(a + i) * *(const lanes*)(b + i);      \
      i += 16;                                                            \
    }                                                                     \
    even = even + odd;                                                    \
    T sums[16], rest = 0;                                                 \
    *(lanes*)sums = even;                                                 \
    for (int half = 8; half > 0; half /= 2)                               \
      for (int j = 0; j < half; ++j) sums[j] = sums[j] + sums[j + half];  \
    for (; i < n; ++i) rest = rest + a[i] * b[i];                         \
    return (double)(sums[0] + rest);                                      \
  }

FASTOPT_DOT(dot_f32, float)
FASTOPT_DOT(dot_f64, double)

#undef FASTOPT_DOT
