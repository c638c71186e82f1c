/* The rows that look-ups name: a bit for each row of the table, and how many bits come before each
   32 of them. From both, the place of a row among those named is found without a sort, and without
   a map of the table: bits and counts of a million rows fit into the second cache.

   Compiled once per instruction-set level, since counting the bits of a word takes one instruction
   on some. Two more that help are missing from some processors of the highest level. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "ids.h"
#include "lookup.h"
#include "table.h"

#if defined(__AVX512F__) && defined(__GNUC__)
#define FASTOPT_COUNTS_BITS
#define FASTOPT_COUNTING __attribute__((target("avx512vbmi2,avx512vpopcntdq")))
static int counts_bits(void) {
  return __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq");
}
#endif

/* What is read or written from end to end comes from afar, at the same time as other arrays are in
   use: so many numbers ahead it is fetched. */
enum { FASTOPT_STREAM_AHEAD = 256 };

/* Sets the bits of look-ups [lo, hi), and copies them: nobody else changes the copy. Returns the
   position of the first one that is no row, or INT64_MAX. */
FASTOPT_INLINE int64_t mark_rows_as(uint64_t* bits, int64_t n_rows, const void* ids, const int wide,
                                    uint32_t* copy, ptrdiff_t lo, ptrdiff_t hi) {
  for (ptrdiff_t k = lo; k < hi;) {
    const ptrdiff_t end = k + 16 < hi ? k + 16 : hi, later = k + FASTOPT_STREAM_AHEAD;
    __builtin_prefetch((const char*)ids + later * (wide ? 8 : 4), 0, 3);
    if (wide) __builtin_prefetch((const char*)ids + later * 8 + 64, 0, 3);
    __builtin_prefetch(copy + later, 1, 3);
    for (; k < end; ++k) {
      const uint64_t row = (uint64_t)id_at(ids, wide, k);
      if (row >= (uint64_t)n_rows) return k;
      copy[k] = (uint32_t)row;
      bits[row >> 6] |= (uint64_t)1 << (row & 63);
    }
  }
  return INT64_MAX;
}
static int64_t mark_rows(uint64_t* bits, int64_t n_rows, const void* ids, int wide, uint32_t* copy,
                         ptrdiff_t lo, ptrdiff_t hi) {
  return wide ? mark_rows_as(bits, n_rows, ids, 1, copy, lo, hi)
              : mark_rows_as(bits, n_rows, ids, 0, copy, lo, hi);
}

/* Adds the bits of n_others arrays, `stride` words from one to the next, to words [lo, hi) of the
   first; returns how many are set. */
static int64_t merge_marks(uint64_t* bits, int n_others, int64_t stride, ptrdiff_t lo,
                           ptrdiff_t hi) {
  int64_t n = 0;
  for (ptrdiff_t i = lo; i < hi; ++i) {
    uint64_t word = bits[i];
    for (int other = 1; other <= n_others; ++other) word |= bits[other * stride + i];
    bits[i] = word;
    n += __builtin_popcountll(word);
  }
  return n;
}

/* What is known of the 64 rows of word i, before which there are n. */
FASTOPT_INLINE void count_rows(row_count* counts, ptrdiff_t i, uint64_t word, int64_t n) {
  const uint32_t low = (uint32_t)word;
  counts[2 * i].bits = low;
  counts[2 * i].before = (uint32_t)n;
  counts[2 * i + 1].bits = (uint32_t)(word >> 32);
  counts[2 * i + 1].before = (uint32_t)n + (uint32_t)__builtin_popcount(low);
}

#ifdef FASTOPT_COUNTS_BITS
/* As list_rows, for as long as 64 rows may be written; returns the first word that is left, and
   sets *next to where its rows stand. */
FASTOPT_COUNTING static ptrdiff_t list_many_rows(const uint64_t* bits, row_count* counts,
                                                 void* rows, int wide, ptrdiff_t lo, ptrdiff_t hi,
                                                 int64_t* next, int64_t end) {
  uint8_t places[64];
  for (int j = 0; j < 64; ++j) places[j] = (uint8_t)j;
  const __m512i all = _mm512_loadu_si512(places);
  int64_t n = *next;
  ptrdiff_t i = lo;
  for (; i < hi && n + 64 <= end; ++i) {
    const int64_t first = (int64_t)i << 6;
    const int count = __builtin_popcountll(bits[i]);
    const __m512i found = _mm512_maskz_compress_epi8(bits[i], all);
    const __m128i some = _mm512_castsi512_si128(found);
    count_rows(counts, i, bits[i], n);
    __builtin_prefetch(counts + 2 * i + FASTOPT_STREAM_AHEAD / 2, 1, 3);
    __builtin_prefetch((char*)rows + (n + FASTOPT_STREAM_AHEAD / 4) * (wide ? 8 : 4), 1, 3);
    if (count > 16) _mm512_storeu_si512(places, found); /* most words have few rows */
    if (wide) {
      const __m512i from = _mm512_set1_epi64(first);
      int64_t* const to = (int64_t*)rows + n;
      _mm512_storeu_si512(to, _mm512_add_epi64(from, _mm512_cvtepu8_epi64(some)));
      if (count > 8) {
        const __m128i more = _mm_unpackhi_epi64(some, some);
        _mm512_storeu_si512(to + 8, _mm512_add_epi64(from, _mm512_cvtepu8_epi64(more)));
      }
      for (int j = 16; j < count; ++j) to[j] = first + places[j];
    } else {
      const __m512i from = _mm512_set1_epi32((int32_t)first);
      int32_t* const to = (int32_t*)rows + n;
      _mm512_storeu_si512(to, _mm512_add_epi32(from, _mm512_cvtepu8_epi32(some)));
      for (int j = 16; j < count; ++j) to[j] = (int32_t)first + places[j];
    }
    n += count;
  }
  *next = n;
  return i;
}
#endif

/* Lists the rows in words [lo, hi), ascending, from rows[first] on; rows[end] and what follows is
   somebody else's. Counts them, and returns how many there are then. */
FASTOPT_INLINE int64_t list_rows_as(const uint64_t* bits, row_count* counts, void* rows,
                                    const int wide, ptrdiff_t lo, ptrdiff_t hi, int64_t first,
                                    int64_t end) {
#define FASTOPT_LIST(k)                                                           \
  do {                                                                            \
    const int64_t row_ = start + __builtin_ctzll(word | (uint64_t)1 << 63);       \
    if (wide) {                                                                   \
      ((int64_t*)rows)[k] = row_;                                                 \
    } else {                                                                      \
      ((int32_t*)rows)[k] = (int32_t)row_;                                        \
    }                                                                             \
    word &= word - 1;                                                             \
  } while (0)
  int64_t n = first;
  for (ptrdiff_t i = lo; i < hi; ++i) {
    uint64_t word = bits[i];
    const int64_t start = (int64_t)i << 6, next = n + __builtin_popcountll(word);
    count_rows(counts, i, word, n);
    /* Four at a time, whether there are as many or any: the branch is then foreseen better. */
    if (n + 4 <= end) {
      do {
        FASTOPT_LIST(n);
        FASTOPT_LIST(n + 1);
        FASTOPT_LIST(n + 2);
        FASTOPT_LIST(n + 3);
        n += 4;
      } while (n < next && n + 4 <= end);
    }
    for (; n < next; ++n) FASTOPT_LIST(n);
    n = next;
  }
#undef FASTOPT_LIST
  return n;
}
static int64_t list_rows(const uint64_t* bits, row_count* counts, void* rows, int wide,
                         ptrdiff_t lo, ptrdiff_t hi, int64_t first, int64_t end) {
#ifdef FASTOPT_COUNTS_BITS
  if (counts_bits()) lo = list_many_rows(bits, counts, rows, wide, lo, hi, &first, end);
#endif
  return wide ? list_rows_as(bits, counts, rows, 1, lo, hi, first, end)
              : list_rows_as(bits, counts, rows, 0, lo, hi, first, end);
}

#ifdef FASTOPT_COUNTS_BITS
/* As number_rows, of sixteen at a time; returns the first look-up that is left. */
FASTOPT_COUNTING static ptrdiff_t number_many_rows(const row_count* counts, uint32_t* numbers,
                                                   ptrdiff_t lo, ptrdiff_t hi) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i one = _mm512_set1_epi32(1), odd = _mm512_add_epi32(even, one);
  ptrdiff_t k = lo;
  for (; k + 16 <= hi; k += 16) {
    __builtin_prefetch(numbers + k + FASTOPT_STREAM_AHEAD, 1, 3);
    const __m512i row = _mm512_loadu_si512(numbers + k), at = _mm512_srli_epi32(row, 5);
    const __m512i first = _mm512_i32gather_epi64(_mm512_castsi512_si256(at), counts, 8);
    const __m512i second = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(at, 1), counts, 8);
    const __m512i before = _mm512_permutex2var_epi32(first, even, second);
    const __m512i bits = _mm512_permutex2var_epi32(first, odd, second);
    const __m512i place = _mm512_and_si512(row, _mm512_set1_epi32(31));
    const __m512i lower = _mm512_sub_epi32(_mm512_sllv_epi32(one, place), one);
    const __m512i below = _mm512_popcnt_epi32(_mm512_and_si512(bits, lower));
    _mm512_storeu_si512(numbers + k, _mm512_add_epi32(before, below));
  }
  return k;
}
#endif

/* Puts the number of its row in the place of each of look-ups [lo, hi). */
static void number_rows(const row_count* counts, uint32_t* numbers, ptrdiff_t lo, ptrdiff_t hi) {
#ifdef FASTOPT_COUNTS_BITS
  if (counts_bits()) lo = number_many_rows(counts, numbers, lo, hi);
#endif
  for (ptrdiff_t k = lo; k < hi; ++k) {
    const uint32_t row = numbers[k];
    const row_count count = counts[row >> 5];
    const uint32_t below = count.bits & (((uint32_t)1 << (row & 31)) - 1);
    numbers[k] = count.before + (uint32_t)__builtin_popcount(below);
  }
}

#define FASTOPT_T float
#define FASTOPT_NAME(name) name##_f32
#include "row_products.h"
#undef FASTOPT_T
#undef FASTOPT_NAME

#define FASTOPT_T double
#define FASTOPT_NAME(name) name##_f64
#include "row_products.h"
#undef FASTOPT_T
#undef FASTOPT_NAME
