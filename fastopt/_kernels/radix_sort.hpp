// A stable sort of look-ups by row, digit by digit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace fastopt {

// A look-up: its row, and its place among all of them.
template <class Word>
struct Item {
  Word row;
  Word position;
};

inline int bit_width(std::uint64_t x) noexcept {
  int bits = 0;
  for (; x != 0; x >>= 1) ++bits;
  return bits;
}

// Bits of a digit, so that counts take at most 24 KiB.
template <class Word>
constexpr int kLongestDigit = sizeof(Word) == 4 ? 11 : 8;

// One digit of the rows after the other, from the last to the first, stably. The digits of all
// passes are counted, and summed up, in one go: their number is known when compiled.
template <int kPasses, class Word>
void sort_by_digits(Item<Word>* items, Item<Word>* spare, std::int64_t n, Word origin,
                    int digit) noexcept {
  const std::size_t size = std::size_t{1} << digit;
  const Word last = static_cast<Word>(size - 1);
  Word starts[kPasses << kLongestDigit<Word>];
  std::memset(starts, 0, sizeof(Word) * kPasses * size);
  for (std::int64_t i = 0; i < n; ++i) {
    Word key = items[i].row - origin;
    for (int pass = 0; pass < kPasses; ++pass, key >>= digit) ++starts[pass * size + (key & last)];
  }
  Word sums[kPasses] = {};
  for (std::size_t d = 0; d < size; ++d) {
    for (int pass = 0; pass < kPasses; ++pass) {
      const Word count = starts[pass * size + d];
      starts[pass * size + d] = sums[pass];
      sums[pass] += count;
    }
  }
  Item<Word>* from = items;
  Item<Word>* to = spare;
  for (int pass = 0; pass < kPasses; ++pass, std::swap(from, to)) {
    Word* start = starts + pass * size;
    const int shift = pass * digit;
    for (std::int64_t i = 0; i < n; ++i) {
      const Item<Word> item = from[i];
      to[start[((item.row - origin) >> shift) & last]++] = item;
    }
  }
  if (from != items) std::memcpy(items, from, sizeof(Item<Word>) * static_cast<std::size_t>(n));
}

// Sorts by row, stably. Few items don't need the spare memory: theirs stays in the first cache.
template <class Word>
void sort_items(Item<Word>* items, Item<Word>* spare, std::int64_t n, std::int64_t first_row,
                std::int64_t end_row) noexcept {
  // 32 bits in three passes at most, 64 in eight.
  constexpr int kMaxDigit = kLongestDigit<Word>, kMaxPasses = sizeof(Word) == 4 ? 3 : 8;
  constexpr std::int64_t kFew = 2048;
  std::int64_t k = 1;
  while (k < n && items[k - 1].row <= items[k].row) ++k;
  if (k >= n) return;
  if (n <= 24) {
    for (; k < n; ++k) {
      const Item<Word> item = items[k];
      std::int64_t j = k;
      for (; j > 0 && items[j - 1].row > item.row; --j) items[j] = items[j - 1];
      items[j] = item;
    }
    return;
  }
  const int bits = bit_width(static_cast<std::uint64_t>(end_row - first_row - 1));
  int passes = 1;
  double best = 0;
  for (int p = 1; p <= std::min(bits, kMaxPasses); ++p) {
    const int digit = (bits + p - 1) / p;
    if (digit > kMaxDigit) continue;
    const double cost = p * (static_cast<double>(n) + 0.5 * static_cast<double>(1 << digit));
    if (best == 0 || cost < best) {
      best = cost;
      passes = p;
    }
  }
  const int digit = (bits + passes - 1) / passes;
  const Word origin = static_cast<Word>(first_row);
  Item<Word> few[kFew];
  if (n <= kFew) spare = few;
  switch (passes) {
    case 1: return sort_by_digits<1>(items, spare, n, origin, digit);
    case 2: return sort_by_digits<2>(items, spare, n, origin, digit);
    case 3: return sort_by_digits<3>(items, spare, n, origin, digit);
    default:
      if constexpr (kMaxPasses == 8) sort_by_digits<8>(items, spare, n, origin, 8);
  }
}

}  // namespace fastopt
