/* Floats of 16 bits, each way in one element.

   float16 and bfloat16 are stored, never computed: they are widened to float32 and rounded back to
   nearest, ties to even. Everything is integer arithmetic but one addition, and has the results of
   the processors' own conversions, bit for bit: NaN comes out quiet, its payload cut off. No
   float32 subnormal is made or read on the way, which would be slow. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "bits.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

typedef uint16_t* __restrict rp_16;
typedef const uint16_t* __restrict crp_16;

/* x in float32, rounded to odd where it is inexact: rounding that to 16 bits is rounding x. */
static inline float odd_float(double x) {
  const float nearest = (float)x;
  const double back = (double)nearest;
  const uint32_t bits = bits_of_float(nearest);
  const uint32_t toward_zero = bits - (uint32_t)(fabs(back) > fabs(x));
  return float_of_bits(toward_zero | (uint32_t)(back != x));
}

/* 1 sign bit, 5 bits of exponent (bias 15), 10 of fraction. */
static inline float widen_f16(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
  const uint32_t magnitude = (uint32_t)(x & 0x7fffu) << 13; /* fraction where float32 has it */
  const uint32_t normal = magnitude + 0x38000000u;          /* the other bias: 127 - 15 */
  /* With a leading 1 in front of the fraction, which is then subtracted: 2**-14 exactly. */
  const uint32_t small = bits_of_float(float_of_bits(magnitude + 0x38800000u) - 0x1p-14f);
  const uint32_t nan = magnitude > 0x0f800000u ? 0x00400000u : 0u;
  const uint32_t special = (magnitude + 0x70000000u) | nan; /* exponent 31 becomes 255 */
  uint32_t result = magnitude < 0x00800000u ? small : normal;
  result = magnitude >= 0x0f800000u ? special : result;
  return float_of_bits(result | sign);
}

static inline uint16_t narrow_f16(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  /* Rounded by an addition that carries into the exponent where it must; up to infinity. */
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  /* The last place of numbers in [0.5, 1) is the smallest float16: the sum is rounded there. */
  const uint32_t below = magnitude < 0x38800000u ? magnitude : 0u;
  const uint32_t small = bits_of_float(float_of_bits(below) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t result = magnitude < 0x38800000u ? small : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? nan : result;
  return (uint16_t)(result | ((bits >> 16) & 0x8000u));
}

/* The upper half of a float32. */
static inline float widen_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  const uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u ? 0x00400000u : 0u;
  return float_of_bits(bits | nan);
}

static inline uint16_t narrow_bf16(float x) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* Stochastic rounding: to one of the two neighbours, with a probability that makes the expectation
   the number itself. The random bits depend on a key and the number of the element alone, so
   neither on threads nor on the width of a vector. This is the finaliser of MurmurHash3. */
static inline uint32_t random_bits(uint32_t key, uint32_t element) {
  uint32_t x = element * 0x9e3779b1u + key;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

static inline uint16_t narrow_random_f16(float x, uint32_t random) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + (random >> 19)) >> 13;
  /* In units of the smallest float16, of which there are at most 1024. */
  const uint32_t below = magnitude < 0x38800000u ? magnitude : 0u;
  const float units = float_of_bits(below) * 0x1p24f;
  const int32_t whole = (int32_t)units;
  const int32_t part = (int32_t)((units - (float)whole) * 65536.0f);
  const uint32_t small = (uint32_t)(whole + ((int32_t)(random >> 16) < part ? 1 : 0));
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t result = magnitude < 0x38800000u ? small : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? nan : result;
  return (uint16_t)(result | ((bits >> 16) & 0x8000u));
}

static inline uint16_t narrow_random_bf16(float x, uint32_t random) {
  const uint32_t bits = bits_of_float(x);
  const uint32_t rounded = (bits + (random >> 16)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* The first elements of a run, eight at a time, by the processor's own conversions where the level
   has them: compilers don't find these. They return how many elements they have done. */
#ifdef __F16C__
static inline ptrdiff_t widen_eights_f16(float* out, const uint16_t* a, ptrdiff_t n) {
  ptrdiff_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(a + i))));
  }
  return i;
}

static inline __m128i narrow_eight_f16(const float* a) {
  return _mm256_cvtps_ph(_mm256_loadu_ps(a), _MM_FROUND_TO_NEAREST_INT);
}

static inline ptrdiff_t narrow_eights_f16(uint16_t* out, const float* a, ptrdiff_t n) {
  ptrdiff_t i = 0;
  for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i*)(out + i), narrow_eight_f16(a + i));
  return i;
}

/* Sets *differ if one of them doesn't round to its element of a. */
static inline ptrdiff_t compare_eights_f16(const float* out, const uint16_t* a, ptrdiff_t n,
                                           uint16_t* differ) {
  __m128i any = _mm_setzero_si128();
  ptrdiff_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128((const __m128i*)(a + i));
    any = _mm_or_si128(any, _mm_xor_si128(narrow_eight_f16(out + i), half));
  }
  *differ = (uint16_t)!_mm_testz_si128(any, any);
  return i;
}
#else
static inline ptrdiff_t widen_eights_f16(float* out, const uint16_t* a, ptrdiff_t n) {
  (void)out, (void)a, (void)n;
  return 0;
}

static inline ptrdiff_t narrow_eights_f16(uint16_t* out, const float* a, ptrdiff_t n) {
  (void)out, (void)a, (void)n;
  return 0;
}

static inline ptrdiff_t compare_eights_f16(const float* out, const uint16_t* a, ptrdiff_t n,
                                           uint16_t* differ) {
  (void)out, (void)a, (void)n;
  *differ = 0;
  return 0;
}
#endif
