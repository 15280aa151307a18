// Which of the kinds of transitions serves a call.
#pragma once

#include "looked_up.h"

namespace VARIANT {

// States that are taken for granted where matrices vary.
template <int K>
using Few = std::integral_constant<int, (K > 8 ? 0 : K)>;

// Calls `run` with the transitions of some windows, and how many states it may take for granted.
template <int K, template <class> class Point, class T, class Run>
inline void with_moves(const Call& call, const Point<T>& point, const double* logs, int64_t base, int count, Run run) {
  static thread_local std::vector<Vec<T>> memory;
  if (varies(call)) {
    ByRow<T, Few<K>::value> moves(call, point.index, base, count, logs ? nullptr : &memory);
    run(moves, Few<K>());
  } else {
    Constant<T, K> moves(point, call.states, logs);
    run(moves, std::integral_constant<int, K>());
  }
}

// The same for statistics, which need no entry of a matrix by itself.
template <int K, template <class> class Point, class T, class Run>
inline void with_moves(const Call& call, const Point<T>& point, const Table<T>& table, int64_t base, int count,
                       Run run) {
  const double* const none = nullptr;
  if (!table.count) return with_moves<K>(call, point, none, base, count, run);
  with_known<K>(call.states, [&](auto states) {
    LookedUp<T, decltype(states)::value> moves(call, table, base, count);
    run(moves, states);
  });
}

}  // namespace VARIANT
