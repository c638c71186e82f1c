/* Floats of 16 bits, each way in one element.

   float16 and bfloat16 are stored, never computed: they are widened to float32 and rounded back to
   nearest, ties to even. Everything is integer arithmetic but one addition, on every level the same
   text, and the same results as the processors' own conversions: NaN comes out quiet, its payload
   cut off. No float32 subnormal is made or read on the way, which would be slow. */
#pragma once

#include <stdint.h>

typedef uint16_t* __restrict rp_16;
typedef const uint16_t* __restrict crp_16;

static inline uint32_t bits_of_float(float x) {
  union {
    float value;
    uint32_t bits;
  } u;
  u.value = x;
  return u.bits;
}

static inline float float_of_bits(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } u;
  u.bits = bits;
  return u.value;
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
