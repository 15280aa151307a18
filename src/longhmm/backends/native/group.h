// One group of windows, one window in each lane of a vector: rows in, expected statistics out.
//
// The cores of all windows are aligned. The forward recursion runs over the left margin and the core, the backward
// one over the right margin and the core: no work is spent on posteriors of rows that are not asked for.
//
// Likelihoods are divided by their peak. With u the forward messages, whose sum c is the likelihood of a row given
// those before it, w the likelihoods over the c of the row before, and v the backward messages scaled so that
// sum_k u v = 1, the recursions are u' = (A^T u) w, v = A (w v'), and u_i A_ij (w v')_j is the posterior of a
// transition.
//
// What underflow may take from an entry of u is at most tiny (K / c + 3), where c is that of the row before, and it
// changes the likelihood by v times that.
// - If the least entry m of A is large, v c <= 1 / m: one state's v is at most 1 / m times another's. So nothing that
//   matters was lost while the c of two rows in a row have a product above T K (K + 3) tiny / (eps m).
// - Otherwise a state may be left for good, and later evidence may speak for it. Then a second recursion, of the same
//   form, carries `gone`, an upper bound of what u has lost: gone' = (A^T gone + taken) w + taken. Nothing was lost
//   while the sum of gone is negligible against c, and that of gone v against sum u v. There v comes from the right
//   margin, over which it has such a bound of its own; behind that losses of v weigh no more than u does.
//
// Messages that are given out serve what lies behind the window.
// - A chunk that warmed up is compared with its neighbours (see stitch.py). Entries below COMPARED are given as that,
//   and so agree. What differs all the same is UNKNOWN at most, one step on: with that `gone` begins, and at the end of
//   the chunk it must be smaller again, or negligible. So no prediction is ever wrong by more than UNKNOWN, from chunk
//   to chunk, and every chunk shows that this much makes no difference to it.
// - Of a chunk that began with a given message, and has no other purpose, every state that can be reached has to leave
//   with all its digits: there gone is 0 for those that cannot, and negligible for each of the others.
//
// A window without that is done again in log space (see log_space.h).
#pragma once

#include <mutex>
#include <new>
#include <tuple>
#include <vector>

#include "alike.h"
#include "log_space.h"
#include "with_moves.h"

namespace VARIANT {

// Memory of one thread; grows and is reused, also by threads that come later: every page of new memory costs a fault.
template <class T>
struct Scratch {
  static constexpr std::align_val_t ALIGNED{64};
  static constexpr size_t KEPT = 1 << 23;  // bytes that a thread leaves at most
  void* memory = nullptr;
  size_t size = 0;
  Scratch() {
    const std::lock_guard<std::mutex> locked(left().guard);
    if (!left().parts.empty()) std::tie(memory, size) = left().parts.back(), left().parts.pop_back();
  }
  ~Scratch() {
    const std::lock_guard<std::mutex> locked(left().guard);
    if (size > KEPT)
      ::operator delete(memory, ALIGNED);
    else
      left().parts.push_back({memory, size});
  }
  Scratch(const Scratch&) = delete;
  struct Left {
    std::mutex guard;
    std::vector<std::pair<void*, size_t>> parts;
  };
  static Left& left() {
    static Left& all = *new Left;  // never deleted: threads may outlive what is static
    return all;
  }
  Vec<T>* reserve(size_t vectors) {
    const size_t wanted = vectors * sizeof(Vec<T>);
    if (wanted > size) {
      ::operator delete(memory, ALIGNED);
      memory = ::operator new(wanted, ALIGNED, std::nothrow);
      size = memory ? wanted : 0;
    }
    return static_cast<Vec<T>*>(memory);
  }
};

// Parameters of one point in the precision of the recursion.
template <class T>
struct Point {
  std::vector<T> held;  // all of these
  const T *transition, *transposed, *initial, *start, *pack;
  int64_t index;
  T least = 1, least_possible = 1;  // transition
  Point(const Call& call, int64_t index) : index(index) {
    const int64_t states = call.states, square = states * states;
    held.resize(2 * square + states * (2 + call.pack));
    T* next = held.data();
    auto copy = [&](const double* from, int64_t count) {
      std::copy_n(from + index * count, count, next);
      return (next += count) - count;
    };
    transition = copy(call.transition, square);
    initial = copy(call.initial, states);
    start = copy(call.start, states);
    pack = copy(call.packs, states * call.pack);
    transposed = next;
    for (int64_t i = 0; i < states; ++i)
      for (int64_t j = 0; j < states; ++j) {
        const T chance = next[j * states + i] = transition[i * states + j];
        least = std::min(least, chance);
        least_possible = chance > T(0) ? std::min(least_possible, chance) : least_possible;
      }
  }
};

// What underflow may take from the likelihood of so many rows, times m c c' / eps (see above).
template <class T>
T losses(int states, int rows) {
  return T(rows) * T(states) * T(states + 3) * (std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon());
}

template <class T, int K, bool watched, class Moves>
void run_group(const Call& call, const Point<T>& point, Moves& moves, int64_t chain, int64_t window0, int count,
               Scratch<T>& scratch, Sums& out) {
  typedef Vec<T> V;
  constexpr int W = Vector<T>::lanes;
  const int n = K ? K : call.states;
  const int L = call.max_left, C = call.max_core, R = call.max_right, total = L + C + R;
  const int width = call.width;
  const int n_sums = sums_of(call.kind, call.width, call.pack);
  const int64_t base = chain * call.windows + window0;

  V* memory = scratch.reserve(size_t(total) * (width + 1 + n) + size_t(C + 1) * n + size_t(n) * (n + 8) +
                              size_t(n) * n_sums + size_t(BLOCK) * (n + 1) + 64);
  auto take = [&memory](size_t vectors) {
    V* taken = memory;
    memory += vectors;
    return taken;
  };
  Rows<T> rows{take(size_t(total) * width), take(total), width};
  V* b = take(size_t(total) * n);      // likelihoods over the normaliser of the row before; later times beta
  V* peak = take(BLOCK);               // largest log likelihood of each row
  V* alpha = take(size_t(C + 1) * n);  // not normalised; [0] is the message before the core
  V* counts = take(size_t(n) * n);
  V* sums = take(size_t(n) * n_sums);
  // Few states stay in registers.
  constexpr bool held_near = K > 0 && K <= 16;
  V near_message[held_near ? K : 1], near_moved[held_near ? K : 1], near_beta[held_near ? K : 1];
  V near_gone[held_near ? K : 1], near_risen[held_near ? K : 1];
  V* const message = held_near ? near_message : take(n);
  V* const moved = held_near ? near_moved : take(n);
  V* const beta = held_near ? near_beta : take(n);
  V* const gone = held_near ? near_gone : take(n);
  V* const risen = held_near ? near_risen : take(n);
  V* first = take(n);
  V* after_edge = take(n);
  V* gamma = take(size_t(BLOCK) * n);

  load_rows<T>(call, base, count, rows.values);
  find_present<T>(call, rows, total);
  moves.bind(rows.values, rows.present, sums);
  const T* pack = point.pack;
  const Weights<T> weights(call, base, count);
  Alike<T> alike(call, pack, K ? 0 : n, BLOCK);

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
  const bool compared = call.edge_before && !call.log_before;
  const bool exact = call.edge_before && call.log_before && call.forward_only;
  const T tiny = std::numeric_limits<T>::min(), epsilon = std::numeric_limits<T>::epsilon();
  // For exact messages so large that one step does not lose it, unless a transition is hardly possible.
  const T taken = exact ? tiny / epsilon : T(2 * n + 4) * tiny;
  const bool everywhere = !exact || moves.least_possible < epsilon;
  const V least = all(watched ? tiny : losses<T>(n, total) / moves.least), negligible = all(NEGLIGIBLE<T>);
  V scale = all(T(1)), c = all(T(1)), thin = least;
  for (int k = 0; k < n; ++k) message[k] = all(point.start[k]), gone[k] = risen[k] = V{};
  for (int lane = 0; call.log_before && lane < W; ++lane) {
    const double* given = call.log_before + (base + (lane < count ? lane : count - 1)) * n;
    const double top = *std::max_element(given, given + n);
    for (int k = 0; k < n; ++k) {
      message[k][lane] = T(std::exp(given[k] - top));
      gone[k][lane] = given[k] > -INFINITY ? taken : T(0);
    }
  }
  if (call.log_before) c = sum_of<T, K>(message, n), scale = T(1) / c;
  for (int k = 0; k < n; ++k) alpha[k] = message[k];  // with no rows before the core, the message before it is this one
  Bits<T> lost = {};
  LogProduct<T> likelihoods;
  const bool keeps = !call.forward_only;  // likelihoods and messages for the way back; else memory is spared
  V peaks{};
  for (int from = 0; from < total; from += BLOCK) {
    const int stop = from + BLOCK < total ? from + BLOCK : total;
    V* const block = b + (keeps ? size_t(from) * n : 0);
    if (!moves.pairs) alike.template likelihoods<K>(call, pack, rows, from, stop - from, block, peak);
    for (int r = 0; (rows.missing || moves.pairs) && r < stop - from; ++r) {
      const Bits<T> here = moves.pairs ? Bits<T>{} : rows.present[from + r] != V{};
      for (int k = 0; k < n; ++k) block[size_t(r) * n + k] = here ? block[size_t(r) * n + k] : all(T(1));
      peak[r] = here ? peak[r] : V{};
    }
    if (window0 + 2 * W <= call.windows) fetch_ahead(call, base + W, from, stop, W);
    for (int r = from; r < stop && r < L + C; ++r) {
      V* likelihood = block + size_t(r - from) * n;
      const Bits<T> begun = opening ? (begins == all(T(r))) & (starts != V{}) : Bits<T>{};
      moves.at(r);
      if (moves.pairs) peak[r - from] = moves.peak;
      if (opening) moves.begin(r, begun, point.initial, message, gone, alpha, scale);
      moves.forward(message, moved);
      const bool watching = watched && (r >= L || !compared);
      if (watching) {
        moves.forward(gone, risen);
        for (int k = 0; r == L && compared && k < n; ++k)
          risen[k] = negligible * moved[k] < UNKNOWN<T> * c ? UNKNOWN<T> * c : V{};
      }
      if (opening && !moves.pairs) {
        for (int k = 0; k < n; ++k) moved[k] = begun ? all(point.initial[k]) : moved[k];
        for (int k = 0; watched && k < n; ++k) risen[k] = begun ? V{} : risen[k];
        scale = begun ? all(T(1)) : scale;
      }
      if (out.predicted && r >= L) write_rows<T, K, T>(call, out.predicted, n, base, r - L, core_rows, moved, scale);
      for (int k = 0; k < n; ++k) {
        likelihood[k] *= scale;
        message[k] = moved[k] * likelihood[k];
      }
      if (keeps ? r >= L - 1 : r == L - 1)
        for (int k = 0; k < n; ++k) alpha[size_t(r + 1 - L) * n + k] = message[k];
      c = sum_of<T, K>(message, n);
      thin = least * scale;
      lost |= ~(c > thin);
      c = larger<T>(c, all(tiny));
      scale = T(1) / c;
      if (call.gamma && !keeps && r >= L) write_rows<T, K, T>(call, 0, n, base, r - L, core_rows, message, scale);
      if (watching) {
        for (int k = 0; k < n; ++k) {
          const V more = everywhere ? all(taken) : (moved[k] + risen[k] > V{} ? all(taken) : V{});
          gone[k] = (risen[k] + more) * likelihood[k] + more;
        }
        lost |= ~(sum_of<T, K>(gone, n) < negligible * c);
      }
      if (r >= L) {
        const Bits<T> own = all(T(r - L)) < core_rows;
        likelihoods.times(ragged ? (own ? c : all(T(1))) : c);
        peaks += ragged ? (own ? peak[r - from] : V{}) : peak[r - from];
      }
    }
    likelihoods.settle();
  }
  V log_likelihood = likelihoods.log() + peaks;

  const V* leaving = keeps ? alpha + size_t(C) * n : message;
  for (int k = 0; watched && exact && k < n; ++k) lost |= ~(gone[k] <= negligible * message[k]);
  if (watched && compared) {
    moves.predict(message, moved);
    moves.predict(gone, risen);
    for (int k = 0; k < n; ++k)
      lost |= ~(T(Moves::by_row ? 2 * n : 1) * risen[k] <= larger<T>(negligible * moved[k], T(0.9) * UNKNOWN<T> * c));
  }
  for (int k = 0; k < n; ++k) first[k] = V{};
  if (!call.forward_only) {
    // Backward over the right margin, with a bound of what beta has lost.
    for (int k = 0; k < n; ++k) beta[k] = all(T(1)), risen[k] = all(call.log_after ? taken : T(0));
    for (int lane = 0; call.log_after && lane < W; ++lane) {
      const double* given = call.log_after + (base + (lane < count ? lane : count - 1)) * n;
      const double top = *std::max_element(given, given + n);
      for (int k = 0; k < n; ++k) beta[k][lane] = T(std::exp(given[k] - top));
    }
    for (int r = total - 1; r >= L + C; --r) {
      const V* likelihood = b + size_t(r) * n;
      moves.at(r);
      for (int k = 0; k < n; ++k) moved[k] = beta[k] * likelihood[k];
      moves.backward(moved, beta);
      for (int k = 0; watched && k < n; ++k) moved[k] = risen[k] * likelihood[k];
      if (watched) moves.backward(moved, risen);
      V top = beta[0];
      for (int k = 1; k < n; ++k) top = larger<T>(beta[k], top);
      lost |= ~(top > least);
      const V scale = T(1) / larger<T>(top, all(tiny));
      for (int k = 0; k < n; ++k) beta[k] *= scale;
      for (int k = 0; watched && k < n; ++k) risen[k] = (risen[k] + taken) * scale;
    }
    V agreed{}, disputed{};
    for (int k = 0; k < n; ++k) {
      after_edge[k] = beta[k];
      agreed += leaving[k] * beta[k];
      if (watched) disputed += gone[k] * (beta[k] + risen[k]) + leaving[k] * risen[k];
    }
    lost |= ~(agreed > thin) | ~(disputed < negligible * agreed);
    agreed = T(1) / larger<T>(agreed, all(tiny));
    for (int k = 0; k < n; ++k) beta[k] *= agreed;

    // Backward over the core, in blocks of rows.
    for (int64_t i = 0; i < int64_t(n) * n; ++i) counts[i] = V{};
    for (int64_t i = 0; i < int64_t(n) * n_sums; ++i) sums[i] = V{};
    moves.start(~lost);
    for (int stop = C; stop > 0; stop -= BLOCK) {
      const int from = stop > BLOCK ? stop - BLOCK : 0;
      for (int r = stop - 1; r >= from; --r) {
        V* likelihood = b + size_t(L + r) * n;
        const V* a = alpha + size_t(r + 1) * n;
        V* posterior = gamma + size_t(r - from) * n;
        for (int k = 0; k < n; ++k) {
          posterior[k] = a[k] * beta[k];
          moved[k] = likelihood[k] * beta[k];
          likelihood[k] = moved[k];
        }
        if (call.gamma && !moves.pairs) write_rows<T, K, T>(call, 0, n, base, r, core_rows, posterior, all(T(1)));
        Bits<T> counted = ~Bits<T>{};
        if (ragged) {
          counted = all(T(r)) < core_rows;
          for (int k = 0; k < n; ++k) {
            posterior[k] = counted ? posterior[k] : V{};
            likelihood[k] = counted ? likelihood[k] : V{};
          }
        }
        const Bits<T> begun = opening ? (begins == all(T(L + r))) & (starts != V{}) : Bits<T>{};
        if (opening) {
          // The first row of a sequence has a first state, and no transition into it.
          for (int k = 0; !moves.pairs && k < n; ++k) {
            first[k] = begun ? posterior[k] : first[k];
            likelihood[k] = begun ? V{} : likelihood[k];
          }
        }
        moves.at(L + r);
        moves.step_back(alpha + size_t(r) * n, moved, counted & ~begun, beta);
        moves.add_row(r, alpha + size_t(r) * n, likelihood, beta, begun, counts, first);
      }
      moves.add_block(alpha + size_t(from) * n, b + size_t(L + from) * n, stop - from, counts);
      if (!moves.pairs) block_sums<T>(call, pack, rows, L + from, stop - from, gamma, sums);
    }
  }

  // A window that may have lost something leaves the lanes and is done again.
  bool again[W] = {};
  for (int lane = 0; lane < count; ++lane) {
    if (!(again[lane] = lost[lane] != 0)) continue;
    ++out.redone;
    log_likelihood[lane] = 0;
    for (int k = 0; k < n; ++k) first[k][lane] = 0;
    for (int64_t i = 0; !call.forward_only && i < int64_t(n) * n; ++i) counts[i][lane] = 0;
    for (int64_t i = 0; !call.forward_only && i < int64_t(n) * n_sums; ++i) sums[i][lane] = 0;
  }
  constexpr int half = Vector<double>::lanes;  // or all of them
  for (int from = 0; any<T>(lost) && from < count; from += half) {
    const int64_t skip = call.per_window ? from : 0;
    Sums part = {out.log_likelihood + skip, out.first + skip * n, out.transitions + skip * n * n,
                 out.statistics + skip * n * n_sums, out.moved + skip * call.moves.sums_size, out.impossible, 0,
                 out.predicted};
    const int some = std::min(half, count - from);
    typename Moves::Logs own(call, point.index, base + from, some);
    log_space_group<T>(call, own, point.index, base + from, some, again + from, part);
    out.impossible = part.impossible;
  }
  // Out of the lanes; one that holds no window of its own has contributed nothing.
  give<T>(call, weights, count, out.log_likelihood, 1, &log_likelihood);
  if (!call.forward_only) {
    give<T>(call, weights, count, out.first, n, first);
    give<T>(call, weights, count, out.transitions, int64_t(n) * n, counts, Moves::by_row ? nullptr : point.transition);
    give<T>(call, weights, count, out.statistics, int64_t(n) * n_sums, sums);
    moves.give_sums(out);
  }
  if (call.edge_before) {
    auto note = [&](double* edge, const V* message, T smallest) {
      const V whole = T(1) / sum_of<T, K>(message, n);
      for (int k = 0; k < n; ++k) {
        const V share = larger<T>(message[k] * whole, all(smallest));
        const V logs = log_positive(share > V{} ? share : all(T(1)));
        for (int lane = 0; lane < count; ++lane)
          if (!lost[lane])
            edge[point.index * call.edge_stride + (window0 + lane) * n + k] = share[lane] > 0 ? logs[lane] : -INFINITY;
      }
    };
    note(call.edge_before, alpha, compared ? COMPARED<T> : T(0));
    note(call.edge_leaving, leaving, compared ? COMPARED<T> : T(0));
    if (!call.forward_only) note(call.edge_after, after_edge, T(0)), note(call.edge_entering, beta, T(0));
  }
}

}  // namespace VARIANT
