// Memory for the temporaries of a training step.
//
// A step makes the same arrays again and again, and frees them. From the C library each large one
// is fresh pages, and so are many small ones, whose memory it gives back together: the first touch
// of a page costs more than all arithmetic on it. So blocks are kept when they are freed, by size
// class, and given out again.
//
// Blocks may be freed at any time and by any thread, long after the step. A thread that finds the
// lock taken does without the cache: nobody ever waits, not even in a process forked meanwhile.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace fastopt {

class StepMemory {
 public:
  void* allocate(std::size_t size) noexcept {
    const int c = size_class(size);
    if (c >= 0) {
      if (void* data = take(c)) return data;
      size = class_size(c);
    }
    return fresh(size, c);
  }

  void* allocate_zeroed(std::size_t size) noexcept {
    void* data = allocate(size);
    if (data != nullptr) std::memset(data, 0, size);
    return data;
  }

  void* reallocate(void* data, std::size_t size) noexcept {
    if (data == nullptr) return allocate(size);
    const std::size_t capacity = header(data)->capacity;
    if (size <= capacity) return data;
    void* larger = allocate(size);
    if (larger == nullptr) return nullptr;
    std::memcpy(larger, data, capacity);
    free(data);
    return larger;
  }

  void free(void* data) noexcept {
    if (data == nullptr) return;
    Header* block = header(data);
    if (block->size_class < 0 || !keep(block)) std::free(block->base);
  }

  // Gives back all that is kept.
  void empty() noexcept {
    if (!lock()) return;
    for (int c = 0; c < kClasses; ++c) drop(c);
    unlock();
  }

  std::size_t kept() const noexcept { return kept_.load(std::memory_order_relaxed); }
  std::size_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::size_t bytes) noexcept {
    limit_.store(bytes, std::memory_order_relaxed);
    if (kept() > bytes) empty();
  }

 private:
  struct Header {
    void* base;  // what the C library gave
    std::size_t capacity;
    Header* next;  // while it is kept
    int size_class;  // -1: not kept
  };
  static constexpr std::size_t kHeader = 64;  // data starts at a cache line
  static_assert(sizeof(Header) <= kHeader);
  static constexpr int kFirstLog = 10;
  static constexpr std::size_t kSmallest = std::size_t{1} << kFirstLog;
  static constexpr std::size_t kPages = std::size_t{1} << 14;  // from here on whole pages
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kHuge = std::size_t{1} << 22;  // from here on huge pages pay
  static constexpr std::size_t kLeast = std::size_t{512} << 20;  // what is kept of any machine's
  static constexpr int kClasses = 4 * (48 - kFirstLog);

  static Header* header(void* data) noexcept {
    return reinterpret_cast<Header*>(static_cast<char*>(data) - kHeader);
  }

  // Four classes to a doubling: a block is at most a quarter larger than what is asked for.
  static int size_class(std::size_t size) noexcept {
    if (size < kSmallest || size > (std::size_t{1} << 47)) return -1;
    const int log = 63 - __builtin_clzll(static_cast<unsigned long long>(size));
    const std::size_t quarter = std::size_t{1} << (log - 2);
    const std::size_t quarters = (size - (std::size_t{1} << log) + quarter - 1) / quarter;
    return 4 * (log - kFirstLog) + static_cast<int>(quarters);
  }
  static std::size_t class_size(int c) noexcept {
    const int log = kFirstLog + c / 4;
    return (std::size_t{1} << log) +
           static_cast<std::size_t>(c % 4) * (std::size_t{1} << (log - 2));
  }

  // An eighth of the machine's memory: what is kept is memory that the step before has used, too.
  static std::size_t first_limit() noexcept {
    const std::int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    const std::size_t eighth =
        pages > 0 && size > 0 ? static_cast<std::size_t>(pages) / 8 * static_cast<std::size_t>(size)
                              : 0;
    return eighth > kLeast ? eighth : kLeast;
  }

  void* fresh(std::size_t size, int c) noexcept {
    // Large arrays that start at the same place of a page meet in one set of the first cache.
    std::size_t offset = kHeader;
    std::size_t room = size + 2 * kHeader;
    if (size >= kPages) {
      offset += 1088 * (fresh_.fetch_add(1, std::memory_order_relaxed) % 61) % kPage;
      room += 2 * kPage;
    }
    if (room < size) return nullptr;
    char* base = static_cast<char*>(std::malloc(room));
    if (base == nullptr) return nullptr;
    const std::uintptr_t unit = size >= kPages ? kPage : kHeader;
    const std::uintptr_t start = (reinterpret_cast<std::uintptr_t>(base) + unit - 1) & ~(unit - 1);
    char* data = reinterpret_cast<char*>(start + offset);
#ifdef MADV_HUGEPAGE
    if (size >= kHuge) madvise(reinterpret_cast<void*>(start), size, MADV_HUGEPAGE);
#endif
    Header* block = header(data);
    block->base = base;
    block->capacity = size;
    block->size_class = c;
    return data;
  }

  void* take(int c) noexcept {
    if (!lock()) return nullptr;
    Header* block = free_[c];
    if (block != nullptr) {
      free_[c] = block->next;
      kept_.fetch_sub(block->capacity, std::memory_order_relaxed);
    }
    unlock();
    return block == nullptr ? nullptr : reinterpret_cast<char*>(block) + kHeader;
  }

  bool keep(Header* block) noexcept {
    if (kept() + block->capacity > limit() || !lock()) return false;
    block->next = free_[block->size_class];
    free_[block->size_class] = block;
    kept_.fetch_add(block->capacity, std::memory_order_relaxed);
    unlock();
    return true;
  }

  void drop(int c) noexcept {
    while (Header* block = free_[c]) {
      free_[c] = block->next;
      kept_.fetch_sub(block->capacity, std::memory_order_relaxed);
      std::free(block->base);
    }
  }

  bool lock() noexcept { return !busy_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { busy_.store(false, std::memory_order_release); }

  std::atomic<bool> busy_{false};
  std::atomic<std::size_t> kept_{0};
  std::atomic<std::size_t> limit_{first_limit()};
  std::atomic<std::size_t> fresh_{0};
  Header* free_[kClasses + 1] = {};
};

}  // namespace fastopt
