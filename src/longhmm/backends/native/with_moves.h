// Which of the two kinds of transitions serves a call.
#pragma once

#include <type_traits>

#include "varying.h"

namespace VARIANT {

// Calls `run` with the transitions of some windows, and how many states it may take for granted.
template <int K, template <class> class Point, class T, class Run>
inline void with_moves(const Call& call, const Point<T>& point, const double* logs, int64_t base, int count, Run run) {
  typedef std::integral_constant<int, (K > 4 ? 0 : K)> Few;
  if (varies(call)) {
    ByRow<T, Few::value> moves(call, point.index, base, count);
    run(moves, Few());
  } else {
    Constant<T, K> moves(point, call.states, logs);
    run(moves, std::integral_constant<int, K>());
  }
}

}  // namespace VARIANT
