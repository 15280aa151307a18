// Numbers that should be standard normal: their sums, those of neighbours, and counts in bins of equal width.
#pragma once

#include <cstdint>

#include "mixed.h"  // where the numbers come from

constexpr int64_t TALLIED_PARTS = 4;      // of a feature, each with counts of its own
constexpr int64_t TALLIED_ROWS = 1 << 8;  // at a time
constexpr int64_t TALLIED_SUMS = 7;

struct Tallied {
  int64_t rows, features, n_starts, bins;
  const double* numbers;  // (features, rows), NaN where missing
  const int64_t* starts;  // (n_starts): rows that have nothing to do with the one before, rising
  const double* origin;   // (features): numbers are summed as distances from it
  double from, per;       // bins are those of (number - from) * per; the first and the last hold all beyond
  double far;
  const bool* wanted;     // optional, (features, bins): then numbers in these are given, and nothing else
  double* found;          // those of all parts, one after the other
  const int64_t* first;   // (features, parts): where those of each begin
  uint32_t* counts;       // (features, parts, bins + 1): the last is of those missing
  // (features, parts, TALLIED_SUMS): numbers, their sum and sum of squares; pairs of neighbours, sums of both and of
  // their products; numbers beyond `far`
  double* sums;
};

#define DECLARE_TALLY(name) \
  namespace name {          \
  void tally(const Tallied& all, int64_t task); \
  }
DECLARE_TALLY(baseline)
DECLARE_TALLY(avx2)
DECLARE_TALLY(avx512)
#undef DECLARE_TALLY

#ifdef VARIANT
#include <algorithm>
#include <limits>

#include "vectors.h"

namespace VARIANT {

// The bins of n numbers, the last one for NaN.
inline void bins_of(const Tallied& all, const double* x, int64_t n, int32_t* bin) {
  const double from = all.from, per = all.per, most = double(all.bins - 1), none = double(all.bins);
  for (int64_t i = 0; i < n; ++i) {
    double at = (x[i] - from) * per;
    at = at < 0 ? 0 : at;
    at = at > most ? most : at;
    bin[i] = int32_t(x[i] == x[i] ? at : none);
  }
}

// A part of one feature.
void tally(const Tallied& all, int64_t task) {
  typedef Vec<double> V;
  constexpr int64_t W = Vector<double>::lanes;
  const int64_t d = task / TALLIED_PARTS, size = (all.rows + TALLIED_PARTS - 1) / TALLIED_PARTS;
  const int64_t begin = std::min(task % TALLIED_PARTS * size, all.rows), stop = std::min(begin + size, all.rows);
  const double *const x = all.numbers + d * all.rows, origin = all.origin[d];
  int32_t bin[TALLIED_ROWS];
  if (all.wanted) {
    const bool *const wanted = all.wanted + d * all.bins, *const end = wanted + all.bins;
    const int64_t low = std::find(wanted, end, true) - wanted;
    int64_t high = all.bins;
    while (high > low && !wanted[high - 1]) --high;
    // Few numbers lie between the first bin that is wanted and the last: they are gathered before bins are looked at.
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double least = low ? double(low) : -infinity, most = high < all.bins ? double(high) : infinity;
    double *to = all.found + all.first[task], some[TALLIED_ROWS];
    int64_t inside[TALLIED_ROWS];
    for (int64_t from = begin; low < high && from < stop; from += TALLIED_ROWS) {
      const int64_t n = std::min(TALLIED_ROWS, stop - from);
      for (int64_t i = 0; i < n; ++i) {
        const double at = (x[from + i] - all.from) * all.per;
        inside[i] = (at >= least) & (at <= most);
      }
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) {
        some[count] = x[from + i];
        count += inside[i];
      }
      bins_of(all, some, count, bin);
      for (int64_t i = 0; i < count; ++i)
        if (bin[i] < all.bins && wanted[bin[i]]) *to++ = some[i];
    }
    return;
  }
  uint32_t* const counts = all.counts + task * (all.bins + 1);
  V sums[TALLIED_SUMS] = {};
  double* const out = all.sums + task * TALLIED_SUMS;
  // One row, or as many as there are lanes, with those before them.
  auto add = [&](V own, V before, double sign) {
    const Bits<double> here = own == own, both = here & (before == before);
    const V a = own - origin, b = before - origin, none{};
    if (sign > 0) {
      sums[0] += here ? none + 1.0 : none;
      sums[1] += here ? a : none;
      sums[2] += here ? a * a : none;
      sums[6] += (own > all.far + none) | (own < none - all.far) ? none + 1.0 : none;
    }
    sums[3] += both ? none + sign : none;
    sums[4] += both ? sign * (a + b) : none;
    sums[5] += both ? sign * (a * b) : none;
  };
  auto alone = [&](int64_t row, bool follows, double sign) {
    V own = V{} + std::numeric_limits<double>::quiet_NaN(), before = own;
    own[0] = x[row];
    if (follows) before[0] = x[row - 1];
    add(own, before, sign);
  };
  for (int64_t from = begin; from < stop; from += TALLIED_ROWS) {
    const int64_t n = std::min(TALLIED_ROWS, stop - from);
    bins_of(all, x + from, n, bin);
    for (int64_t i = 0; i < n; ++i) ++counts[bin[i]];
    int64_t i = 0;
    if (from == 0) alone(i++, false, 1);
    for (; i + W <= n; i += W) add(load<double>(x + from + i), load<double>(x + from + i - 1), 1);
    for (; i < n; ++i) alone(from + i, true, 1);
  }
  const int64_t* const last = all.starts + all.n_starts;
  for (const int64_t* at = std::lower_bound(all.starts, last, std::max<int64_t>(begin, 1)); at < last && *at < stop; ++at)
    alone(*at, true, -1);
  for (int64_t i = 0; i < TALLIED_SUMS; ++i) out[i] = total_of(sums[i]);
}

}  // namespace VARIANT
#endif
