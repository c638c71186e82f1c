// Bags the other way round: for each row that is looked up, the bags that it is in.
//
// A map with a number for each row of the table tells rows that were seen; so nothing is sorted,
// and rows come out by first appearance. Maps live on between calls, and each is given out to one
// caller at a time. Nobody clears them: what is smaller than the caller's first number was left by
// others.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "pause.hpp"
#include "pool.hpp"

namespace fastopt {

class alignas(64) RowMap {
 public:
  static constexpr std::int64_t kMostRows = std::int64_t{1} << 24;  // 64 MiB

  // A map for this many rows and look-ups, in which all is smaller than `base`; or null: too many,
  // no memory, or somebody else has it.
  std::uint32_t* take(std::int64_t n_rows, std::int64_t n, std::uint32_t* base) noexcept {
    if (n_rows > kMostRows || busy_.exchange(true, std::memory_order_acquire)) return nullptr;
    if (n_rows > size_) {
      if (!grow(n_rows)) {
        give_back();
        return nullptr;
      }
    }
    if (n >= UINT32_MAX - next_) {
      std::memset(map_, 0, static_cast<std::size_t>(size_) * sizeof(std::uint32_t));
      next_ = 1;
    }
    *base = next_;
    next_ += static_cast<std::uint32_t>(n);
    return map_;
  }
  void give_back() noexcept { busy_.store(false, std::memory_order_release); }

 private:
  static constexpr std::size_t kHugePage = std::size_t{1} << 21;

  // Zeros from the system, of which only what is looked up is ever touched; in huge pages, since
  // every look-up goes elsewhere.
  bool grow(std::int64_t n_rows) noexcept {
    if (memory_ != nullptr) munmap(memory_, bytes_);
    memory_ = nullptr;
    size_ = 0;
    const std::size_t needed = static_cast<std::size_t>(n_rows) * sizeof(std::uint32_t);
    bytes_ = (needed + 2 * kHugePage - 1) / kHugePage * kHugePage;
    void* got =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return false;
    memory_ = got;
    const std::uintptr_t start =
        (reinterpret_cast<std::uintptr_t>(got) + kHugePage - 1) & ~(kHugePage - 1);
#ifdef MADV_HUGEPAGE
    if (needed >= kHugePage) madvise(reinterpret_cast<void*>(start), bytes_ - kHugePage,
                                     MADV_HUGEPAGE);
#endif
    map_ = reinterpret_cast<std::uint32_t*>(start);
    size_ = n_rows;
    next_ = 1;
    return true;
  }

  std::atomic<bool> busy_{false};
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t* map_ = nullptr;
  std::int64_t size_ = 0;
  std::uint32_t next_ = 1;
};

// As many as threads of the program train at once; those that are never needed take no memory.
class RowMaps {
 public:
  // Returns the map that was taken, as RowMap::take fills in `map` and `base`; or null.
  RowMap* take(std::int64_t n_rows, std::int64_t n, std::uint32_t** map,
               std::uint32_t* base) noexcept {
    for (RowMap& one : maps_) {
      *map = one.take(n_rows, n, base);
      if (*map != nullptr) return &one;
    }
    return nullptr;
  }

 private:
  RowMap maps_[8];
};

// What numbering returns if there is no map to be had.
constexpr std::int64_t kNoMap = INT64_MIN;

// How many look-ups are numbered; whoever sums them may follow closely.
class Progress {
 public:
  static constexpr std::int64_t kStep = 512;

  void reach(std::int64_t n) noexcept { reached_.store(n, std::memory_order_release); }
  void give_up() noexcept { reach(-1); }
  // Returns how many there are by now, at least `wanted`; negative if there will never be.
  std::int64_t wait(std::int64_t wanted) const noexcept {
    for (int polls = 0;; ++polls) {
      const std::int64_t reached = reached_.load(std::memory_order_acquire);
      if (reached >= wanted || reached < 0) return reached;
      polls < kPolls ? pause_core() : std::this_thread::yield();
    }
  }

 private:
  static constexpr int kPolls = 1 << 10;
  alignas(64) std::atomic<std::int64_t> reached_{0};
};

// What is looked up: ids[offsets[b]:offsets[b + 1]] are those of bag b, each with a coefficient of
// type T, or 1 without any. They get row own[b] of g, or row b without any.
template <class T>
struct Transpose {
  const std::int64_t* offsets;
  std::int64_t n_bags;
  const std::int32_t* own;
  const void* ids;
  bool wide;
  const T* coefficients;
  std::int64_t n_rows;

  static constexpr std::int64_t kAhead = 32;

  std::int64_t row_of(std::int64_t bag) const noexcept { return own == nullptr ? bag : own[bag]; }
  bool known(std::int64_t row) const noexcept {
    return static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(n_rows);
  }

  // Numbers the rows by first appearance: number[k] is that of look-up k, unique[u] the row of
  // number u, of the type of ids; there is room for one more. Returns how many there are,
  // -1 - k if look-up k is no row, or kNoMap.
  std::int64_t number(RowMaps* maps, std::uint32_t* number, void* unique,
                      std::int64_t n) const noexcept {
    std::uint32_t base = 0;
    std::uint32_t* map = nullptr;
    RowMap* const rows = maps->take(n_rows, n, &map, &base);
    if (rows == nullptr) return kNoMap;
    Progress progress;
    const std::int64_t found = number_by(map, base, number, unique, n, &progress);
    rows->give_back();
    return found;
  }

  // Numbers rows and adds up what they get, sums[number[k]] += coefficients[k] * g[b], over rows of
  // `width` elements. Two threads do it at once, one behind the other. Returns as `number`.
  std::int64_t number_and_sum(RowMaps* maps, std::uint32_t* number, void* unique, std::int64_t n,
                              const T* g, T* sums, std::int64_t width, parallel_fn parallel,
                              int threads) const noexcept {
    // Look-ups that are summed before another thread comes.
    constexpr std::int64_t kAlone = 1 << 13;
    std::uint32_t base = 0;
    std::uint32_t* map = nullptr;
    RowMap* const rows = maps->take(n_rows, n, &map, &base);
    if (rows == nullptr) return kNoMap;
    Pair pair{*this, map, base, number, unique, n, g, sums, width};
    parallel(Pair::task, &pair, 2, n < kAlone ? 1 : threads);
    rows->give_back();
    return pair.found;
  }

  // Rows that are added up look-up by look-up: to turn the bags around first would take longer.
  static bool is_narrow(std::int64_t width) noexcept {
    return width * static_cast<std::int64_t>(sizeof(T)) <= 128;
  }

  // sums[number[k]] += coefficients[k] * g[b], of which there are n_sums, as far as rows are
  // numbered. Sums of single elements are so close together that to fetch them costs more than to
  // wait.
  void sum_singles(const std::uint32_t* number, const T* g, T* sums, std::int64_t n_sums,
                   const Progress& progress) const noexcept {
    if (n_sums > 0) std::memset(sums, 0, static_cast<std::size_t>(n_sums) * sizeof(T));
    std::int64_t ready = 0;
    for (std::int64_t b = 0; b < n_bags; ++b) {
      if (ready < offsets[b + 1] && (ready = progress.wait(offsets[b + 1])) < 0) return;
      const T mine = g[row_of(b)];
      for (std::int64_t k = offsets[b]; k < offsets[b + 1]; ++k) {
        const T term = coefficients == nullptr ? mine : coefficients[k] * mine;
        sums[number[k]] = sums[number[k]] + term;
      }
    }
  }

  // What row u gets are rows bags[starts[u]:starts[u + 1]] of g, in order, with their coefficients.
  void turn(const std::uint32_t* number, std::int64_t n_unique, std::int64_t* starts,
            std::int32_t* bags, T* turned) const noexcept {
    std::memset(starts, 0, static_cast<std::size_t>(n_unique + 1) * sizeof(std::int64_t));
    const std::int64_t n = offsets[n_bags];
    for (std::int64_t k = 0; k < n; ++k) ++starts[number[k]];
    std::int64_t at = 0;
    for (std::int64_t u = 0; u <= n_unique; ++u) {  // where each row ends
      at += starts[u];
      starts[u] = at;
    }
    // Backwards, so that what counted down stands where its row starts.
    for (std::int64_t b = n_bags - 1; b >= 0; --b) {
      const std::int32_t row = static_cast<std::int32_t>(row_of(b));
      for (std::int64_t k = offsets[b + 1] - 1; k >= offsets[b]; --k) {
        const std::int64_t to = --starts[number[k]];
        bags[to] = row;
        if (coefficients != nullptr) turned[to] = coefficients[k];
      }
    }
  }

 private:
  std::int64_t number_by(std::uint32_t* map, std::uint32_t base, std::uint32_t* number,
                         void* unique, std::int64_t n, Progress* progress) const noexcept {
    return wide ? number_as(static_cast<const volatile std::int64_t*>(ids), map, base, number,
                            static_cast<std::int64_t*>(unique), n, progress)
                : number_as(static_cast<const volatile std::int32_t*>(ids), map, base, number,
                            static_cast<std::int32_t*>(unique), n, progress);
  }

  template <class Id>
  std::int64_t number_as(const volatile Id* id, std::uint32_t* map, std::uint32_t base,
                         std::uint32_t* number, Id* unique, std::int64_t n,
                         Progress* progress) const noexcept {
    std::int64_t n_unique = 0;
    for (std::int64_t k = 0; k < n;) {
      for (const std::int64_t end = std::min(n, k + Progress::kStep); k < end; ++k) {
        if (k + kAhead < n) {
          const std::int64_t later = id[k + kAhead];
          if (known(later)) __builtin_prefetch(map + later, 1, 3);
        }
        const Id row = id[k];
        if (!known(row)) {
          progress->give_up();
          return -1 - k;
        }
        // Without a branch, which would be foreseen badly.
        const std::uint32_t seen = map[row];
        const std::uint32_t fresh = seen < base;
        const std::uint32_t mine =
            seen + ((0u - fresh) & (base + static_cast<std::uint32_t>(n_unique) - seen));
        unique[n_unique] = row;
        n_unique += fresh;
        map[row] = mine;
        number[k] = mine - base;
      }
      progress->reach(k);
    }
    return n_unique;
  }

  // Numbering and adding up. Whoever comes first numbers, so that nobody waits in vain.
  struct Pair {
    const Transpose& job;
    std::uint32_t* map;
    std::uint32_t base;
    std::uint32_t* number;
    void* unique;
    std::int64_t n;
    const T* g;
    T* sums;
    std::int64_t width;
    std::int64_t found = 0;
    Progress progress{};
    std::atomic<int> came{0};

    static void task(void* self, std::ptrdiff_t) noexcept {
      Pair& p = *static_cast<Pair*>(self);
      if (p.came.fetch_add(1, std::memory_order_relaxed) == 0) {
        p.found = p.job.number_by(p.map, p.base, p.number, p.unique, p.n, &p.progress);
      } else if (p.width == 1) {
        p.job.sum_singles(p.number, p.g, p.sums, std::min(p.n, p.job.n_rows), p.progress);
      } else {
        const Sum s{p.job, p.number, p.g, p.sums, p.width, p.progress};
        s.all_columns();
      }
    }
  };

  struct Sum {
    const Transpose& job;
    const std::uint32_t* number;
    const T* g;
    T* sums;
    std::int64_t width;
    const Progress& progress;

    // All look-ups are gone through for as many columns at a time as there are registers for; the
    // rest of a row goes at once, too, but for what doesn't fill a vector.
    void all_columns() const noexcept {
      std::int64_t column = columns_of_rest<112>(columns<128>(0));
      if (sizeof(T) < 8) column = columns<8>(column);
      columns<sizeof(T)>(column);
    }
    // As many whole vectors as are left, of no more than so many bytes.
    template <int kBytes>
    std::int64_t columns_of_rest(std::int64_t column) const noexcept {
      if constexpr (kBytes > 16) {
        const std::int64_t left = (width - column) * static_cast<std::int64_t>(sizeof(T));
        if (left < kBytes) return columns_of_rest<kBytes - 16>(column);
      }
      return columns<kBytes>(column);
    }
    // As many columns as are a multiple of so many bytes; returns the first one left.
    template <int kBytes>
    std::int64_t columns(std::int64_t column) const noexcept {
      constexpr std::int64_t kColumns = kBytes / static_cast<int>(sizeof(T));
      for (; column + kColumns <= width; column += kColumns) {
        job.coefficients != nullptr ? add<kBytes, true>(column) : add<kBytes, false>(column);
      }
      return column;
    }

    template <int kBytes, bool weighted>
    void add(std::int64_t column) const noexcept {
      constexpr std::int64_t kNear = 16;  // look-ups between fetching and use of a sum
      constexpr std::int64_t kFar = 16;   // bags between fetching and use of a row of g
      constexpr int kVector = std::min(kBytes, 16), n = kBytes / kVector;
      typedef T vector __attribute__((vector_size(kVector), aligned(sizeof(T)), may_alias));
      const std::int64_t n_ids = job.offsets[job.n_bags];
      T* const to = sums + column;
      const vector none[n] = {};
      std::int64_t ready = 0;
      std::uint32_t n_unique = 0;
      for (std::int64_t b = 0; b < job.n_bags; ++b) {
        const std::int64_t wanted = std::min(n_ids, job.offsets[b + 1] + kNear);
        if (ready < wanted && (ready = progress.wait(wanted)) < 0) return;
        if (job.own != nullptr && b + kFar < job.n_bags) {
          const char* later = reinterpret_cast<const char*>(g + job.own[b + kFar] * width + column);
          for (int at = 0; at < kBytes; at += 64) __builtin_prefetch(later + at, 0, 3);
        }
        const vector* from = reinterpret_cast<const vector*>(g + job.row_of(b) * width + column);
        vector mine[n];
        for (int j = 0; j < n; ++j) mine[j] = from[j];
        for (std::int64_t k = job.offsets[b]; k < job.offsets[b + 1]; ++k) {
          if (k + kNear < n_ids) {
            const char* later = reinterpret_cast<const char*>(to + number[k + kNear] * width);
            for (int at = 0; at < kBytes; at += 64) __builtin_prefetch(later + at, 1, 3);
          }
          vector* row = reinterpret_cast<vector*>(to + number[k] * width);
          const bool fresh = number[k] == n_unique;
          n_unique += fresh;
          const vector* before = fresh ? none : row;
          if (weighted) {
            const T c = job.coefficients[k];
            for (int j = 0; j < n; ++j) row[j] = before[j] + c * mine[j];
          } else {
            for (int j = 0; j < n; ++j) row[j] = before[j] + mine[j];
          }
        }
      }
    }
  };
};

}  // namespace fastopt
