/* Floats as the integers that have their bits, and back. */
#pragma once

#include <stdint.h>

static inline uint32_t bits_of_float(float x) {
  union {
    float from;
    uint32_t to;
  } u;
  u.from = x;
  return u.to;
}
static inline float float_of_bits(uint32_t x) {
  union {
    uint32_t from;
    float to;
  } u;
  u.from = x;
  return u.to;
}
static inline uint64_t bits_of_double(double x) {
  union {
    double from;
    uint64_t to;
  } u;
  u.from = x;
  return u.to;
}
static inline double double_of_bits(uint64_t x) {
  union {
    uint64_t from;
    double to;
  } u;
  u.from = x;
  return u.to;
}
