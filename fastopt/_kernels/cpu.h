/* What the processor and the operating system offer, as instruction-set levels.

   __builtin_cpu_supports asks the operating system too whether it saves the wide registers. */
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && (defined(__clang__) || __GNUC__ >= 11)
static int cpu_level(void) {
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe")))
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
