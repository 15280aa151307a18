// Expected transitions of every one of the matrices that rows have by index: lanes add to different places.
#pragma once

#include <cstring>
#include <vector>

#include "call.h"
#include "vectors.h"

namespace VARIANT {

template <class T>
struct IndexSums {
  typedef Vec<T> V;
  static constexpr int W = Vector<T>::lanes;
  const Call& call;
  const int64_t base;
  const int count, square, padded;
  std::vector<T> sums;  // (matrices, padded), or one such table for each lane

  IndexSums(const Call& call, int64_t base, int count)
      : call(call), base(base), count(count), square(call.states * call.states), padded((square + W - 1) / W * W) {
    if (call.moves.index && call.moves.sums_size)
      sums.assign(size_t(call.moves.count) * padded * (call.per_window ? W : 1), T(0));
  }

  bool wanted() const { return !sums.empty(); }

  // Posteriors `found` of the transitions into core row r, of those lanes that are `kept`.
  void add(int r, const V* found, Bits<T> kept) {
    V by{}, tile[W];
    T* to[W];
    for (int lane = 0; lane < W; ++lane) {
      const int64_t window = base + (lane < count ? lane : 0);
      const bool own = lane < count && kept[lane] && r < call.core[window];
      by[lane] = !own ? T(0) : call.per_window ? T(1) : T(call.weight[window]);
      const int64_t which = own ? call.moves.index[call.begin[window] + r] : 0;
      to[lane] = sums.data() + ((call.per_window ? lane * call.moves.count : 0) + which) * padded;
    }
    for (int q = 0; q < square; q += W) {
      for (int i = 0; i < W; ++i) tile[i] = q + i < square ? (by != V{} ? found[q + i] * by : V{}) : V{};
      transpose<T>(tile);
      for (int lane = 0; lane < W; ++lane) {
        const V sum = load<T>(to[lane] + q) + tile[lane];
        std::memcpy(to[lane] + q, &sum, sizeof sum);
      }
    }
  }

  // All, or those of every window.
  void give_out(double* out) const {
    const int64_t windows = sums.empty() ? 0 : call.per_window ? count : 1;
    for (int64_t m = 0; m < windows * call.moves.count; ++m)
      for (int q = 0; q < square; ++q) out[m * square + q] += double(sums[m * padded + q]);
  }
};

}  // namespace VARIANT
