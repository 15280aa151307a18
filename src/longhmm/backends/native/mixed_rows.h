// The entry to mixed.h: rows on threads, with the processor's own instructions.
#pragma once

#include "mixed.h"

namespace {

void mix_here(const Mixed& all, int64_t begin, int64_t stop) {
#ifdef __x86_64__
#ifndef WITHOUT_AVX512
  if (path().vector_bytes == 64) return avx512::mix(all, begin, stop);
#endif
#ifndef WITHOUT_AVX2
  if (path().vector_bytes == 32) return avx2::mix(all, begin, stop);
#endif
#endif
  baseline::mix(all, begin, stop);
}

}  // namespace

extern "C" void longhmm_mixed(const Mixed* all, int64_t threads) {
  constexpr int64_t size = 1 << 12;
  in_threads(std::min(threads, all->rows / ROWS_PER_THREAD), (all->rows + size - 1) / size,
             [&](int64_t task) { mix_here(*all, task * size, std::min((task + 1) * size, all->rows)); });
}
