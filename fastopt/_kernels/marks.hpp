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
  // Marks the rows, none of which is marked before; returns how many different ones they are. Where
  // these are not far fewer than the table's, bits are counted in the end.
  template <class Word>
  std::int64_t mark_all(const Word* rows, std::int64_t n,
                        const run_table* functions) const noexcept {
    std::int64_t n_fresh = 0;
    if (!exist() || !are_many(n)) {
      for (std::int64_t k = 0; k < n; ++k) n_fresh += mark(rows[k]);
      return n_fresh;
    }
    std::uint64_t* const words = words_.get();
    for (std::int64_t k = 0; k < n; ++k) bytes()[rows[k] >> 3] |= 1u << (rows[k] & 7);
    return functions->merge_marks(words, 0, 0, 0, n_words_);
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
