// Distribution functions of observations, weighted by the predicted states, and their normal quantiles.
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
  const double* numbers;  // (slots, terms, padded): from the constant on, by t in [-1, 1), or in [0, 1) for counts
};

struct Mixed {
  int64_t rows, states, padded, features, terms, n_opens;
  int64_t stride;            // numbers between one feature's results and the next one's
  const double* before;      // (rows, states): filtered probabilities of the row before each
  const double* transition;  // (states, padded)
  const double* initial;     // (padded)
  const int64_t* opens;      // (n_opens): rows that begin a sequence, rising
  const double* values;      // (rows, features)
  const double* spread;      // (rows, features): where in its step a count lies; null for other values
  const int64_t* path;       // optional, (rows): a state of each row
  const Places* places;      // (features)
  double faintest;           // probabilities below this, or as near to 1, are not told
  double* below;             // (features, rows): P(y <= value | the past), NaN where no table says
  double* quantiles;         // their normal quantiles
  double* given;             // those of P(y <= value | the state of the path), with `path`
};

#define DECLARE_MIX(name) \
  namespace name {        \
  void mix(const Mixed& all, int64_t begin, int64_t stop); \
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

namespace VARIANT {

constexpr int64_t MIXED_ROWS = 256;  // at a time: predictions stay in the nearest cache

// The normal quantile to 16 digits (Wichura 1988, AS 241). Few numbers need the logarithm.
inline double far_quantile(double p) {
  double r = std::sqrt(-std::log(p < 0.5 ? p : 1 - p)), top, bottom;
  if (r <= 5) {
    r -= 1.6;
    top = ((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r + 0.24178072517745061177) * r +
              1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.7694972214606914055) * r +
           4.6303378461565452959) * r + 1.42343711074968357734;
    bottom = ((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r +
                 0.14810397642748007459) * r + 0.68976733498510000455) * r + 1.6763848301838038494) * r +
              2.05319162663775882187) * r + 1;
  } else {
    r -= 5;
    top = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 0.0012426609473880784386) * r +
              0.026532189526576123093) * r + 0.29656057182850489123) * r + 1.7848265399172913358) * r +
           5.4637849111641143699) * r + 6.6579046435011037772;
    bottom = ((((((2.04426310338993978564e-15 * r + 1.4215117583164458887e-7) * r + 1.8463183175100546818e-5) * r +
                 7.868691311456132591e-4) * r + 0.0148753612908506148525) * r + 0.13692988092273580531) * r +
              0.59983220655588793769) * r + 1;
  }
  return p < 0.5 ? -top / bottom : top / bottom;
}

inline double near_quantile(double p) {
  const double q = p - 0.5, r = 0.180625 - q * q;
  return q * (((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r +
                  45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r +
               133.14166789178437745) * r + 3.387132872796366608) /
         (((((((5226.495278852545925 * r + 28729.085735721942674) * r + 39307.89580009271061) * r +
              21213.794301586595867) * r + 5394.1960214247511077) * r + 687.1870074920579083) * r +
           42.313330701600911252) * r + 1);
}

inline void normal_quantiles(const double* p, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = near_quantile(p[i]);
  for (int64_t i = 0; i < n; ++i)
    if (std::abs(p[i] - 0.5) > 0.425) to[i] = far_quantile(p[i]);
}

// Which polynomials are those of values, or -1, and where in their intervals these lie.
template <bool counts>
inline void find(const Mixed& all, int64_t d, int64_t begin, int64_t n, int32_t* slot, double* t) {
  const Places& places = all.places[d];
  const int64_t D = all.features, shift = places.shift, last = places.count - 1;
  const double origin = places.origin, scale = places.scale, least = places.least;
  const double *y = all.values + begin * D + d, *spread = all.spread + begin * D + d;
  if (counts) {
    for (int64_t i = 0; i < n; ++i) {
      const double at = y[i * D] - origin;
      slot[i] = at >= 0 && at <= double(last) ? places.slot[int64_t(at)] : -1;
      t[i] = spread[i * D];
    }
    return;
  }
  constexpr int64_t mantissa = (int64_t(1) << 52) - 1, one = int64_t(1023) << 52;
  int64_t at[MIXED_ROWS];
  for (int64_t i = 0; i < n; ++i) {
    const double away = y[i * D] - origin, w = least + scale * std::abs(away);
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

inline double sum_of_block(const double* x, int n) {
  if (n == 2) return x[0] + x[1];
  return sum_of_block(x, n / 2) + sum_of_block(x + n / 2, n / 2);
}

// Rows [begin, begin + n), with states in blocks of W.
template <int W, int P>
void mix_rows(const Mixed& all, int64_t begin, int64_t n) {
  typedef typename Block<W>::type V;
  const int64_t K = all.states, D = all.features, padded = all.padded, blocks = padded / W;
  const int64_t* open = std::lower_bound(all.opens, all.opens + all.n_opens, begin);
  const int64_t* const last = all.opens + all.n_opens;
  static thread_local std::vector<double> held;
  held.resize(MIXED_ROWS * (padded + W));
  double *const predicted = held.data(), *const parts = predicted + MIXED_ROWS * padded;
  for (int64_t i = 0; i < n; ++i) {
    const bool opens = open < last && *open == begin + i;
    open += opens;
    const double* before = all.before + (begin + i) * K;
    for (int64_t b = 0; b < blocks; ++b) {
      V found = opens ? load_block<W>(all.initial + b * W) : before[0] * load_block<W>(all.transition + b * W);
      for (int64_t k = 1; !opens && k < K; ++k) found += before[k] * load_block<W>(all.transition + k * padded + b * W);
      std::memcpy(predicted + i * padded + b * W, &found, sizeof found);
    }
  }
  int32_t slot[MIXED_ROWS];
  double t[MIXED_ROWS];
  auto told = [&](int32_t slot, double chance) {
    const bool known = slot >= 0 && chance >= all.faintest && chance <= 1 - all.faintest;
    return known ? chance : std::numeric_limits<double>::quiet_NaN();
  };
  for (int64_t d = 0; d < D; ++d) {
    find<P == 2>(all, d, begin, n, slot, t);
    const double* const numbers = all.places[d].numbers;
    double* const below = all.below + d * all.stride + begin;
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
    for (int64_t i = 0; i < n; ++i) below[i] = told(slot[i], sum_of_block(parts + i * W, W));
    normal_quantiles(below, n, all.quantiles + d * all.stride + begin);
    for (int64_t i = 0; all.path && i < n; ++i) {
      const double* const from = numbers + std::max(slot[i], 0) * P * padded + all.path[begin + i];
      double value = from[(P - 1) * padded];
      for (int p = P - 2; p >= 0; --p) value = value * t[i] + from[p * padded];
      t[i] = told(slot[i], value);
    }
    if (all.path) normal_quantiles(t, n, all.given + d * all.stride + begin);
  }
}

template <int P>
void mix_terms(const Mixed& all, int64_t begin, int64_t n) {
  switch (all.padded) {
    case 2:
      return mix_rows<2, P>(all, begin, n);
    case 4:
      return mix_rows<4, P>(all, begin, n);
    default:
      return mix_rows<8, P>(all, begin, n);
  }
}

void mix(const Mixed& all, int64_t begin, int64_t stop) {
  for (int64_t from = begin; from < stop; from += MIXED_ROWS) {
    const int64_t n = std::min(MIXED_ROWS, stop - from);
    all.terms == 2 ? mix_terms<2>(all, from, n) : mix_terms<8>(all, from, n);
  }
}

}  // namespace VARIANT
#endif
