// Rows of a few elements, which a run of the rule by themselves would hardly be worth: some of them
// are gathered on a stage, updated in one run, and scattered back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "deferred.hpp"
#include "grouping.hpp"
#include "table.hpp"
#include "walk.h"

namespace fastopt {

// Look-ups as they are listed, in the form of items.
template <class Word>
struct Listed {
  const Word* rows;
  std::int64_t first;
  Item<Word> operator[](std::int64_t k) const noexcept {
    return {rows[k], static_cast<Word>(first + k)};
  }
};

struct ShortRows {
  static constexpr std::int64_t kStage = 256;  // elements that are updated in one run
  static constexpr std::int64_t kAhead = 64;   // look-ups between fetching and use

  const Table& table;
  const char* values;
  const void* h;
  double rate;  // the part of the weights that decays before
  const run_table* functions;
  const row_walk& walk;  // for the other arrays of which rows are fetched

  static bool is_short(std::int64_t width) noexcept { return width < 8; }

  // Look-ups whose equal rows stand together; returns how many rows there were.
  template <class Items>
  std::int64_t update(const Items& items, std::int64_t n) const noexcept {
    if (table.width == 1) {
      return table.type == 0 ? stage<1, float>(items, n) : stage<1, double>(items, n);
    }
    return table.type == 0 ? stage<0, float>(items, n) : stage<0, double>(items, n);
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

  template <int kWidth, class T, class Items>
  std::int64_t stage(const Items& items, std::int64_t n) const noexcept {
    alignas(64) T staged[2 + FASTOPT_MAX_SLOTS][kStage];
    T* w = staged[0];
    T* g = staged[1];
    void* slots[FASTOPT_MAX_SLOTS];
    for (int s = 0; s < table.n_slots; ++s) slots[s] = staged[2 + s];
    const std::int64_t width = kWidth != 0 ? kWidth : table.width;
    const std::int64_t capacity = kStage / std::max<std::int64_t>(1, width);
    std::uint16_t half[kStage];
    std::int64_t rows[kStage];
    std::int64_t n_unique = 0, n_staged = 0;
    for (std::int64_t k = 0; k < std::min(kAhead, n); ++k) fetch_all(items[k]);
    for (std::int64_t k = 0; k < n;) {
      const auto row = items[k].row;
      const std::int64_t at = n_staged * width;
      copy(g + at, value<T>(items[k].position), width);
      if (k + kAhead < n) fetch_all(items[k + kAhead]);
      for (++k; k < n && items[k].row == row; ++k) {
        const T* v = value<T>(items[k].position);
        for (std::int64_t j = 0; j < width; ++j) g[at + j] += v[j];
        if (k + kAhead < n) fetch_all(items[k + kAhead]);
      }
      rows[n_staged] = static_cast<std::int64_t>(row);
      copy(w + at, row_of<T>(table.w, row), width);
      if (table.half != nullptr) copy(half + at, row_of<std::uint16_t>(table.half, row), width);
      for (int s = 0; s < table.n_slots; ++s) {
        copy(staged[2 + s] + at, row_of<T>(table.slots[s], row), width);
      }
      if (table.deferred != nullptr) {
        void* at_slots[FASTOPT_MAX_SLOTS];
        for (int s = 0; s < table.n_slots; ++s) at_slots[s] = staged[2 + s] + at;
        void* at_half = table.half == nullptr ? nullptr : half + at;
        table.deferred->touch(static_cast<std::int64_t>(row), w + at, at_half, at_slots);
      }
      ++n_unique;
      if (++n_staged < capacity && k < n) continue;
      if (table.half != nullptr) {
        functions->refresh[table.half_type](w, half, n_staged * width);
      }
      table.run(w, g, slots, h, rate, n_staged * width);
      if (table.half != nullptr) functions->narrow[table.half_type](half, w, n_staged * width);
      for (std::int64_t r = 0; r < n_staged; ++r) {
        copy(row_of<T>(table.w, rows[r]), w + r * width, width);
        if (table.half != nullptr) {
          copy(row_of<std::uint16_t>(table.half, rows[r]), half + r * width, width);
        }
        for (int s = 0; s < table.n_slots; ++s) {
          copy(row_of<T>(table.slots[s], rows[r]), staged[2 + s] + r * width, width);
        }
      }
      n_staged = 0;
    }
    return n_unique;
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
  template <class T>
  const T* value(std::int64_t position) const noexcept {
    return reinterpret_cast<const T*>(values) + position * table.width;
  }
  template <class T>
  T* row_of(char* array, std::int64_t row) const noexcept {
    return reinterpret_cast<T*>(array) + row * table.width;
  }
  template <class T>
  static void copy(T* to, const T* from, std::int64_t n) noexcept {
    for (std::int64_t j = 0; j < n; ++j) to[j] = from[j];
  }
};

}  // namespace fastopt
