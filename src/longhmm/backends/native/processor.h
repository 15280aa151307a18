// Which wide instructions may be used here: the processor has them, and the system saves their registers.
//
// It is asked directly. What compilers offer for this (__builtin_cpu_supports) keeps its answer in a library of their
// own, which not all of them can link into a shared one.
#pragma once

#include <cpuid.h>

struct Processor {
  bool avx2 = false, avx512 = false;
};

inline Processor processor() {
  unsigned eax, ebx, ecx, edx, saved, high;
  constexpr unsigned FMA = 1u << 12, OSXSAVE = 1u << 27;  // of leaf 1, ecx
  constexpr unsigned AVX2 = 1u << 5, AVX512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // of leaf 7, ebx: F DQ BW VL
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & (FMA | OSXSAVE)) != (FMA | OSXSAVE)) return {};
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {};
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
#ifdef __APPLE__
  saved |= 0xe0;  // macOS saves these registers from their first use on, and says so only then
#endif
  const bool half = (saved & 0x06) == 0x06, whole = (saved & 0xe6) == 0xe6;
  return {half && (ebx & AVX2), whole && (ebx & AVX2) && (ebx & AVX512) == AVX512};
}
