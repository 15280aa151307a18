// The entries to mixed.h and tallied.h: rows on threads, with the processor's own instructions.
#pragma once

#include "tallied.h"

namespace {

struct Residual {
  void (*mix)(const Mixed&, const double*, int64_t, int64_t);
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

constexpr int64_t MIXED_TASK = 1 << 12;  // rows of a task

template <class Run>
void residual_tasks(int64_t rows, int64_t threads, int64_t tasks, const Run& run) {
  in_threads(std::min(threads, rows / ROWS_PER_THREAD), tasks, run);
}

}  // namespace

// Rows [begin, begin + rows), whose predicted states were found elsewhere; a pass hands over its own (see variant.cc).
extern "C" void longhmm_mix(const Mixed* all, const double* predicted, int64_t begin, int64_t rows, int64_t threads) {
  residual_tasks(rows, threads, (rows + MIXED_TASK - 1) / MIXED_TASK, [&](int64_t task) {
    const int64_t from = task * MIXED_TASK;
    residual_here().mix(*all, predicted + from * all->padded, begin + from, std::min(MIXED_TASK, rows - from));
  });
}

extern "C" void longhmm_tallied(const Tallied* all, int64_t threads) {
  residual_tasks(all->rows, threads, all->features * TALLIED_PARTS, [&](int64_t task) {
    residual_here().tally(*all, task);
  });
}
