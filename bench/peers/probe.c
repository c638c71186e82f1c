/* What the machine can do: the memory traffic of a workload with the least arithmetic, in plain C.
 *
 * Rows come grouped already: each unique row once, with how many rows of values belong to it, so
 * that every byte moves once and nothing has to be sorted. Rules are written as their formulas.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { SGD, MOMENTUM, ADAGRAD, RMSPROP, ADAM, FTRL };

#define SMALL 65536 /* fewer elements than this stay in one thread */
#define CHUNK 4096  /* elements that one pass over several arrays keeps in cache */

typedef float *restrict array;

static void sgd(array p, const array g, long a, long b) {
  for (long i = a; i < b; i++) p[i] -= 1e-4f * g[i];
}

static void momentum(array p, const array g, array m, long a, long b) {
  for (long i = a; i < b; i++) {
    float t = 0.9f * m[i] + g[i];
    m[i] = t;
    p[i] -= 1e-4f * t;
  }
}

static void adagrad(array p, const array g, array m, long a, long b) {
  for (long i = a; i < b; i++) {
    float t = m[i] + g[i] * g[i];
    m[i] = t;
    p[i] -= 1e-4f * g[i] / sqrtf(t);
  }
}

static void rmsprop(array p, const array g, array m, array v, long a, long b) {
  for (long i = a; i < b; i++) {
    float s = v[i] + 0.1f * (g[i] * g[i] - v[i]);
    float t = 0.9f * m[i] + 1e-4f * g[i] / sqrtf(s + 1e-10f);
    v[i] = s;
    m[i] = t;
    p[i] -= t;
  }
}

static void adam(array p, const array g, array m, array v, long a, long b) {
  for (long i = a; i < b; i++) {
    float t = m[i] + 0.1f * (g[i] - m[i]), s = v[i] + 0.001f * (g[i] * g[i] - v[i]);
    m[i] = t;
    v[i] = s;
    p[i] -= 1e-4f * t / (sqrtf(s) + 1e-8f);
  }
}

static void ftrl(array p, const array g, array n, array z, long a, long b) {
  for (long i = a; i < b; i++) {
    float t = n[i] + g[i] * g[i], r = sqrtf(t);
    float y = z[i] + g[i] - (r - sqrtf(n[i])) * 1e4f * p[i];
    n[i] = t;
    z[i] = y;
    float far = fabsf(y) - 1e-3f;
    p[i] = far > 0.0f ? -copysignf(far, y) / (r * 1e4f + 2e-3f) : 0.0f;
  }
}

static void one(int rule, float **x, long a, long b) {
  switch (rule) {
    case SGD: sgd(x[0], x[1], a, b); break;
    case MOMENTUM: momentum(x[0], x[1], x[2], a, b); break;
    case ADAGRAD: adagrad(x[0], x[1], x[2], a, b); break;
    case RMSPROP: rmsprop(x[0], x[1], x[2], x[3], a, b); break;
    case ADAM: adam(x[0], x[1], x[2], x[3], a, b); break;
    case FTRL: ftrl(x[0], x[1], x[2], x[3], a, b); break;
  }
}

/* count variables of n elements; x holds their arrays, four pointers a variable. */
void dense(int rule, float **x, long count, long n, int threads) {
  if (count * n < SMALL) threads = 1;
  if (count > 1) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long k = 0; k < count; k++) one(rule, x + 4 * k, 0, n);
  } else {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long t = 0; t < threads; t++) {
      one(rule, x, n / threads * t, t == threads - 1 ? n : n / threads * (t + 1));
    }
  }
}

static inline void fetch(const float *row, long width) {
  for (long j = 0; j < width; j += 16) __builtin_prefetch(row + j, 0, 2);
}

/* Reads n_rows groups of values, starts[i] to starts[i + 1], and adds to row ids[i] of each state,
 * and to the one number that a row has of its own, where there are such. */
void rows(float **states, int n_states, float *numbers, long width, const int64_t *ids,
          const int64_t *starts, long n_rows, const float *values, int threads, long ahead) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    float sum[1024];
#pragma omp for schedule(static)
    for (long i = 0; i < n_rows; i++) {
      if (i + ahead < n_rows) {
        for (int s = 0; s < n_states; s++) fetch(states[s] + ids[i + ahead] * width, width);
        if (numbers) __builtin_prefetch(numbers + ids[i + ahead], 0, 2);
      }
      const float *v = values + starts[i] * width;
      long count = starts[i + 1] - starts[i];
      if (count > 1) {
        for (long j = 0; j < width; j++) sum[j] = v[j];
        for (long k = 1; k < count; k++)
          for (long j = 0; j < width; j++) sum[j] += v[k * width + j];
        v = sum;
      }
      for (int s = 0; s < n_states; s++) {
        float *restrict row = states[s] + ids[i] * width;
        for (long j = 0; j < width; j++) row[j] += 1e-4f * v[j];
      }
      if (numbers) numbers[ids[i]] += 1e-4f * v[0];
    }
  }
}

/* out[i] = sum over the bag of weights[k] * table[ids[k]]; bag 1 without weights is a copy. */
void pooled(const float *table, long width, const int64_t *ids, const float *weights, long n_out,
            long bag, float *out, int threads, long ahead) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (long i = 0; i < n_out; i++) {
    float *restrict to = out + i * width;
    for (long k = i * bag; k < (i + 1) * bag; k++) {
      if (k + ahead < n_out * bag) fetch(table + ids[k + ahead] * width, width);
      const float *restrict row = table + ids[k] * width;
      if (bag == 1)
        for (long j = 0; j < width; j++) to[j] = row[j];
      else if (k == i * bag)
        for (long j = 0; j < width; j++) to[j] = weights[k] * row[j];
      else
        for (long j = 0; j < width; j++) to[j] += weights[k] * row[j];
    }
  }
}

void add_n(float **terms, long count, long n, float *restrict out, int threads) {
  if (n < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (long a = 0; a < n; a += CHUNK) {
    long b = a + CHUNK < n ? a + CHUNK : n;
    for (long i = a; i < b; i++) out[i] = terms[0][i] + terms[1][i];
    for (long k = 2; k < count; k++)
      for (long i = a; i < b; i++) out[i] += terms[k][i];
  }
}

/* Reads everything for the norm, then scales everything into other arrays. */
double clip(float **x, float **out, long count, long n, int threads) {
  double total = 0.0;
  if (count * n < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total) if (threads > 1)
  for (long c = 0; c < count * n; c += CHUNK) {
    long end = c + CHUNK < count * n ? c + CHUNK : count * n;
    for (long i = c; i < end;) {
      long k = i / n, a = i % n, b = a + (end - i) < n ? a + (end - i) : n;
      float part[16] = {0};
      long j = a;
      for (; j + 16 <= b; j += 16)
        for (int l = 0; l < 16; l++) part[l] += x[k][j + l] * x[k][j + l];
      for (; j < b; j++) part[0] += x[k][j] * x[k][j];
      for (int l = 0; l < 16; l++) total += part[l];
      i += b - a;
    }
  }
  const float scale = (float)(1.0 / sqrt(total + 1.0));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (long k = 0; k < count; k++) {
    array to = out[k], from = x[k];
    for (long i = 0; i < n; i++) to[i] = scale * from[i];
  }
  return total;
}
