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
#include "index_sums.h"
#include "log_space.h"

namespace VARIANT {

constexpr int64_t MOST_LOOKED_UP = 256;  // matrices in a table of their own
constexpr size_t MOST_KEPT = 1 << 19;    // bytes of matrices that are kept

template <class T, int K>
struct ByRow {
  typedef Vec<T> V;
  typedef ByRow<double, 0> Logs;
  static constexpr bool by_row = true;
  static constexpr int W = Vector<T>::lanes;
  const Call& call;
  const Moves& given;
  const int n;
  const bool pairs;
  T least = 0, least_possible = 0;  // no entry of a matrix is smaller
  V peak{};                         // of pairs, the largest log likelihood of the row
  const V *logs = nullptr, *present = nullptr;
  std::vector<T> transition;    // where it is one
  std::vector<T> coefficients;  // (K, K, 1 + terms)
  std::vector<V> held, values;  // M and what follows from it; covariates (time, terms), 0 outside windows
  V *matrix, *found, *open;     // `found`: posteriors of pairs; `open`: 1 where M is not zero, before underflow
  std::vector<V> all_held;      // all M of the windows, where they fit into a cache, and which of them are there
  std::vector<char> there;
  std::vector<T> table;         // of matrices that are looked up
  IndexSums<T> sums;            // of their expected transitions
  int stride = 0;               // between two of these
  bool moderate = false;        // whether exp of a logit is a number
  std::vector<T> identity;
  int64_t first_row[W];
  int begins[W], ends[W], all_from = 0, all_to = 1 << 30;

  const int64_t base;
  const int count;
  Bits<T> kept{}, wanted = ~Bits<T>{};  // windows that count at a row, and in all
  std::vector<V> slopes;  // LOGITS: derivatives by coefficients

  ByRow(const Call& call, int64_t point, int64_t base, int count)
      : call(call), given(call.moves), n(K ? K : call.states), pairs(call.kind == PAIR), sums(call, base, count), base(base), count(count) {
    const double* matrices = call.transition + point * n * n;
    const int square = n * n, padded = (square + W - 1) / W * W;
    held.resize(3 * size_t(square) + W);
    matrix = held.data(), found = matrix + square, open = found + square;
    identity.assign(padded, T(0));
    for (int i = 0; i < n; ++i) identity[i * n + i] = T(1);
    const int L = call.max_left;
    for (int lane = 0; lane < W; ++lane) {
      const int64_t window = base + (lane < count ? lane : count - 1);
      first_row[lane] = call.begin[window] - L;
      begins[lane] = L - call.left[window];
      ends[lane] = L + call.core[window] + call.right[window];
      all_from = std::max(all_from, begins[lane]);
      all_to = std::min(all_to, ends[lane]);
    }
    if (given.source == LOGITS) slopes.resize(given.sums_size);
    if (given.source == INDEXED) least = T(given.least), least_possible = T(given.least_possible);
    if (given.source == ONE) {
      transition.assign(matrices, matrices + square);
      least = least_possible = T(1);
      for (T chance : transition) {
        least = std::min(least, chance);
        least_possible = chance > T(0) ? std::min(least_possible, chance) : least_possible;
      }
    }
    if (given.source == LOGITS) load_covariates();
    if (given.index && given.count <= MOST_LOOKED_UP) {
      stride = padded;
      table.resize(size_t(given.count) * stride + padded);
      for (int64_t m = 0; m < given.count; ++m)
        for (int q = 0; q < square; ++q) table[m * stride + q] = number(m * square + q);
    }
    const size_t total = call.max_left + call.max_core + call.max_right;
    if (!call.forward_only && total * square * sizeof(V) <= MOST_KEPT) all_held.resize(total * square), there.resize(total);
    if (pairs) least = least_possible = T(0);
  }

  // Also finds how small a probability may be: exp(-2 x) / K where no logit is beyond x.
  void load_covariates() {
    const int terms = given.terms, total = call.max_left + call.max_core + call.max_right;
    values.resize(size_t(total) * terms + 1);
    coefficients.assign(given.coefficients, given.coefficients + int64_t(n) * n * (1 + terms));
    if (given.wide)
      load_from<T>(call, static_cast<const double*>(given.covariates), terms, base, count, values.data());
    else
      load_from<T>(call, static_cast<const float*>(given.covariates), terms, base, count, values.data());
    std::vector<double> largest(terms, 0.0);
    for (int c = 0; c < terms; ++c) {
      V top{};
      for (int r = 0; r < total; ++r) {
        V& x = values[size_t(r) * terms + c];
        x = x == x ? x : V{};  // what is no number lies outside
        top = larger<T>(larger<T>(x, -x), top);
      }
      for (int lane = 0; lane < W; ++lane) largest[c] = std::max(largest[c], double(top[lane]));
    }
    double beyond = 0;
    for (int pair = 0; pair < n * n; ++pair) {
      const double* own = given.coefficients + int64_t(pair) * (1 + terms);
      double sum = std::abs(own[0]);
      for (int c = 0; c < terms; ++c) sum += std::abs(own[1 + c]) * largest[c];
      beyond = std::max(beyond, sum);
    }
    least = least_possible = T(std::exp(-2 * beyond) / n);
    moderate = beyond < (sizeof(T) == 8 ? 300 : 30);
  }

  T number(int64_t at) const {
    return given.wide ? T(static_cast<const double*>(given.matrices)[at]) : T(static_cast<const float*>(given.matrices)[at]);
  }

  // The matrices of all lanes, from where they lie.
  void gather(int r) {
    for (int lane = 0; lane < W; ++lane) {
      const int64_t row = first_row[lane] + r;
      const bool inside = r >= begins[lane] && r < ends[lane];
      const int64_t from = inside ? (given.index ? given.index[row] : row) * n * n : 0;
      for (int q = 0; q < n * n; ++q) matrix[q][lane] = inside ? number(from + q) : identity[q];
    }
  }

  template <size_t... lane>
  void collect(const T* const* from, std::index_sequence<lane...>) {
    for (int q = 0; q < n * n; ++q) matrix[q] = V{from[lane][q]...};
  }

  // The same from the table. Few numbers are collected one by one, many by whole vectors.
  void look_up(int r) {
    const T* from[W];
    if (r >= all_from && r < all_to)
      for (int lane = 0; lane < W; ++lane)
        from[lane] = table.data() + int64_t(given.index[first_row[lane] + r]) * stride;
    else
      for (int lane = 0; lane < W; ++lane) {
        const bool inside = r >= begins[lane] && r < ends[lane];
        from[lane] = inside ? table.data() + int64_t(given.index[first_row[lane] + r]) * stride : identity.data();
      }
    if constexpr (K > 0 && K <= 3) return collect(from, std::make_index_sequence<W>());
    V tile[W];
    for (int q = 0; q < n * n; q += W) {
      for (int lane = 0; lane < W; ++lane) tile[lane] = load<T>(from[lane] + q);
      transpose<T>(tile);
      for (int i = 0; i < W && q + i < n * n; ++i) matrix[q + i] = tile[i];
    }
  }

  // Logits become probabilities, or their logarithms. Those of staying are 0.
  template <bool in_logs>
  void softmax(int r) {
    const V* x = values.data() + size_t(r) * given.terms;
    for (int i = 0; !in_logs && moderate && i < n; ++i) {
      V* row = matrix + i * n;
      V sum = all(T(1));
      for (int j = 0; j < n; ++j) {
        if (j == i) continue;
        const T* own = coefficients.data() + size_t(i * n + j) * (1 + given.terms);
        V logit = all(own[0]);
        for (int c = 0; c < given.terms; ++c) logit += own[1 + c] * x[c];
        sum += row[j] = exp_negative(logit);
      }
      const V over = T(1) / sum;
      for (int j = 0; j < n; ++j) row[j] = j == i ? over : row[j] * over;
    }
    for (int i = 0; (in_logs || !moderate) && i < n; ++i) {
      V* row = matrix + i * n;
      V top = all(-std::numeric_limits<T>::max()), sum{};
      for (int j = 0; j < n; ++j) {
        const T* own = coefficients.data() + size_t(i * n + j) * (1 + given.terms);
        V logit = all(j == i ? T(0) : own[0]);
        for (int c = 0; j != i && c < given.terms; ++c) logit += own[1 + c] * x[c];
        row[j] = logit;
        top = larger<T>(logit, top);
      }
      for (int j = 0; j < n; ++j) {
        row[j] -= top;
        const V part = exp_negative(row[j]);
        sum += part;
        if (!in_logs) row[j] = part;
      }
      const V over = in_logs ? log_positive(sum) : T(1) / sum;
      for (int j = 0; j < n; ++j) row[j] = in_logs ? row[j] - over : row[j] * over;
    }
  }

  template <bool in_logs>
  void make(int r) {
    const int square = n * n;
    const V nothing = all(-std::numeric_limits<T>::infinity());
    const bool by_log = in_logs && given.source != LOGITS;
    if (given.source == LOGITS) softmax<in_logs>(r);
    if (stride) look_up(r);
    if (given.source == INDEXED && !stride) gather(r);
    for (int q = 0; given.source == ONE && q < square; ++q) matrix[q] = all(transition[q]);
    for (int q = 0; by_log && q < square; ++q) {
      const Bits<T> some = matrix[q] > V{};
      matrix[q] = some ? log_positive(some ? matrix[q] : all(T(1))) : nothing;
    }
    if (pairs) {
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
    if (r >= all_from && r < all_to) return;
    Bits<T> inside{};
    for (int lane = 0; lane < W; ++lane) inside[lane] = r >= begins[lane] && r < ends[lane] ? -1 : 0;
    for (int q = 0; q < square; ++q) {
      const V alone = in_logs ? (identity[q] > T(0) ? V{} : nothing) : all(identity[q]);
      matrix[q] = inside ? matrix[q] : alone;
      open[q] = inside ? open[q] : all(identity[q]);
    }
    peak = inside ? peak : V{};
  }

  void at(int r) {
    if (there.empty()) return make<false>(r);
    matrix = all_held.data() + size_t(r) * n * n;
    if (!there[r]) make<false>(r), there[r] = 1;
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

  void bind(const V* logs_of_pairs, const V* seen) { logs = logs_of_pairs, present = seen; }

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
      make<in_logs>(std::min(call.max_left + call.core[window], ends[lane] - 1));
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

  // Posteriors of the transitions into core row r, in `found`, from u before it and w v at it; `leaves`: v before it.
  void add_row(int r, const V* before, const V* onward, const V* leaves, Bits<T> begun, V* counts, V* first) {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) found[i * n + j] = before[i] * matrix[i * n + j] * onward[j];
    for (int i = 0; pairs && i < n; ++i) first[i] = begun ? before[i] * leaves[i] : first[i];
    add<T>(r, counts);
  }
  void add_block(const V*, const V*, int, V*) const {}

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
    at(call.max_left + r);
    add<G>(r, counts);
  }

  // Adds what was found at core row r: to the counts of all lanes, to what belongs to rows, and to the sums that
  // matrices need. `G` is the precision in which posteriors of rows are written; `matrix` holds probabilities.
  template <class G>
  void add(int r, V* counts) {
    const int square = n * n;
    for (int q = 0; q < square; ++q) counts[q] += found[q];
    if (given.source == LOGITS) {
      const V* x = values.data() + size_t(call.max_left + r) * given.terms;
      const int size = 1 + given.terms;
      for (int i = 0; i < n; ++i) {
        V total{};
        for (int j = 0; j < n; ++j) total += found[i * n + j];
        for (int j = 0; j < n; ++j) {
          if (i == j) continue;
          const V slope = found[i * n + j] - matrix[i * n + j] * total;
          V* to = slopes.data() + size_t(i * n + j) * size;
          to[0] += slope;
          for (int c = 0; c < given.terms; ++c) to[1 + c] += slope * x[c];
        }
      }
    }
    if (sums.wanted()) sums.add(r, found, kept);
    const bool by_row = given.pairs || (pairs && call.gamma);
    for (int lane = 0; by_row && lane < count; ++lane) {
      if (!kept[lane] || r >= call.core[base + lane]) continue;
      const int64_t row = call.begin[base + lane] + r;
      if (given.pairs) write(static_cast<G*>(given.pairs) + row * square, lane);
      if (pairs && call.gamma) write(static_cast<G*>(call.gamma) + (row - call.gamma_origin) * square, lane);
    }
  }

  template <class G>
  void write(G* to, int lane) const {
    for (int q = 0; q < n * n; ++q) to[q] = G(found[q][lane]);
  }

  // Gives out what was added: all, or of every window.
  void give_sums(double* out) {
    for (V& slope : slopes) slope = wanted ? slope : V{};
    if (!slopes.empty()) give<T>(call, Weights<T>(call, base, count), count, out, given.sums_size, slopes.data());
    sums.give_out(out);
  }
};

}  // namespace VARIANT
