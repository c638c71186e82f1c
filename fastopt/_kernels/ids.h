/* Row numbers of look-ups, of either width, as a caller has them in an array.

   They are checked where they are read, and each is read once: another thread may change the array,
   and what was checked has to be what is used. */
#pragma once

#include <stdint.h>

static inline __attribute__((always_inline)) int64_t id_at(const void* ids, int wide, int64_t k) {
  return wide ? *((const volatile int64_t*)ids + k) : *((const volatile int32_t*)ids + k);
}
