// Frames that show a mean over their exposure: p(y | i, j) = sum_c P(c | i, j) p(y | c), over the shares c of a frame
// that were spent on each level, where i and j are the states before and at its end.
//
// Pack of state i: the chances P(c | i, j), (K, C), then for each share the numbers a, m, s and b of
// log p(y | c) = a + b y - (s (y - m))^2 / 2, which are read from state 0. Sums are derivatives by these numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "call.h"
#include "exponentials.h"

namespace VARIANT {

template <class T, int K>
struct Frames {
  typedef Vec<T> V;
  static constexpr int NUMBERS = 4;
  static constexpr T LARGEST = std::numeric_limits<T>::max() * T(1e-6);
  int n = 0, count = 0, pack = 0;  // states, shares, numbers of a state
  std::vector<T> packs, logs;      // as given; logarithms of the chances, where they are needed
  std::vector<V> shares;           // of one row: p(y | c) over the largest, or logarithms
  V* sums = nullptr;

  void load(const Call& call, int64_t point) {
    n = call.states, pack = call.pack, count = pack / (n + NUMBERS);
    packs.assign(call.packs + point * n * pack, call.packs + (point + 1) * n * pack);
    shares.resize(count);
  }

  const T* chances(int q) const { return packs.data() + int64_t(q / n) * pack + int64_t(q % n) * count; }
  const T* numbers() const { return packs.data() + int64_t(n) * count; }

  // The logarithms of the shares of a row; the largest is returned.
  V share_logs(V y) {
    const T* own = numbers();
    V top = all(-std::numeric_limits<T>::max());
    for (int c = 0; c < count; ++c, own += NUMBERS) {
      const V z = (y - own[1]) * own[2];
      shares[c] = own[0] + own[3] * y - T(0.5) * z * z;
      top = larger<T>(shares[c], top);
    }
    return top;
  }

  void share_ratios(V top) {
    for (int c = 0; c < count; ++c) shares[c] = exp_negative(shares[c] - top);
  }

  // Multiplies the matrix of a row by likelihoods of pairs over what is returned the logarithm of: no smaller than any.
  __attribute__((noinline)) V multiply(V y, V* matrix) {
    const V top = share_logs(y);
    share_ratios(top);
    V near[K ? K * K : 1];
    std::vector<V> far(K ? 0 : n * n);
    V* const sum = K ? near : far.data();
    const int square = K ? K * K : n * n;
    const T* from[K ? K * K : 1];
    for (int q = 0; K && q < square; ++q) sum[q] = V{}, from[q] = chances(q);
    if (K) {
      for (int c = 0; c < count; ++c)
        for (int q = 0; q < square; ++q) sum[q] += from[q][c] * shares[c];
    } else {
      for (int q = 0; q < square; ++q) {
        const T* own = chances(q);
        for (int c = 0; c < count; ++c) sum[q] += own[c] * shares[c];
      }
    }
    for (int q = 0; q < square; ++q) matrix[q] *= sum[q];
    return top;
  }

  // The same of logarithms.
  __attribute__((noinline)) V add_to_logs(V y, V* matrix) {
    const V top = share_logs(y);
    for (int q = 0; q < n * n; ++q) matrix[q] += pair_log(q) - top;
    return top;
  }

  // log p(y | i, j) of a pair, from the logarithms of the shares.
  V pair_log(int q) {
    const T* own = log_chances(q);
    V top = all(-std::numeric_limits<T>::infinity()), sum{};
    for (int c = 0; c < count; ++c) top = larger<T>(own[c] + shares[c], top);
    const Bits<T> possible = top > all(-std::numeric_limits<T>::max());
    for (int c = 0; c < count; ++c) sum += exp_negative(possible ? own[c] + shares[c] - top : V{});
    return possible ? log_positive(sum) + top : all(-std::numeric_limits<T>::infinity());
  }

  const T* log_chances(int q) {
    if (logs.empty())
      for (int other = 0; other < n * n; ++other)
        for (int c = 0; c < count; ++c) logs.push_back(std::log(chances(other)[c]));
    return logs.data() + int64_t(q) * count;
  }

  // Adds what a row says; `weights` are posteriors of pairs over their likelihoods, as `multiply` gives them.
  __attribute__((noinline)) void add(V y, const V* weights) {
    share_ratios(share_logs(y));
    const int square = K ? K * K : n * n;
    V near[K ? K * K : 1];
    V* to[K ? K * K : 1];
    const T* from[K ? K * K : 1];
    for (int q = 0; K && q < square; ++q) near[q] = weights[q], from[q] = chances(q), to[q] = sums_of_pair(q);
    const T* own = numbers();
    for (int c = 0; c < count; ++c, own += NUMBERS) {
      V posterior{};
      for (int q = 0; q < square; ++q) {
        const V weight = K ? near[q] : weights[q];
        (K ? to[q] : sums_of_pair(q))[c] += weight * shares[c];
        posterior += weight * (K ? from[q] : chances(q))[c];
      }
      add_share(c, posterior * shares[c], y);
    }
  }

  // The same from posteriors of pairs.
  void add_in_logs(V y, const V* posteriors) {
    share_logs(y);
    std::vector<V> of_share(count);
    for (int q = 0; q < n * n; ++q) {
      const V whole = pair_log(q);
      const T* chance = log_chances(q);
      const Bits<T> possible = whole > all(-std::numeric_limits<T>::max());
      for (int c = 0; c < count; ++c) {
        const V share = possible ? posteriors[q] * exp_negative(chance[c] + shares[c] - whole) : V{};
        of_share[c] += share;
        sums_of_pair(q)[c] += chances(q)[c] > T(0) ? share / chances(q)[c] : V{};
      }
    }
    for (int c = 0; c < count; ++c) add_share(c, of_share[c], y);
  }

  V* sums_of_pair(int q) { return sums + int64_t(q / n) * pack + int64_t(q % n) * count; }

  void add_share(int c, V posterior, V y) {
    const T* own = numbers() + c * NUMBERS;
    V* to = sums + int64_t(n) * count + c * NUMBERS;
    const V away = y - own[1], weighted = posterior * away;
    to[0] += posterior;
    to[1] += weighted * (own[2] * own[2]);
    to[2] -= weighted * away * own[2];
    to[3] += posterior * y;
  }
};

}  // namespace VARIANT
