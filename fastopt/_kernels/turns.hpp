// Waiting awake for the interpreter's lock.
//
// A thread that comes back from a kernel while another one is in Python sleeps, and is woken when
// the lock is free; on many machines that takes longer than what happens in Python between two
// kernels. So kernels say when they have left Python, and before they go back they poll for a
// short while until whoever is there has left. Nothing depends on it: this is no lock.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "pause.hpp"

namespace fastopt {

class Turns {
 public:
  // The interpreter's lock has been given up.
  void leave() noexcept {
    if (!kLocked) return;
    const void* mine = self();
    there_.compare_exchange_strong(mine, nullptr, std::memory_order_relaxed);
  }

  // The interpreter's lock is to be asked for. One thread polls at a time: more are in the way.
  void come_back() noexcept {
    if (!kLocked || processors_ < 2) return;
    const void* const mine = self();
    if (take(mine) || polling_.exchange(true, std::memory_order_acquire)) return;
    const auto end = Clock::now() + kLongest;
    do {
      for (int i = 0; i < 16; ++i) pause_core();
    } while (!take(mine) && Clock::now() < end);
    there_.store(mine, std::memory_order_relaxed);  // whoever it was does something else by now
    polling_.store(false, std::memory_order_release);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Longer than a training step stays in Python between two kernels.
  static constexpr auto kLongest = std::chrono::microseconds(200);

#ifdef Py_GIL_DISABLED
  static constexpr bool kLocked = false;
#else
  static constexpr bool kLocked = true;
#endif

  static const void* self() noexcept {
    static thread_local char here;
    return &here;
  }
  bool take(const void* mine) noexcept {
    const void* seen = nullptr;
    return there_.compare_exchange_strong(seen, mine, std::memory_order_relaxed) || seen == mine;
  }

  alignas(64) std::atomic<const void*> there_{nullptr};  // who has come back last, and not left
  alignas(64) std::atomic<bool> polling_{false};
  const unsigned processors_ = std::thread::hardware_concurrency();  // that may be used
};

}  // namespace fastopt
