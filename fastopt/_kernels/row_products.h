/* Weighted sums of single elements of FASTOPT_T by number, included by row_set.h once a type. */

/* out[k] = coefficients[k] * values[numbers[k]] */
FASTOPT_INLINE void FASTOPT_NAME(products)(const uint32_t* numbers, const FASTOPT_T* coefficients,
                                           const FASTOPT_T* values, FASTOPT_T* out, int64_t n) {
  int64_t k = 0;
#if defined(__AVX512F__)
  /* Numbers are below 2**31. */
  for (; k + 16 <= n; k += 16) {
    if (sizeof(FASTOPT_T) == 4) {
      const __m512 taken = _mm512_i32gather_ps(_mm512_loadu_si512(numbers + k), values, 4);
      _mm512_storeu_ps(out + k, _mm512_mul_ps(_mm512_loadu_ps(coefficients + k), taken));
    } else {
      for (int j = 0; j < 16; j += 8) {
        const __m256i at = _mm256_loadu_si256((const __m256i*)(numbers + k + j));
        const __m512d taken = _mm512_i32gather_pd(at, values, 8);
        _mm512_storeu_pd(out + k + j, _mm512_mul_pd(_mm512_loadu_pd(coefficients + k + j), taken));
      }
    }
  }
#endif
  for (; k < n; ++k) out[k] = coefficients[k] * values[numbers[k]];
}

/* out[b] = sum of coefficients[k] * values[numbers[k]] over k in offsets[b]:offsets[b + 1], in
   order, for bags [lo, hi). All products of a block come first: they have no order, sums have. */
static void FASTOPT_NAME(sum_products)(const uint32_t* numbers, const int64_t* offsets,
                                       const void* coefficients, const void* values, void* out,
                                       ptrdiff_t lo, ptrdiff_t hi) {
  enum { kBlock = 512 };
  FASTOPT_T block[kBlock];
  const FASTOPT_T* const factors = (const FASTOPT_T*)coefficients;
  FASTOPT_T* const sums = (FASTOPT_T*)out;
  const int64_t n = offsets[hi];
  int64_t k = offsets[lo], ready = k, left = 0;
  for (ptrdiff_t b = lo; b < hi; ++b) {
    const int64_t end = offsets[b + 1];
    FASTOPT_T sum = 0;
    while (k < end) {
      if (left == 0) {
        left = n - k < kBlock ? n - k : kBlock;
        ready = k;
        FASTOPT_NAME(products)(numbers + k, factors + k, (const FASTOPT_T*)values, block, left);
      }
      const int64_t some = end - k < left ? end - k : left;
      const FASTOPT_T* const terms = block + (k - ready);
      for (int64_t j = 0; j < some; ++j) sum = sum + terms[j];
      k += some;
      left -= some;
    }
    sums[b] = sum;
  }
}
