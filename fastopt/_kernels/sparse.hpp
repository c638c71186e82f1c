// The sparse driver: one table, the look-ups of one gradient, any rule. Its work is cut into tasks,
// which a sweep (sweep.hpp) runs together with those of other tables.
//
// It knows no rule: the walk over a bucket of look-ups is called by pointer, since it is compiled
// with the rule in it (walk.h). Row numbers come from a Grouper, which has checked them. The summed
// gradient of a row lives in a buffer in the first cache right before the rule reads it, and
// nowhere else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "deferred.hpp"
#include "grouping.hpp"
#include "marks.hpp"
#include "pool.hpp"
#include "radix_sort.hpp"
#include "reduced.hpp"
#include "short_rows.hpp"
#include "table.h"
#include "table.hpp"
#include "walk.h"

namespace fastopt {

class SparseUpdate {
 public:
  static constexpr std::int64_t kBlock = 2048;     // elements of a buffer on the stack
  static constexpr std::int64_t kAlone = 1 << 15;  // elements below which the caller works alone
  static constexpr std::int64_t kListed = 1024;    // different rows that are a task
  static constexpr std::int64_t kNarrow = 1024;    // words of bits on the stack
  static constexpr std::int64_t kWideRow = 256;    // bytes of rows that are worth a partition
  static constexpr std::int64_t kFar = 1 << 25;    // bytes of rows, if they are so many

  // Begins to load the look-ups of `own`; see Grouper::begin_load.
  bool begin_load(const Table& table, const void* indices, bool indices64, std::int64_t n,
                  int threads) noexcept {
    counted_ = false;
    grouper_ = &own_;
    return own_.begin_load(indices, indices64, n, table.n_rows, bucket_rows(table),
                           !table.rule->sequential, may_list(table),
                           !goes_in_order(table, n, threads), threads);
  }
  // Takes the look-ups that another one has loaded, and lives as long.
  void share(const SparseUpdate& other) noexcept {
    counted_ = false;
    grouper_ = other.grouper_;
  }
  // Whether look-ups that were loaded for the one table are right for the other.
  static bool may_share(const Table& one, const Table& other) noexcept {
    return one.n_rows == other.n_rows && bucket_rows(one) == bucket_rows(other) &&
           !one.rule->sequential;
  }
  Grouper& grouper() const noexcept { return *grouper_; }

  // Elements that a step visits.
  std::int64_t work(const Table& table) const noexcept {
    return (table.every_row ? table.n_rows : grouper_->size()) * table.width;
  }
  // False: no memory, nothing was changed. `decays`: run will be given a rate. Look-ups that go by
  // buckets are to be scattered then.
  bool prepare(const Table& table, bool decays, int threads) noexcept {
    // A row decays the first time only.
    if (table.rule->sequential && !marks_.reserve(table.n_rows) && decays) return false;
    as_listed_ = may_list(table) && all_differ(table);
    in_order_ = !as_listed_ && goes_in_order(table, grouper_->size(), threads);
    return !by_buckets() || grouper_->partitioned() || grouper_->reserve_partition();
  }
  bool by_buckets() const noexcept { return !in_order_ && !as_listed_; }
  // Each row comes from elsewhere in memory: that takes long, however short it is.
  bool lists_many() const noexcept { return as_listed_ && grouper_->size() >= 8 * kListed; }

  // `rate` is the part of a row's weights that decays before the rule. Then come n_tasks() tasks,
  // in any order, on any threads; but those of one bucket of look-ups that are shared, one by one.
  void begin_run(const Table& table, const void* values, const void* scalars, double rate,
                 const run_table* functions) noexcept {
    table_ = &table;
    values_ = static_cast<const char*>(values);
    h_ = scalars;
    rate_ = rate;
    functions_ = functions;
    add_ = functions->add[table.type];
    decay_ = functions->decay[table.type];
    refresh_ = functions->refresh[table.half_type];
    narrow_ = functions->narrow[table.half_type];
    item_size_ = table.item_size();
    row_size_ = table.width * item_size_;
    set_walk();
  }
  std::int64_t n_tasks() const noexcept {
    if (in_order_) return 1;
    return as_listed_ ? (grouper_->size() + kListed - 1) / kListed : grouper_->n_buckets();
  }
  void run_task(std::ptrdiff_t t) noexcept {
    const bool wide = grouper_->wide();
    if (in_order_) {
      wide ? walk_in_order<std::uint64_t>() : walk_in_order<std::uint32_t>();
    } else if (as_listed_) {
      wide ? walk_listed<std::uint64_t>(t) : walk_listed<std::uint32_t>(t);
    } else {
      wide ? walk<std::uint64_t>(t) : walk<std::uint32_t>(t);
    }
  }
  void end_run() noexcept {
    if (in_order_) return;
    counted_ = as_listed_ || !table_->rule->sequential || marks_.exist();
    n_unique_ = as_listed_ ? grouper_->size() : grouper_->n_unique();
  }

  // Unique rows of the look-ups loaded last, or Grouper::kNoMemory.
  std::int64_t rows_touched(parallel_fn parallel, int threads) noexcept {
    if (!counted_) {
      n_unique_ = sort_all(*grouper_, nullptr, nullptr, nullptr, parallel, threads);
      counted_ = n_unique_ >= 0;
    }
    return n_unique_;
  }

 private:
  // Whether rows that all differ may be updated in the order in which they are listed.
  static bool may_list(const Table& table) noexcept { return !table.every_row; }
  // Whether rows are so short that some at a time are updated on a stage.
  static bool stages(const Table& table) noexcept {
    return ShortRows::is_short(table.width) && table.rule->reduction == 0 && !table.has_copies() &&
           !table.rule->sequential;
  }
  // Whether look-ups are taken as they came, which a rule must allow. One thread, too, is faster by
  // buckets where many wide rows are far away: those of a bucket stay in the second cache.
  static bool goes_in_order(const Table& table, std::int64_t n, int threads) noexcept {
    const std::int64_t row_size = table.width * table.item_size();
    const bool far = row_size >= kWideRow && std::min(n, table.n_rows) * row_size >= kFar;
    return table.rule->sequential && (n * table.width < kAlone || (threads == 1 && !far));
  }
  // With rows that are updated in any case, how many are a bucket.
  static std::int64_t bucket_rows(const Table& table) noexcept {
    if (!table.every_row) return 0;
    return std::max<std::int64_t>(1, kAlone / std::max<std::int64_t>(1, table.width));
  }

  template <class Word>
  void walk(std::int64_t b) noexcept {
    Bucket& bucket = grouper_->bucket(b);
    const std::int64_t n = bucket.hi - bucket.lo;
    if (table_->rule->sequential) {
      const Item<Word>* items = grouper_->items<Word>(b);
      bucket.n_unique = count_unsorted(items, n, bucket);
      walk_rows(items, n);
      if (rate_ != 0) unmark_all(items, n);
    } else if (table_->every_row) {
      bucket.n_unique =
          walk_every_row(grouper_->sorted<Word>(b), n, bucket.first_row, bucket.end_row);
    } else if (stages(*table_)) {
      bucket.n_unique = short_rows().update(grouper_->sorted<Word>(b), n);
    } else {
      bucket.n_unique = walk_rows(grouper_->sorted<Word>(b), n);
    }
  }

  void set_walk() noexcept {
    walk_.w = table_->w;
    std::copy_n(table_->slots, FASTOPT_MAX_SLOTS, walk_.slots);
    walk_.values = values_;
    walk_.h = h_;
    walk_.width = table_->width;
    // Four to sixteen kilobytes of each array, but not too few rows.
    walk_.ahead = in_order_ || row_size_ > 512 ? 16
                  : row_size_ <= 64            ? 64
                  : row_size_ <= 256           ? 48
                                               : 32;
    walk_.batch = std::clamp<std::int64_t>(kBlock / std::max<std::int64_t>(1, table_->width), 1,
                                           FASTOPT_WALK_ROWS);
    const bool half = table_->half != nullptr, deferred = table_->deferred != nullptr;
    walk_.owner = this;
    const bool late = deferred && !half && rate_ == 0 && table_->rule->late;
    walk_.missed = late ? missed_row : nullptr;
    walk_.before = !late && (half || deferred || rate_ != 0) ? before_row : nullptr;
    walk_.after = half ? after_row : nullptr;
    walk_.n_others = 0;
    if (half) add_other(table_->half, row_size_ / 2);
    if (deferred) {
      add_other(static_cast<const char*>(table_->deferred->last_of(0)), sizeof(std::int32_t));
    }
  }
  void add_other(const char* rows, std::int64_t size) noexcept {
    walk_.others[walk_.n_others] = rows;
    walk_.other_size[walk_.n_others++] = size;
  }

  static int missed_row(const void* self, std::int64_t row, double* numbers) {
    const SparseUpdate& u = *static_cast<const SparseUpdate*>(self);
    const std::int64_t element = row * u.table_->width;
    void* slots[FASTOPT_MAX_SLOTS];
    u.table_->locate(row, element, slots);
    char* const w = u.table_->w + element * u.item_size_;
    return u.table_->deferred->touch_late(row, w, slots, numbers);
  }
  static void before_row(const void* self, std::int64_t row) {
    const SparseUpdate& u = *static_cast<const SparseUpdate*>(self);
    const std::int64_t offset = row * u.row_size_;
    u.touch(row);
    if (u.table_->half != nullptr) {
      u.refresh_(u.table_->w + offset, u.half_at(offset), u.table_->width);
    }
    if (u.rate_ == 0 || !u.comes_first(row)) return;
    u.decay_(u.table_->w + offset, u.rate_, u.table_->width);
  }
  static void after_row(const void* self, std::int64_t row) {
    const SparseUpdate& u = *static_cast<const SparseUpdate*>(self);
    const std::int64_t offset = row * u.row_size_;
    u.narrow_(u.half_at(offset), u.table_->w + offset, u.table_->width);
  }

  // Returns how many rows there were, or, of rules that take duplicates one after the other,
  // look-ups.
  std::int64_t walk_rows(const Item<std::uint32_t>* items, std::int64_t n) const noexcept {
    static_assert(sizeof(Item<std::uint32_t>) == sizeof(look_up));
    if (table_->width == 0 || table_->has_copies() ||
        (table_->width > kBlock && !table_->rule->sequential)) {
      return walk_wide_rows(items, n);
    }
    alignas(64) double sum[kBlock];
    row_walk walk = walk_;
    walk.sum = sum;
    return table_->rule->walk[table_->type](&walk, reinterpret_cast<const look_up*>(items), n);
  }
  std::int64_t walk_rows(const Item<std::uint64_t>* items, std::int64_t n) const noexcept {
    return walk_wide_rows(items, n);
  }

  // Whether it is the first time in this step. Rules that take duplicates one after the other come
  // to a row with each of them.
  bool comes_first(std::uint64_t row) const noexcept {
    return !table_->rule->sequential || as_listed_ || marks_.mark(row);
  }

  // Look-ups as they came, for rules that take duplicates one after the other.
  template <class Word>
  void walk_in_order() noexcept {
    const Word* rows = grouper_->rows<Word>();
    const std::int64_t n = grouper_->size();
    n_unique_ = marks_.count(rows, n, functions_);
    counted_ = marks_.exist();
    update_in_order<Word>(0, n);
    if (rate_ != 0) marks_.unmark_all(rows, n);
  }
  template <class Word>
  void update_in_order(std::int64_t first, std::int64_t n) const noexcept {
    const Word* rows = grouper_->rows<Word>() + first;
    if (sizeof(Word) == sizeof(std::uint32_t) && !table_->has_copies()) {
      row_walk walk = walk_;
      walk.values += first * row_size_;
      table_->rule->in_order[table_->type](&walk, reinterpret_cast<const std::uint32_t*>(rows), n);
    } else {
      for (std::int64_t k = 0; k < n; ++k) {
        const Item<std::uint64_t> item{rows[k], static_cast<std::uint64_t>(first + k)};
        walk_wide_rows(&item, 1);
      }
    }
  }

  // ---- by blocks of columns: rows wider than a buffer, numbers of rows wider than 32 bits, and
  // weights that are copied

  template <class Word>
  const char* value(const Item<Word>& item) const noexcept {
    return values_ + static_cast<std::int64_t>(item.position) * row_size_;
  }
  char* half_at(std::int64_t offset) const noexcept {
    return table_->half == nullptr ? nullptr : table_->half + offset / 2;
  }
  // The rule on n elements; `times`: what tells this update of them from others in this step.
  void run_at(std::int64_t element, const void* g, std::int64_t n, double rate = 0,
              std::uint32_t times = 0) const noexcept {
    float copy[kBlock];
    void* slots[FASTOPT_MAX_SLOTS];
    table_->locate(0, element, slots);
    void* w = table_->open(functions_, element, n, 0, copy);
    table_->run(w, g, slots, h_, rate, n);
    table_->close(functions_, element, n, w, times);
  }

  // What a row has missed.
  void touch(std::int64_t row) const noexcept {
    if (table_->deferred == nullptr) return;
    const std::int64_t element = row * table_->width;
    void* slots[FASTOPT_MAX_SLOTS];
    table_->locate(row, element, slots);
    table_->deferred->touch(row, table_->w + element * item_size_, half_at(row * row_size_), slots);
  }
  // Without the rule.
  void decay_row(std::int64_t row) const noexcept {
    float copy[kBlock];
    for (std::int64_t column = 0; rate_ != 0 && column < table_->width; column += kBlock) {
      const std::int64_t n = std::min(kBlock, table_->width - column);
      const std::int64_t element = row * table_->width + column;
      table_->close(functions_, element, n, table_->open(functions_, element, n, rate_, copy), 1);
    }
  }

  // Elements [column, column + width) of a row's gradient, which are summed up where there are
  // more.
  template <class Word>
  const void* gradient(const Item<Word>* items, std::int64_t n, void* sum, std::int64_t column,
                       std::int64_t width) const noexcept {
    const std::int64_t offset = column * item_size_;
    const void* g = value(items[0]) + offset;
    if (n == 1) return g;
    add_(sum, g, value(items[1]) + offset, width);
    for (std::int64_t k = 2; k < n; ++k) add_(sum, sum, value(items[k]) + offset, width);
    return sum;
  }

  // Rows decay when they are updated first.
  template <class Word>
  void update_wide_row(std::int64_t row, const Item<Word>* items, std::int64_t n,
                       bool first = true) const noexcept {
    alignas(64) double sum[kBlock];
    touch(row);
    if (table_->rule->reduction != 0) {
      const Reduced reduced{*table_, functions_, h_, rate_};
      reduced.update(row, [&](std::int64_t column, std::int64_t width) {
        return gradient(items, n, sum, column, width);
      });
      return;
    }
    const auto times = static_cast<std::uint32_t>(table_->rule->sequential ? items[0].position : 0);
    for (std::int64_t column = 0; column < table_->width; column += kBlock) {
      const std::int64_t width = std::min(kBlock, table_->width - column);
      run_at(row * table_->width + column, gradient(items, n, sum, column, width), width,
             first ? rate_ : 0, times);
    }
  }

  template <class Word>
  std::int64_t walk_wide_rows(const Item<Word>* items, std::int64_t n) const noexcept {
    std::int64_t n_unique = 0, fetched = table_->has_copies() ? 0 : n;
    for (std::int64_t k = 0, end = 0; k < n; k = end, ++n_unique) {
      for (; fetched < std::min(n, k + walk_.ahead); ++fetched) fetch_wide(items[fetched]);
      const Word row = items[k].row;
      end = k + 1;
      while (!table_->rule->sequential && end < n && items[end].row == row) ++end;
      const bool first = rate_ == 0 || comes_first(row);
      update_wide_row(static_cast<std::int64_t>(row), items + k, end - k, first);
    }
    return n_unique;
  }

  template <class Word>
  void fetch_wide(const Item<Word>& item) const noexcept {
    const std::int64_t row = static_cast<std::int64_t>(item.row);
    fetch(value(item), row_size_);
    for (int s = 0; s < table_->n_slots; ++s) {
      const std::int64_t size = table_->rule->row_slots >> s & 1 ? item_size_ : row_size_;
      fetch(table_->slots[s] + row * size, size);
    }
    if (walk_.n_others) fetch_others(&walk_, row);
  }

  // Rows are told apart by a bit each; those of a narrow bucket by some that are at hand.
  template <class Word>
  std::int64_t count_unsorted(const Item<Word>* items, std::int64_t n,
                              const Bucket& bucket) const noexcept {
    const std::int64_t n_words = (bucket.end_row - bucket.first_row + 63) / 64;
    if (n_words <= std::min(kNarrow, n)) {
      std::uint64_t bits[kNarrow];
      std::fill_n(bits, n_words, 0);
      const auto row = [items, &bucket](std::int64_t k) noexcept -> std::uint64_t {
        return items[k].row - static_cast<std::uint64_t>(bucket.first_row);
      };
      return count_by_bits(bits, n_words, n, row, functions_);
    }
    std::int64_t n_unique = 0;
    for (std::int64_t k = 0; k < n; ++k) n_unique += marks_.mark(items[k].row);
    unmark_all(items, n);
    return n_unique;
  }
  template <class Word>
  void unmark_all(const Item<Word>* items, std::int64_t n) const noexcept {
    for (std::int64_t k = 0; k < n; ++k) marks_.unmark(items[k].row);
  }

  // Whether no row is looked up twice, as in gradients that were summed by row before: rows are
  // then updated as they are listed. That they ascend is known since they were loaded. Of short
  // rows it is found out if they don't, since to sort them would cost more; duplicates are found
  // early.
  bool all_differ(const Table& table) noexcept {
    if (grouper_->ascends()) return true;
    if (!stages(table) || !marks_.reserve(table.n_rows)) return false;
    return grouper_->wide() ? all_differ<std::uint64_t>() : all_differ<std::uint32_t>();
  }
  template <class Word>
  bool all_differ() const noexcept {
    const Word* rows = grouper_->rows<Word>();
    std::int64_t k = 0;
    while (k < grouper_->size() && marks_.mark(rows[k])) ++k;
    marks_.unmark_all(rows, k);
    return k == grouper_->size();
  }

  template <class Word>
  void walk_listed(std::int64_t t) const noexcept {
    const std::int64_t first = t * kListed, n = std::min(kListed, grouper_->size() - first);
    const Word* rows = grouper_->rows<Word>();
    if (table_->rule->sequential) {
      update_in_order<Word>(first, n);
    } else if (table_->width == 1 && stages(*table_) && table_->deferred == nullptr &&
               table_->half == nullptr) {
      short_rows().update_singles(rows, first, n);
    } else {
      Item<Word> items[kListed];
      for (std::int64_t k = 0; k < n; ++k) {
        items[k] = {rows[first + k], static_cast<Word>(first + k)};
      }
      walk_rows(items, n);
    }
  }
  ShortRows short_rows() const noexcept {
    return {*table_, values_, h_, rate_, functions_, walk_};
  }

  // All rows of a range, in blocks whose gradient is laid out densely in the buffer.
  template <class Word>
  std::int64_t walk_every_row(const Item<Word>* items, std::int64_t n, std::int64_t row,
                              std::int64_t end_row) const noexcept {
    static const double zeros[kBlock] = {};
    alignas(64) double buffer[kBlock];
    char* g = reinterpret_cast<char*>(buffer);
    const std::int64_t width = table_->width;
    const double rate = table_->decay_listed ? 0 : rate_;  // of rows without look-ups
    std::int64_t n_unique = 0, k = 0;
    if (width > kBlock) {
      for (; row < end_row; ++row) {
        std::int64_t end = k;
        while (end < n && static_cast<std::int64_t>(items[end].row) == row) ++end;
        if (end > k) {
          update_wide_row(row, items + k, end - k);
          ++n_unique;
        } else {
          for (std::int64_t column = 0; column < width; column += kBlock) {
            run_at(row * width + column, zeros, std::min(kBlock, width - column),
                   rate);
          }
        }
        k = end;
      }
      return n_unique;
    }
    const std::int64_t block_rows = kBlock / std::max<std::int64_t>(1, width);
    const std::int64_t ahead = walk_.ahead;
    for (std::int64_t k2 = 1; k2 < std::min(ahead, n); ++k2) fetch(value(items[k2]), row_size_);
    for (; row < end_row; row += block_rows) {
      const std::int64_t rows = std::min(block_rows, end_row - row);
      const bool touched = k < n && static_cast<std::int64_t>(items[k].row) < row + rows;
      if (touched) std::memset(g, 0, static_cast<std::size_t>(rows * row_size_));
      std::int64_t last = -1;
      for (; k < n && static_cast<std::int64_t>(items[k].row) < row + rows; ++k) {
        if (k + ahead < n) fetch(value(items[k + ahead]), row_size_);
        const std::int64_t r = static_cast<std::int64_t>(items[k].row);
        char* sum = g + (r - row) * row_size_;
        if (r != last) {
          std::memcpy(sum, value(items[k]), static_cast<std::size_t>(row_size_));
          if (table_->decay_listed) decay_row(r);
          ++n_unique;
        } else {
          add_(sum, sum, value(items[k]), width);
        }
        last = r;
      }
      run_at(row * width, touched ? static_cast<const void*>(g) : zeros, rows * width, rate);
    }
    return n_unique;
  }

  Grouper own_;
  Grouper* grouper_ = &own_;
  const Table* table_ = nullptr;
  const char* values_ = nullptr;
  const void* h_ = nullptr;
  double rate_ = 0;
  const run_table* functions_ = nullptr;
  void (*decay_)(void*, double, std::ptrdiff_t) = nullptr;
  void (*add_)(void*, const void*, const void*, std::ptrdiff_t) = nullptr;
  void (*refresh_)(void*, const void*, std::ptrdiff_t) = nullptr;
  void (*narrow_)(void*, const void*, std::ptrdiff_t) = nullptr;
  std::int64_t item_size_ = 0, row_size_ = 0;
  row_walk walk_ = {};
  Marks marks_;  // of rows seen, in a step that has a use for them; none between steps
  std::int64_t n_unique_ = 0;
  bool in_order_ = false, as_listed_ = false, counted_ = false;
};

}  // namespace fastopt
