// Distribution functions of observations, weighted by the predicted states: their normal quantiles.
//
// Those of states come from tables of polynomials (see cdf_tables.py). Between two powers of 2 there are equally many
// intervals of equal width, so that the leading bits of a number say which is its own, and the others where it lies
// in it.
#pragma once

#include <cstdint>

// One feature's table: a value lies where w = least + scale |y - origin| does, on the side below its origin or above;
// or, where it is a count, at w = y - origin.
struct Places {
  double origin, scale, least;
  int64_t shift;  // bits of a number that say where in its interval it lies
  int64_t first;  // the others of the first interval
  int64_t count;  // intervals of a side
  const int32_t* slot;    // (2, count): which polynomials are those of an interval, or -1
  // (slots, terms, padded): from the constant on, by t in [-1, 1), or in [0, 1) for counts. Twice as fast where a block
  // of states lies in one line of the cache.
  const double* numbers;
};

constexpr int64_t MIXED_TASK = 1 << 12;  // rows of a task

struct Mixed {
  int64_t rows, states, padded, features, terms, n_opens;
  int64_t stride;            // numbers between one feature's results and the next one's
  int64_t wide;              // whether values are of double precision
  const double* filtered;    // (rows, states): their filtered probabilities
  const double* recent;      // (states): those of the row before the first
  const double* transition;  // (states, padded)
  const double* initial;     // (padded)
  const int64_t* opens;      // (n_opens): rows that begin a sequence, rising
  const void* values;        // (rows, features), NaN where missing
  const double* spread;      // (rows, features): where in its step a count lies; null for other values
  const int64_t* path;       // optional, (rows): a state of each row
  const Places* places;      // (features)
  double faintest;           // probabilities below this, or as near to 1, are not told; at least exp(-25)
  double* quantiles;         // (features, rows): those of P(y <= value | the past), NaN where no table says
  double* given;             // those of P(y <= value | the state of the path), with `path`
  int64_t* left;             // (rows): from the first row of each task on, rows of which something was not told
  int64_t* n_left;           // (tasks): how many
  double* lowest;            // (tasks, features): the smallest value
};

#define DECLARE_MIX(name) \
  namespace name {        \
  void mix(const Mixed& all, int64_t task); \
  }
DECLARE_MIX(baseline)
DECLARE_MIX(avx2)
DECLARE_MIX(avx512)
#undef DECLARE_MIX

#ifdef VARIANT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "vectors.h"

namespace VARIANT {

constexpr int64_t MIXED_ROWS = 64;  // at a time: predictions stay in the nearest cache

// The normal quantile to 16 digits (Wichura 1988, AS 241), near the middle and, from `r` on, in the tails.
inline Vec<double> near_quantile(Vec<double> p) {
  const Vec<double> q = p - 0.5, r = 0.180625 - q * q;
  return q * (((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r +
                  45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r +
               133.14166789178437745) * r + 3.387132872796366608) /
         (((((((5226.495278852545925 * r + 28729.085735721942674) * r + 39307.89580009271061) * r +
              21213.794301586595867) * r + 5394.1960214247511077) * r + 687.1870074920579083) * r +
           42.313330701600911252) * r + 1.0);
}

inline Vec<double> far_quantile(Vec<double> p) {
  const Bits<double> lower = p < all(0.5);
  Vec<double> r = -log_positive(lower ? p : 1.0 - p);
  for (int lane = 0; lane < Vector<double>::lanes; ++lane) r[lane] = std::sqrt(r[lane]);
  r -= 1.6;
  const Vec<double> found =
      (((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r + 0.24178072517745061177) * r +
           1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.7694972214606914055) * r +
        4.6303378461565452959) * r + 1.42343711074968357734) /
      (((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r +
           0.14810397642748007459) * r + 0.68976733498510000455) * r + 1.6763848301838038494) * r +
        2.05319162663775882187) * r + 1.0);
  return lower ? -found : found;
}

// Of probabilities `(MIXED_ROWS)`, the first n of which count. The few in the tails are gathered first.
inline void normal_quantiles(const double* p, int64_t n, double* to) {
  constexpr int64_t W = Vector<double>::lanes;
  double found[MIXED_ROWS];
  int far[MIXED_ROWS + W], is_far[MIXED_ROWS];
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += W) {
    const Vec<double> own = near_quantile(load<double>(p + i));
    std::memcpy(found + i, &own, sizeof own);
  }
  for (int64_t i = 0; i < MIXED_ROWS; ++i) is_far[i] = std::abs(p[i] - 0.5) > 0.425;
  for (int64_t i = 0; i < n; ++i) {
    far[count] = int(i);
    count += is_far[i];
  }
  for (int64_t i = 0; i < W; ++i) far[count + i] = far[0];
  for (int64_t i = 0; i < count; i += W) {
    Vec<double> own;
    for (int64_t lane = 0; lane < W; ++lane) own[lane] = p[far[i + lane]];
    own = far_quantile(own);
    for (int64_t lane = 0; lane < W; ++lane) found[far[i + lane]] = own[lane];
  }
  std::memcpy(to, found, n * sizeof(double));
}

template <class Source>
inline void copy_column(const Source* from, int64_t step, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = double(from[i * step]);
}

// Which polynomials are those of values, or -1, and where in their intervals these lie.
template <bool counts>
inline void find(const Places& places, const double* y, const double* spread, int64_t D, int64_t n, int32_t* slot,
                 double* t) {
  const int64_t shift = places.shift, last = places.count - 1;
  const double origin = places.origin, scale = places.scale, least = places.least;
  if (counts) {
    for (int64_t i = 0; i < n; ++i) {
      const double at = y[i] - origin;
      slot[i] = at >= 0 && at <= double(last) ? places.slot[int64_t(at)] : -1;
      t[i] = spread[i * D];
    }
    return;
  }
  constexpr int64_t mantissa = (int64_t(1) << 52) - 1, one = int64_t(1023) << 52;
  int64_t at[MIXED_ROWS];
  for (int64_t i = 0; i < n; ++i) {
    const double away = y[i] - origin, w = least + scale * std::abs(away);
    int64_t bits;
    std::memcpy(&bits, &w, sizeof bits);
    const int64_t within = ((bits << (52 - shift)) & mantissa) | one;
    double found;
    std::memcpy(&found, &within, sizeof found);
    t[i] = 2 * found - 3;
    const int64_t place = (bits >> shift) - places.first;  // of NaN, larger than that of any number
    at[i] = place < 0 || place > last ? -1 : away < 0 ? place : place + last + 1;
  }
  for (int64_t i = 0; i < n; ++i) slot[i] = at[i] < 0 ? -1 : places.slot[at[i]];
}

// A block of states.
template <int W>
struct Block;
template <>
struct Block<2> {
  typedef double type __attribute__((vector_size(16)));
};
template <>
struct Block<4> {
  typedef double type __attribute__((vector_size(32)));
};
template <>
struct Block<8> {
  typedef double type __attribute__((vector_size(64)));
};

template <int W>
inline typename Block<W>::type load_block(const double* from) {
  typename Block<W>::type found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

// By halves.
template <int W>
inline double sum_of_block(const double* x) {
  if constexpr (W == 2) return x[0] + x[1];
  if constexpr (W > 2) {
    const auto halves = load_block<W / 2>(x) + load_block<W / 2>(x + W / 2);
    double held[W / 2];
    std::memcpy(held, &halves, sizeof held);
    return sum_of_block<W / 2>(held);
  }
}

// Rows [begin, begin + n), with states in blocks of W, all of them in one where `one`; says which rows are left, and
// keeps the smallest value of each feature, lane by lane.
template <int W, int P, bool one>
void mix_rows(const Mixed& all, int64_t begin, int64_t n, double* left, Vec<double>* lowest) {
  typedef typename Block<W>::type V;
  const int64_t K = one ? W : all.states, D = all.features, padded = one ? W : all.padded, blocks = padded / W;
  const int64_t* open = std::lower_bound(all.opens, all.opens + all.n_opens, begin);
  const int64_t* const last = all.opens + all.n_opens;
  static thread_local std::vector<double> held;
  held.resize(MIXED_ROWS * (padded + W) + W);
  double* const predicted = held.data() + (-reinterpret_cast<uintptr_t>(held.data()) % sizeof(V)) / sizeof(double);
  double* const parts = predicted + MIXED_ROWS * padded;
  V near[W];  // rows of the matrix that stay in registers
  for (int64_t k = 0; one && k < W; ++k) near[k] = load_block<W>(all.transition + k * W);
  auto row = [&](int64_t k, int64_t b) { return one ? near[k] : load_block<W>(all.transition + k * padded + b * W); };
  for (int64_t i = 0; i < n; ++i) {
    const bool opens = open < last && *open == begin + i;
    open += opens;
    const double* before = begin + i ? all.filtered + (begin + i - 1) * K : all.recent;
    __builtin_prefetch(before + MIXED_ROWS * K);  // a page further on, where the processor does not look by itself
    for (int64_t b = 0; b < blocks; ++b) {
      V found = opens ? load_block<W>(all.initial + b * W) : before[0] * row(0, b);
      for (int64_t k = 1; !opens && k < K; ++k) found += before[k] * row(k, b);
      std::memcpy(predicted + i * padded + b * W, &found, sizeof found);
    }
  }
  int32_t slot[MIXED_ROWS];
  double y[MIXED_ROWS], t[MIXED_ROWS], below[MIXED_ROWS] = {};
  const double faintest = all.faintest, none = std::numeric_limits<double>::quiet_NaN();
  auto tell = [&](double* chance) {
    for (int64_t i = 0; i < n; ++i) {
      const bool known = (slot[i] >= 0) & (chance[i] >= faintest) & (chance[i] <= 1 - faintest);
      chance[i] = known ? chance[i] : none;
      left[i] += known | (y[i] != y[i]) ? 0.0 : 1.0;
    }
  };
  for (int64_t d = 0; d < D; ++d) {
    if (all.wide)
      copy_column(static_cast<const double*>(all.values) + begin * D + d, D, n, y);
    else
      copy_column(static_cast<const float*>(all.values) + begin * D + d, D, n, y);
    for (int64_t i = n; i < MIXED_ROWS; ++i) y[i] = none;
    for (int64_t i = 0; i < n; i += Vector<double>::lanes) {
      const Vec<double> own = load<double>(y + i);
      lowest[d] = own < lowest[d] ? own : lowest[d];  // NaN is not less
    }
    find<P == 2>(all.places[d], y, all.spread + begin * D + d, D, n, slot, t);
    const double* const numbers = all.places[d].numbers;
    for (int64_t i = 0; i < n; ++i) {
      const double* const from = numbers + std::max(slot[i], 0) * P * padded;
      V total{};
      for (int64_t b = 0; b < blocks; ++b) {
        V value = load_block<W>(from + (P - 1) * padded + b * W);
        for (int p = P - 2; p >= 0; --p) value = value * t[i] + load_block<W>(from + p * padded + b * W);
        total += load_block<W>(predicted + i * padded + b * W) * value;
      }
      std::memcpy(parts + i * W, &total, sizeof total);
    }
    for (int64_t i = 0; i < n; ++i) below[i] = sum_of_block<W>(parts + i * W);
    tell(below);
    normal_quantiles(below, n, all.quantiles + d * all.stride + begin);
    if (!all.path) continue;
    for (int64_t i = 0; i < n; ++i) {
      const double* const from = numbers + std::max(slot[i], 0) * P * padded + all.path[begin + i];
      double value = from[(P - 1) * padded];
      for (int p = P - 2; p >= 0; --p) value = value * t[i] + from[p * padded];
      below[i] = value;
    }
    tell(below);
    normal_quantiles(below, n, all.given + d * all.stride + begin);
  }
}

template <int W, int P>
void mix_states(const Mixed& all, int64_t begin, int64_t n, double* left, Vec<double>* lowest) {
  (all.states == W ? mix_rows<W, P, true> : mix_rows<W, P, false>)(all, begin, n, left, lowest);
}

template <int P>
void mix_terms(const Mixed& all, int64_t begin, int64_t n, double* left, Vec<double>* lowest) {
  switch (all.padded) {
    case 2:
      return mix_states<2, P>(all, begin, n, left, lowest);
    case 4:
      return mix_states<4, P>(all, begin, n, left, lowest);
    default:
      return mix_states<8, P>(all, begin, n, left, lowest);
  }
}

void mix(const Mixed& all, int64_t task) {
  const int64_t begin = task * MIXED_TASK, stop = std::min(begin + MIXED_TASK, all.rows);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<Vec<double>> lowest(all.features, Vec<double>{} + infinity);
  int64_t* const left = all.left + begin;
  int64_t count = 0;
  for (int64_t from = begin; from < stop; from += MIXED_ROWS) {
    const int64_t n = std::min(MIXED_ROWS, stop - from);
    double here[MIXED_ROWS] = {};  // how much of a row is not told
    (all.terms == 2 ? mix_terms<2> : mix_terms<8>)(all, from, n, here, lowest.data());
    for (int64_t i = 0; i < n; ++i)
      if (here[i]) left[count++] = from + i;
  }
  all.n_left[task] = count;
  for (int64_t d = 0; d < all.features; ++d) {
    double& low = all.lowest[task * all.features + d] = infinity;
    for (int lane = 0; lane < Vector<double>::lanes; ++lane) low = std::min(low, double(lowest[d][lane]));
  }
}

}  // namespace VARIANT
#endif
