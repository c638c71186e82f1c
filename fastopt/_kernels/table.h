/* What a run module exports: a table of functions compiled for one instruction-set level. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "walk.h"

#define FASTOPT_TABLE_CAPSULE "fastopt._kernels.run_table"
#define FASTOPT_N_TYPES 2 /* 0: float32, 1: float64 */
#define FASTOPT_N_HALVES 2 /* 0: float16, 1: bfloat16 */
#define FASTOPT_MAX_SLOTS 8
#define FASTOPT_MAX_SCALARS 16
#define FASTOPT_MAX_SUMS 2
#define FASTOPT_MAX_FACTORS 4

/* Updates n contiguous elements. w, g and the slots don't overlap; h has the scalars of the step
   in the compute type. */
typedef void (*run_fn)(void* w, const void* g, void** slots, const void* h, ptrdiff_t n);

/* The same of weights that decay before: w = flush(w - rate * w), in one pass. */
typedef void (*decayed_fn)(void* w, const void* g, void** slots, const void* h, double rate,
                           ptrdiff_t n);

/* The parts of a rule with a reduction: adds to the sums; makes factors of them, of the slots with
   one number a row (null for others) and of how many elements were summed; updates by them. */
typedef void (*first_fn)(void* w, const void* g, void** slots, const void* h, double* sums,
                         ptrdiff_t n);
typedef void (*between_fn)(void** slots, const void* h, const double* sums, double count,
                           double* factors);
typedef void (*second_fn)(void* w, const void* g, void** slots, const void* h,
                          const double* factors, ptrdiff_t n);

/* The rule on the rows of n look-ups, sorted by row, and summed where a row comes more than once;
   returns how many rows there were. Rules that take duplicates one after the other do so: they
   take look-ups in any order, or rows as they came, of which the positions are 0, 1, ... */
typedef ptrdiff_t (*walk_fn)(const row_walk* u, const look_up* items, ptrdiff_t n);
typedef void (*in_order_fn)(const row_walk* u, const uint32_t* rows, ptrdiff_t n);

typedef struct {
  const char* name;
  int n_slots;
  int n_scalars;
  int sequential;
  run_fn run[FASTOPT_N_TYPES];
  decayed_fn decayed[FASTOPT_N_TYPES];
  int reduction; /* 0: none, 1: over a row, 2: over a variable; then run and decayed are null */
  unsigned row_slots; /* bit s: slot s has one number a row */
  int late; /* the walk's own loop makes up for what rows have missed, where `missed` is given */
  first_fn first[FASTOPT_N_TYPES];
  between_fn between[FASTOPT_N_TYPES];
  second_fn second[FASTOPT_N_TYPES];
  walk_fn walk[FASTOPT_N_TYPES];         /* null if a rule sums over a variable */
  in_order_fn in_order[FASTOPT_N_TYPES]; /* null unless it is sequential */
} rule_entry;

/* Rows of a table, row_size bytes each, by id: out[k] = table[ids[k]]. ids are int64 where `wide`,
   else int32. With `stream`, for rows and an `out` of whole cache lines, the result is written
   around the caches. Rows are prefetched `ahead` look-ups ahead; `ragged` ones don't begin at a
   cache line. */
typedef struct {
  const void* table;
  int64_t n_rows, row_size;
  const void* ids;
  void* out;
  int64_t ahead;
  int wide, ragged, stream;
} gather_job;

/* Weighted sums of rows: out[b] = scales[b] * sum of weights[k] * table[ids[k]] over k in
   offsets[a]:offsets[a + 1], where a is order[b], or b without an order. weights and scales may be
   null. */
typedef struct {
  const void* table;
  int64_t n_rows, width;
  const void* ids;
  int64_t n_ids;
  const int64_t* offsets;
  int64_t n_bags;
  const int64_t* order;
  const void* weights;
  const void* scales;
  void* out;
  int64_t ahead;
  int wide, ragged;
} bag_job;

/* The same of rows of 8 bits: `width` codes, then a float32 scale and a float32 bias. Without
   offsets out[k] = row[ids[k]]; with `stream` that is written around the caches, as gather_job has
   it. */
typedef struct {
  const void* rows;
  int64_t n_rows, width;
  const void* ids;
  int64_t n_ids;
  const int64_t* offsets;
  const float* weights;
  const float* scales;
  float* out;
  int64_t ahead;
  int wide, stream;
} quantized_job;

/* Positions of the first id out of range and the first bag whose offsets are wrong; INT64_MAX if
   there are none. */
typedef struct {
  int64_t id, bag;
} bag_errors;

/* Of 32 rows of a table, those that look-ups name, and how many of the rows before them are
   named. */
typedef struct {
  uint32_t before, bits;
} row_count;

typedef struct {
  int n_rules;
  const rule_entry* rules;
  /* out = a + b; out may be a or b */
  void (*add[FASTOPT_N_TYPES])(void* out, const void* a, const void* b, ptrdiff_t n);
  /* out = out + c * a */
  void (*add_scaled[FASTOPT_N_TYPES])(void* out, const void* a, double c, ptrdiff_t n);
  /* out = c * out */
  void (*scale[FASTOPT_N_TYPES])(void* out, double c, ptrdiff_t n);
  /* out = flush(c * out) */
  void (*shrink[FASTOPT_N_TYPES])(void* out, double c, ptrdiff_t n);
  /* out = flush(out - rate * out) */
  void (*decay[FASTOPT_N_TYPES])(void* out, double rate, ptrdiff_t n);
  /* what a weight has missed, see decay.hpp: by root (0: sqrt, 1: identity) and type;
     h: keep, epsilon, centre, moments, of which there are at least four, or zeros behind them */
  void (*move[2][FASTOPT_N_TYPES])(void* w, void* moving, void* over, const double* h,
                                   int n_moments, ptrdiff_t n);
  /* the same, and what the slots have missed: factors on both */
  void (*make_up[2][FASTOPT_N_TYPES])(void* w, void* moving, void* over, const double* h,
                                      int n_moments, double keep_moving, double keep_over,
                                      ptrdiff_t n);
  /* sum of squares in float64, in an order that depends on n alone */
  double (*squares[FASTOPT_N_TYPES])(const void* a, ptrdiff_t n);
  /* inner product in the type, in an order that depends on n alone */
  double (*dot[FASTOPT_N_TYPES])(const void* a, const void* b, ptrdiff_t n);
  /* the largest magnitude; infinity counts as more than any number, NaN as more than that */
  double (*largest[FASTOPT_N_TYPES])(const void* a, ptrdiff_t n);
  /* out = a * c, with c in the type of the elements */
  void (*times[FASTOPT_N_TYPES])(void* out, const void* a, double c, ptrdiff_t n);
  /* out = a * c, computed in float64; 0: float32, 1: float16 */
  void (*times_once[2])(void* out, const void* a, double c, ptrdiff_t n);
  /* out = max(min(a, high), low); NaN stays */
  void (*bounded[FASTOPT_N_TYPES])(void* out, const void* a, double low, double high, ptrdiff_t n);
  /* average = average - (average - a) * share */
  void (*follow[FASTOPT_N_TYPES])(void* average, const void* a, double share, ptrdiff_t n);
  /* average = a + (average - a) * factor, in float64 */
  void (*catch_up[FASTOPT_N_TYPES])(void* average, const void* a, double factor, ptrdiff_t n);
  /* 16 bits to float32 and back, rounded to nearest, ties to even */
  void (*widen[FASTOPT_N_HALVES])(void* out, const void* a, ptrdiff_t n);
  void (*narrow[FASTOPT_N_HALVES])(void* out, const void* a, ptrdiff_t n);
  /* The same, rounded up or down at random; first: number of the first element, see half.h */
  void (*narrow_random[FASTOPT_N_HALVES])(void* out, const void* a, uint32_t key, int64_t first,
                                          ptrdiff_t n);
  /* out = a, widened, but where out rounds to a it stays */
  void (*refresh[FASTOPT_N_HALVES])(void* out, const void* a, ptrdiff_t n);
  /* look-ups [lo, hi); returns the position of the first bad one, or INT64_MAX */
  int64_t (*gather)(const gather_job* job, ptrdiff_t lo, ptrdiff_t hi);
  /* bags [lo, hi); keeps what stands in `errors` if it is smaller */
  void (*sum_bags[FASTOPT_N_TYPES])(const bag_job* job, ptrdiff_t lo, ptrdiff_t hi,
                                    bag_errors* errors);
  /* the same of rows of 8 bits */
  void (*lookup_quantized)(const quantized_job* job, ptrdiff_t lo, ptrdiff_t hi,
                           bag_errors* errors);
  /* the rows that look-ups name, see row_set.h */
  int64_t (*mark_rows)(uint64_t* bits, int64_t n_rows, const void* ids, int wide, uint32_t* copy,
                       ptrdiff_t lo, ptrdiff_t hi);
  int64_t (*merge_marks)(uint64_t* bits, int n_others, int64_t stride, ptrdiff_t lo, ptrdiff_t hi);
  int64_t (*list_rows)(const uint64_t* bits, row_count* counts, void* rows, int wide, ptrdiff_t lo,
                       ptrdiff_t hi, int64_t first, int64_t end);
  void (*number_rows)(const row_count* counts, uint32_t* numbers, ptrdiff_t lo, ptrdiff_t hi);
  /* weighted sums of single elements by number, bags [lo, hi), see row_products.h */
  void (*sum_products[FASTOPT_N_TYPES])(const uint32_t* numbers, const int64_t* offsets,
                                        const void* coefficients, const void* values, void* out,
                                        ptrdiff_t lo, ptrdiff_t hi);
  /* see cross_entropy.h */
  int (*sigmoid_cross_entropy)(const float* labels, const float* logits, float* loss, float* slope,
                               ptrdiff_t n);
} run_table;
