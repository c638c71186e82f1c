// Which of many look-ups meet in a row: bounds check, partition and stable sort.
//
// The look-ups are copied once, checked in the same pass: whatever another thread does to the
// caller's array afterwards, nothing is addressed by a row number that was not checked. Then they
// are partitioned into buckets, ranges of rows which one thread handles alone, so that no two
// threads meet in a row. Within a bucket they are sorted by row; look-ups of a row stay in order of
// arrival. The result depends neither on the number of threads nor on the borders of buckets.
//
// One thread by itself needs no parts to hand out: look-ups that are not too many for the cache it
// sorts by all digits of the row, from the last to the first, counted when they were loaded.
// Buckets are then made of the first digit.
//
// An item packs row and position into 8 bytes; tables of more than 2**32 rows, and more than 2**32
// look-ups, take 16.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "pool.hpp"
#include "radix_sort.hpp"

namespace fastopt {

// Memory that only grows and is not initialised.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  bool reserve(std::size_t bytes) noexcept {
    if (bytes <= size_) return true;
    std::free(data_);
    size_ = bytes + bytes / 4;
    data_ = std::malloc(size_);
    if (data_ == nullptr) size_ = 0;
    return data_ != nullptr;
  }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Items [lo, hi) of the partition: the look-ups of rows [first_row, end_row).
struct Bucket {
  std::int64_t first_row, end_row;
  std::int64_t lo, hi;
  std::int64_t n_unique;
  bool sorted;
};

class Grouper {
 public:
  static constexpr std::int64_t kBucketItems = 1024;  // with its spare in the first cache
  static constexpr std::int64_t kChunkItems = 16384;  // look-ups worth a task of their own
  static constexpr int kBinRowBits = 3;               // buckets begin at multiples of 8 rows
  static constexpr std::int64_t kAtOnce = 1 << 17;    // items that fit the second cache twice
  static constexpr int kAtOnceDigit = 9;              // bits; places to write to that are at hand
  static constexpr int kMaxLows = 2;                  // digits before the first, then
  static constexpr int kNoCounts = -1;                // in place of a number of these

  enum : std::int64_t { kFine = -1, kNoMemory = -2, kAscends = -3, kUncounted = -4 };

  std::int64_t size() const noexcept { return n_; }
  std::int64_t n_rows() const noexcept { return n_rows_; }
  bool wide() const noexcept { return wide_; }
  std::int64_t n_buckets() const noexcept { return n_buckets_; }
  std::int64_t n_chunks() const noexcept { return n_chunks_; }
  Bucket& bucket(std::int64_t b) const noexcept { return buckets_.as<Bucket>()[b]; }
  template <class Word>
  const Word* rows() const noexcept {
    return rows_.as<Word>();
  }

  // Copies and counts the look-ups. Returns the position of the first one out of range, kFine or
  // kNoMemory. With bucket_rows > 0 every row is in a bucket, looked up or not, and a bucket has
  // about that many rows at most. `sorts`: sorted() will be asked for.
  std::int64_t load(const void* indices, bool indices64, std::int64_t n, std::int64_t n_rows,
                    std::int64_t bucket_rows, bool sorts, parallel_fn parallel,
                    int threads) noexcept {
    if (!begin_load(indices, indices64, n, n_rows, bucket_rows, sorts, false, true, threads)) {
      return kNoMemory;
    }
    for_chunks(load_task, parallel, threads);
    return end_load();
  }

  // The same in parts, for those who load several at a time: between the two come the n_chunks()
  // tasks of load_task, in any order, on any threads. False: no memory. `lists`: if each row comes
  // before the next one, they are hardly to be partitioned; then they are not counted before. Nor
  // are they if not `counts`.
  bool begin_load(const void* indices, bool indices64, std::int64_t n, std::int64_t n_rows,
                  std::int64_t bucket_rows, bool sorts, bool lists, bool counts,
                  int threads) noexcept {
    n_ = n;
    lists_ = lists;
    counts_ids_ = counts;
    ascends_ = false;
    n_rows_ = n_rows;
    bucket_rows_ = bucket_rows;
    partitioned_ = false;
    wide_ = static_cast<std::uint64_t>(n_rows) > UINT32_MAX ||
            static_cast<std::uint64_t>(n) > UINT32_MAX;
    const int row_bits = bit_width(n_rows > 0 ? static_cast<std::uint64_t>(n_rows - 1) : 0);
    std::int64_t wanted = n > 2 * kBucketItems ? n / (kBucketItems / 8) : 1;
    if (bucket_rows > 0) wanted = std::max(wanted, n_rows / bucket_rows);
    const int bin_bits = std::min(std::max(0, row_bits - kBinRowBits),
                                  bit_width(std::min<std::int64_t>(wanted, 4096) - 1));
    n_lows_ = std::max(0, (row_bits - 1) / kAtOnceDigit);
    digit_ = std::max(kBinRowBits, (row_bits + n_lows_) / (n_lows_ + 1));
    if (!sorts || threads > 1 || n <= 2 * kBucketItems || n > kAtOnce || n_lows_ > kMaxLows ||
        (bucket_rows > 0 && n_rows >> digit_ * n_lows_ < n_rows / bucket_rows)) {
      n_lows_ = 0;
    }
    shift_ = n_lows_ > 0 ? digit_ * n_lows_ : row_bits - bin_bits;
    n_bins_ = std::int64_t{1} << (row_bits - shift_);
    n_chunks_ = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, n / kChunkItems));
    const std::size_t word = wide_ ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
    if (!rows_.reserve(word * static_cast<std::size_t>(n)) ||
        !counts_.reserve(word * static_cast<std::size_t>(n_chunks_ * n_bins_)) ||
        !bad_.reserve(sizeof(std::int64_t) * static_cast<std::size_t>(n_chunks_))) {
      n_ = 0;
      return false;
    }
    indices_ = indices;
    indices64_ = indices64;
    return true;
  }
  std::int64_t end_load() noexcept {
    indices_ = nullptr;
    ascends_ = lists_;
    for (std::int64_t c = 0; c < n_chunks_; ++c) {
      const std::int64_t found = bad_.as<std::int64_t>()[c];
      if (found >= 0) {
        n_ = 0;
        return found;
      }
      ascends_ = ascends_ && found == kAscends && (c == 0 || rises_at(chunk_start(c)));
    }
    return kFine;
  }
  // Whether each row is known to come before the next one: of look-ups that were loaded as lists.
  bool ascends() const noexcept { return ascends_; }

  // Cuts the rows into buckets and moves the items there. False: no memory.
  bool partition(parallel_fn parallel, int threads) noexcept {
    if (partitioned_) return true;
    if (!reserve_partition()) return false;
    begin_scatter();
    for_chunks(scatter_task, parallel, threads);
    end_scatter();
    return true;
  }

  // The same in parts, unless it is partitioned(). The n_chunks() tasks of scatter_task come
  // between the last two; what reserve_partition() found no memory for can be tried again.
  bool partitioned() const noexcept { return partitioned_; }
  bool reserve_partition() noexcept {
    const std::size_t item = wide_ ? sizeof(Item<std::uint64_t>) : sizeof(Item<std::uint32_t>);
    if (!items_.reserve(item * static_cast<std::size_t>(n_)) ||
        !spare_.reserve(item * static_cast<std::size_t>(n_)) ||
        !buckets_.reserve(sizeof(Bucket) * static_cast<std::size_t>(n_bins_)) ||
        !bucket_of_.reserve(sizeof(std::int32_t) * static_cast<std::size_t>(n_bins_))) {
      return false;
    }
    return true;
  }
  void begin_scatter() noexcept {
    for (std::int64_t c = 0; c < n_chunks_; ++c) {
      std::int64_t& found = bad_.as<std::int64_t>()[c];
      if (found == kFine) continue;
      const std::int64_t lo = chunk_start(c), hi = chunk_start(c + 1);
      if (n_lows_ == 1) {
        count<std::uint32_t, 1>(c, lo, hi);
      } else if (n_lows_ == 2) {
        count<std::uint32_t, 2>(c, lo, hi);
      } else {
        wide_ ? count<std::uint64_t, 0>(c, lo, hi) : count<std::uint32_t, 0>(c, lo, hi);
      }
      found = kFine;
    }
    wide_ ? cut<std::uint64_t>() : cut<std::uint32_t>();
  }
  static void load_task(void* self, std::ptrdiff_t c) noexcept {
    Grouper& g = *static_cast<Grouper*>(self);
    g.bad_.as<std::int64_t>()[c] =
        g.indices64_ ? g.load_chunk_of<std::int64_t>(c) : g.load_chunk_of<std::int32_t>(c);
  }
  static void scatter_task(void* self, std::ptrdiff_t c) noexcept {
    Grouper& g = *static_cast<Grouper*>(self);
    if (g.n_lows_ > 0) {
      g.sort_at_once();
    } else {
      g.wide_ ? g.scatter_chunk<std::uint64_t>(c) : g.scatter_chunk<std::uint32_t>(c);
    }
  }
  void end_scatter() noexcept { partitioned_ = true; }

  // Items of a bucket; those of a row are in order of arrival.
  template <class Word>
  const Item<Word>* items(std::int64_t b) const noexcept {
    return items_.as<Item<Word>>() + bucket(b).lo;
  }
  // Sorts the items of a bucket by row. Different threads may sort different buckets.
  template <class Word>
  const Item<Word>* sorted(std::int64_t b) const noexcept {
    Bucket& k = bucket(b);
    if (!k.sorted) {
      sort_items(items_.as<Item<Word>>() + k.lo, spare_.as<Item<Word>>() + k.lo, k.hi - k.lo,
                 k.first_row, k.end_row);
      k.sorted = true;
    }
    return items<Word>(b);
  }

  std::int64_t n_unique() const noexcept {
    std::int64_t total = 0;
    for (std::int64_t b = 0; b < n_buckets_; ++b) total += bucket(b).n_unique;
    return total;
  }

 private:
  void for_chunks(task_fn fn, parallel_fn parallel, int threads) noexcept {
    if (n_chunks_ == 1) {
      fn(this, 0);
    } else {
      parallel(fn, this, n_chunks_, threads);
    }
  }
  std::int64_t chunk_start(std::int64_t c) const noexcept {
    return n_ / n_chunks_ * c + std::min(c, n_ % n_chunks_);
  }

  template <class Index>
  std::int64_t load_chunk_of(std::int64_t c) noexcept {
    if (!counts_ids_) {
      return wide_ ? load_chunk<Index, std::uint64_t, kNoCounts>(c)
                   : load_chunk<Index, std::uint32_t, kNoCounts>(c);
    }
    if (n_lows_ == 1) return load_chunk<Index, std::uint32_t, 1>(c);
    if (n_lows_ == 2) return load_chunk<Index, std::uint32_t, 2>(c);
    return wide_ ? load_chunk<Index, std::uint64_t, 0>(c) : load_chunk<Index, std::uint32_t, 0>(c);
  }
  template <class Index, class Word, int kLows>
  std::int64_t load_chunk(std::int64_t c) noexcept {
    const Index* indices = static_cast<const Index*>(indices_);
    // Read once: the array may change under us. A negative one becomes a huge one.
    const auto at = [indices](std::int64_t k) noexcept {
      return static_cast<std::uint64_t>(
          static_cast<std::int64_t>(*const_cast<const volatile Index*>(indices + k)));
    };
    Word* rows = rows_.as<Word>();
    Word* counts = counts_.as<Word>() + c * n_bins_;
    const int digit = digit_;
    const std::uint64_t limit = static_cast<std::uint64_t>(n_rows_);
    const std::int64_t lo = chunk_start(c), hi = chunk_start(c + 1);
    std::int64_t k = lo;
    if (lists_) {
      for (std::uint64_t next = 0; k < hi; ++k) {
        const std::uint64_t row = at(k);
        if (row >= limit) return k;
        rows[k] = static_cast<Word>(row);
        if (row < next) break;
        next = row + 1;
      }
      if (k == hi) return kAscends;
      ++k;
    }
    if constexpr (kLows != kNoCounts) count<Word, kLows>(c, lo, k);
    for (; k < hi; ++k) {
      const std::uint64_t row = at(k);
      if (row >= limit) return k;
      rows[k] = static_cast<Word>(row);
      if constexpr (kLows != kNoCounts) ++counts[row >> shift_];
      for (int d = 0; d < kLows; ++d) ++lows_[d][low_digit(row, d, digit)];
    }
    return kLows == kNoCounts ? kUncounted : kFine;
  }
  // Counts the rows of look-ups [lo, hi) of a chunk, the first of it.
  template <class Word, int kLows>
  void count(std::int64_t c, std::int64_t lo, std::int64_t hi) noexcept {
    const Word* rows = rows_.as<Word>();
    Word* counts = counts_.as<Word>() + c * n_bins_;
    std::memset(counts, 0, sizeof(Word) * static_cast<std::size_t>(n_bins_));
    if (kLows > 0) std::memset(lows_, 0, sizeof(lows_));
    for (std::int64_t k = lo; k < hi; ++k) {
      const std::uint64_t row = rows[k];
      ++counts[row >> shift_];
      for (int d = 0; d < kLows; ++d) ++lows_[d][low_digit(row, d, digit_)];
    }
  }
  bool rises_at(std::int64_t k) const noexcept {
    return wide_ ? rows<std::uint64_t>()[k - 1] < rows<std::uint64_t>()[k]
                 : rows<std::uint32_t>()[k - 1] < rows<std::uint32_t>()[k];
  }

  // Joins neighbouring bins into buckets of at least kBucketItems items, and turns each chunk's
  // counts into the places where the chunk's items of a bucket go.
  template <class Word>
  void cut() noexcept {
    Word* counts = counts_.as<Word>();
    std::int32_t* bucket_of = bucket_of_.as<std::int32_t>();
    std::int64_t b = 0, lo = 0, items = 0, first_bin = 0;
    for (std::int64_t bin = 0; bin < n_bins_; ++bin) {
      for (std::int64_t c = 0; c < n_chunks_; ++c) items += counts[c * n_bins_ + bin];
      bucket_of[bin] = static_cast<std::int32_t>(b);
      const std::int64_t end_row =
          bin + 1 == n_bins_ ? n_rows_ : std::min(n_rows_, (bin + 1) << shift_);
      const std::int64_t first_row = first_bin << shift_;
      if (items >= kBucketItems || bin + 1 == n_bins_ || end_row == n_rows_ ||
          (bucket_rows_ > 0 && end_row - first_row >= bucket_rows_)) {
        bucket(b) = Bucket{first_row, end_row, lo, lo + items, 0, n_lows_ > 0};
        ++b;
        lo += items;
        items = 0;
        first_bin = bin + 1;
        if (end_row == n_rows_) break;
      }
    }
    n_buckets_ = b;
    if (n_lows_ > 0) return;
    // The offsets of a chunk take the place of its counts, bucket by bucket: bucket b never stands
    // behind the bins it was made of.
    for (std::int64_t c = 0; c < n_chunks_; ++c) {
      Word* mine = counts + c * n_bins_;
      std::int64_t bin = 0;
      for (b = 0; b < n_buckets_; ++b) {
        Word sum = 0;
        for (; bin < n_bins_ && (bin << shift_) < bucket(b).end_row; ++bin) sum += mine[bin];
        mine[b] = sum;
      }
    }
    for (b = 0; b < n_buckets_; ++b) {
      Word at = static_cast<Word>(bucket(b).lo);
      for (std::int64_t c = 0; c < n_chunks_; ++c) {
        const Word count = counts[c * n_bins_ + b];
        counts[c * n_bins_ + b] = at;
        at += count;
      }
    }
  }

  template <class Word>
  void scatter_chunk(std::int64_t c) noexcept {
    const Word* rows = rows_.as<Word>();
    const std::int32_t* bucket_of = bucket_of_.as<std::int32_t>();
    Word* next = counts_.as<Word>() + c * n_bins_;
    Item<Word>* items = items_.as<Item<Word>>();
    const std::int64_t hi = chunk_start(c + 1);
    for (std::int64_t k = chunk_start(c); k < hi; ++k) {
      Word& at = next[bucket_of[static_cast<std::uint64_t>(rows[k]) >> shift_]];
      put(items, at, Item<Word>{rows[k], static_cast<Word>(k)});
    }
  }

  void sort_at_once() noexcept {
    using Word = std::uint32_t;
    const Word* rows = rows_.as<Word>();
    Item<Word>* from = spare_.as<Item<Word>>();  // so that the first digit moves to the items
    Item<Word>* to = items_.as<Item<Word>>();
    if (n_lows_ == 1) std::swap(from, to);
    const int digit = digit_;
    starts_from_counts(lows_[0], std::int64_t{1} << digit);
    for (std::int64_t k = 0; k < n_; ++k) {
      put(to, lows_[0][low_digit(rows[k], 0, digit)], Item<Word>{rows[k], static_cast<Word>(k)});
    }
    if (n_lows_ == 2) {
      std::swap(from, to);
      starts_from_counts(lows_[1], std::int64_t{1} << digit);
      for (std::int64_t k = 0; k < n_; ++k) {
        put(to, lows_[1][low_digit(from[k].row, 1, digit)], from[k]);
      }
    }
    std::swap(from, to);
    Word* starts = counts_.as<Word>();
    starts_from_counts(starts, n_bins_);
    for (std::int64_t k = 0; k < n_; ++k) put(to, starts[from[k].row >> shift_], from[k]);
  }
  static std::uint64_t low_digit(std::uint64_t row, int d, int digit) noexcept {
    return row >> d * digit & ((std::uint64_t{1} << digit) - 1);
  }
  static void starts_from_counts(std::uint32_t* counts, std::int64_t n) noexcept {
    std::uint32_t sum = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      const std::uint32_t count = counts[k];
      counts[k] = sum;
      sum += count;
    }
  }
  template <class Word>
  static void put(Item<Word>* items, Word& at, Item<Word> item) noexcept {
    // There are more places to write to than the processor foresees by itself.
    __builtin_prefetch(items + at + 64 / sizeof(Item<Word>), 1, 2);
    items[at++] = item;
  }

  Scratch rows_, counts_, bad_, items_, spare_, buckets_, bucket_of_;
  const void* indices_ = nullptr;
  bool indices64_ = false, wide_ = false, partitioned_ = false;
  std::int64_t n_ = 0, n_rows_ = 0, bucket_rows_ = 0;
  std::int64_t n_bins_ = 0, n_buckets_ = 0, n_chunks_ = 1;
  bool lists_ = false, ascends_ = false, counts_ids_ = true;
  int shift_ = 0;
  int n_lows_ = 0, digit_ = 0;  // digits of digit_ bits below the bins that are sorted by at once
  std::uint32_t lows_[kMaxLows][1 << kAtOnceDigit];
};

// The whole look-up list sorted by row: positions, the unique rows, and where each one starts.
struct SortTask {
  Grouper* grouper;
  std::int64_t* positions;
  std::int64_t* unique;
  std::int64_t* starts;

  template <class Word>
  void one(std::ptrdiff_t b) const noexcept {
    Bucket& k = grouper->bucket(b);
    const Item<Word>* items = grouper->sorted<Word>(b);
    std::int64_t u = 0;
    for (std::int64_t i = 0, n = k.hi - k.lo; i < n; ++i) {
      if (positions != nullptr) positions[k.lo + i] = static_cast<std::int64_t>(items[i].position);
      if (i == 0 || items[i].row != items[i - 1].row) {
        if (unique != nullptr) {  // at the bucket's items, moved together afterwards
          unique[k.lo + u] = static_cast<std::int64_t>(items[i].row);
          starts[k.lo + u] = k.lo + i;
        }
        ++u;
      }
    }
    k.n_unique = u;
  }
  static void run(void* self, std::ptrdiff_t b) noexcept {
    const SortTask& task = *static_cast<const SortTask*>(self);
    task.grouper->wide() ? task.one<std::uint64_t>(b) : task.one<std::uint32_t>(b);
  }
};

// positions (n), unique (n) and starts (n + 1) may all be null: then rows are only counted.
// Returns the number of unique rows, or kNoMemory.
inline std::int64_t sort_all(Grouper& grouper, std::int64_t* positions, std::int64_t* unique,
                             std::int64_t* starts, parallel_fn parallel, int threads) noexcept {
  if (!grouper.partition(parallel, threads)) return Grouper::kNoMemory;
  SortTask task{&grouper, positions, unique, starts};
  parallel(SortTask::run, &task, grouper.n_buckets(),
           grouper.size() < Grouper::kChunkItems ? 1 : threads);
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < grouper.n_buckets(); ++b) {
    const Bucket& k = grouper.bucket(b);
    if (unique != nullptr && at != k.lo) {
      std::memmove(unique + at, unique + k.lo,
                   sizeof(std::int64_t) * static_cast<std::size_t>(k.n_unique));
      std::memmove(starts + at, starts + k.lo,
                   sizeof(std::int64_t) * static_cast<std::size_t>(k.n_unique));
    }
    at += k.n_unique;
  }
  if (starts != nullptr) starts[at] = grouper.size();
  return at;
}

}  // namespace fastopt
