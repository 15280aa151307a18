// Paths through one group of chunks, one chunk in each lane of a vector.
//
// `origin[j]` is the state at one row given state j at the next: for the best path the one its score came from, for a
// drawn path a draw in proportion to alpha(i) A[i, j], with one uniform number for all j. It is known as soon as the
// recursion has reached the next row, so the map from the state at a row to the first state of the chunk is carried
// along, and only where the states themselves are wanted are origins kept.
//
// Plain numbers do where nothing that underflows can matter. A row loses at most 1e-308 / LEAST_SCALE of a message;
// where every state that can be reached is predicted with at least LEAST_PREDICTED, that changes each prediction by a
// negligible factor, and such factors do not grow, since what follows only adds and multiplies positive numbers.
#pragma once

#include "group.h"
#include "paths.h"
#include "random.h"

namespace VARIANT {

enum Way { BEST, PLAIN, LOGARITHMS };

constexpr double LEAST_SCALE = 1e-50, LEAST_PREDICTED = 1e-200;

// How one state leads to the next: the message before, one row on, and where each state of it comes from.
template <Way way, int K, class Moves>
struct Step {
  typedef Vec<double> V;
  Moves& moves;
  int states;

  void at(int r) const { way == PLAIN ? moves.at(r) : moves.log_at(r); }

  // Weight of state i, given that state j follows (j < 0: nothing does), relative to the largest of them.
  V onward(const V* value, int i, int j) const {
    if (way == PLAIN) return j < 0 ? value[i] : value[i] * moves.weight(i, j);
    return j < 0 ? value[i] : value[i] + moves.log_weight(i, j);
  }

  // The message at state j, and in `from` the state it comes from; `uniform` is what a draw is made with.
  V arrive(const V* value, int j, V uniform, V& from) const {
    const int n = K ? K : states;
    if (way == BEST) {
      V best = onward(value, 0, j);
      from = V{};
      for (int i = 1; i < n; ++i) {
        const V next = onward(value, i, j);
        from = next > best ? all(double(i)) : from;
        best = next > best ? next : best;
      }
      from = best > all(-std::numeric_limits<double>::max()) ? from : all(double(NO_STATE));
      return best;
    }
    V top{};
    if (way == LOGARITHMS) {
      top = onward(value, 0, j);
      for (int i = 1; i < n; ++i) top = larger<double>(onward(value, i, j), top);
      top = top < all(-std::numeric_limits<double>::max()) ? V{} : top;
    }
    auto weight = [&](int i) {
      const V w = onward(value, i, j);
      return way == PLAIN ? w : exp_negative(w - top);
    };
    V total{};
    for (int i = 0; i < n; ++i) total += weight(i);
    const V threshold = uniform * total;
    V below{};
    from = V{};
    for (int i = 0; i < n; ++i) {
      // The last state that begins at or below the threshold; none of weight zero can be chosen.
      const V w = weight(i);
      from = (below <= threshold) & (w > V{}) ? all(double(i)) : from;
      below += w;
    }
    from = total > all(way == PLAIN ? LEAST_PREDICTED : 0.0) ? from : all(double(NO_STATE));
    if (way == PLAIN) return total;
    const Bits<double> possible = total > V{};
    const V logs = log_positive(possible ? total : all(1.0)) + top;
    return possible ? logs : all(-std::numeric_limits<double>::infinity());
  }
};

// False where plain numbers do not do; then nothing was written.
template <Way way, int K, class Moves>
bool walk_group(const Paths& paths, const Point<double>& point, Moves& moves, int64_t base, int count,
                Scratch<double>& scratch) {
  typedef Vec<double> V;
  constexpr int W = Vector<double>::lanes;
  const Call& call = paths.call;
  const int n = K ? K : call.states;
  const int L = call.max_left, C = call.max_core, total = L + C, width = call.width;
  const int loaded = total + call.max_right;
  const Step<way, K, Moves> step{moves, n};

  V* memory = scratch.reserve(size_t(loaded) * (width + 1) + size_t(n) * 6 + 8);
  auto take = [&memory](size_t vectors) {
    V* taken = memory;
    memory += vectors;
    return taken;
  };
  Rows<double> rows{take(size_t(loaded) * width), take(loaded), width};
  V* value = take(n);
  V* moved = take(n);
  V* logs = take(n);
  V* from = take(n);
  V* possible = take(n);  // 1 for states that can be reached, where some transitions are forbidden
  V* reached = take(n);
  const bool forbids = moves.least < LEAST_PREDICTED;
  std::vector<V> first(n), next_first(n), before(n);
  std::vector<uint8_t> origins(paths.states ? size_t(C) * n * W : 0);

  V begins{}, core_rows{}, starts{};
  Bits<double> numbers{};
  for (int lane = 0; lane < W; ++lane) {
    const int64_t window = base + (lane < count ? lane : count - 1);
    begins[lane] = double(L - call.left[window]);
    core_rows[lane] = double(call.core[window]);
    starts[lane] = double(call.at_start[window]);
    numbers[lane] = paths.row_number + call.begin[window];
    for (int k = 0; k < n; ++k) {
      const double given = paths.log_before ? paths.log_before[window * n + k] : std::log(call.start[k]);
      value[k][lane] = way == PLAIN ? std::exp(given) : given;
      possible[k][lane] = given > -INFINITY;
    }
  }
  load_rows<double>(call, base, count, rows.values);
  find_present<double>(call, rows, loaded);
  moves.bind(rows.values, rows.present, nullptr);

  const V nothing = way == PLAIN ? V{} : all(-std::numeric_limits<double>::infinity());
  const V tiny = all(std::numeric_limits<double>::min());
  Bits<double> lost{};
  V likelihood{};
  for (int k = 0; k < n; ++k) first[k] = all(double(k));
  for (int r = 0; r < total; ++r) {
    if (r == L)
      for (int k = 0; k < n; ++k) before[k] = value[k];
    const bool inside_core = r > L;
    // The number of the row before this one decides its state.
    const V uniform = way == BEST || !inside_core ? V{} : uniforms(paths.key, numbers + (r - 1 - L));
    Bits<double> opens = (begins == all(double(r))) & (starts != V{});
    moves.begin_path(way == PLAIN, opens, point.initial, value, possible);
    step.at(r);
    for (int j = 0; j < n; ++j) moved[j] = step.arrive(value, j, uniform, from[j]);
    const Bits<double> held = all(double(r - L)) >= core_rows;  // beyond its last row a chunk stands still
    if (way == PLAIN) {
      for (int j = 0; j < n; ++j) {
        reached[j] = forbids ? V{} : all(1.0);
        for (int i = 0; forbids && i < n; ++i) reached[j] = larger<double>(reached[j], moves.possible(i, j) * possible[i]);
        lost |= (moved[j] < all(LEAST_PREDICTED)) & (reached[j] > V{}) & ~opens & ~held;
      }
    }
    if (any<double>(opens))
      for (int j = 0; j < n; ++j) {
        const double message = point.initial[j];
        moved[j] = opens ? all(way == PLAIN ? message : std::log(message)) : moved[j];
        if (way == PLAIN) reached[j] = opens ? all(message > 0 ? 1.0 : 0.0) : reached[j];
      }
    const Bits<double> here = moves.pairs ? ~Bits<double>{} : rows.present[r] != V{};
    if (!moves.pairs) block_logs<double>(call, point.pack, rows, r, 1, logs);
    V top = moves.pairs ? moves.peak : logs[0];
    for (int k = 1; !moves.pairs && k < n; ++k) top = larger<double>(logs[k], top);
    top = top < all(-std::numeric_limits<double>::max()) ? V{} : top;
    V size = nothing;
    for (int j = 0; j < n; ++j) {
      const V relative = moves.pairs ? V{} : here ? logs[j] - top : V{};
      moved[j] = way == PLAIN ? moved[j] * exp_negative(relative) : moved[j] + relative;
      if (way == PLAIN) possible[j] = relative < all(-std::numeric_limits<double>::max()) ? V{} : reached[j];
      size = way == PLAIN ? size + moved[j] : larger<double>(moved[j], size);
    }
    if (way == PLAIN) {
      lost |= ~(size > all(LEAST_SCALE)) & ~held;
      size = 1.0 / larger<double>(size, tiny);
    } else {
      size = size < all(-std::numeric_limits<double>::max()) ? V{} : size;
    }
    if (paths.log_likelihood && r >= L) {
      const V term = (way == PLAIN ? -log_positive(size) : size) + (here ? top : V{});
      likelihood += held ? V{} : term;
    }
    for (int j = 0; j < n; ++j) {
      value[j] = held ? value[j] : (way == PLAIN ? moved[j] * size : moved[j] - size);
      from[j] = held ? all(double(j)) : from[j];
    }
    if (!inside_core) continue;
    if (paths.maps) {
      for (int j = 0; j < n; ++j)
        for (int lane = 0; lane < W; ++lane) {
          const int origin = int(from[j][lane]);
          next_first[j][lane] = origin == NO_STATE ? double(NO_STATE) : first[origin][lane];
        }
      first.swap(next_first);
    }
    if (paths.states)
      for (int j = 0; j < n; ++j)
        for (int lane = 0; lane < W; ++lane)
          origins[(size_t(r - L) * n + j) * W + lane] = uint8_t(from[j][lane]);
  }
  if (way == PLAIN)
    for (int lane = 0; lane < count; ++lane)
      if (lost[lane]) return false;

  // Where the last row leads: by the matrix of the row behind it, where there is one.
  moves.template behind<way != PLAIN>();
  const V uniform = way == BEST ? V{} : uniforms(paths.key, numbers + __builtin_convertvector(core_rows, Bits<double>) - 1);
  auto last_state = [&](int j) {
    V state;
    step.arrive(value, j, uniform, state);
    return state;
  };
  if (paths.maps) {
    std::vector<uint8_t> found(size_t(W) * (n + 1));
    for (int j = 0; j <= n; ++j) {
      const V last = last_state(j < n ? j : -1);
      for (int lane = 0; lane < count; ++lane) {
        const int state = int(last[lane]);
        found[lane * (n + 1) + j] = state == NO_STATE ? NO_STATE : uint8_t(first[state][lane]);
      }
    }
    std::copy_n(found.data(), size_t(count) * (n + 1), paths.maps + base * (n + 1));
  }
  if (paths.states) {
    std::vector<V> ends(n + 1);
    for (int j = -1; j < n; ++j) ends[j + 1] = last_state(j);
    for (int pass = 0; pass < 2; ++pass)  // first find out whether every state is known, then write
      for (int lane = 0; lane < count; ++lane) {
        const int64_t window = base + lane;
        int state = int(ends[paths.following[window] + 1][lane]);
        uint8_t* to = paths.states + call.begin[window] - paths.origin;
        for (int r = call.core[window] - 1; r >= 0; --r) {
          if (way == PLAIN && state == NO_STATE) return false;
          if (pass) to[r] = uint8_t(state);
          if (r && state != NO_STATE) state = origins[(size_t(r) * n + state) * W + lane];
        }
      }
  }
  auto give = [&](double* to, const V* messages) {
    for (int lane = 0; to && lane < count; ++lane)
      for (int k = 0; k < n; ++k) {
        const double message = messages[k][lane];
        to[(base + lane) * n + k] = way == PLAIN ? std::log(message) : message;
      }
  };
  give(paths.before, before.data());
  give(paths.leaving, value);
  if (paths.log_likelihood) {
    // On logarithms messages are scaled by their largest entry, and what they sum to is still to be counted.
    const Bits<double> opened = (begins == all(double(L))) & (starts != V{});
    if (way != PLAIN) likelihood += log_sum(value, n) - (opened ? V{} : log_sum(before.data(), n));
    for (int lane = 0; lane < count; ++lane) paths.log_likelihood[base + lane] = likelihood[lane];
  }
  return true;
}

template <int K>
int64_t walk_groups(const Paths& paths, int64_t begin, int64_t stop) {
  static thread_local Scratch<double> scratch;
  constexpr int W = Vector<double>::lanes;
  const Point<double> point(paths.call, 0);
  std::vector<double> log_transition(int64_t(paths.call.states) * paths.call.states);
  for (size_t i = 0; i < log_transition.size(); ++i) log_transition[i] = std::log(point.transition[i]);
  int64_t redone = 0;
  for (int64_t group = begin; group < stop; ++group) {
    const int64_t window = group * W;
    const int count = int(std::min<int64_t>(W, paths.call.windows - window));
    with_moves<K>(paths.call, point, log_transition.data(), window, count, [&](auto& moves, auto) {
      if (!paths.drawn) {
        walk_group<BEST, K>(paths, point, moves, window, count, scratch);
      } else if (paths.logarithms || !walk_group<PLAIN, K>(paths, point, moves, window, count, scratch)) {
        walk_group<LOGARITHMS, K>(paths, point, moves, window, count, scratch);
        redone += !paths.logarithms;
      }
    });
  }
  return redone;
}

// Groups [begin, stop) of chunks; returns how many of them were drawn on logarithms without having been asked to.
int64_t walk(const Paths& paths, int64_t begin, int64_t stop) {
  switch (paths.call.states) {
#ifndef ANY_STATES
#define STATES(k) \
  case k:         \
    return walk_groups<k>(paths, begin, stop);
    STATES(2)
    STATES(3)
    STATES(4)
    STATES(8)
#undef STATES
#endif
    default:
      return walk_groups<0>(paths, begin, stop);
  }
}

}  // namespace VARIANT
