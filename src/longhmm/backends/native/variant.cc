// The entry of one instruction set: `run` goes through groups of windows; see dispatch.cc for the threads.
//
// setup.py compiles this for each VARIANT twice, since it takes long and two processors can do it at once: with SINGLE
// it holds single precision. ANY_STATES leaves out what is made for one number of states: slower, and soon compiled.
#include "group.h"
#include "mixed.h"
#ifndef SINGLE
#include "tallied.h"
#include "walk.h"
#endif

namespace VARIANT {

template <class T, int K>
void run_groups(const Call& call, int64_t point_index, int64_t begin, int64_t stop, Sums& out) {
  static thread_local Scratch<T> scratch;
  constexpr int W = Vector<T>::lanes;
  const Point<T> point(call, point_index);
  const Table<T> table(call);
  const int rows = call.max_left + call.max_core + call.max_right;
  const int64_t chain = point_index / call.points;
  const int64_t n = call.states, n_sums = sums_of(call.kind, call.width, call.pack);
  for (int64_t group = begin; group < stop; ++group) {
    const int64_t window = group * W;
    const int count = int(std::min<int64_t>(W, call.windows - window));
    Sums here = out;
    if (call.mixed) here.predicted = room_for_predicted(call, W);
    if (call.per_window) {
      const int64_t at = point_index * call.windows + window;
      here.log_likelihood += at;
      here.first += at * n;
      here.transitions += at * n * n;
      here.statistics += at * n * n_sums;
      here.moved += at * call.moves.sums_size;
    }
    with_moves<K>(call, point, table, chain * call.windows + window, count, [&](auto& moves, auto states) {
      typedef std::remove_reference_t<decltype(moves)> Moves;
      constexpr int k = decltype(states)::value;
      // Where a state may be left for good, `gone` has to be carried.
      const bool watched = !(moves.least > std::sqrt(losses<T>(call.states, rows)));
      auto run = watched ? run_group<T, k, true, Moves> : run_group<T, k, false, Moves>;
      run(call, point, moves, chain, window, count, scratch, here);
    });
    out.impossible = here.impossible;
    out.redone = here.redone;
    if (call.mixed) mix_windows(call, here.predicted, window, count);
  }
}

template <class T>
void run_precision(const Call& call, int64_t point, int64_t begin, int64_t stop, Sums& out) {
  switch (call.states) {
#ifndef ANY_STATES
#define STATES(k) \
  case k:         \
    return run_groups<T, k>(call, point, begin, stop, out);
    STATES(2)
    STATES(3)
    STATES(4)
    STATES(8)
    STATES(16)
#undef STATES
#endif
    default:
      return run_groups<T, 0>(call, point, begin, stop, out);
  }
}

#ifdef SINGLE
template void run_precision<float>(const Call&, int64_t, int64_t, int64_t, Sums&);
#else
extern template void run_precision<float>(const Call&, int64_t, int64_t, int64_t, Sums&);

// Groups [begin, stop) of one point, in single or double precision.
void run(const Call& call, int wide, int64_t point, int64_t begin, int64_t stop, Sums& out) {
  if (wide)
    run_precision<double>(call, point, begin, stop, out);
  else
    run_precision<float>(call, point, begin, stop, out);
}
#endif

}  // namespace VARIANT
