// Rows of a few elements, which a run of the rule by themselves would hardly be worth: some of them
// are gathered on a stage, updated in one run, and scattered back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "deferred.hpp"
#include "radix_sort.hpp"
#include "table.h"
#include "table.hpp"
#include "walk.h"

namespace fastopt {

// A running sum of rows of kWidth elements. Where it begins anew cannot be foreseen, so there is no
// branch: bits that are not kept become those of -0, to which a row is added without a change.
template <class T, int kWidth>
struct RowSum {
  static constexpr int kLanes = kWidth >= 4 ? 4 : kWidth >= 2 ? 2 : 1;
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  typedef T Vector __attribute__((vector_size(kLanes * sizeof(T)), aligned(sizeof(T)), may_alias));
  typedef Bits Mask __attribute__((vector_size(kLanes * sizeof(T)), aligned(sizeof(T)), may_alias));

  Vector sum = {};
  RowSum<T, kWidth - kLanes> rest;

  void add(const T* row, bool afresh, T* out) noexcept {
    const Bits keep = static_cast<Bits>(afresh) - 1;
    const Bits minus = static_cast<Bits>(afresh) << (8 * sizeof(T) - 1);
    sum = (Vector)(((Mask)sum & keep) | minus) + *reinterpret_cast<const Vector*>(row);
    *reinterpret_cast<Vector*>(out) = sum;
    rest.add(row + kLanes, afresh, out + kLanes);
  }
};
template <class T>
struct RowSum<T, 0> {
  void add(const T*, bool, T*) noexcept {}
};

struct ShortRows {
  static constexpr std::int64_t kAhead = 64;  // look-ups between fetching and use

  const Table& table;
  const char* values;
  const void* h;
  double rate;  // the part of the weights that decays before
  const run_table* functions;
  const row_walk& walk;  // for the other arrays of which rows are fetched

  static bool is_short(std::int64_t width) noexcept { return width > 0 && width < 8; }

  // Look-ups whose equal rows stand together; returns how many rows there were.
  template <class Word>
  std::int64_t update(const Item<Word>* items, std::int64_t n) const noexcept {
    return table.type == 0 ? update_of<float>(items, n) : update_of<double>(items, n);
  }

  // Look-ups first, ..., of which no row comes twice, of rows of one element that have weights and
  // slots and nothing else.
  template <class Word>
  void update_singles(const Word* rows, std::int64_t first, std::int64_t n) const noexcept {
    table.type == 0 ? singles<float>(rows, first, n) : singles<double>(rows, first, n);
  }

 private:
  // A few at a time, so that the lines of all arrays of those that come next are on their way
  // together.
  template <class T, class Word>
  void singles(const Word* rows, std::int64_t first, std::int64_t n) const noexcept {
    constexpr std::int64_t kRows = 16, kFetched = 32;
    alignas(64) T staged[1 + FASTOPT_MAX_SLOTS][kRows];
    T* arrays[1 + FASTOPT_MAX_SLOTS];
    void* slots[FASTOPT_MAX_SLOTS];
    const int n_arrays = 1 + table.n_slots;
    for (int a = 0; a < n_arrays; ++a) {
      arrays[a] = reinterpret_cast<T*>(a == 0 ? table.w : table.slots[a - 1]);
      if (a > 0) slots[a - 1] = staged[a];
    }
    const std::int64_t end = first + n;
    const auto fetch_some = [&](std::int64_t lo, std::int64_t hi) {
      for (std::int64_t k = lo; k < std::min(hi, end); ++k) {
        for (int a = 0; a < n_arrays; ++a) __builtin_prefetch(arrays[a] + rows[k], 1, 3);
      }
    };
    fetch_some(first, first + kFetched);
    for (std::int64_t at = first; at < end; at += kRows) {
      const std::int64_t m = std::min(kRows, end - at);
      fetch_some(at + kFetched, at + kFetched + kRows);
      for (int a = 0; a < n_arrays; ++a) {
        for (std::int64_t k = 0; k < m; ++k) staged[a][k] = arrays[a][rows[at + k]];
      }
      table.run(staged[0], reinterpret_cast<const T*>(values) + at, slots, h, rate, m);
      for (int a = 0; a < n_arrays; ++a) {
        for (std::int64_t k = 0; k < m; ++k) arrays[a][rows[at + k]] = staged[a][k];
      }
    }
  }

  template <class T, class Word>
  std::int64_t update_of(const Item<Word>* items, std::int64_t n) const noexcept {
    switch (table.width) {
      case 1:
        return update_as<1, T>(items, n);
      case 2:
        return update_as<2, T>(items, n);
      case 3:
        return update_as<3, T>(items, n);
      case 4:
        return update_as<4, T>(items, n);
      case 5:
        return update_as<5, T>(items, n);
      case 6:
        return update_as<6, T>(items, n);
      default:
        return update_as<7, T>(items, n);
    }
  }

  // Some rows at work. Of more than two elements there are two small stages, which take turns: what
  // was copied to one has long been written when the rule reads it. Shorter rows come in so many
  // copies that longer runs of the rule are worth more.
  template <int kWidth, class T>
  struct Stage {
    static constexpr int kTurns = kWidth > 2 ? 2 : 1;
    static constexpr std::int64_t kElements = kWidth > 2 ? 64 : 256;
    static constexpr std::int64_t kRows = kElements / kWidth;

    alignas(64) T w[kElements], g[kElements], slots[FASTOPT_MAX_SLOTS][kElements];
    std::uint16_t half[kElements];
    std::int64_t rows[kRows];
    std::int64_t n = 0;
  };

  template <int kWidth, class T, class Word>
  std::int64_t update_as(const Item<Word>* items, std::int64_t n) const noexcept {
    constexpr int kTurns = Stage<kWidth, T>::kTurns;
    Stage<kWidth, T> stages[kTurns];
    std::int64_t n_unique = 0;
    int turn = 0;
    for (std::int64_t k = 0; k < std::min(kAhead, n); ++k) fetch_all(items[k]);
    for (std::int64_t k = 0; k < n;) {
      k = fill(stages[turn], items, k, n);
      n_unique += stages[turn].n;
      turn = (turn + 1) % kTurns;
      finish(stages[turn]);
    }
    for (auto& stage : stages) finish(stage);
    return n_unique;
  }

  // Sums up the gradients of as many rows as there is room for, from look-up k on, and gathers the
  // rows. Returns where the look-ups of the next row begin.
  template <int kWidth, class T, class Word>
  std::int64_t fill(Stage<kWidth, T>& stage, const Item<Word>* items, std::int64_t k,
                    std::int64_t n) const noexcept {
    RowSum<T, kWidth> sum;
    std::int64_t staged = 0, last = -1;
    for (; k < n; ++k) {
      const Item<Word> item = items[k];
      const std::int64_t row = static_cast<std::int64_t>(item.row);
      const bool afresh = row != last;
      if (staged + afresh > stage.kRows) break;
      staged += afresh;
      last = row;
      sum.add(value<kWidth, T>(item.position), afresh, stage.g + (staged - 1) * kWidth);
      stage.rows[staged - 1] = row;
      if (k + kAhead < n) fetch_all(items[k + kAhead]);
    }
    stage.n = staged;
    for (std::int64_t r = 0; r < staged; ++r) {
      copy<kWidth>(stage.w + r * kWidth, row_of<kWidth, T>(table.w, stage.rows[r]));
    }
    for (int s = 0; s < table.n_slots; ++s) {
      for (std::int64_t r = 0; r < staged; ++r) {
        copy<kWidth>(stage.slots[s] + r * kWidth, row_of<kWidth, T>(table.slots[s], stage.rows[r]));
      }
    }
    for (std::int64_t r = 0; table.half != nullptr && r < staged; ++r) {
      const std::uint16_t* half = row_of<kWidth, std::uint16_t>(table.half, stage.rows[r]);
      copy<kWidth>(stage.half + r * kWidth, half);
    }
    for (std::int64_t r = 0; table.deferred != nullptr && r < staged; ++r) {
      void* slots[FASTOPT_MAX_SLOTS];
      for (int s = 0; s < table.n_slots; ++s) slots[s] = stage.slots[s] + r * kWidth;
      table.deferred->touch(stage.rows[r], stage.w + r * kWidth,
                            table.half == nullptr ? nullptr : stage.half + r * kWidth, slots);
    }
    return k;
  }

  // Updates the rows of a stage, and copies them back.
  template <int kWidth, class T>
  void finish(Stage<kWidth, T>& stage) const noexcept {
    const std::int64_t n = std::exchange(stage.n, 0);
    if (n == 0) return;
    void* slots[FASTOPT_MAX_SLOTS];
    for (int s = 0; s < table.n_slots; ++s) slots[s] = stage.slots[s];
    if (table.half != nullptr) functions->refresh[table.half_type](stage.w, stage.half, n * kWidth);
    table.run(stage.w, stage.g, slots, h, rate, n * kWidth);
    if (table.half != nullptr) functions->narrow[table.half_type](stage.half, stage.w, n * kWidth);
    for (std::int64_t r = 0; r < n; ++r) {
      copy<kWidth>(row_of<kWidth, T>(table.w, stage.rows[r]), stage.w + r * kWidth);
      for (int s = 0; s < table.n_slots; ++s) {
        copy<kWidth>(row_of<kWidth, T>(table.slots[s], stage.rows[r]), stage.slots[s] + r * kWidth);
      }
    }
    for (std::int64_t r = 0; table.half != nullptr && r < n; ++r) {
      std::uint16_t* half = row_of<kWidth, std::uint16_t>(table.half, stage.rows[r]);
      copy<kWidth>(half, stage.half + r * kWidth);
    }
  }

  template <class Word>
  void fetch_all(const Item<Word>& item) const noexcept {
    const std::int64_t row = static_cast<std::int64_t>(item.row);
    const std::int64_t size = table.width * table.item_size();
    fetch(values + static_cast<std::int64_t>(item.position) * size, size);
    fetch(table.w + row * size, size);
    for (int s = 0; s < table.n_slots; ++s) fetch(table.slots[s] + row * size, size);
    if (walk.n_others) fetch_others(&walk, row);
  }
  template <int kWidth, class T>
  const T* value(std::int64_t position) const noexcept {
    return reinterpret_cast<const T*>(values) + position * kWidth;
  }
  template <int kWidth, class T>
  static T* row_of(char* array, std::int64_t row) noexcept {
    return reinterpret_cast<T*>(array) + row * kWidth;
  }
  template <int kWidth, class T>
  static void copy(T* to, const T* from) noexcept {
    std::memcpy(to, from, kWidth * sizeof(T));
  }
};

}  // namespace fastopt
