// Transitions that vary by row, or whose likelihoods depend on both states: every row has a matrix M of its own, what it
// does to messages, one for each lane. It is made when the recursion comes to the row, and kept for its way back where
// there is room.
//
// Rows outside a window leave its messages alone. Of pairs M holds likelihoods over the largest of the row. Its entries
// are at most 1, so that all bounds of group.h hold; but none is known to be large, and `gone` is always carried.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "constant.h"
#include "frames.h"
#include "log_space.h"
#include "logits.h"
#include "placed.h"

namespace VARIANT {

constexpr int64_t MOST_LOOKED_UP = 256;  // matrices in a table of their own
constexpr size_t MOST_KEPT = 1 << 22;    // bytes of matrices that are kept
constexpr int MOST_IN_BLOCKS = 32;       // states of which a block of matrices is kept, if not all

// An entry of the matrices that rows have by index, or of their own.
template <class T>
inline T number(const Moves& given, int64_t at) {
  if (given.wide) return T(static_cast<const double*>(given.matrices)[at]);
  return T(static_cast<const float*>(given.matrices)[at]);
}

template <class T, int K>
struct ByRow {
  typedef Vec<T> V;
  typedef ByRow<double, 0> Logs;
  static constexpr bool by_row = true;
  static constexpr int W = Vector<T>::lanes;
  const Call& call;
  const Moves& given;
  const States<K> n;
  const bool pairs;
  T least = 0, least_possible = 0;  // no entry of a matrix is smaller
  V peak{};                         // of pairs, the largest log likelihood of the row
  const V *logs = nullptr, *present = nullptr;  // log likelihoods of pairs, or numbers of frames
  std::vector<T> transition;    // where it is one
  Logits<T, K> logits;
  Frames<T, K> frames;
  std::vector<V> held;          // M and what follows from it
  V *matrix, *found, *open;     // `found`: posteriors of pairs; `open`: 1 where M is not zero, before underflow
  V* all_held = nullptr;        // M of all rows, or of the latest ones, and which of them are there
  int slots = 1;
  std::vector<char> there;
  int latest = 0;               // core row that was added last
  std::vector<T> table;         // of matrices that are looked up
  std::vector<T> sums;          // of their expected transitions, (windows or 1, matrices, K, K)
  int stride = 0;               // between two of these
  std::vector<T> identity;
  const Placed<T> placed;
  const int64_t base;
  const int count;
  Bits<T> kept{}, wanted = ~Bits<T>{};  // windows that count at a row, and in all

  // `memory`: where matrices may be kept.
  ByRow(const Call& call, int64_t point, int64_t base, int count, std::vector<V>* memory = nullptr)
      : call(call), given(call.moves), n(call.states), pairs(of_pairs(call)), placed(call, base, count),
        base(base), count(count) {
    const double* matrices = call.transition + point * n * n;
    const int square = n * n, padded = (square + W - 1) / W * W;
    held.resize(3 * size_t(square) + W);
    matrix = held.data(), found = matrix + square, open = found + square;
    identity.assign(padded, T(0));
    for (int i = 0; i < n; ++i) identity[i * n + i] = T(1);
    if (given.source == INDEXED) least = T(given.least), least_possible = T(given.least_possible);
    if (given.source == ONE) {
      transition.assign(matrices, matrices + square);
      least = least_possible = T(1);
      for (T chance : transition) {
        least = std::min(least, chance);
        least_possible = chance > T(0) ? std::min(least_possible, chance) : least_possible;
      }
    }
    if (given.source == LOGITS) {
      logits.load(call, base, count);
      least = least_possible = logits.least;
    }
    if (given.index && given.count <= MOST_LOOKED_UP) {
      stride = padded;
      table.resize(size_t(given.count) * stride + padded);
      for (int64_t m = 0; m < given.count; ++m)
        for (int q = 0; q < square; ++q) table[m * stride + q] = number<T>(given, m * square + q);
    }
    if (given.index && given.sums_size) sums.assign(given.sums_size * (call.per_window ? count : 1), T(0));
    const int total = call.max_left + call.max_core + call.max_right;
    if (memory && !call.forward_only) {
      const bool everything = total * size_t(square) * sizeof(V) <= MOST_KEPT;
      slots = everything ? total : n <= MOST_IN_BLOCKS ? BLOCK : 1;
      if (memory->size() < size_t(slots) * square) memory->resize(size_t(slots) * square);
      all_held = memory->data();
      if (everything) there.resize(total);
    }
    if (pairs) least = least_possible = T(0);
    if (call.kind == FRAMES) frames.load(call, point);
  }

  // The matrices of all lanes, from where they lie.
  void gather(int r) {
    for (int lane = 0; lane < W; ++lane) {
      const int64_t row = placed.first_row[lane] + r;
      const bool inside = placed.has(r, lane);
      const int64_t from = inside ? (given.index ? given.index[row] : row) * n * n : 0;
      for (int q = 0; q < n * n; ++q) matrix[q][lane] = inside ? number<T>(given, from + q) : identity[q];
    }
  }

  // The same from the table, by whole vectors.
  void look_up(int r) {
    const T* from[W];
    for (int lane = 0; lane < W; ++lane) {
      const int64_t row = placed.first_row[lane] + r;
      from[lane] = placed.has(r, lane) ? table.data() + int64_t(given.index[row]) * stride : identity.data();
    }
    V tile[W];
    for (int q = 0; q < n * n; q += W) {
      for (int lane = 0; lane < W; ++lane) tile[lane] = load<T>(from[lane] + q);
      transpose<T>(tile);
      for (int i = 0; i < W && q + i < n * n; ++i) matrix[q + i] = tile[i];
    }
  }

  template <bool in_logs>
  __attribute__((noinline)) void make(int r) {
    const int square = n * n;
    const V nothing = all(-std::numeric_limits<T>::infinity());
    const bool by_log = in_logs && given.source != LOGITS;
    if (given.source == LOGITS) logits.template softmax<in_logs>(r, matrix);
    if (stride) look_up(r);
    if (given.source == INDEXED && !stride) gather(r);
    for (int q = 0; given.source == ONE && q < square; ++q) matrix[q] = all(transition[q]);
    for (int q = 0; by_log && q < square; ++q) {
      const Bits<T> some = matrix[q] > V{};
      matrix[q] = some ? log_positive(some ? matrix[q] : all(T(1))) : nothing;
    }
    if (frames.count) average<in_logs>(r);
    if (pairs && !frames.count) {
      const V* own = logs + size_t(r) * square;
      const Bits<T> here = present[r] != V{};
      peak = own[0];
      for (int q = 1; q < square; ++q) peak = larger<T>(own[q], peak);
      peak = here & (peak > all(-std::numeric_limits<T>::max())) ? peak : V{};
      for (int q = 0; q < square; ++q) {
        const V log = here ? own[q] - peak : V{};
        open[q] = (log > all(-std::numeric_limits<T>::max())) & (matrix[q] != (in_logs ? nothing : V{})) ? all(T(1)) : V{};
        matrix[q] = in_logs ? matrix[q] + log : matrix[q] * exp_negative(log);
      }
    }
    if (placed.whole(r)) return;
    const Bits<T> inside = placed.inside(r);
    for (int q = 0; q < square; ++q) {
      const V alone = in_logs ? (identity[q] > T(0) ? V{} : nothing) : all(identity[q]);
      matrix[q] = inside ? matrix[q] : alone;
      open[q] = inside ? open[q] : all(identity[q]);
    }
    peak = inside ? peak : V{};
  }

  // The matrix of a row times the likelihoods of a frame; one that is missing has none.
  template <bool in_logs>
  void average(int r) {
    for (int q = 0; q < n * n; ++q) open[q] = all(transition[q] > T(0) ? T(1) : T(0));
    peak = in_logs ? frames.add_to_logs(logs[r], matrix) : frames.multiply(logs[r], matrix);
    const Bits<T> here = present[r] != V{};
    if (!any<T>(~here)) return;
    peak = here ? peak : V{};
    for (int q = 0; q < n * n; ++q)
      matrix[q] = here ? matrix[q] : all(in_logs ? std::log(transition[q]) : transition[q]);
  }

  V* place(int r) const { return all_held + size_t(r % slots) * n * n; }

  void at(int r) {
    if (all_held) matrix = place(r);
    if (there.empty() || !there[r]) make<false>(r);
    if (!there.empty()) there[r] = 1;
  }

  void log_at(int r) {
    matrix = held.data();
    make<true>(r);
  }

  // For messages that leave: nothing is known of the next matrix but that its entries are at most 1.
  double leave() {
    for (int q = 0; q < n * n; ++q) matrix[q] = all(identity[q] > T(0) ? T(0) : -std::numeric_limits<T>::infinity());
    return std::log(2.0 * n);
  }

  void bind(const V* numbers, const V* seen, V* sums) { logs = numbers, present = seen, frames.sums = sums; }

  void start(Bits<T> sound) { kept = wanted = sound; }

  // Of pairs, a sequence begins with the state before its first row.
  void begin(int r, Bits<T> begun, const T* initial, V* message, V* gone, V* alpha, V& scale) const {
    for (int k = 0; pairs && k < n; ++k) {
      message[k] = begun ? all(initial[k]) : message[k];
      gone[k] = begun ? V{} : gone[k];
      if (r == call.max_left) alpha[k] = message[k];
    }
    if (pairs) scale = begun ? all(T(1)) : scale;
  }

  // The same of a path, and then it does not open any more.
  void begin_path(bool plain, Bits<double>& opens, const double* initial, V* value, V* possible) const {
    for (int k = 0; pairs && k < n; ++k) {
      value[k] = opens ? all(plain ? initial[k] : std::log(initial[k])) : value[k];
      possible[k] = opens ? all(initial[k] > 0 ? 1.0 : 0.0) : possible[k];
    }
    opens = pairs ? Bits<double>{} : opens;
  }

  // The same of messages in log space.
  void begin_logs(bool first_row, Bits<double>& opens, const double* initial, V* message, V* alpha) const {
    for (int k = 0; pairs && k < n; ++k) {
      message[k] = opens ? all(std::log(initial[k])) : message[k];
      if (first_row) alpha[k] = message[k];
    }
    opens = pairs ? Bits<double>{} : opens;
  }

  // That of the row behind the core of each lane, or where there is none of its last row.
  template <bool in_logs>
  void behind() {
    std::vector<V> kept(held.size());
    matrix = held.data();
    for (int lane = 0; lane < W; ++lane) {
      const int64_t window = base + (lane < count ? lane : count - 1);
      make<in_logs>(std::min(call.max_left + call.core[window], placed.ends[lane] - 1));
      for (size_t q = 0; q < held.size(); ++q) kept[q][lane] = held[q][lane];
    }
    std::copy(kept.begin(), kept.end(), held.begin());
  }

  V weight(int i, int j) const { return matrix[i * n + j]; }
  V log_weight(int i, int j) const { return matrix[i * n + j]; }
  // Whether j can follow i at all, as 1 or 0.
  V possible(int i, int j) const {
    return pairs ? open[i * n + j] : (matrix[i * n + j] > V{} ? all(T(1)) : V{});
  }

  void forward(const V* in, V* out) const {
    V sum[K ? K : 1];
    V* const to = K ? sum : out;
    for (int j = 0; j < n; ++j) to[j] = matrix[j] * in[0];
    for (int i = 1; i < n; ++i)
      for (int j = 0; j < n; ++j) to[j] += matrix[i * n + j] * in[i];
    for (int j = 0; K && j < n; ++j) out[j] = sum[j];
  }

  // Nothing is known of the matrix behind the core but that its entries are at most 1.
  void predict(const V* in, V* out) const { std::copy_n(in, n, out); }

  void backward(const V* in, V* out) const {
    V sum[K ? K : 1];
    V* const to = K ? sum : out;
    for (int i = 0; i < n; ++i) {
      V total = matrix[i * n] * in[0];
      for (int j = 1; j < n; ++j) total += matrix[i * n + j] * in[j];
      to[i] = total;
    }
    for (int i = 0; K && i < n; ++i) out[i] = sum[i];
  }

  void step_back(const V*, const V* in, Bits<T>, V* out) const { backward(in, out); }
  // Posteriors of the transitions into core row r, in `found`, from u before it and w v at it; `leaves`: v before it.
  // Those of logits wait for their block.
  void add_row(int r, const V* before, const V* onward, const V* leaves, Bits<T> begun, V* counts, V* first) {
    latest = r;
    if (by_block()) return;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) found[i * n + j] = before[i] * matrix[i * n + j] * onward[j];
    for (int i = 0; pairs && i < n; ++i) first[i] = begun ? before[i] * leaves[i] : first[i];
    add<T>(r, counts);
    if (frames.count) add_frame(before, onward);
  }
  // The same of the shares of a frame, with what posteriors are over the likelihoods of pairs in place of `found`.
  void add_frame(const V* before, const V* onward) {
    const int row = call.max_left + latest;
    const Bits<T> here = present[row] != V{};
    for (int q = 0; q < n * n; ++q) {
      const V weight = before[q / n] * transition[q] * onward[q % n];
      found[q] = here ? (weight < all(frames.LARGEST) ? weight : all(frames.LARGEST)) : V{};
    }
    frames.add(logs[row], found);
  }
  bool by_block() const { return given.source == LOGITS && slots > 1; }
  __attribute__((noinline)) void add_block(const V* before, const V* onward, int rows, V* counts) {
    constexpr int SOME = 4;
    auto matrix_of = [this](int r) { return place(r); };
    const int first = call.max_left + latest;
    int r = by_block() && !logits.slopes.empty() ? 0 : rows;
    for (; r + SOME <= rows; r += SOME)
      logits.template add<SOME>(first + r, matrix_of, before + size_t(r) * n, onward + size_t(r) * n, counts);
    for (; r < rows; ++r)
      logits.template add<1>(first + r, matrix_of, before + size_t(r) * n, onward + size_t(r) * n, counts);
  }

  // The same from `into`, found in log space, where they count.
  template <class G>
  void add_logs(const V* into, Bits<T> counted, V* counts, int r, Bits<T> begun, V* first) {
    for (int q = 0; q < n * n; ++q) found[q] = counted ? into[q] : V{};
    for (int i = 0; pairs && i < n; ++i) {
      V leaves{};
      for (int j = 0; j < n; ++j) leaves += found[i * n + j];
      first[i] = begun ? leaves : first[i];
    }
    kept = counted;
    if (frames.count) {
      const Bits<T> here = present[call.max_left + r] != V{};
      for (int q = 0; q < n * n; ++q) open[q] = here ? found[q] : V{};
      frames.add_in_logs(logs[call.max_left + r], open);
    }
    at(call.max_left + r);
    add<G>(r, counts);
  }

  // Adds what was found at core row r: to the counts of all lanes, to what belongs to rows, and to the sums that
  // matrices need. `G` is the precision in which posteriors of rows are written; `matrix` holds probabilities.
  template <class G>
  __attribute__((noinline)) void add(int r, V* counts) {
    const int square = n * n;
    for (int q = 0; q < square; ++q) counts[q] += found[q];
    if (!logits.slopes.empty()) logits.add_found(call.max_left + r, matrix, found);
    const bool by_row = given.pairs || !sums.empty() || (pairs && call.gamma);
    for (int lane = 0; by_row && lane < count; ++lane) {
      if (!kept[lane] || r >= call.core[base + lane]) continue;
      const int64_t row = call.begin[base + lane] + r;
      if (given.pairs) write(static_cast<G*>(given.pairs) + row * square, lane);
      if (pairs && call.gamma) write(static_cast<G*>(call.gamma) + (row - call.gamma_origin) * square, lane);
      if (sums.empty()) continue;
      const T weight = call.per_window ? T(1) : T(call.weight[base + lane]);
      T* const to = sums.data() + (call.per_window ? lane * given.sums_size : 0) + int64_t(given.index[row]) * square;
      for (int q = 0; q < square; ++q) to[q] += weight * found[q][lane];
    }
  }

  template <class G>
  void write(G* to, int lane) const {
    for (int q = 0; q < n * n; ++q) to[q] = G(found[q][lane]);
  }

  // Gives out what was added: all, or of every window.
  void give_sums(Sums& out) {
    for (V& slope : logits.slopes) slope = wanted ? slope : V{};
    if (!logits.slopes.empty())
      give<T>(call, Weights<T>(call, base, count), count, out.moved, given.sums_size, logits.slopes.data());
    for (size_t i = 0; i < sums.size(); ++i) out.moved[i] += double(sums[i]);
  }
};

}  // namespace VARIANT
