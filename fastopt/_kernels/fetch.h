/* Fetching rows: the processor is told of a row some look-ups before it is used, so that many are
   under way from memory at once.

   All lines of a row are fetched, but of long ones only the first: then the processor goes on by
   itself. They go to the second cache, as the first one has few places for misses under way, or to
   the first (`soon`), for what is used soon. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FASTOPT_LINE 64
#define FASTOPT_FETCHED 1024 /* bytes of a row, at most */

/* GCC takes a function that does nothing but prefetch for one without effect, and drops the calls
   that it has not inlined by then. */
#define FASTOPT_HAS_EFFECT __asm__ volatile("")

/* How many lines it loops over is the size's alone: it is foreseen then, or known when compiled.
   Rows that don't begin at a line (`ragged`) may end in one more. The locality (2: second cache, 3:
   first) has to be a constant for the compiler, so this is a macro. */
#define FASTOPT_FETCH_LINES(row, size, ragged, locality)                                \
  do {                                                                                  \
    for (int64_t at_ = 0; at_ < (size) && at_ < FASTOPT_FETCHED; at_ += FASTOPT_LINE) { \
      __builtin_prefetch((row) + at_, 0, locality);                                     \
    }                                                                                   \
    if ((ragged) && (size) <= FASTOPT_FETCHED) {                                        \
      __builtin_prefetch((row) + (size) - 1, 0, locality);                              \
    }                                                                                   \
  } while (0)

/* A row that begins anywhere. */
#define FASTOPT_FETCH(row, size, locality)                                                         \
  do {                                                                                             \
    const int ragged_ = ((uintptr_t)(row) | (uintptr_t)(size)) % FASTOPT_LINE != 0;                \
    FASTOPT_FETCH_LINES((const char*)(row), size, ragged_, locality);                              \
    FASTOPT_HAS_EFFECT;                                                                            \
  } while (0)
static inline void fetch(const void* row, ptrdiff_t size) { FASTOPT_FETCH(row, size, 2); }
static inline void fetch_soon(const void* row, ptrdiff_t size) { FASTOPT_FETCH(row, size, 3); }

/* Bytes [at, at + size) of a row that begins at a line. */
static inline void fetch_part(const void* row, ptrdiff_t at, ptrdiff_t size) {
  const ptrdiff_t end = at < FASTOPT_FETCHED ? at + size : at;
  for (; at < end; at += FASTOPT_LINE) __builtin_prefetch((const char*)row + at, 0, 2);
  FASTOPT_HAS_EFFECT;
}
