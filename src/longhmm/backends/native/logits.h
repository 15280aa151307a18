// Matrices that are the softmax of numbers linear in the covariates of a row, and derivatives by their coefficients.
#pragma once

#include <cmath>
#include <vector>

#include "emissions.h"

namespace VARIANT {

// A number of states that the compiler knows, so that loops over it are unrolled, or 0: one known at run time.
template <int K>
struct States {
  States(int) {}
  constexpr operator int() const { return K; }
};
template <>
struct States<0> {
  int n;
  States(int n) : n(n) {}
  operator int() const { return n; }
};

template <class T, int K>
struct Logits {
  typedef Vec<T> V;
  static constexpr int W = Vector<T>::lanes;
  States<K> n = 0;
  int terms = 0;
  std::vector<T> coefficients, of_powers;  // (K, K, 1 + terms); over log 2, (K, K - 1, 1 + terms) without staying
  std::vector<V> values;                   // covariates (time, terms), 0 outside windows
  std::vector<V> slopes;                   // derivatives by coefficients
  T least = 0;                             // no probability is smaller
  bool moderate = false;                   // whether exp of a logit is a number

  // How small a probability may be: exp(-2 x) / K where no logit is beyond x.
  void load(const Call& call, int64_t base, int count) {
    const Moves& given = call.moves;
    n = call.states, terms = given.terms;
    const int total = call.max_left + call.max_core + call.max_right;
    values.resize(size_t(total) * terms + 1);
    slopes.resize(given.sums_size);
    coefficients.assign(given.coefficients, given.coefficients + int64_t(n) * n * (1 + terms));
    for (int pair = 0; pair < n * n; ++pair)
      for (int c = 0; pair / n != pair % n && c <= terms; ++c)
        of_powers.push_back(T(1.44269504088896340736 * given.coefficients[int64_t(pair) * (1 + terms) + c]));
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
    least = T(std::exp(-2 * beyond) / n);
    moderate = beyond < (sizeof(T) == 8 ? 300 : 30);
  }

  const V* row(int r) const { return values.data() + size_t(r) * terms; }

  static V linear(const T* own, const V* x, int terms) {
    V sum = all(own[0]);
    for (int c = 0; c < terms; ++c) sum += own[1 + c] * x[c];
    return sum;
  }

  // Logits become probabilities, or their logarithms. Those of staying are 0.
  template <bool in_logs>
  void softmax(int r, V* matrix) const {
    const V* x = row(r);
    if (!in_logs && moderate)
      return with_width(terms, [&](auto known) { moderate_softmax<decltype(known)::value>(x, matrix); });
    for (int i = 0; i < n; ++i) {
      V* own = matrix + i * n;
      V top = all(-std::numeric_limits<T>::max()), sum{};
      for (int j = 0; j < n; ++j) {
        own[j] = j == i ? V{} : linear(coefficients.data() + size_t(i * n + j) * (1 + terms), x, terms);
        top = larger<T>(own[j], top);
      }
      for (int j = 0; j < n; ++j) {
        own[j] -= top;
        const V part = exp_negative(own[j]);
        sum += part;
        if (!in_logs) own[j] = part;
      }
      const V over = in_logs ? log_positive(sum) : T(1) / sum;
      for (int j = 0; j < n; ++j) own[j] = in_logs ? own[j] - over : own[j] * over;
    }
  }

  // C terms, or 0 for a number not known here.
  template <int C>
  void moderate_softmax(const V* x, V* matrix) const {
    const int terms = C ? C : this->terms;
    const T* from = of_powers.data();
    for (int i = 0; i < n; ++i, matrix += n) {
      V part[K ? K : 1], sum = all(T(1));
      for (int j = 0; j < n - 1; ++j, from += 1 + terms) {
        V& own = K ? part[j] : matrix[j + (j >= i)];
        own = linear(from, x, terms);
        if (!K) powers_of_two<1>(&own);
      }
      if (K > 1) powers_of_two<(K > 1 ? K - 1 : 1)>(part);
      for (int j = 0; j < n - 1; ++j) sum += K ? part[j] : matrix[j + (j >= i)];
      const V over = T(1) / sum;
      matrix[i] = over;
      for (int j = 0; j < n - 1; ++j) matrix[j + (j >= i)] = (K ? part[j] : matrix[j + (j >= i)]) * over;
    }
  }

  // Adds what R rows from r on say of the coefficients, and their expected transitions: u_i M_ij (w v)_j, from u before
  // each row and w v at it. Several rows at a time, since a sum is dearer to write than to add to.
  template <int R, class Place>
  void add(int r, Place matrix_of, const V* before, const V* onward, V* counts) {
    const V* x[R];
    for (int q = 0; q < R; ++q) x[q] = row(r + q);
    for (int i = 0; i < n; ++i) {
      const V* own[R];
      V u[R], mean[R];
      for (int q = 0; q < R; ++q) {
        own[q] = matrix_of(r + q) + i * n, u[q] = before[q * n + i], mean[q] = V{};
        for (int j = 0; j < n; ++j) mean[q] += own[q][j] * onward[q * n + j];
      }
      for (int j = 0; j < n; ++j) {
        V slope[R], count = counts[i * n + j];
        for (int q = 0; q < R; ++q) {
          const V share = u[q] * own[q][j];
          count += share * onward[q * n + j];
          slope[q] = share * (onward[q * n + j] - mean[q]);
        }
        counts[i * n + j] = count;
        if (i == j) continue;
        V *const to = slopes.data() + size_t(i * n + j) * (1 + terms), total = to[0];
        for (int q = 0; q < R; ++q) total += slope[q];
        to[0] = total;
        for (int c = 0; c < terms; ++c) {
          V sum = to[1 + c];
          for (int q = 0; q < R; ++q) sum += slope[q] * x[q][c];
          to[1 + c] = sum;
        }
      }
    }
  }

  // The same from posteriors `found` of the transitions into row r.
  void add_found(int r, const V* matrix, const V* found) {
    const V* x = row(r);
    for (int i = 0; i < n; ++i) {
      V total{};
      for (int j = 0; j < n; ++j) total += found[i * n + j];
      for (int j = 0; j < n; ++j) {
        if (i == j) continue;
        const V slope = found[i * n + j] - matrix[i * n + j] * total;
        V* to = slopes.data() + size_t(i * n + j) * (1 + terms);
        to[0] += slope;
        for (int c = 0; c < terms; ++c) to[1 + c] += slope * x[c];
      }
    }
  }
};

}  // namespace VARIANT
