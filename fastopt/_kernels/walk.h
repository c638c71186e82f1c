/* What the walks over look-ups share: they are rendered a rule, and compiled a level.

   A walk goes over the look-ups of a range of rows, sums up the gradients of a row and updates it.
   The rule is inlined: with a call a row, the processor looks less far ahead, and waits longer for
   memory. What rows are to be fetched is told to it some look-ups before. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "fetch.h"

#define FASTOPT_MAX_WALK_SLOTS 8
#define FASTOPT_MISSED 9 /* numbers that tell what a row has missed */
/* Look-ups of a row that are summed up at once, while they are at hand. */
#define FASTOPT_WALK_RUN 64
#define FASTOPT_WALK_ROWS 4 /* rows that a rule which sums over rows has at work at once */

typedef struct {
  uint32_t row, position;
} look_up;

typedef struct {
  char* w;
  char* slots[FASTOPT_MAX_WALK_SLOTS];
  const char* values; /* the gradients' rows, by position */
  const void* h;
  ptrdiff_t width;
  ptrdiff_t ahead; /* look-ups between fetching and use */
  ptrdiff_t batch; /* rows at work at once, FASTOPT_WALK_ROWS at most */
  void* sum;       /* room for so many rows */
  /* Called before and after a row is updated, if not null. */
  void (*before)(const void* owner, int64_t row);
  void (*after)(const void* owner, int64_t row);
  /* If not null: whether a row has missed what the rule's own loop can make up for, and of that
     keep, epsilon, centre, four moments, and the factors on both slots (see table.h, make_up). It
     has made up for anything else. Then `before` and `after` are null. */
  int (*missed)(const void* owner, int64_t row, double* numbers);
  const void* owner;
  /* Other arrays of which rows are fetched, and how long they are. */
  int n_others;
  const char* others[2];
  ptrdiff_t other_size[2];
} row_walk;

/* The rows of these. */
static inline void fetch_others(const row_walk* u, int64_t row) {
  int k;
  for (k = 0; k < u->n_others; ++k) fetch(u->others[k] + row * u->other_size[k], u->other_size[k]);
}

#if defined(__AVX512F__)
#define FASTOPT_VECTOR_BYTES 64
#elif defined(__AVX__)
#define FASTOPT_VECTOR_BYTES 32
#else
#define FASTOPT_VECTOR_BYTES 16
#endif

/* Columns i, i + 1, ... of all the look-ups in running sums in registers, by vectors of a type, as
   long as there are columns for one more. */
#define FASTOPT_SUM_BY(type, vector)                                                              \
  for (; i + (ptrdiff_t)(sizeof(vector) / sizeof(type)) <= width;                                 \
       i += sizeof(vector) / sizeof(type)) {                                                      \
    vector a = *(const vector*)(start + i);                                                       \
    for (k = first; k < n; ++k) a += *(const vector*)(values + items[k].position * width + i);    \
    *(vector*)(out + i) = a;                                                                      \
  }
#define FASTOPT_DEFINE_VECTOR(suffix, type, bytes) \
  typedef type vector##bytes##_##suffix            \
      __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias));

/* out = the values of look-ups 0, 1, ..., added from left to right, and to what stands there before
   if there is `more` than these. Running sums of some columns are in registers. Each column by
   itself: the width of a vector doesn't change its bits. */
#define FASTOPT_DEFINE_SUM(suffix, type)                                                          \
  typedef type vector_##suffix                                                                    \
      __attribute__((vector_size(FASTOPT_VECTOR_BYTES), aligned(sizeof(type)), may_alias));       \
  FASTOPT_DEFINE_VECTOR(suffix, type, 32)                                                         \
  FASTOPT_DEFINE_VECTOR(suffix, type, 16)                                                         \
  static inline void sum_##suffix(type* out, const type* values, const look_up* items,            \
                                  ptrdiff_t n, ptrdiff_t width, int more) {                       \
    const ptrdiff_t lanes = FASTOPT_VECTOR_BYTES / sizeof(type), first = more ? 0 : 1;            \
    ptrdiff_t i = 0, k;                                                                           \
    const type* start;                                                                            \
    if (n == 0) return;                                                                           \
    start = more ? out : values + items[0].position * width;                                      \
    for (; i + 4 * lanes <= width; i += 4 * lanes) {                                              \
      const type* p = start + i;                                                                  \
      vector_##suffix a = ((const vector_##suffix*)p)[0], b = ((const vector_##suffix*)p)[1];     \
      vector_##suffix c = ((const vector_##suffix*)p)[2], d = ((const vector_##suffix*)p)[3];     \
      for (k = first; k < n; ++k) {                                                               \
        p = values + items[k].position * width + i;                                               \
        a += ((const vector_##suffix*)p)[0];                                                      \
        b += ((const vector_##suffix*)p)[1];                                                      \
        c += ((const vector_##suffix*)p)[2];                                                      \
        d += ((const vector_##suffix*)p)[3];                                                      \
      }                                                                                           \
      ((vector_##suffix*)(out + i))[0] = a;                                                       \
      ((vector_##suffix*)(out + i))[1] = b;                                                       \
      ((vector_##suffix*)(out + i))[2] = c;                                                       \
      ((vector_##suffix*)(out + i))[3] = d;                                                       \
    }                                                                                             \
    FASTOPT_SUM_BY(type, vector_##suffix)                                                         \
    FASTOPT_SUM_BY(type, vector32_##suffix)                                                       \
    FASTOPT_SUM_BY(type, vector16_##suffix)                                                       \
    for (; i < width; ++i) {                                                                      \
      type a = start[i];                                                                          \
      for (k = first; k < n; ++k) a += values[items[k].position * width + i];                     \
      out[i] = a;                                                                                 \
    }                                                                                             \
  }

FASTOPT_DEFINE_SUM(f32, float)
FASTOPT_DEFINE_SUM(f64, double)
