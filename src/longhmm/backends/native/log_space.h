// One group of windows on logarithms, in double precision: slow, and right where linear numbers underflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "emissions.h"

namespace VARIANT {

// What predictions may differ by where chunks meet, and the smallest message entry compared there; see group.h.
template <class T>
constexpr T UNKNOWN = sizeof(T) == 8 ? T(0x1p-511) : T(0x1p-63);  // the root of the smallest normal number
template <class T>
constexpr T COMPARED = UNKNOWN<T> / 4096;
template <class T>
constexpr T NEGLIGIBLE = 8 * std::numeric_limits<T>::epsilon();

// Weights of windows `base` to `base + count`, 0 behind them.
template <class T>
struct Weights {
  double of[Vector<T>::lanes] = {};
  Weights(const Call& call, int64_t base, int count) { std::copy_n(call.weight + base, count, of); }
};

// Adds what was found in the lanes to `to`: their sum, or one entry of `size` numbers for each window.
template <class T>
__attribute__((noinline)) void give(const Call& call, const Weights<T>& weights, int count, double* to, int64_t size,
                                    const Vec<T>* from, const T* factor = nullptr) {
  for (int64_t i = 0; i < size; ++i) {
    const double times = factor ? double(factor[i]) : 1.0;
    if (call.per_window)
      for (int lane = 0; lane < count; ++lane) to[lane * size + i] += times * double(from[i][lane]);
    else
      to[i] += times * total_of(from[i], weights.of);
  }
}

// Writes posteriors (n vectors) times `scale` of core row r of each lane's window, where it has so many `rows`, as `G`;
// or what is predicted of the row, where there is room for that.
template <class G, int K, class T>
inline void write_rows(const Call& call, void* predicted, int n, int64_t window, int r, Vec<T> rows,
                       const Vec<T>* states, Vec<T> scale) {
  constexpr int W = Vector<T>::lanes, P = !K || K > 4 ? W : K > 2 ? 4 : 2;
  for (int k = 0; k < n; k += P) {
    Vec<T> held[P];
    for (int i = 0; i < P; ++i) held[i] = k + i < n ? states[k + i] * scale : Vec<T>{};
    transpose<T, P>(held);
    for (int lane = 0; lane < W; ++lane) {
      const int64_t place = predicted ? (int64_t(lane) * call.max_core + r) * call.mixed_width
                                      : (call.begin[window + lane] + r - call.gamma_origin) * n;
      if (T(r) < rows[lane])
        std::copy_n(reinterpret_cast<const T*>(held) + lane * P, std::min(P, n - k),
                    static_cast<G*>(predicted ? predicted : call.gamma) + place + k);
    }
  }
}

// The logarithm of a sum of exponentials; `terms` holds n vectors.
inline Vec<double> log_sum(const Vec<double>* terms, int n) {
  typedef Vec<double> V;
  V top = terms[0], sum{};
  for (int i = 1; i < n; ++i) top = larger<double>(terms[i], top);
  const Bits<double> possible = top > all(-std::numeric_limits<double>::max());
  for (int i = 0; i < n; ++i) sum += exp_negative(possible ? terms[i] - top : V{});
  return possible ? log_positive(sum) + top : all(-std::numeric_limits<double>::infinity());
}

// Windows `base` to `base + count` of one point, those of them that are `wanted`; posteriors are written as `G`. Where
// chunks are compared at their edges and what is unknown there turns out to matter, the message before the chunk is NaN,
// which agrees with none.
template <class G, class Moves>
void log_space_group(const Call& call, Moves& moves, int64_t point, int64_t base, int count, const bool* wanted,
                     Sums& out) {
  typedef Vec<double> V;
  constexpr int W = Vector<double>::lanes;
  const int n = call.states, L = call.max_left, C = call.max_core, total = L + C + call.max_right, width = call.width;
  const int n_sums = sums_of(call.kind, call.width, call.pack);
  const V nothing = all(-std::numeric_limits<double>::infinity()), lowest = all(-std::numeric_limits<double>::max());
  const V unknown = all(std::log(UNKNOWN<double>)), negligible = all(std::log(NEGLIGIBLE<double>));
  const bool compared = call.edge_before && !call.log_before;
  const double* pack = call.packs + point * n * call.pack;
  std::vector<V> values(size_t(total) * width), present(total), b(size_t(total) * n), alpha(size_t(C + 1) * n);
  std::vector<V> message(n), moved(n), gone(n, nothing), risen(n), beta(n), terms(n), gamma(n), first(n), after(n);
  std::vector<V> counts(size_t(n) * n), sums(size_t(n) * n_sums), into(size_t(n) * n);
  load_rows<double>(call, base, count, values.data());
  Rows<double> rows{values.data(), present.data(), width};
  find_present<double>(call, rows, total);
  if (!moves.pairs) block_logs<double>(call, pack, rows, 0, total, b.data());
  moves.bind(values.data(), present.data(), sums.data());
  V begins{}, core_rows{}, starts{};
  for (int lane = 0; lane < W; ++lane) {
    const int64_t window = base + (lane < count ? lane : count - 1);
    begins[lane] = double(L - call.left[window]);
    core_rows[lane] = lane < count && wanted[lane] ? double(call.core[window]) : 0.0;
    starts[lane] = double(call.at_start[window]);
  }
  auto opening = [&](int r) { return (begins == all(double(r))) & (starts != V{}); };
  auto predict = [&](const std::vector<V>& in, std::vector<V>& to) {  // to[j] = log sum_i exp(in[i]) A[i, j]
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) terms[i] = in[i] + moves.log_weight(i, j);
      to[j] = log_sum(terms.data(), n);
    }
  };
  // Log messages of every lane, `(windows, K)`, or the same for all.
  auto given = [&](const double* logs, int k) {
    V message{};
    for (int lane = 0; lane < W; ++lane) message[lane] = logs[(base + (lane < count ? lane : count - 1)) * n + k];
    return message;
  };
  for (int k = 0; k < n; ++k)
    message[k] = call.log_before ? given(call.log_before, k) : all(std::log(call.start[point * n + k]));
  const V whole = log_sum(message.data(), n);
  for (int k = 0; k < n; ++k) alpha[k] = message[k] -= whole > lowest ? whole : V{};
  V log_likelihood{}, impossible = all(-1.0);
  Bits<double> unsettled{};
  for (int r = 0; r < total; ++r) {
    V* likelihood = &b[size_t(r) * n];
    Bits<double> opens = opening(r);
    const Bits<double> here = present[r] != V{};
    const bool inside = r >= L && r < L + C, watched = inside && compared;
    moves.begin_logs(r == L, opens, call.initial + point * n, message.data(), alpha.data());
    moves.log_at(r);
    predict(message, moved);
    if (watched) predict(gone, risen);
    for (int k = 0; k < n; ++k) {
      if (r == L) risen[k] = moved[k] + negligible < unknown ? unknown : nothing;
      risen[k] = opens ? nothing : risen[k];
      moved[k] = opens ? all(std::log(call.initial[point * n + k])) : moved[k];
      likelihood[k] = moves.pairs ? moves.peak : here ? likelihood[k] : V{};
      message[k] = moved[k] + likelihood[k];
    }
    for (int k = 0; out.predicted && k < n; ++k) gamma[k] = exp_negative(moved[k]);
    if (out.predicted && inside)
      write_rows<G, 0, double>(call, out.predicted, n, base, r - L, core_rows, gamma.data(), all(1.0));
    V c = log_sum(message.data(), n);
    impossible = ~(c > lowest) & (impossible < V{}) ? all(double(r)) : impossible;
    c = c > lowest ? c : V{};
    for (int k = 0; k < n; ++k) {
      message[k] -= c;
      likelihood[k] -= c;
      gone[k] = watched ? risen[k] + likelihood[k] : gone[k];
      if (r >= L - 1 && r < L + C) alpha[size_t(r + 1 - L) * n + k] = message[k];
    }
    if (inside) log_likelihood += all(double(r - L)) < core_rows ? c : V{};
    if (watched) unsettled |= log_sum(gone.data(), n) > negligible;
    if (!watched || r < L + C - 1) continue;
    const double share = moves.leave();
    predict(message, moved);
    predict(gone, risen);
    for (int k = 0; k < n; ++k) unsettled |= risen[k] + share > larger<double>(moved[k] + negligible, unknown - 0.1);
  }
  for (int lane = 0; lane < count; ++lane) {
    if (!wanted[lane] || impossible[lane] < 0) continue;
    const int64_t row = call.begin[base + lane] - L + int64_t(impossible[lane]);
    if (out.impossible < 0 || row < out.impossible) out.impossible = row;
    core_rows[lane] = 0;
    log_likelihood[lane] = 0;
    out.log_likelihood[call.per_window ? lane : 0] = -INFINITY;
  }
  auto note = [&](double* edge, const V* logs, double smallest) {
    if (!edge) return;
    V sum = log_sum(logs, n);
    sum = edge == call.edge_before && compared ? (unsettled ? all(double(NAN)) : sum) : sum;
    for (int lane = 0; lane < count; ++lane)
      for (int k = 0; wanted[lane] && k < n; ++k) {
        double& entry = edge[point * call.edge_stride + (base % call.windows + lane) * n + k];
        entry = logs[k][lane] - sum[lane];
        if (entry < smallest) entry = smallest;
      }
  };
  note(call.edge_before, alpha.data(), compared ? std::log(COMPARED<double>) : -INFINITY);
  note(call.edge_leaving, &alpha[size_t(C) * n], compared ? std::log(COMPARED<double>) : -INFINITY);
  const Weights<double> weights(call, base, count);
  give<double>(call, weights, count, out.log_likelihood, 1, &log_likelihood);
  auto write = [&](int r) {
    if (call.gamma) write_rows<G, 0, double>(call, 0, n, base, r, core_rows, gamma.data(), all(1.0));
  };
  if (call.forward_only) {
    for (int r = 0; r < C; ++r) {
      for (int k = 0; k < n; ++k) gamma[k] = exp_negative(alpha[size_t(r + 1) * n + k]);
      write(r);
    }
    return;
  }

  for (int k = 0; call.log_after && k < n; ++k) beta[k] = given(call.log_after, k);
  for (int r = total - 1; r >= L; --r) {
    if (r == L + C - 1) {
      after = beta;
      for (int k = 0; k < n; ++k) terms[k] = beta[k] + alpha[size_t(C) * n + k];
      const V agreed = log_sum(terms.data(), n);
      for (int k = 0; k < n; ++k) beta[k] -= agreed;
    }
    V* likelihood = &b[size_t(r) * n];
    const Bits<double> opens = opening(r), own = all(double(r - L)) < core_rows;
    for (int k = 0; k < n; ++k) likelihood[k] += beta[k];
    moves.log_at(r);
    if (r < L + C) {
      const V* before = &alpha[size_t(r - L) * n];
      for (int k = 0; k < n; ++k) {
        gamma[k] = own ? exp_negative(before[n + k] + beta[k]) : V{};
        first[k] = opens ? gamma[k] : first[k];
      }
      if (!moves.pairs) write(r - L);
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) into[i * n + j] = exp_negative(before[i] + moves.log_weight(i, j) + likelihood[j]);
      if (!moves.pairs) block_sums<double>(call, pack, rows, r, 1, gamma.data(), sums.data());
    }
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) terms[j] = moves.log_weight(i, j) + likelihood[j];
      beta[i] = log_sum(terms.data(), n);
    }
    const Bits<double> counted = own & (moves.pairs ? own : ~opens);
    if (r < L + C) moves.template add_logs<G>(into.data(), counted, counts.data(), r - L, opens, first.data());
  }
  note(call.edge_after, after.data(), -INFINITY);
  note(call.edge_entering, beta.data(), -INFINITY);
  give<double>(call, weights, count, out.first, n, first.data());
  give<double>(call, weights, count, out.transitions, int64_t(n) * n, counts.data());
  give<double>(call, weights, count, out.statistics, int64_t(n) * n_sums, sums.data());
  moves.give_sums(out);
}

}  // namespace VARIANT
