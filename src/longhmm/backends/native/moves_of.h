// Transitions that vary by row, out of the buffers of compiled JAX programs.
#pragma once

#include <algorithm>

#include "moves.h"
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

}  // namespace
