/* Look-ups of rows, single and in weighted bags, compiled once per instruction-set level.

   A bag is summed in registers, a block of columns at a time. Every element is added up by itself,
   in the order of its bag, and no product is contracted with a sum: the bits depend on no level and
   no block. The last block of a row may overlap the one before: it computes the same numbers again.

   A row number that is none is skipped, and the position of the first one is reported. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "fetch.h"
#include "ids.h"
#include "table.h"

#define FASTOPT_INLINE static inline __attribute__((always_inline))

/* ---------------------------------------------------------------- single rows */

typedef char bytes_64 __attribute__((vector_size(64), aligned(1), may_alias));

/* Writes around the caches, to a multiple of 64 bytes. */
FASTOPT_INLINE void stream_64(char* to, const char* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512((__m512i*)to, _mm512_loadu_si512(from));
#elif defined(__AVX__)
  for (int j = 0; j < 64; j += 32) {
    _mm256_stream_si256((__m256i*)(to + j), _mm256_loadu_si256((const __m256i*)(from + j)));
  }
#elif defined(__SSE2__)
  for (int j = 0; j < 64; j += 16) {
    _mm_stream_si128((__m128i*)(to + j), _mm_loadu_si128((const __m128i*)(from + j)));
  }
#else
  *(bytes_64*)to = *(const bytes_64*)from;
#endif
}

FASTOPT_INLINE int64_t gather_loop(const gather_job* g, int64_t lo, int64_t hi, int wide,
                                   int64_t row_size, int stream) {
  const char* const table = (const char*)g->table;
  char* const out = (char*)g->out;
  const uint64_t n_rows = (uint64_t)g->n_rows;
  const int64_t ahead = g->ahead;
  int64_t bad = INT64_MAX;
  for (int64_t k = lo; k < hi; ++k) {
    if (k + ahead < hi) {
      const int64_t later = id_at(g->ids, wide, k + ahead);
      if ((uint64_t)later < n_rows) {
        const char* row = table + later * row_size;
        /* What is written around the first cache needn't be read through it. */
        if (stream) {
          FASTOPT_FETCH_LINES(row, row_size, g->ragged, 2);
        } else {
          FASTOPT_FETCH_LINES(row, row_size, g->ragged, 3);
        }
      }
    }
    const int64_t id = id_at(g->ids, wide, k);
    if ((uint64_t)id >= n_rows) {
      if (k < bad) bad = k;
      continue;
    }
    const char* from = table + id * row_size;
    char* to = out + k * row_size;
    if (stream) {
      for (int64_t at = 0; at < row_size; at += 64) stream_64(to + at, from + at);
    } else if (row_size % 64 == 0) {
      for (int64_t at = 0; at < row_size; at += 64) {
        *(bytes_64*)(to + at) = *(const bytes_64*)(from + at);
      }
    } else {
      memcpy(to, from, (size_t)row_size);
    }
  }
#ifdef __SSE2__
  if (stream) _mm_sfence();
#endif
  return bad;
}

#if defined(__AVX512F__)
/* Rows of four bytes, 16 at a time: misses of so many are under way that none is fetched before. */
FASTOPT_INLINE int64_t gather_fours(const gather_job* g, int64_t lo, int64_t hi, int wide) {
  const char* const ids = (const char*)g->ids;
  int* const out = (int*)g->out;
  /* As numbers without a sign: what is negative is too large. */
  const int64_t most = (int64_t)1 << 31;
  const __m512i narrow_end =
      _mm512_set1_epi32((int)(uint32_t)(g->n_rows < most ? g->n_rows : most));
  const __m512i wide_end = _mm512_set1_epi64(g->n_rows);
  int64_t bad = INT64_MAX, k = lo;
  for (; k + 16 <= hi; k += 16) {
    unsigned good;
    if (wide) {
      const __m512i a = _mm512_loadu_si512(ids + 8 * k), b = _mm512_loadu_si512(ids + 8 * k + 64);
      const __mmask8 in_a = _mm512_cmplt_epu64_mask(a, wide_end);
      const __mmask8 in_b = _mm512_cmplt_epu64_mask(b, wide_end);
      const __m256i none = _mm256_setzero_si256();
      _mm256_mask_storeu_epi32(out + k, in_a,
                               _mm512_mask_i64gather_epi32(none, in_a, a, g->table, 4));
      _mm256_mask_storeu_epi32(out + k + 8, in_b,
                               _mm512_mask_i64gather_epi32(none, in_b, b, g->table, 4));
      good = in_a | (unsigned)in_b << 8;
    } else {
      const __m512i a = _mm512_loadu_si512(ids + 4 * k);
      const __mmask16 in = _mm512_cmplt_epu32_mask(a, narrow_end);
      _mm512_mask_storeu_epi32(
          out + k, in, _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), in, a, g->table, 4));
      good = in;
    }
    if (good != 0xffff && bad == INT64_MAX) bad = k + __builtin_ctz(~good);
  }
  const int64_t rest = gather_loop(g, k, hi, wide, 4, 0);
  return bad < rest ? bad : rest;
}
#else
FASTOPT_INLINE int64_t gather_fours(const gather_job* g, int64_t lo, int64_t hi, int wide) {
  return gather_loop(g, lo, hi, wide, 4, 0);
}
#endif

/* Row sizes that are constants here are copied without a call. */
#define FASTOPT_GATHER_SIZES(wide, stream)                                         \
  switch (g->row_size) {                                                           \
    case 4:                                                                        \
      return gather_fours(g, lo, hi, wide);                                        \
    case 8:                                                                        \
      return gather_loop(g, lo, hi, wide, 8, 0);                                   \
    case 16:                                                                       \
      return gather_loop(g, lo, hi, wide, 16, 0);                                  \
    case 32:                                                                       \
      return gather_loop(g, lo, hi, wide, 32, 0);                                  \
    case 64:                                                                       \
      return gather_loop(g, lo, hi, wide, 64, stream);                             \
    case 128:                                                                      \
      return gather_loop(g, lo, hi, wide, 128, stream);                            \
    case 256:                                                                      \
      return gather_loop(g, lo, hi, wide, 256, stream);                            \
    case 512:                                                                      \
      return gather_loop(g, lo, hi, wide, 512, stream);                            \
    default:                                                                       \
      return gather_loop(g, lo, hi, wide, g->row_size, stream);                    \
  }

/* Look-ups [lo, hi); returns the position of the first bad id, or INT64_MAX. */
static int64_t gather_rows(const gather_job* g, ptrdiff_t lo, ptrdiff_t hi) {
  if (g->stream) {
    if (g->wide) FASTOPT_GATHER_SIZES(1, 1)
    FASTOPT_GATHER_SIZES(0, 1)
  }
  if (g->wide) FASTOPT_GATHER_SIZES(1, 0)
  FASTOPT_GATHER_SIZES(0, 0)
}

/* ---------------------------------------------------------------- bags */

/* Vectors of 64 bytes that are summed at once: the registers hold them and one more row. */
#if defined(__AVX512F__)
#define FASTOPT_BLOCK_VECTORS 8
#elif defined(__AVX__)
#define FASTOPT_BLOCK_VECTORS 4
#else
#define FASTOPT_BLOCK_VECTORS 2
#endif

#define FASTOPT_T float
#define FASTOPT_NAME(name) name##_f32
#include "lookup_bags.h"
#undef FASTOPT_T
#undef FASTOPT_NAME

#define FASTOPT_T double
#define FASTOPT_NAME(name) name##_f64
#include "lookup_bags.h"
#undef FASTOPT_T
#undef FASTOPT_NAME
