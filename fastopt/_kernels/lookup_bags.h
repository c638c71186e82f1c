/* Bags of rows of FASTOPT_T, included by lookup.h once a type. */

typedef FASTOPT_T FASTOPT_NAME(whole)
    __attribute__((vector_size(64), aligned(sizeof(FASTOPT_T)), may_alias));
typedef FASTOPT_T FASTOPT_NAME(half)
    __attribute__((vector_size(32), aligned(sizeof(FASTOPT_T)), may_alias));
typedef FASTOPT_T FASTOPT_NAME(quarter)
    __attribute__((vector_size(16), aligned(sizeof(FASTOPT_T)), may_alias));
typedef FASTOPT_T FASTOPT_NAME(single) __attribute__((may_alias));

/* Sums n vectors of columns of bag b, from `column` on, over look-ups [lo, hi). */
#define FASTOPT_BLOCK(V)                                                                       \
  FASTOPT_INLINE void FASTOPT_NAME(block_##V)(const bag_job* g, int64_t b, int64_t lo,         \
                                              int64_t hi, int64_t width, int64_t column,       \
                                              const int n, int wide, int weighted,             \
                                              bag_errors* bad) {                               \
    typedef FASTOPT_NAME(V) vector;                                                            \
    const FASTOPT_T* const table = (const FASTOPT_T*)g->table;                                 \
    const FASTOPT_T* const weights = (const FASTOPT_T*)g->weights;                             \
    const FASTOPT_T* const scales = (const FASTOPT_T*)g->scales;                               \
    const uint64_t n_rows = (uint64_t)g->n_rows;                                               \
    const int64_t ahead = g->ahead, n_ids = g->n_ids;                                          \
    const int64_t bytes = width * (int64_t)sizeof(FASTOPT_T);                                  \
    vector sums[8];                                                                            \
    for (int j = 0; j < n; ++j) sums[j] = (vector){0};                                         \
    for (int64_t k = lo; k < hi; ++k) {                                                        \
      if (column == 0 && k + ahead < n_ids) {                                                  \
        const int64_t later = id_at(g->ids, wide, k + ahead);                                  \
        if ((uint64_t)later < n_rows) {                                                        \
          FASTOPT_FETCH_LINES((const char*)(table + later * width), bytes, g->ragged, 3);      \
        }                                                                                      \
      }                                                                                        \
      const int64_t id = id_at(g->ids, wide, k);                                               \
      if ((uint64_t)id >= n_rows) {                                                            \
        if (k < bad->id) bad->id = k;                                                          \
        continue;                                                                              \
      }                                                                                        \
      const vector* row = (const vector*)(table + id * width + column);                        \
      if (weighted) {                                                                          \
        const FASTOPT_T weight = weights[k];                                                   \
        for (int j = 0; j < n; ++j) sums[j] = sums[j] + weight * row[j];                       \
      } else {                                                                                 \
        for (int j = 0; j < n; ++j) sums[j] = sums[j] + row[j];                                \
      }                                                                                        \
    }                                                                                          \
    vector* out = (vector*)((FASTOPT_T*)g->out + b * width + column);                          \
    if (scales != NULL) {                                                                      \
      for (int j = 0; j < n; ++j) sums[j] = scales[b] * sums[j];                               \
    }                                                                                          \
    for (int j = 0; j < n; ++j) out[j] = sums[j];                                              \
  }

FASTOPT_BLOCK(whole)
FASTOPT_BLOCK(half)
FASTOPT_BLOCK(quarter)
FASTOPT_BLOCK(single)
#undef FASTOPT_BLOCK

FASTOPT_INLINE void FASTOPT_NAME(bags_loop)(const bag_job* g, int64_t first, int64_t end,
                                            int64_t width, int wide, int weighted,
                                            bag_errors* bad) {
  enum { kWhole = 64 / sizeof(FASTOPT_T), kHalf = kWhole / 2, kQuarter = kWhole / 4 };
#define FASTOPT_SUM(V, column, n) \
  FASTOPT_NAME(block_##V)(g, b, lo, hi, width, column, n, wide, weighted, bad)
  for (int64_t b = first; b < end; ++b) {
    const int64_t bag = g->order == NULL ? b : g->order[b];
    if ((uint64_t)bag >= (uint64_t)g->n_bags) {
      if (b < bad->bag) bad->bag = b;
      continue;
    }
    const int64_t lo = *(const volatile int64_t*)(g->offsets + bag);
    const int64_t hi = *(const volatile int64_t*)(g->offsets + bag + 1);
    if (lo < 0 || hi < lo || hi > g->n_ids) {
      if (b < bad->bag) bad->bag = b;
      continue;
    }
    int64_t at = 0;
    for (; width - at >= FASTOPT_BLOCK_VECTORS * kWhole; at += FASTOPT_BLOCK_VECTORS * kWhole) {
      FASTOPT_SUM(whole, at, FASTOPT_BLOCK_VECTORS);
    }
    if (FASTOPT_BLOCK_VECTORS > 4 && width - at >= 4 * kWhole) {
      FASTOPT_SUM(whole, at, 4);
      at += 4 * kWhole;
    }
    if (FASTOPT_BLOCK_VECTORS > 2 && width - at >= 2 * kWhole) {
      FASTOPT_SUM(whole, at, 2);
      at += 2 * kWhole;
    }
    if (width - at >= kWhole) {
      FASTOPT_SUM(whole, at, 1);
      at += kWhole;
    }
    if (at == width) continue;
    if (width > kWhole) {
      FASTOPT_SUM(whole, width - kWhole, 1);
    } else if (width >= kHalf) {
      FASTOPT_SUM(half, 0, 1);
      if (width > kHalf) FASTOPT_SUM(half, width - kHalf, 1);
    } else if (width >= kQuarter) {
      FASTOPT_SUM(quarter, 0, 1);
      if (width > kQuarter) FASTOPT_SUM(quarter, width - kQuarter, 1);
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
FASTOPT_INLINE void FASTOPT_NAME(bags_of_width)(const bag_job* g, int64_t first, int64_t end,
                                                int wide, int weighted, bag_errors* bad) {
  switch (g->width) {
    case 1:
      FASTOPT_NAME(bags_loop)(g, first, end, 1, wide, weighted, bad);
      break;
    case 16:
      FASTOPT_NAME(bags_loop)(g, first, end, 16, wide, weighted, bad);
      break;
    case 32:
      FASTOPT_NAME(bags_loop)(g, first, end, 32, wide, weighted, bad);
      break;
    case 64:
      FASTOPT_NAME(bags_loop)(g, first, end, 64, wide, weighted, bad);
      break;
    case 128:
      FASTOPT_NAME(bags_loop)(g, first, end, 128, wide, weighted, bad);
      break;
    default:
      FASTOPT_NAME(bags_loop)(g, first, end, g->width, wide, weighted, bad);
  }
}

/* Bags [first, end). */
static void FASTOPT_NAME(sum_bags)(const bag_job* g, ptrdiff_t first, ptrdiff_t end,
                                   bag_errors* bad) {
  if (g->width == 0) return;
  if (g->wide && g->weights != NULL) {
    FASTOPT_NAME(bags_of_width)(g, first, end, 1, 1, bad);
  } else if (g->wide) {
    FASTOPT_NAME(bags_of_width)(g, first, end, 1, 0, bad);
  } else if (g->weights != NULL) {
    FASTOPT_NAME(bags_of_width)(g, first, end, 0, 1, bad);
  } else {
    FASTOPT_NAME(bags_of_width)(g, first, end, 0, 0, bad);
  }
}
