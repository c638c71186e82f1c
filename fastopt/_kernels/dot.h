/* Inner products of two runs, in an order that depends on their length alone.

   Thirty-two running sums, whatever the width of a vector; they are added in halves. What doesn't
   fill all of them goes to half of them, and so on, once these have been added; what is fewer than
   four is summed apart. */
#pragma once

#include <stddef.h>
#include <string.h>

#define FASTOPT_DOT(NAME, T)                                                                     \
  static inline double NAME(const void* first, const void* second, ptrdiff_t n) {                \
    typedef T lanes __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias)); \
    typedef T eights __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias)); \
    typedef T fours __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));  \
    const T* a = (const T*)first;                                                                \
    const T* b = (const T*)second;                                                               \
    lanes even = {0}, odd = {0};                                                                 \
    ptrdiff_t i = 0;                                                                             \
    for (; i + 32 <= n; i += 32) {                                                               \
      even = even + *(const lanes*)(a + i) * *(const lanes*)(b + i);                             \
      odd = odd + *(const lanes*)(a + i + 16) * *(const lanes*)(b + i + 16);                     \
    }                                                                                            \
    if (i + 16 <= n) {                                                                           \
      even = even + *(const lanes*)(a + i) * *(const lanes*)(b + i);                             \
      i += 16;                                                                                   \
    }                                                                                            \
    even = even + odd;                                                                           \
    T rest = 0;                                                                                  \
    eights eight[2];                                                                             \
    memcpy(eight, &even, sizeof(even));                                                          \
    eight[0] = eight[0] + eight[1];                                                              \
    if (i + 8 <= n) {                                                                            \
      eight[0] = eight[0] + *(const eights*)(a + i) * *(const eights*)(b + i);                   \
      i += 8;                                                                                    \
    }                                                                                            \
    fours four[2];                                                                               \
    memcpy(four, eight, sizeof(four));                                                           \
    fours sums = four[0] + four[1];                                                              \
    if (i + 4 <= n) {                                                                            \
      sums = sums + *(const fours*)(a + i) * *(const fours*)(b + i);                             \
      i += 4;                                                                                    \
    }                                                                                            \
    for (; i < n; ++i) rest = rest + a[i] * b[i];                                                \
    return (double)((sums[0] + sums[2]) + (sums[1] + sums[3]) + rest);                           \
  }

FASTOPT_DOT(dot_f32, float)
FASTOPT_DOT(dot_f64, double)

#undef FASTOPT_DOT
