/* What a run module exports: a table of functions compiled for one instruction-set level. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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

/* The parts of a rule with a reduction: adds to the sums; makes factors of them, of the slots with
   one number a row (null for others) and of how many elements were summed; updates by them. */
typedef void (*first_fn)(void* w, const void* g, void** slots, const void* h, double* sums,
                         ptrdiff_t n);
typedef void (*between_fn)(void** slots, const void* h, const double* sums, double count,
                           double* factors);
typedef void (*second_fn)(void* w, const void* g, void** slots, const void* h,
                          const double* factors, ptrdiff_t n);

typedef struct {
  const char* name;
  int n_slots;
  int n_scalars;
  int sequential;
  run_fn run[FASTOPT_N_TYPES];
  int reduction; /* 0: none, 1: over a row, 2: over a variable; then run is null */
  unsigned row_slots; /* bit s: slot s has one number a row */
  first_fn first[FASTOPT_N_TYPES];
  between_fn between[FASTOPT_N_TYPES];
  second_fn second[FASTOPT_N_TYPES];
} rule_entry;

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
  /* what a weight has missed, see deferred.hpp: by root (0: sqrt, 1: identity) and type;
     h: keep, epsilon, centre, moments */
  void (*move[2][FASTOPT_N_TYPES])(void* w, const void* moving, const void* over, const double* h,
                                   int n_moments, ptrdiff_t n);
  /* sum of squares in float64, in an order that depends on n alone */
  double (*squares[FASTOPT_N_TYPES])(const void* a, ptrdiff_t n);
  /* 16 bits to float32 and back, rounded to nearest, ties to even */
  void (*widen[FASTOPT_N_HALVES])(void* out, const void* a, ptrdiff_t n);
  void (*narrow[FASTOPT_N_HALVES])(void* out, const void* a, ptrdiff_t n);
  /* The same, rounded up or down at random; first: number of the first element, see half.h */
  void (*narrow_random[FASTOPT_N_HALVES])(void* out, const void* a, uint32_t key, int64_t first,
                                          ptrdiff_t n);
  /* out = a, widened, but where out rounds to a it stays */
  void (*refresh[FASTOPT_N_HALVES])(void* out, const void* a, ptrdiff_t n);
} run_table;
