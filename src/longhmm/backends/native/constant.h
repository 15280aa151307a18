// One matrix for all rows, as the recursions ask for it; varying.h has the same for matrices that vary.
#pragma once

#include <cmath>
#include <vector>

#include "call.h"
#include "products.h"
#include "sparse.h"

namespace VARIANT {

constexpr int BLOCK = 16;  // rows whose transitions and sums are added while they are in the nearest cache

// Its logarithms.
struct ConstantLogs {
  typedef Vec<double> V;
  static constexpr bool by_row = false, pairs = false;
  std::vector<double> logs;
  V peak{};
  const int n;

  ConstantLogs(const Call& call, int64_t point, int64_t, int) : n(call.states) {
    const double* matrix = call.transition + point * n * n;
    for (int i = 0; i < n * n; ++i) logs.push_back(std::log(matrix[i]));
  }
  void bind(const V*, const V*, V*) {}
  void log_at(int) const {}
  double leave() const { return 0; }
  void begin_logs(bool, Bits<double>&, const double*, V*, V*) const {}
  double log_weight(int i, int j) const { return logs[int64_t(i) * n + j]; }
  template <class G, class... Given>
  void add_logs(const V* into, Bits<double> counted, V* counts, Given...) {
    for (int i = 0; i < n * n; ++i) counts[i] += counted ? into[i] : V{};
  }
  void give_sums(Sums&) const {}
};

template <class T, int K>
struct Constant {
  typedef Vec<T> V;
  typedef ConstantLogs Logs;
  static constexpr bool by_row = false, pairs = false;
  const T *transition, *transposed, least, least_possible;
  const int states;
  V peak{};
  const double* logs;
  const Entries<T> back, onward;  // of the matrix and of the transposed one, where they are few

  template <class Point>
  Constant(const Point& point, int states, const double* logs)
      : transition(point.transition), transposed(point.transposed), least(point.least),
        least_possible(point.least_possible), states(states), logs(logs), back(transition, K || logs ? 0 : states),
        onward(transposed, K || logs ? 0 : states) {}

  void bind(const V*, const V*, V*) {}
  void start(Bits<T>) {}
  void at(int) const {}
  void log_at(int) const {}
  void begin_path(bool, Bits<double>&, const double*, V*, V*) const {}
  void begin(int, Bits<T>, const T*, V*, V*, V*, V&) const {}
  T weight(int i, int j) const { return transition[int64_t(i) * (K ? K : states) + j]; }
  double log_weight(int i, int j) const { return logs[int64_t(i) * (K ? K : states) + j]; }
  T possible(int i, int j) const { return weight(i, j) > 0; }
  // out[j] = sum_i in[i] A[i, j], and out[i] = sum_j A[i, j] in[j]
  void forward(const V* in, V* out) const {
    if (!K && onward.some()) return onward.multiply(states, in, out);
    multiply<T, K>(transposed, states, in, out);
  }
  // What messages are when they meet the next chunk.
  void predict(const V* in, V* out) const { forward(in, out); }
  void backward(const V* in, V* out) const {
    if (!K && back.some()) return back.multiply(states, in, out);
    multiply<T, K>(transition, states, in, out);
  }
  void step_back(const V*, const V* in, Bits<T>, V* out) const { backward(in, out); }
  void add_block(const V* previous, const V* weighted, int rows, V* counts) const {
    if (!K && back.some()) return back.add_products(previous, weighted, rows, states, counts);
    add_products<T, K>(previous, weighted, rows, states, counts);
  }
  void add_row(int, const V*, const V*, const V*, Bits<T>, V*, V*) const {}
  template <bool in_logs>
  void behind() const {}
  void give_sums(Sums&) const {}
};

}  // namespace VARIANT
