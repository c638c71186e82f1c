/* Sigmoid cross-entropy of float32 numbers and its slope, from one exponential.

   With e = exp(-|x|), which is in [0, 1], the sigmoid is 1 / (1 + e) or e / (1 + e), and
   log(1 + e) = 2 atanh(s), s = e / (2 + e): a short series, since s is at most 1/3. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef union {
  float number;
  uint32_t bits;
} cross_entropy_word;

/* exp(t) of t <= 0: t = k log(2) + r, |r| <= log(2) / 2, so that exp(t) = 2^k exp(r). NaN stays. */
static inline float exp_of_negative(float t) {
  const float round = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded to an integer */
  t = t < -104.0f ? -104.0f : t;   /* where the result is 0 */
  cross_entropy_word shifted, low, high;
  shifted.number = t * 1.44269504f + round;
  const float k = shifted.number - round;
  const float r = (t - k * 0.693359375f) - k * -2.12194440e-4f;
  float sum = 1.9875691500e-4f; /* Cephes, expf */
  sum = sum * r + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  sum = (sum * (r * r) + r) + 1.0f;
  /* In two steps: 2^k may be too small for a normal number. */
  const int32_t n = (int32_t)(shifted.bits - 0x4b400000u), half = n / 2;
  low.bits = (uint32_t)(half + 127) << 23;
  high.bits = (uint32_t)(n - half + 127) << 23;
  return sum * low.number * high.number;
}

/* loss = max(x, 0) - x z + log(1 + exp(-|x|)), slope = sigmoid(x) - z, where that is wanted;
   returns whether all losses are finite. */
static int sigmoid_cross_entropy_f32(const float* z, const float* x, float* loss, float* slope,
                                     ptrdiff_t n) {
  uint32_t strange = 0;
  for (ptrdiff_t i = 0; i < n; ++i) {
    const float e = exp_of_negative(-fabsf(x[i]));
    const float s = e / (2.0f + e), q = s * s;
    float sum = 1.0f / 13.0f;
    sum = sum * q + 1.0f / 11.0f;
    sum = sum * q + 1.0f / 9.0f;
    sum = sum * q + 1.0f / 7.0f;
    sum = sum * q + 1.0f / 5.0f;
    sum = sum * q + 1.0f / 3.0f;
    const float log = 2.0f * (s + s * (q * sum));
    cross_entropy_word total;
    total.number = ((x[i] > 0.0f ? x[i] : 0.0f) - x[i] * z[i]) + log;
    strange |= (total.bits & 0x7f800000u) == 0x7f800000u;
    loss[i] = total.number;
    if (slope != NULL) slope[i] = (x[i] >= 0.0f ? 1.0f : e) / (1.0f + e) - z[i];
  }
  return !strange;
}
