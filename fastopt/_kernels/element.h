/* Types and functions of one element, for the rendered run functions.

   Cython has no restrict: parameters of these pointer types have it. Each function comes once a
   compute type, so that no float32 expression is computed in float64. */
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "bits.h"

typedef float* __restrict rp_f32;
typedef const float* __restrict crp_f32;
typedef double* __restrict rp_f64;
typedef const double* __restrict crp_f64;

static inline float sqrt_f32(float x) { return sqrtf(x); }
static inline double sqrt_f64(double x) { return sqrt(x); }
static inline float fabs_f32(float x) { return fabsf(x); }
static inline double fabs_f64(double x) { return fabs(x); }
static inline float copysign_f32(float x, float sign) { return copysignf(x, sign); }
static inline double copysign_f64(double x, double sign) { return copysign(x, sign); }
static inline float fmax_f32(float x, float y) { return x > y ? x : y; }
static inline double fmax_f64(double x, double y) { return x > y ? x : y; }
static inline float fmin_f32(float x, float y) { return x < y ? x : y; }
static inline double fmin_f64(double x, double y) { return x < y ? x : y; }
static inline float flush_f32(float x) { return fabsf(x) < FLT_MIN ? 0.0f : x; }
static inline double flush_f64(double x) { return fabs(x) < DBL_MIN ? 0.0 : x; }

/* |x| as an integer, and back: infinity is larger than any number, and NaN larger than that. */
static inline int32_t magnitude_f32(float x) { return (int32_t)(bits_of_float(x) & 0x7fffffffu); }
static inline int64_t magnitude_f64(double x) {
  return (int64_t)(bits_of_double(x) & 0x7fffffffffffffffu);
}
static inline float from_magnitude_f32(int32_t bits) { return float_of_bits((uint32_t)bits); }
static inline double from_magnitude_f64(int64_t bits) { return double_of_bits((uint64_t)bits); }

/* The C library's scalar functions, the same ones on every level: without fast-math no compiler
   replaces them by vector versions of other rounding. */
static inline float pow_f32(float x, float y) { return powf(x, y); }
static inline double pow_f64(double x, double y) { return pow(x, y); }
static inline float exp_f32(float x) { return expf(x); }
static inline double exp_f64(double x) { return exp(x); }
static inline float log1p_f32(float x) { return log1pf(x); }
static inline double log1p_f64(double x) { return log1p(x); }
