// One group of windows, one window in each lane of a vector: rows in, expected statistics out.
//
// The cores of all windows are aligned. The forward recursion runs over the left margin and the core, the backward
// one over the right margin and the core: no work is spent on posteriors of rows that are not asked for.
//
// Likelihoods are divided by their peak. With u the forward messages, whose sum c is the likelihood of a row given
// those before it, w the likelihoods over the c of the row before, and v the backward messages scaled so that
// sum_k u v = 1, the recursions are u' = (A^T u) w, v = A (w v'), and u_i A_ij (w v')_j is the posterior of a
// transition. Whatever underflows on the way changes the likelihood by a relative `tiny * w v'` at most, so a bound of
// w v' proves that nothing was lost. A window without that proof is redone on logarithms (see careful.h).
//
// That bound says nothing of what lies behind the window. Where every transition is possible, the next step makes good
// whatever underflowed. Where some are not, what underflowed may be the only way on: forward messages that are given
// out must then hold every state that can be reached, with all its digits.
#pragma once

#include <cstdlib>
#include <vector>

#include "careful.h"
#include "emissions.h"
#include "products.h"

namespace VARIANT {

constexpr int BLOCK = 16;  // rows whose transitions and sums are added while they are in the nearest cache

// Memory of one thread; grows and is reused.
template <class T>
struct Scratch {
  void* memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
  Vec<T>* reserve(size_t vectors) {
    const size_t wanted = vectors * sizeof(Vec<T>);
    if (wanted > size) {
      std::free(memory);
      memory = std::aligned_alloc(64, (wanted + 63) / 64 * 64);
      size = memory ? wanted : 0;
    }
    return static_cast<Vec<T>*>(memory);
  }
};

// Parameters of one point in the precision of the recursion.
template <class T>
struct Point {
  // Far enough above the least number that sums and products of messages lose nothing, if transitions that are
  // possible at all have at least the probability EASY.
  static constexpr T EPSILON = std::numeric_limits<T>::epsilon(), TINY = std::numeric_limits<T>::min();
  static constexpr T FLOOR = TINY / EPSILON / EPSILON, EASY = EPSILON * EPSILON;
  std::vector<T> transition, transposed, initial, start, pack;
  int64_t index;
  bool forbids = false, hard = false;  // some transitions are impossible, or nearly so; some are possible and hard
  Point(const Call& call, int64_t index) : index(index) {
    const int states = call.states;
    auto copy = [index](const double* from, int64_t count) {
      return std::vector<T>(from + index * count, from + (index + 1) * count);
    };
    transition = copy(call.transition, int64_t(states) * states);
    initial = copy(call.initial, states);
    start = copy(call.start, states);
    if (call.pack) pack = copy(call.packs, int64_t(states) * call.pack);
    transposed.resize(transition.size());
    for (int i = 0; i < states; ++i)
      for (int j = 0; j < states; ++j) {
        const T chance = transposed[j * states + i] = transition[i * states + j];
        forbids |= chance < T(states) * TINY / EPSILON;
        hard |= chance > T(0) && chance < EASY;
      }
  }
};

// Log likelihoods of one row become likelihoods over the largest one, whose logarithm is returned.
template <class T, int K>
inline Vec<T> to_likelihoods(Vec<T>* logs, int states) {
  const int n = K ? K : states;
  Vec<T> top = logs[0];
  for (int k = 1; k < n; ++k) top = larger<T>(logs[k], top);
  top = top < all(-std::numeric_limits<T>::max()) ? Vec<T>{} : top;  // all impossible: zeros, not NaN
  for (int k = 0; k < n; ++k) logs[k] = exp_negative(logs[k] - top);
  return top;
}

template <class T, int K>
void run_group(const Call& call, const Point<T>& point, int64_t chain, int64_t window0, int count, Scratch<T>& scratch,
               Sums& out) {
  typedef Vec<T> V;
  constexpr int W = Vector<T>::lanes;
  const int n = K ? K : call.states;
  const int L = call.max_left, C = call.max_core, R = call.max_right, total = L + C + R;
  const int width = call.width;
  const int n_sums = sums_of(call.kind, call.width, call.pack);
  const int64_t base = chain * call.windows + window0;

  V* memory = scratch.reserve(size_t(total) * (width + 1 + n) + size_t(C + 1) * n + size_t(n) * (n + 6) +
                              size_t(n) * n_sums + size_t(BLOCK) * (n + 1) + 64);
  auto take = [&memory](size_t vectors) {
    V* taken = memory;
    memory += vectors;
    return taken;
  };
  Rows<T> rows{take(size_t(total) * width), take(total), width};
  V* b = take(size_t(total) * n);      // likelihoods over the normaliser of the row before; later times beta
  V* peak = take(BLOCK);               // largest log likelihood of each row
  V* alpha = take(size_t(C + 1) * n);  // not normalised; [0] is the law before the core
  V* counts = take(size_t(n) * n);
  V* sums = take(size_t(n) * n_sums);
  // Few states stay in registers.
  constexpr bool held_near = K > 0 && K <= 16;
  V near_law[held_near ? K : 1], near_moved[held_near ? K : 1], near_beta[held_near ? K : 1];
  V* const law = held_near ? near_law : take(n);
  V* const moved = held_near ? near_moved : take(n);
  V* const beta = held_near ? near_beta : take(n);
  V* first = take(n);
  V* after_edge = take(n);
  V* gamma = take(size_t(BLOCK) * n);

  load_rows<T>(call, base, count, rows.values);
  const bool missing = find_present<T>(rows, total);
  const T* pack = point.pack.data();

  // Where each lane's window begins, and which core rows are its own.
  V begins{}, core_rows{}, starts{};
  bool ragged = false, opening = false;
  for (int lane = 0; lane < W; ++lane) {
    const int64_t window = base + (lane < count ? lane : count - 1);
    begins[lane] = T(L - call.left[window]);
    core_rows[lane] = lane < count ? T(call.core[window]) : T(0);
    starts[lane] = T(call.at_start[window]);
    ragged |= lane >= count || call.core[window] != C;
    opening |= call.at_start[window] != 0;
  }

  // Forward, in blocks of rows whose likelihoods are still in the nearest cache. Messages are kept without their
  // normaliser: 1 / c is multiplied to the likelihoods of the next row, so that no step has to wait for the division.
  for (int k = 0; k < n; ++k) law[k] = all(point.start[k]);
  V scale = all(T(1));
  Bits<T> lost = {};
  const bool watched = point.forbids && (call.forward_only || call.edge_before);
  const V least = all(Point<T>::FLOOR);
  if (call.log_before) {
    for (int lane = 0; lane < W; ++lane) {
      const double* given = call.log_before + (base + (lane < count ? lane : count - 1)) * n;
      const double top = *std::max_element(given, given + n);
      for (int k = 0; k < n; ++k) {
        law[k][lane] = T(std::exp(given[k] - top));
        if (watched && given[k] > -INFINITY && law[k][lane] < Point<T>::FLOOR) lost[lane] = -1;
      }
    }
    scale = T(1) / sum_of<T, K>(law, n);
  } else if (watched) {
    for (int k = 0; k < n; ++k) lost |= (law[k] > V{}) & (law[k] < least);
  }
  if (watched && point.hard) lost = ~Bits<T>{};
  for (int k = 0; k < n; ++k) alpha[k] = law[k];  // with no rows before the core, the law before it is this one
  LogProduct<T> likelihoods;
  V peaks{};
  const V tiny = all(std::numeric_limits<T>::min());
  for (int from = 0; from < total; from += BLOCK) {
    const int stop = from + BLOCK < total ? from + BLOCK : total;
    block_logs<T>(call, pack, rows.values + size_t(from) * width, stop - from, b + size_t(from) * n);
    for (int r = from; r < stop; ++r) peak[r - from] = to_likelihoods<T, K>(b + size_t(r) * n, n);
    for (int r = from; missing && r < stop; ++r) {
      const Bits<T> here = rows.present[r] != V{};
      for (int k = 0; k < n; ++k) b[size_t(r) * n + k] = here ? b[size_t(r) * n + k] : all(T(1));
      peak[r - from] = here ? peak[r - from] : V{};
    }
    if (window0 + 2 * W <= call.windows) fetch_ahead(call, base + W, from, stop, W);
    for (int r = from; r < stop && r < L + C; ++r) {
      V* likelihood = b + size_t(r) * n;
      multiply<T, K>(point.transposed.data(), n, law, moved);
      if (opening) {
        const Bits<T> here = (begins == all(T(r))) & (starts != V{});
        for (int k = 0; k < n; ++k) moved[k] = here ? all(point.initial[k]) : moved[k];
        scale = here ? all(T(1)) : scale;
      }
      for (int k = 0; k < n; ++k) {
        likelihood[k] *= scale;
        law[k] = moved[k] * likelihood[k];
      }
      if (watched)
        for (int k = 0; k < n; ++k) lost |= (moved[k] > V{}) & (law[k] < least);
      if (r >= L - 1)
        for (int k = 0; k < n; ++k) alpha[size_t(r + 1 - L) * n + k] = law[k];
      V c = sum_of<T, K>(law, n);
      lost |= ~(c > tiny);
      c = larger<T>(c, tiny);
      scale = T(1) / c;
      if (r >= L) {
        const Bits<T> own = all(T(r - L)) < core_rows;
        likelihoods.times(ragged ? (own ? c : all(T(1))) : c);
        peaks += ragged ? (own ? peak[r - from] : V{}) : peak[r - from];
      }
    }
    likelihoods.settle();
  }
  V log_likelihood = likelihoods.log() + peaks;

  const V* leaving = alpha + size_t(C) * n;
  for (int k = 0; k < n; ++k) first[k] = V{};
  if (!call.forward_only) {
    // Backward over the right margin.
    for (int k = 0; k < n; ++k) beta[k] = all(T(1));
    for (int lane = 0; call.log_after && lane < W; ++lane) {
      const double* given = call.log_after + (base + (lane < count ? lane : count - 1)) * n;
      const double top = *std::max_element(given, given + n);
      for (int k = 0; k < n; ++k) beta[k][lane] = T(std::exp(given[k] - top));
    }
    for (int r = total - 1; r >= L + C; --r) {
      const V* likelihood = b + size_t(r) * n;
      for (int k = 0; k < n; ++k) moved[k] = beta[k] * likelihood[k];
      multiply<T, K>(point.transition.data(), n, moved, beta);
      V top = beta[0];
      for (int k = 1; k < n; ++k) top = larger<T>(beta[k], top);
      lost |= ~(top > tiny);
      const V scale = T(1) / larger<T>(top, tiny);
      for (int k = 0; k < n; ++k) beta[k] *= scale;
    }
    V agreed{};
    for (int k = 0; k < n; ++k) {
      after_edge[k] = beta[k];
      agreed += leaving[k] * beta[k];
    }
    lost |= ~(agreed > tiny);
    agreed = T(1) / larger<T>(agreed, tiny);
    for (int k = 0; k < n; ++k) beta[k] *= agreed;

    // Backward over the core, in blocks of rows.
    for (int64_t i = 0; i < int64_t(n) * n; ++i) counts[i] = V{};
    for (int64_t i = 0; i < int64_t(n) * n_sums; ++i) sums[i] = V{};
    V top = beta[0];
    for (int k = 1; k < n; ++k) top = larger<T>(beta[k], top);
    for (int stop = C; stop > 0; stop -= BLOCK) {
      const int from = stop > BLOCK ? stop - BLOCK : 0;
      for (int r = stop - 1; r >= from; --r) {
        V* likelihood = b + size_t(L + r) * n;
        const V* a = alpha + size_t(r + 1) * n;
        V* posterior = gamma + size_t(r - from) * n;
        for (int k = 0; k < n; ++k) {
          posterior[k] = a[k] * beta[k];
          moved[k] = likelihood[k] * beta[k];
          top = larger<T>(moved[k], top);
          likelihood[k] = moved[k];
        }
        multiply<T, K>(point.transition.data(), n, moved, beta);
        if (call.gamma)
          for (int lane = 0; lane < count; ++lane)
            if (r < call.core[base + lane]) {
              T* to = static_cast<T*>(call.gamma) + (call.begin[base + lane] + r - call.gamma_origin) * n;
              for (int k = 0; k < n; ++k) to[k] = posterior[k][lane];
            }
        if (ragged) {
          const Bits<T> own = all(T(r)) < core_rows;
          for (int k = 0; k < n; ++k) {
            posterior[k] = own ? posterior[k] : V{};
            likelihood[k] = own ? likelihood[k] : V{};
          }
        }
        if (opening) {
          // The first row of a sequence has a first state, and no transition into it.
          const Bits<T> here = (begins == all(T(L + r))) & (starts != V{});
          for (int k = 0; k < n; ++k) {
            first[k] = here ? posterior[k] : first[k];
            likelihood[k] = here ? V{} : likelihood[k];
          }
        }
      }
      add_products<T, K>(alpha + size_t(from) * n, b + size_t(L + from) * n, stop - from, n, counts);
      for (int r = from; missing && r < stop; ++r) {
        V* posterior = gamma + size_t(r - from) * n;
        const V here = rows.present[L + r];
        for (int k = 0; k < n; ++k) posterior[k] *= here;
      }
      block_sums<T>(call, pack, rows.values + size_t(L + from) * width, stop - from, gamma, sums);
    }
    const T bound = std::numeric_limits<T>::epsilon() / std::numeric_limits<T>::min() / T(total) / T(n);
    lost |= ~(top < all(bound));
  } else if (call.gamma) {
    for (int r = 0; r < C; ++r)
      for (int lane = 0; lane < count; ++lane)
        if (r < call.core[base + lane]) {
          T* to = static_cast<T*>(call.gamma) + (call.begin[base + lane] + r - call.gamma_origin) * n;
          T sum = 0;
          for (int k = 0; k < n; ++k) sum += alpha[size_t(r + 1) * n + k][lane];
          for (int k = 0; k < n; ++k) to[k] = alpha[size_t(r + 1) * n + k][lane] / sum;
        }
  }

  // A window without proof leaves the lanes and is done again.
  for (int lane = 0; lane < count; ++lane) {
    if (!lost[lane]) continue;
    ++out.careful;
    log_likelihood[lane] = 0;
    if (!call.forward_only) {
      for (int k = 0; k < n; ++k) first[k][lane] = 0;
      for (int64_t i = 0; i < int64_t(n) * n; ++i) counts[i][lane] = 0;
      for (int64_t i = 0; i < int64_t(n) * n_sums; ++i) sums[i][lane] = 0;
    }
    const int64_t to = call.per_window ? lane : 0;
    const double weight = call.weight && !call.per_window ? call.weight[base + lane] : 1.0;
    const int64_t row =
        careful_window(call, sizeof(T) == 8, point.index, base + lane, weight, out.log_likelihood + to,
                       out.first + to * n, out.transitions + to * n * n, out.statistics + to * n * n_sums);
    if (row >= 0) out.log_likelihood[to] = -INFINITY;
    if (row >= 0 && (out.impossible < 0 || row < out.impossible)) out.impossible = row;
  }
  // Out of the lanes; one that holds no window of its own has contributed nothing.
  double weights[W] = {};
  if (call.weight) std::copy_n(call.weight + base, count, weights);
  auto give = [&](double* to, int64_t size, const V* from, const T* factor) {
    for (int64_t i = 0; i < size; ++i) {
      const double times = factor ? double(factor[i]) : 1.0;
      if (call.per_window)
        for (int lane = 0; lane < count; ++lane) to[lane * size + i] += times * double(from[i][lane]);
      else
        to[i] += times * (call.weight ? total_of(from[i], weights) : total_of(from[i]));
    }
  };
  give(out.log_likelihood, 1, &log_likelihood, nullptr);
  if (!call.forward_only) {
    give(out.first, n, first, nullptr);
    give(out.transitions, int64_t(n) * n, counts, point.transition.data());
    give(out.statistics, int64_t(n) * n_sums, sums, nullptr);
  }
  if (call.edge_before)
    for (int lane = 0; lane < count; ++lane) {
      if (lost[lane]) continue;
      const int64_t at = point.index * call.edge_stride + (window0 + lane) * n;
      auto note = [&](double* edge, const V* message) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += double(message[k][lane]);
        for (int k = 0; k < n; ++k) edge[at + k] = std::log(double(message[k][lane]) / sum);
      };
      note(call.edge_before, alpha);
      note(call.edge_leaving, leaving);
      if (call.forward_only) continue;
      note(call.edge_after, after_edge);
      note(call.edge_entering, beta);
    }
}

}  // namespace VARIANT
