// Where the windows of a group lie, one in each lane, and which rows lie inside them.
#pragma once

#include <algorithm>

#include "call.h"
#include "vectors.h"

namespace VARIANT {

template <class T>
struct Placed {
  static constexpr int W = Vector<T>::lanes;
  int64_t first_row[W];
  int begins[W], ends[W], all_from = 0, all_to = 1 << 30;

  Placed(const Call& call, int64_t base, int count) {
    const int L = call.max_left;
    for (int lane = 0; lane < W; ++lane) {
      const int64_t window = base + (lane < count ? lane : count - 1);
      first_row[lane] = call.begin[window] - L;
      begins[lane] = L - call.left[window];
      ends[lane] = L + call.core[window] + call.right[window];
      all_from = std::max(all_from, begins[lane]);
      all_to = std::min(all_to, ends[lane]);
    }
  }

  // Whether row r lies inside the window of a lane, of every lane; and of which.
  bool has(int r, int lane) const { return r >= begins[lane] && r < ends[lane]; }
  bool whole(int r) const { return r >= all_from && r < all_to; }
  Bits<T> inside(int r) const {
    Bits<T> found{};
    for (int lane = 0; lane < W; ++lane) found[lane] = has(r, lane) ? -1 : 0;
    return found;
  }
};

}  // namespace VARIANT
