// The memory of a plan's weights and slots, which no gradient may overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastopt {

class Spans {
 public:
  // Makes room for n spans. May throw std::bad_alloc; nothing else does.
  void reserve(std::size_t n) { spans_.reserve(n); }

  void add(const void* data, std::size_t size) noexcept {
    const auto lo = reinterpret_cast<std::uintptr_t>(data);
    if (size > 0) spans_.push_back(Span{lo, lo + size});
  }

  // Sorts what was added. False: two of them overlap.
  bool close() noexcept {
    std::sort(spans_.begin(), spans_.end(),
              [](const Span& a, const Span& b) { return a.lo < b.lo; });
    for (std::size_t k = 1; k < spans_.size(); ++k) {
      if (spans_[k - 1].hi > spans_[k].lo) return false;
    }
    return true;
  }

  // Whether [data, data + size) meets one of them.
  bool meet(const void* data, std::size_t size) const noexcept {
    const auto lo = reinterpret_cast<std::uintptr_t>(data);
    const auto first = std::partition_point(spans_.begin(), spans_.end(),
                                            [lo](const Span& span) { return span.hi <= lo; });
    return size > 0 && first != spans_.end() && first->lo < lo + size;
  }

 private:
  struct Span {
    std::uintptr_t lo, hi;
  };
  std::vector<Span> spans_;
};

}  // namespace fastopt
