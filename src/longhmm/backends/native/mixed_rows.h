// The entries to mixed.h and tallied.h: rows on threads, with the processor's own instructions.
#pragma once

#include "tallied.h"

namespace {

struct Residual {
  void (*mix)(const Mixed&, int64_t);
  void (*tally)(const Tallied&, int64_t);
};

Residual residual_here() {
#ifdef __x86_64__
#ifndef WITHOUT_AVX512
  if (path().vector_bytes == 64) return {avx512::mix, avx512::tally};
#endif
#ifndef WITHOUT_AVX2
  if (path().vector_bytes == 32) return {avx2::mix, avx2::tally};
#endif
#endif
  return {baseline::mix, baseline::tally};
}

template <class Asked>
void each_task(const Asked& all, void (*run)(const Asked&, int64_t), int64_t tasks, int64_t threads) {
  in_threads(std::min(threads, all.rows / ROWS_PER_THREAD), tasks, [&](int64_t task) { run(all, task); });
}

}  // namespace

extern "C" void longhmm_mixed(const Mixed* all, int64_t threads) {
  each_task(*all, residual_here().mix, (all->rows + MIXED_TASK - 1) / MIXED_TASK, threads);
}

extern "C" void longhmm_tallied(const Tallied* all, int64_t threads) {
  each_task(*all, residual_here().tally, all->features * TALLIED_PARTS, threads);
}
