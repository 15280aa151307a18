// Student's t and mixtures of Gaussians. No sums are sufficient for them: those here are the derivatives of the expected
// log density by the numbers of the pack.
#pragma once

#include <vector>

#include "exponentials.h"

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

// Room for so many vectors: in registers where the compiler knows their number.
template <class T, int M>
struct Room {
  Vec<T> held[M];
  explicit Room(int) {}
};
template <class T>
struct Room<T, 0> {
  std::vector<Vec<T>> held;
  explicit Room(int size) : held(size) {}
};

// What the components of a mixture say of a number, each over the largest: the log of that one is returned. M of them
// if that is known, else `m`.
template <class T, int M>
inline Vec<T> components(Vec<T> y, const T* pack, int m, Vec<T>* share) {
  const int size = M ? M : m;
  Vec<T> top = all(-std::numeric_limits<T>::max());
  for (int i = 0; i < size; ++i) {
    const Vec<T> z = (y - pack[3 * i + 1]) * pack[3 * i + 2];
    share[i] = pack[3 * i] - T(0.5) * z * z;
    top = larger<T>(share[i], top);
  }
  if constexpr (M == 2) {  // one of them is 1
    const Bits<T> first = share[0] >= share[1];
    const Vec<T> less = exp_negative((first ? share[1] : share[0]) - top);
    share[0] = first ? all(T(1)) : less, share[1] = first ? less : all(T(1));
  } else {
    for (int i = 0; i < size; ++i) share[i] = exp_negative(share[i] - top);
  }
  return top;
}

template <class T, int M>
inline Vec<T> whole_of(const Vec<T>* share, int m) {
  Vec<T> sum = share[0];
  for (int i = 1; i < (M ? M : m); ++i) sum += share[i];
  return larger<T>(sum, all(std::numeric_limits<T>::min()));
}

template <class T, int M>
inline void mixture_logs(const Vec<T>* y, int rows, const T* pack, int m, int states, Vec<T>* logs) {
  Room<T, M> share(m);
  for (int k = 0; k < states; ++k, pack += 3 * m)
    for (int r = 0; r < rows; ++r) {
      const Vec<T> top = components<T, M>(y[r], pack, m, &share.held[0]);
      logs[int64_t(r) * states + k] = log_positive(whole_of<T, M>(&share.held[0], m)) + top;
    }
}

template <class T, int M>
inline void mixture_sums(const Vec<T>* y, int rows, const T* pack, int m, int states, const Vec<T>* gamma,
                         Vec<T>* sums) {
  const int size = M ? M : m;
  Room<T, M> share(m);
  Room<T, 3 * M> sum(3 * m);
  for (int k = 0; k < states; ++k, pack += 3 * m, sums += 3 * m) {
    for (int i = 0; i < 3 * size; ++i) sum.held[i] = Vec<T>{};
    for (int r = 0; r < rows; ++r) {
      components<T, M>(y[r], pack, m, &share.held[0]);
      const Vec<T> whole = gamma[int64_t(r) * states + k] / whole_of<T, M>(&share.held[0], m);
      for (int i = 0; i < size; ++i) {
        const Vec<T> g = whole * share.held[i], away = y[r] - pack[3 * i + 1], weighted = g * away;
        sum.held[3 * i] += g, sum.held[3 * i + 1] += weighted, sum.held[3 * i + 2] += weighted * away;
      }
    }
    for (int i = 0; i < 3 * size; i += 3) {
      const T scale = pack[i + 2];
      sums[i] += sum.held[i];
      sums[i + 1] += sum.held[i + 1] * (scale * scale);
      sums[i + 2] -= sum.held[i + 2] * scale;
    }
  }
}

}  // namespace VARIANT
