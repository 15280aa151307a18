// Numbers that are functions of a row's values, made where they are needed: data are read as they are, and nothing of
// their size is written.
#pragma once

#include <vector>

#include "call.h"
#include "vectors.h"

namespace VARIANT {

// While it lives, numbers below the smallest normal one count again (see Flushed in dispatch.cc): data may be as small.
struct Unflushed {
#ifdef __x86_64__
  const unsigned before = __builtin_ia32_stmxcsr();
  Unflushed() { __builtin_ia32_ldmxcsr(before & ~0x8040u); }
  ~Unflushed() { __builtin_ia32_ldmxcsr(before); }
#endif
};

// log of positive numbers, also those below the smallest normal one.
template <class T>
inline Vec<T> log_of(Vec<T> x) {
  constexpr int shift = sizeof(T) == 8 ? 54 : 25;
  const Bits<T> small = x < all(std::numeric_limits<T>::min());
  const Vec<T> logs = log_positive(small ? x * T(int64_t(1) << shift) : x);
  return small ? logs - T(shift * 0.693147180559945309417) : logs;
}

// cos and sin of an angle of a few turns at most: what remains of it beside quarters of a turn, by Taylor's series.
template <class T>
inline void turn(Vec<T> x, Vec<T>& cosine, Vec<T>& sine) {
  typedef Vec<T> V;
  const V magic = all(sizeof(T) == 8 ? T(6755399441055744.0) : T(12582912.0));  // as in exp_negative
  const V shifted = x * T(0.63661977236758134308) + magic, quarters = shifted - magic;
  constexpr T most = T(1.57079632679489661923);
  const V r = x - quarters * most - quarters * T(sizeof(T) == 8 ? 6.12323399573676588613e-17 : -4.37113900018624283e-8);
  const V q = r * r;
  V s = all(T(-1.0 / 1307674368000.0)), c = all(T(1.0 / 20922789888000.0));
  s = s * q + T(1.0 / 6227020800.0), c = c * q - T(1.0 / 87178291200.0);
  s = s * q - T(1.0 / 39916800.0), c = c * q + T(1.0 / 479001600.0);
  s = s * q + T(1.0 / 362880.0), c = c * q - T(1.0 / 3628800.0);
  s = s * q - T(1.0 / 5040.0), c = c * q + T(1.0 / 40320.0);
  s = s * q + T(1.0 / 120.0), c = c * q - T(1.0 / 720.0);
  s = s * q - T(1.0 / 6.0), c = c * q + T(1.0 / 24.0);
  s = s * q * r + r, c = (c * q - T(0.5)) * q + T(1);
  const Bits<T> quarter = (Bits<T>)shifted, odd = (quarter & 1) != 0;
  const V first = odd ? s : c, second = odd ? c : s;
  cosine = ((quarter + 1) & 2) != 0 ? -first : first;
  sine = (quarter & 2) != 0 ? -second : second;
}

// The numbers of rows [from, stop) from their values. What is not there counts nothing in sums, and a row of which
// nothing is there is missing; of a Gaussian row it stays marked (see marginal.h).
template <class T>
__attribute__((noinline)) void make_numbers(const Call& call, const Vec<T>* values, int from, int stop, Vec<T>* numbers) {
  typedef Vec<T> V;
  constexpr int MOST = 32;  // rows that stay in the nearest cache
  const V missing = all(std::numeric_limits<T>::quiet_NaN());
  for (; from < stop; from += MOST) {
    const int count = stop - from < MOST ? stop - from : MOST;
    V without[MOST], sine[MOST];
    for (int r = 0; r < count; ++r) {
      const V* row = values + int64_t(from + r) * call.columns;
      Bits<T> some{};
      for (int i = 0; i < call.columns; ++i) some |= row[i] == row[i];
      without[r] = call.kind == LINEAR ? (some ? V{} : missing) : missing;
    }
    int turned = -1;  // the column whose sines are there
    for (int i = 0; i < call.width; ++i) {
      const int column = int(call.terms[i] / TERMS), term = int(call.terms[i] % TERMS);
      const V* x = values + int64_t(from) * call.columns + column;
      V* to = numbers + int64_t(from) * call.width + i;
      auto each = [&](auto number) {
        for (int r = 0; r < count; ++r) {
          const V at = x[int64_t(r) * call.columns];
          to[int64_t(r) * call.width] = at == at ? number(at, r) : without[r];
        }
      };
      if (term == SEEN) each([](V, int) { return all(T(1)); });
      if (term == VALUE) each([](V at, int) { return at; });
      if (term == LOG) each([](V at, int) { return log_of<T>(at); });
      if (term == SINE && turned == column) each([&](V, int r) { return sine[r]; });
      if (term == COSINE || (term == SINE && turned != column))
        each([&](V at, int r) {
          V cosine;
          turn<T>(at, cosine, sine[r]);
          return term == COSINE ? cosine : sine[r];
        }), turned = column;
    }
  }
}

}  // namespace VARIANT
