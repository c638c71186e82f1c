// A moment in a loop that polls: the core does less, and its other thread more.
#pragma once

namespace fastopt {

inline void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    asm volatile("yield");
#endif
}

}  // namespace fastopt
