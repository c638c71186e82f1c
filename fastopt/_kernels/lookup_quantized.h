/* Look-ups of rows of 8 bits, single and in weighted bags, compiled once per instruction-set level.

   A row is `width` codes, then a float32 scale and a float32 bias: an element is scale * code +
   bias, rounded twice. Bags are summed as those of float32 rows are, see lookup.h: the bits are
   those of the same look-up in the table that the codes stand for. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "fetch.h"
#include "ids.h"
#include "lookup.h"
#include "table.h"

/* Codes in float32, exactly. Compilers convert vectors of bytes one by one. */
FASTOPT_INLINE void floats_whole(whole_f32* out, const uint8_t* codes) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128((const __m128i*)codes);
  *out = (whole_f32)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  __m256 parts[2];
  for (int j = 0; j < 2; ++j) {
    const __m128i bytes = _mm_loadl_epi64((const __m128i*)(codes + 8 * j));
    parts[j] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  memcpy(out, parts, 64);
#elif defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128(), bytes = _mm_loadu_si128((const __m128i*)codes);
  const __m128i low = _mm_unpacklo_epi8(bytes, zero), high = _mm_unpackhi_epi8(bytes, zero);
  const __m128 parts[4] = {_mm_cvtepi32_ps(_mm_unpacklo_epi16(low, zero)),
                           _mm_cvtepi32_ps(_mm_unpackhi_epi16(low, zero)),
                           _mm_cvtepi32_ps(_mm_unpacklo_epi16(high, zero)),
                           _mm_cvtepi32_ps(_mm_unpackhi_epi16(high, zero))};
  memcpy(out, parts, 64);
#else
  for (int i = 0; i < 16; ++i) (*out)[i] = (float)codes[i];
#endif
}

FASTOPT_INLINE void floats_half(half_f32* out, const uint8_t* codes) {
  for (int i = 0; i < 8; ++i) (*out)[i] = (float)codes[i];
}

FASTOPT_INLINE void floats_quarter(quarter_f32* out, const uint8_t* codes) {
  for (int i = 0; i < 4; ++i) (*out)[i] = (float)codes[i];
}

FASTOPT_INLINE void floats_single(single_f32* out, const uint8_t* codes) { *out = (float)*codes; }

/* Writes n vectors of columns of result b, from `column` on: the sum over look-ups [lo, hi), or the
   row of look-up lo alone (`one`). */
#define FASTOPT_BLOCK(V)                                                                           \
  FASTOPT_INLINE void quantized_block_##V(const quantized_job* g, int64_t b, int64_t lo,           \
                                          int64_t hi, int64_t width, int64_t column, const int n,  \
                                          int wide, int weighted, int one, int stream,             \
                                          bag_errors* bad) {                                       \
    typedef V##_f32 vector;                                                                        \
    const uint8_t* const rows = (const uint8_t*)g->rows;                                           \
    const float* const weights = g->weights;                                                       \
    const float* const scales = g->scales;                                                         \
    const uint64_t n_rows = (uint64_t)g->n_rows;                                                   \
    const int64_t ahead = g->ahead, n_ids = g->n_ids, row_size = width + 8;                        \
    vector sums[8];                                                                                \
    for (int j = 0; j < n; ++j) sums[j] = (vector){0};                                             \
    for (int64_t k = lo; k < hi; ++k) {                                                            \
      if (column == 0 && k + ahead < n_ids) {                                                      \
        const int64_t later = id_at(g->ids, wide, k + ahead);                                      \
        if ((uint64_t)later < n_rows && stream) { /* as gather_loop does */                        \
          FASTOPT_FETCH_LINES((const char*)(rows + later * row_size), row_size, 1, 2);             \
        } else if ((uint64_t)later < n_rows) {                                                     \
          FASTOPT_FETCH_LINES((const char*)(rows + later * row_size), row_size, 1, 3);             \
        }                                                                                          \
      }                                                                                            \
      const int64_t id = id_at(g->ids, wide, k);                                                   \
      if ((uint64_t)id >= n_rows) {                                                                \
        if (k < bad->id) bad->id = k;                                                              \
        if (one) return;                                                                           \
        continue;                                                                                  \
      }                                                                                            \
      const uint8_t* const row = rows + id * row_size;                                             \
      const uint8_t* const codes = row + column;                                                   \
      float scale, bias;                                                                           \
      memcpy(&scale, row + width, 4);                                                              \
      memcpy(&bias, row + width + 4, 4);                                                           \
      const float weight = weighted ? weights[k] : 1.0f;                                           \
      for (int j = 0; j < n; ++j) {                                                                \
        const int64_t at = j * (int64_t)(sizeof(vector) / 4);                                      \
        vector value;                                                                              \
        floats_##V(&value, codes + at);                                                            \
        value = scale * value + bias;                                                              \
        if (weighted) value = weight * value;                                                      \
        if (!one) value = sums[j] + value;                                                         \
        sums[j] = value;                                                                           \
      }                                                                                            \
    }                                                                                              \
    vector* out = (vector*)(g->out + b * width + column);                                          \
    if (!one && scales != NULL) {                                                                  \
      for (int j = 0; j < n; ++j) sums[j] = scales[b] * sums[j];                                   \
    }                                                                                              \
    for (int j = 0; j < n; ++j) {                                                                  \
      if (stream && sizeof(vector) == 64) {                                                        \
        stream_64((char*)(out + j), (const char*)(sums + j));                                      \
      } else {                                                                                     \
        out[j] = sums[j];                                                                          \
      }                                                                                            \
    }                                                                                              \
  }

FASTOPT_BLOCK(whole)
FASTOPT_BLOCK(half)
FASTOPT_BLOCK(quarter)
FASTOPT_BLOCK(single)
#undef FASTOPT_BLOCK

FASTOPT_INLINE void quantized_loop(const quantized_job* g, int64_t first, int64_t end,
                                   int64_t width, int wide, int weighted, int one, int stream,
                                   bag_errors* bad) {
#define FASTOPT_SUM(V, column, n) \
  quantized_block_##V(g, b, lo, hi, width, column, n, wide, weighted, one, stream, bad)
  for (int64_t b = first; b < end; ++b) {
    const int64_t lo = one ? b : *(const volatile int64_t*)(g->offsets + b);
    const int64_t hi = one ? b + 1 : *(const volatile int64_t*)(g->offsets + b + 1);
    if (!one && (lo < 0 || hi < lo || hi > g->n_ids)) {
      if (b < bad->bag) bad->bag = b;
      continue;
    }
    int64_t at = 0;
    for (; width - at >= FASTOPT_BLOCK_VECTORS * 16; at += FASTOPT_BLOCK_VECTORS * 16) {
      FASTOPT_SUM(whole, at, FASTOPT_BLOCK_VECTORS);
    }
    if (FASTOPT_BLOCK_VECTORS > 4 && width - at >= 64) {
      FASTOPT_SUM(whole, at, 4);
      at += 64;
    }
    if (FASTOPT_BLOCK_VECTORS > 2 && width - at >= 32) {
      FASTOPT_SUM(whole, at, 2);
      at += 32;
    }
    if (width - at >= 16) {
      FASTOPT_SUM(whole, at, 1);
      at += 16;
    }
    if (at == width) continue;
    if (width > 16) {
      FASTOPT_SUM(whole, width - 16, 1);
    } else if (width >= 8) {
      FASTOPT_SUM(half, 0, 1);
      if (width > 8) FASTOPT_SUM(half, width - 8, 1);
    } else if (width >= 4) {
      FASTOPT_SUM(quarter, 0, 1);
      if (width > 4) FASTOPT_SUM(quarter, width - 4, 1);
    } else if (width == 3) {
      FASTOPT_SUM(single, 0, 3);
    } else if (width == 2) {
      FASTOPT_SUM(single, 0, 2);
    } else {
      FASTOPT_SUM(single, 0, 1);
    }
  }
#undef FASTOPT_SUM
}

/* Widths that are constants here need no loop over columns. */
FASTOPT_INLINE void quantized_of_width(const quantized_job* g, int64_t first, int64_t end,
                                       int wide, int weighted, int one, int stream,
                                       bag_errors* bad) {
  switch (g->width) {
    case 16:
      quantized_loop(g, first, end, 16, wide, weighted, one, stream, bad);
      break;
    case 32:
      quantized_loop(g, first, end, 32, wide, weighted, one, stream, bad);
      break;
    case 64:
      quantized_loop(g, first, end, 64, wide, weighted, one, stream, bad);
      break;
    case 128:
      quantized_loop(g, first, end, 128, wide, weighted, one, stream, bad);
      break;
    default:
      quantized_loop(g, first, end, g->width, wide, weighted, one, stream, bad);
  }
}

/* Results [first, end). */
static void lookup_quantized(const quantized_job* g, ptrdiff_t first, ptrdiff_t end,
                             bag_errors* bad) {
  if (g->width == 0) return;
  const int weighted = g->weights != NULL;
  if (g->offsets == NULL && g->stream) {
    if (g->wide) {
      quantized_of_width(g, first, end, 1, 0, 1, 1, bad);
    } else {
      quantized_of_width(g, first, end, 0, 0, 1, 1, bad);
    }
#ifdef __SSE2__
    _mm_sfence();
#endif
  } else if (g->offsets == NULL) {
    if (g->wide) {
      quantized_of_width(g, first, end, 1, 0, 1, 0, bad);
    } else {
      quantized_of_width(g, first, end, 0, 0, 1, 0, bad);
    }
  } else if (g->wide && weighted) {
    quantized_of_width(g, first, end, 1, 1, 0, 0, bad);
  } else if (g->wide) {
    quantized_of_width(g, first, end, 1, 0, 0, 0, bad);
  } else if (weighted) {
    quantized_of_width(g, first, end, 0, 1, 0, 0, bad);
  } else {
    quantized_of_width(g, first, end, 0, 0, 0, 0, bad);
  }
}
