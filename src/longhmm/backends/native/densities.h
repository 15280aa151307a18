// Student's t and mixtures of Gaussians. No sums are sufficient for them: those here are the derivatives of the expected
// log density by the numbers of the pack.
#pragma once

#include "vectors.h"

namespace VARIANT {

// log(1 + x), also of small x: what rounding took from 1 + x is given back.
template <class T>
inline Vec<T> log_one_plus(Vec<T> x) {
  const Vec<T> sum = T(1) + x;
  return log_positive(sum) + (x - (sum - T(1))) / sum;
}

template <class T>
inline void student_logs(const Vec<T>* y, int rows, const T* pack, int width, int states, Vec<T>* logs) {
  for (int k = 0; k < states; ++k, pack += 4 * width)
    for (int r = 0; r < rows; ++r) {
      Vec<T> value{};
      for (int i = 0; i < width; ++i) {
        const T* own = pack + 4 * i;
        const Vec<T> x = y[int64_t(r) * width + i], away = x - own[1];
        value += x == x ? own[0] - own[3] * log_one_plus<T>(own[2] * away * away) : Vec<T>{};
      }
      logs[int64_t(r) * states + k] = value;
    }
}

template <class T>
inline void student_sums(const Vec<T>* y, int rows, const T* pack, int width, int states, const Vec<T>* gamma,
                         Vec<T>* sums) {
  for (int k = 0; k < states; ++k)
    for (int i = 0; i < width; ++i, pack += 4, sums += 4) {
      Vec<T> count{}, first{}, second{}, logs{};
      for (int r = 0; r < rows; ++r) {
        const Vec<T> x = y[int64_t(r) * width + i], away = x == x ? x - pack[1] : Vec<T>{};
        const Vec<T> g = x == x ? gamma[int64_t(r) * states + k] : Vec<T>{}, square = pack[2] * away * away;
        const Vec<T> weighted = g * away / (T(1) + square);
        count += g, first += weighted, second += weighted * away, logs += g * log_one_plus<T>(square);
      }
      sums[0] += count;
      sums[1] += T(2) * pack[2] * pack[3] * first;
      sums[2] -= pack[3] * second;
      sums[3] -= logs;
    }
}

// Calls `each(m, log of the weighted density)` for the components of a mixture.
template <class T, class Each>
inline void components(Vec<T> y, const T* pack, int pack_size, Each each) {
  for (int m = 0; m < pack_size; m += 3) {
    const Vec<T> z = (y - pack[m + 1]) * pack[m + 2];
    each(m, pack[m] - T(0.5) * z * z);
  }
}

template <class T>
inline Vec<T> mixture_log(Vec<T> y, const T* pack, int pack_size) {
  Vec<T> top = all(-std::numeric_limits<T>::max()), sum{};
  components(y, pack, pack_size, [&](int, Vec<T> log) { top = larger<T>(log, top); });
  components(y, pack, pack_size, [&](int, Vec<T> log) { sum += exp_negative(log - top); });
  return log_positive(larger<T>(sum, all(std::numeric_limits<T>::min()))) + top;
}

template <class T>
inline void mixture_sums(const Vec<T>* y, int rows, const T* pack, int pack_size, int states, const Vec<T>* gamma,
                         Vec<T>* sums) {
  for (int k = 0; k < states; ++k, pack += pack_size, sums += pack_size)
    for (int r = 0; r < rows; ++r) {
      const Vec<T> whole = mixture_log(y[r], pack, pack_size);
      components(y[r], pack, pack_size, [&](int m, Vec<T> log) {
        const Vec<T> g = gamma[int64_t(r) * states + k] * exp_negative(log - whole), away = y[r] - pack[m + 1];
        sums[m] += g;
        sums[m + 1] += g * away * (pack[m + 2] * pack[m + 2]);
        sums[m + 2] -= g * away * away * pack[m + 2];
      });
    }
}

}  // namespace VARIANT
