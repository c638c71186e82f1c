/* The rows that look-ups name: a bit for each row of the table, and how many bits come before each
   word. From both, the place of a row among those named is found without a sort, and without a map
   of the table: bits and counts of a million rows fit into the second cache.

   Compiled once per instruction-set level, since counting the bits of a word takes one instruction
   on some. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lookup.h"

/* Sets the bits of look-ups [lo, hi), and copies them: nobody else changes the copy. Returns the
   position of the first one that is no row, or INT64_MAX. */
FASTOPT_INLINE int64_t mark_rows_as(uint64_t* bits, int64_t n_rows, const void* ids, const int wide,
                                    uint32_t* copy, ptrdiff_t lo, ptrdiff_t hi) {
  for (ptrdiff_t k = lo; k < hi; ++k) {
    const uint64_t row = (uint64_t)id_at(ids, wide, k);
    if (row >= (uint64_t)n_rows) return k;
    copy[k] = (uint32_t)row;
    bits[row >> 6] |= (uint64_t)1 << (row & 63);
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

/* Lists the rows in words [lo, hi), ascending, from rows[first] on; rows[end] and what follows is
   somebody else's. Sets how many rows come before each word, and returns how many there are then. */
FASTOPT_INLINE int64_t list_rows_as(const uint64_t* bits, uint32_t* before, void* rows,
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
    before[i] = (uint32_t)n;
    /* Four at a time, whether there are as many or not: the branch is then foreseen better. */
    for (; n < next && n + 4 <= end; n += 4) {
      FASTOPT_LIST(n);
      FASTOPT_LIST(n + 1);
      FASTOPT_LIST(n + 2);
      FASTOPT_LIST(n + 3);
    }
    for (; n < next; ++n) FASTOPT_LIST(n);
    n = next;
  }
#undef FASTOPT_LIST
  return n;
}
static int64_t list_rows(const uint64_t* bits, uint32_t* before, void* rows, int wide, ptrdiff_t lo,
                         ptrdiff_t hi, int64_t first, int64_t end) {
  return wide ? list_rows_as(bits, before, rows, 1, lo, hi, first, end)
              : list_rows_as(bits, before, rows, 0, lo, hi, first, end);
}

/* Puts the number of its row in the place of each of look-ups [lo, hi). */
static void number_rows(const uint64_t* bits, const uint32_t* before, uint32_t* numbers,
                        ptrdiff_t lo, ptrdiff_t hi) {
  for (ptrdiff_t k = lo; k < hi; ++k) {
    const uint32_t row = numbers[k];
    const uint64_t below = bits[row >> 6] & (((uint64_t)1 << (row & 63)) - 1);
    numbers[k] = before[row >> 6] + (uint32_t)__builtin_popcountll(below);
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
