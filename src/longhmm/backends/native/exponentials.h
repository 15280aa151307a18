// Powers of 2, of which softmax needs one for every pair of states: on AVX-512 cheaper than exp_negative.
#pragma once

#include <type_traits>

#include "vectors.h"
#if VECTOR_BYTES == 64
#include <immintrin.h>
#endif

namespace VARIANT {

// 2^x for N numbers x of moderate size, side by side, since each step waits for the last: |x| < 125 in single, < 1000
// in double precision.
template <int N, class V>
inline __attribute__((always_inline)) void powers_of_two(V* x) {
  typedef std::remove_reference_t<decltype((*x)[0])> T;
  for (int i = 0; i < N; ++i) x[i] = exp_negative(x[i] * T(0.693147180559945309417));
}

#if VECTOR_BYTES == 64
// x = n + j / 16 + r. 2^(j / 16) is picked from two registers, and 2^r is the polynomial that has its values at
// Chebyshev's nodes of |r| <= 1 / 32: 1.5e-17 away.
template <int N>
inline __attribute__((always_inline)) void powers_of_two(Vec<double>* x) {
  typedef Vec<double> V;
  // The bits of 2^(j / 16), less j at the place to which adding n + j / 16 brings it.
  alignas(64) static const int64_t roots[16] = {
      0x3ff0000000000000, 0x3fefb5586cf9890f, 0x3fef72b83c7d517b, 0x3fef387a6e756238,
      0x3fef06fe0a31b715, 0x3feedea64c123422, 0x3feebfdad5362a27, 0x3feeab07dd485429,
      0x3feea09e667f3bcd, 0x3feea11473eb0187, 0x3feeace5422aa0db, 0x3feec49182a3f090,
      0x3feee89f995ad3ad, 0x3fef199bdd85529c, 0x3fef5818dcfba487, 0x3fefa4afa2a490da};
  constexpr double least[] = {1.3333781576784268e-03, 9.618129106919537e-03, 5.55041086566393e-02,
                              2.4022650695910075e-01, 6.931471805599457e-01};
  const V magic = all(422212465065984.0);  // 1.5 * 2^48: adding it rounds to sixteenths, kept in the low bits
  V power[N], p[N];
  for (int i = 0; i < N; ++i) {
    const V shifted = x[i] + magic;
    x[i] -= shifted - magic;
    const Bits<double> bits = (Bits<double>)shifted;
    const __m512i root =
        _mm512_permutex2var_epi64(_mm512_load_si512(roots), (__m512i)bits, _mm512_load_si512(roots + 8));
    power[i] = (V)((Bits<double>)root + (bits << 48));
  }
  for (int i = 0; i < N; ++i) p[i] = x[i] * 1.5403723980749256e-04 + least[0];
  for (int step = 1; step < 5; ++step)
    for (int i = 0; i < N; ++i) p[i] = p[i] * x[i] + least[step];
  for (int i = 0; i < N; ++i) p[i] *= x[i];
  for (int i = 0; i < N; ++i) x[i] = power[i] + power[i] * p[i];
}
#endif

}  // namespace VARIANT
