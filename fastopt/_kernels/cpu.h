/* What the processor and the operating system offer, as instruction-set levels. */
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

/* Features that not every compiler knows by name, as bits of what cpuid returns in ecx. */
static int cpu_has(unsigned leaf, unsigned bits) {
  unsigned eax, ebx, ecx = 0, edx;
  return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) && (ecx & bits) == bits;
}

/* __builtin_cpu_supports asks the operating system too, whether it saves the wide registers. */
static int cpu_level(void) {
  const unsigned f16c = 1u << 29, movbe = 1u << 22, lzcnt = 1u << 5;
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("fma") && cpu_has(1, f16c | movbe) &&
        cpu_has(0x80000001u, lzcnt)))
    return 0;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")))
    return 1;
  return 2;
}
#else
static int cpu_level(void) { return 0; }
#endif
