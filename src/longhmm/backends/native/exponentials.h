// Exponentials: exp for arguments of at most 0 (or NaN), 0 where the result would be subnormal, with a relative error
// below 2 ulp beside what half an ulp of the argument makes; and powers of 2, of which softmax needs one for every pair
// of states, side by side, since each step waits for the last: |x| < 125 in single, < 1000 in double precision.
#pragma once

#include <type_traits>

#include "vectors.h"
#if VECTOR_BYTES == 64
#include <immintrin.h>
#endif

namespace VARIANT {

// A polynomial, its highest power first.
template <class T, int N>
inline Vec<T> polynomial(Vec<T> x, const T (&factors)[N]) {
  Vec<T> p = all(factors[0]);
  for (int i = 1; i < N; ++i) p = p * x + factors[i];
  return p;
}

// x = n log 2 + r; the polynomials are those of least relative error for |r| <= log(2) / 2 that begin with 1 + r, found
// by Remez' exchange: 3e-9 away in single and 2.9e-16 in double precision.
inline Vec<float> exp_negative(Vec<float> x) {
  typedef Vec<float> V;
  constexpr float factors[] = {1.381459864666403e-3f, 8.368716879728140e-3f, 4.166838804531400e-2f,
                               1.666652063170950e-1f, 4.999999344779649e-1f, 1.0f, 1.0f};
  const Bits<float> kept = x > all(-87.0f);
  const V magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const V shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  const V p = polynomial(r, factors);
  const V result = (V)((Bits<float>)p + ((Bits<float>)shifted << 23));  // the shift leaves nothing of magic
  return kept ? result : V{};
}

#if VECTOR_BYTES < 64
inline Vec<double> exp_negative(Vec<double> x) {
  typedef Vec<double> V;
  constexpr double factors[] = {2.747677955286435344e-07, 2.763500592586598732e-06, 2.480193185658966182e-05,
                                1.984118520332311372e-04, 1.388888851600612290e-03, 8.333333370891924925e-03,
                                4.166666666813763345e-02, 1.666666666661151239e-01, 4.999999999999832267e-01, 1.0, 1.0};
  const Bits<double> kept = x > all(-708.0);
  const V magic = all(6755399441055744.0);  // 1.5 * 2^52
  const V shifted = x * 1.4426950408889634074 + magic, n = shifted - magic;
  V r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  const V p = polynomial(r, factors);
  const V result = (V)((Bits<double>)p + ((Bits<double>)shifted << 52));
  return kept ? result : V{};
}
#else
// 2^x with x = n + j / 16 + r. 2^(j / 16) is picked from two registers, and 2^r is the polynomial that has its values at
// Chebyshev's nodes of |r| <= 1 / 32: 1.5e-17 away.
constexpr double SIXTEENTHS = 422212465065984.0;  // 1.5 * 2^48: adding it rounds to sixteenths, kept in the low bits
constexpr double POWER[] = {1.5403723980749256e-04, 1.3333781576784268e-03, 9.618129106919537e-03,
                            5.55041086566393e-02, 2.4022650695910075e-01, 6.931471805599457e-01};

// 2^(n + j / 16), given that and SIXTEENTHS.
inline Vec<double> power_of(Vec<double> shifted) {
  // The bits of 2^(j / 16), less j at the place to which adding n + j / 16 brings it.
  alignas(64) static const int64_t roots[16] = {
      0x3ff0000000000000, 0x3fefb5586cf9890f, 0x3fef72b83c7d517b, 0x3fef387a6e756238,
      0x3fef06fe0a31b715, 0x3feedea64c123422, 0x3feebfdad5362a27, 0x3feeab07dd485429,
      0x3feea09e667f3bcd, 0x3feea11473eb0187, 0x3feeace5422aa0db, 0x3feec49182a3f090,
      0x3feee89f995ad3ad, 0x3fef199bdd85529c, 0x3fef5818dcfba487, 0x3fefa4afa2a490da};
  const __m512i* table = reinterpret_cast<const __m512i*>(roots);
  const __m512i root = _mm512_permutex2var_epi64(table[0], (__m512i)shifted, table[1]);
  return (Vec<double>)((Bits<double>)root + ((Bits<double>)shifted << 48));
}

inline Vec<double> exp_negative(Vec<double> x) {
  const Bits<double> kept = x > all(-708.0);
  x *= 1.4426950408889634074;
  const Vec<double> shifted = x + SIXTEENTHS, r = x - (shifted - SIXTEENTHS), power = power_of(shifted);
  const Vec<double> result = power + power * (polynomial(r, POWER) * r);
  return kept ? result : Vec<double>{};
}

// The same steps as in exp_negative, which does not call this: g++ 12 would crash.
template <int N>
inline __attribute__((always_inline)) void powers_of_two(Vec<double>* x) {
  Vec<double> power[N], p[N];
  for (int i = 0; i < N; ++i) {
    const Vec<double> shifted = x[i] + SIXTEENTHS;
    x[i] -= shifted - SIXTEENTHS;
    power[i] = power_of(shifted);
    p[i] = all(POWER[0]);
  }
  for (int step = 1; step < 6; ++step)
    for (int i = 0; i < N; ++i) p[i] = p[i] * x[i] + POWER[step];
  for (int i = 0; i < N; ++i) x[i] = power[i] + power[i] * (p[i] * x[i]);
}
#endif

template <int N, class V>
inline __attribute__((always_inline)) void powers_of_two(V* x) {
  typedef std::remove_reference_t<decltype((*x)[0])> T;
  for (int i = 0; i < N; ++i) x[i] = exp_negative(x[i] * T(0.693147180559945309417));
}

}  // namespace VARIANT
