// A bit for each row of a table: which rows have been seen.
//
// All bits are off between uses; whoever sets some turns them off again, since a table may have far
// more rows than a step looks up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "table.h"

namespace fastopt {

// Sets the bits of n rows, row(k) that of look-up k, in words that are all off; returns how many
// are on then.
template <class Row>
std::int64_t count_by_bits(std::uint64_t* words, std::int64_t n_words, std::int64_t n, Row row,
                           const run_table* functions) noexcept {
  for (std::int64_t k = 0; k < n; ++k) {
    const std::uint64_t r = row(k);
    words[r >> 6] |= std::uint64_t{1} << (r & 63);
  }
  return functions->merge_marks(words, 0, 0, 0, n_words);
}

class Marks {
 public:
  // False: no memory.
  bool reserve(std::int64_t n_rows) noexcept {
    if (words_ == nullptr) {
      n_words_ = n_rows / 64 + 1;
      words_.reset(static_cast<std::uint64_t*>(
          std::calloc(static_cast<std::size_t>(n_words_), sizeof(std::uint64_t))));
    }
    return exist();
  }
  bool exist() const noexcept { return words_ != nullptr; }

  // Whether the row is new; never, without memory. Threads may mark rows at a time that don't share
  // a byte: eight rows do, from a multiple of eight on.
  bool mark(std::uint64_t row) const noexcept {
    if (!exist()) return false;
    std::uint8_t& byte = bytes()[row >> 3];
    const unsigned bit = 1u << (row & 7);
    const bool fresh = (byte & bit) == 0;
    byte = static_cast<std::uint8_t>(byte | bit);
    return fresh;
  }
  // How many different rows there are, none of which is marked; nor are they then. Where they are
  // not far fewer than the table's, bits are counted. 0 without memory.
  template <class Word>
  std::int64_t count(const Word* rows, std::int64_t n, const run_table* functions) const noexcept {
    std::int64_t n_different = 0;
    if (exist() && are_many(n)) {
      const auto row = [rows](std::int64_t k) noexcept -> std::uint64_t { return rows[k]; };
      n_different = count_by_bits(words_.get(), n_words_, n, row, functions);
    } else {
      for (std::int64_t k = 0; k < n; ++k) n_different += mark(rows[k]);
    }
    unmark_all(rows, n);
    return n_different;
  }
  // The row, and those that share its byte.
  void unmark(std::uint64_t row) const noexcept {
    if (exist()) bytes()[row >> 3] = 0;
  }
  // The only rows that are marked: one by one, or all there are where these are not many.
  template <class Word>
  void unmark_all(const Word* rows, std::int64_t n) const noexcept {
    if (exist() && are_many(n)) {
      std::memset(words_.get(), 0, static_cast<std::size_t>(n_words_) * sizeof(std::uint64_t));
    } else {
      for (std::int64_t k = 0; k < n; ++k) unmark(rows[k]);
    }
  }

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  std::uint8_t* bytes() const noexcept { return reinterpret_cast<std::uint8_t*>(words_.get()); }
  // Whether going through all words takes no longer than going through so many rows.
  bool are_many(std::int64_t n) const noexcept { return n_words_ / 4 < n; }

  std::unique_ptr<std::uint64_t[], Free> words_;
  std::int64_t n_words_ = 0;
};

}  // namespace fastopt
