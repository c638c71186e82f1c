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

namespace fastopt {

class Marks {
 public:
  // False: no memory.
  bool reserve(std::int64_t n_rows) noexcept {
    if (bytes_ == nullptr) {
      size_ = n_rows / 8 + 1;
      bytes_.reset(static_cast<std::uint8_t*>(std::calloc(static_cast<std::size_t>(size_), 1)));
    }
    return exist();
  }
  bool exist() const noexcept { return bytes_ != nullptr; }

  // Whether the row is new; never, without memory. Threads may mark rows at a time that don't share
  // a byte: eight rows do, from a multiple of eight on.
  bool mark(std::uint64_t row) const noexcept {
    if (!exist()) return false;
    std::uint8_t& byte = bytes_.get()[row >> 3];
    const unsigned bit = 1u << (row & 7);
    const bool fresh = (byte & bit) == 0;
    byte = static_cast<std::uint8_t>(byte | bit);
    return fresh;
  }
  // The row, and those that share its byte.
  void unmark(std::uint64_t row) const noexcept {
    if (exist()) bytes_.get()[row >> 3] = 0;
  }
  // The only rows that are marked: one by one, or all there are where these are not many.
  template <class Word>
  void unmark_all(const Word* rows, std::int64_t n) const noexcept {
    if (exist() && size_ / 32 < n) {
      std::memset(bytes_.get(), 0, static_cast<std::size_t>(size_));
    } else {
      for (std::int64_t k = 0; k < n; ++k) unmark(rows[k]);
    }
  }

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<std::uint8_t[], Free> bytes_;
  std::int64_t size_ = 0;
};

}  // namespace fastopt
