// Transitions that vary by row, out of the buffers of compiled JAX programs, and posteriors into them.
#pragma once

#include <algorithm>

#include "call.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// Transitions that vary by row; `index` null: row t has matrix t.
template <ffi::DataType type>
Moves moves_of(int32_t source, int64_t states, const ffi::Buffer<type>& matrices, const ffi::Buffer<ffi::S32>* index,
               const ffi::Buffer<type>& covariates) {
  Moves moves{};
  moves.source = source;
  moves.wide = type == ffi::F64;
  moves.matrices = matrices.typed_data();
  moves.count = matrices.element_count() / (states * states);
  moves.index = index ? index->typed_data() : nullptr;
  moves.covariates = covariates.typed_data();
  moves.terms = int32_t(covariates.dimensions().back());
  moves.least = moves.least_possible = 1;
  for (size_t i = 0; source == INDEXED && i < matrices.element_count(); ++i) {
    const double chance = matrices.typed_data()[i];
    moves.least = std::min(moves.least, chance);
    if (chance > 0) moves.least_possible = std::min(moves.least_possible, chance);
  }
  return moves;
}

// Posteriors of rows outside all cores are 0; of pairs of states others are not all written either.
template <class T>
void blank_outside(const Call& call, T* gamma, int64_t size) {
  if (of_pairs(call)) std::fill_n(gamma, size, T(0));
  int64_t next = 0;
  auto blank = [&](int64_t stop) { std::fill_n(gamma + next * call.states, (stop - next) * call.states, T(0)); };
  for (int64_t w = 0; w < call.chains * call.windows; ++w)
    if (call.core[w] > 0) blank(call.begin[w]), next = call.begin[w] + call.core[w];
  blank(size / call.states);
}

}  // namespace
