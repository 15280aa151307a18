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

// Rows of the data, whatever block they are found in.
struct Mixed {
  int64_t features, padded, terms;
  int64_t stride;            // numbers between one feature's results and the next one's
  int64_t wide;              // whether values are of double precision
  const void* values;        // (rows, features), NaN where missing
  const double* spread;      // (rows, features): where in its step a count lies; null for other values
  const int64_t* path;       // optional, (rows): a state of each row
  const Places* places;      // (features)
  double faintest;           // probabilities below this, or as near to 1, are not told; at least exp(-25)
  double* quantiles;         // (features, rows): those of P(y <= value | the past), NaN where no table says
  double* given;             // those of P(y <= value | the state of the path), with `path`
  double* lowest;            // (features): the smallest value
  int64_t* n_left;           // how many rows there are of which something was not told
  int64_t* left;             // (rows): which, in any order
  double* left_predicted;    // (rows, padded): their probabilities of states, given the rows before
};

struct Call;
#define DECLARE_MIX(name) \
  namespace name {        \
  void mix(const Mixed& all, const double* predicted, int64_t begin, int64_t rows);             \
  double* room_for_predicted(const Call& call, int64_t lanes);                                  \
  void mix_windows(const Call& call, const double* predicted, int64_t window, int64_t count);   \
  }
DECLARE_MIX(baseline)
DECLARE_MIX(avx2)
DECLARE_MIX(avx512)
#undef DECLARE_MIX

#if defined(VARIANT) && !defined(SINGLE)
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "call.h"
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

// Of probabilities `(MIXED_ROWS)`, the first n of which count. Those in the tails are left as they are, and noted: `far`
// gets their places from `row` on; how many there are is returned.
inline int64_t near_quantiles(const double* p, int64_t n, int64_t row, double* to, int32_t* far) {
  double found[MIXED_ROWS];
  int32_t is_far[MIXED_ROWS];
  for (int64_t i = 0; i < n; i += Vector<double>::lanes) {
    const Vec<double> own = near_quantile(load<double>(p + i));
    std::memcpy(found + i, &own, sizeof own);
  }
  for (int64_t i = 0; i < MIXED_ROWS; ++i) is_far[i] = std::abs(p[i] - 0.5) > 0.425;
  for (int64_t i = 0; i < n; ++i) to[i] = is_far[i] ? p[i] : found[i];
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    far[count] = int32_t(row + i);
    count += is_far[i];
  }
  return count;
}

// Of those in the tails: many together, since each waits for a long chain of products.
inline void far_quantiles(const int32_t* far, int64_t count, double* to) {
  constexpr int64_t W = Vector<double>::lanes;
  double own[MIXED_ROWS];
  for (; count > 0; far += MIXED_ROWS, count -= MIXED_ROWS) {
    const int64_t n = std::min(count, MIXED_ROWS);
    std::fill_n(own, MIXED_ROWS, 0.5);
    for (int64_t i = 0; i < n; ++i) own[i] = to[far[i]];
    for (int64_t i = 0; i < n; i += W) {
      const Vec<double> found = far_quantile(load<double>(own + i));
      std::memcpy(own + i, &found, sizeof found);
    }
    for (int64_t i = 0; i < n; ++i) to[far[i]] = own[i];
  }
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

// Adds to a number that other threads share, or lowers it; what it was.
inline int64_t count_one(int64_t* to) { return __atomic_fetch_add(to, 1, __ATOMIC_RELAXED); }
inline void lower(double* to, double value) {
  double held;
  __atomic_load(to, &held, __ATOMIC_RELAXED);
  while (value < held && !__atomic_compare_exchange(to, &held, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// What rows that are mixed one batch after the other come to.
struct Collected {
  double left[MIXED_ROWS];          // how much of a batch is not told
  std::vector<Vec<double>> lowest;  // (features): lane by lane
  std::vector<int32_t> far;         // (results, rows): which quantiles are in the tails
  std::vector<int64_t> n_far;       // (results)
};

// Rows [begin + from, begin + from + n) of `rows`, with states in blocks of W, all of them in one where `one`.
template <int W, int P, bool one>
void mix_rows(const Mixed& all, const double* predicted, int64_t begin, int64_t from, int64_t n, int64_t rows,
              Collected& to) {
  typedef typename Block<W>::type V;
  const int64_t D = all.features, padded = one ? W : all.padded, blocks = padded / W, first = begin + from;
  predicted += from * padded;
  int32_t slot[MIXED_ROWS];
  double y[MIXED_ROWS], t[MIXED_ROWS], below[MIXED_ROWS] = {};
  alignas(sizeof(V)) double parts[MIXED_ROWS * W];
  const double faintest = all.faintest, none = std::numeric_limits<double>::quiet_NaN();
  auto tell = [&](double* result, int64_t which) {
    for (int64_t i = 0; i < n; ++i) {
      const bool known = (slot[i] >= 0) & (below[i] >= faintest) & (below[i] <= 1 - faintest);
      below[i] = known ? below[i] : none;
      to.left[i] += known | (y[i] != y[i]) ? 0.0 : 1.0;
    }
    int32_t* const far = to.far.data() + which * rows + to.n_far[which];
    to.n_far[which] += near_quantiles(below, n, from, result + first, far);
  };
  for (int64_t d = 0; d < D; ++d) {
    if (all.wide)
      copy_column(static_cast<const double*>(all.values) + first * D + d, D, n, y);
    else
      copy_column(static_cast<const float*>(all.values) + first * D + d, D, n, y);
    for (int64_t i = n; i < MIXED_ROWS; ++i) y[i] = none;
    find<P == 2>(all.places[d], y, all.spread + first * D + d, D, n, slot, t);
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
    for (int64_t i = 0; i < n; i += Vector<double>::lanes) {  // now that all of y has been written
      const Vec<double> own = load<double>(y + i);
      to.lowest[d] = own < to.lowest[d] ? own : to.lowest[d];  // NaN is not less
    }
    tell(all.quantiles + d * all.stride, d);
    if (!all.path) continue;
    for (int64_t i = 0; i < n; ++i) {
      const double* const from = numbers + std::max(slot[i], 0) * P * padded + all.path[first + i];
      double value = from[(P - 1) * padded];
      for (int p = P - 2; p >= 0; --p) value = value * t[i] + from[p * padded];
      below[i] = value;
    }
    tell(all.given + d * all.stride, D + d);
  }
  Vec<double> left{};  // mostly of none
  for (int64_t i = 0; i < MIXED_ROWS; i += Vector<double>::lanes) left += load<double>(to.left + i);
  for (int64_t i = 0, some = total_of(left) > 0; some && i < n; ++i) {
    if (!to.left[i]) continue;
    const int64_t at = count_one(all.n_left);
    all.left[at] = first + i;
    std::copy_n(predicted + i * padded, padded, all.left_predicted + at * padded);
  }
}

template <int W, int P>
void mix_states(const Mixed& all, const double* predicted, int64_t begin, int64_t rows, Collected& to) {
  auto run = all.padded == W ? mix_rows<W, P, true> : mix_rows<W, P, false>;
  for (int64_t from = 0; from < rows; from += MIXED_ROWS) {
    std::fill_n(to.left, MIXED_ROWS, 0.0);
    run(all, predicted, begin, from, std::min(MIXED_ROWS, rows - from), rows, to);
  }
}

template <int P>
void mix_terms(const Mixed& all, const double* predicted, int64_t begin, int64_t rows, Collected& to) {
  switch (all.padded) {
    case 2:
      return mix_states<2, P>(all, predicted, begin, rows, to);
    case 4:
      return mix_states<4, P>(all, predicted, begin, rows, to);
    default:
      return mix_states<8, P>(all, predicted, begin, rows, to);
  }
}

// Rows [begin, begin + rows) of the data, with their predicted states `(rows, padded)`.
void mix(const Mixed& all, const double* predicted, int64_t begin, int64_t rows) {
  static thread_local Collected to;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const int64_t D = all.features, results = all.path ? 2 * D : D;
  to.lowest.assign(D, Vec<double>{} + infinity);
  to.far.resize(results * rows);
  to.n_far.assign(results, 0);
  (all.terms == 2 ? mix_terms<2> : mix_terms<8>)(all, predicted, begin, rows, to);
  for (int64_t i = 0; i < results; ++i) {
    double* const result = i < D ? all.quantiles + i * all.stride : all.given + (i - D) * all.stride;
    far_quantiles(to.far.data() + i * rows, to.n_far[i], result + begin);
  }
  for (int64_t d = 0; d < D; ++d)
    for (int lane = 0; lane < Vector<double>::lanes; ++lane) lower(all.lowest + d, to.lowest[d][lane]);
}

// Room for what a pass predicts of a group of windows, from where a line of the cache begins.
double* room_for_predicted(const Call& call, int64_t lanes) {
  static thread_local std::vector<double> held;
  constexpr size_t line = 64;
  held.resize(size_t(lanes * call.max_core * call.mixed_width) + line / sizeof(double));
  if (call.mixed_width != call.states) std::fill(held.begin(), held.end(), 0.0);  // rows are padded with zeros
  return held.data() + -reinterpret_cast<uintptr_t>(held.data()) % line / sizeof(double);
}

// So many windows of a pass, where they have been predicted.
void mix_windows(const Call& call, const double* predicted, int64_t window, int64_t count) {
  for (int64_t lane = 0; lane < count; ++lane)
    mix(*call.mixed, predicted + lane * call.max_core * call.mixed_width,
        call.mixed_first + call.begin[window + lane], call.core[window + lane]);
}

}  // namespace VARIANT
#endif
