// Vectors of numbers, one number per window, and the two functions the recursions need of them.
//
// Each instruction set compiles this file in its own namespace with its own VECTOR_BYTES; nothing here is shared
// between them, so a function built for one processor can never be linked into the path of another.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace VARIANT {

template <class T>
struct Vector;

template <>
struct Vector<float> {
  static constexpr int lanes = VECTOR_BYTES / 4;
  typedef float type __attribute__((vector_size(VECTOR_BYTES)));
  typedef int32_t bits __attribute__((vector_size(VECTOR_BYTES)));
};

template <>
struct Vector<double> {
  static constexpr int lanes = VECTOR_BYTES / 8;
  typedef double type __attribute__((vector_size(VECTOR_BYTES)));
  typedef int64_t bits __attribute__((vector_size(VECTOR_BYTES)));
};

template <class T>
using Vec = typename Vector<T>::type;
template <class T>
using Bits = typename Vector<T>::bits;

template <class T>
inline Vec<T> all(T value) {
  return value - Vec<T>{};  // broadcast
}

template <class T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}

template <class T>
inline bool any(Bits<T> mask) {
  bool found = false;
  for (int lane = 0; lane < Vector<T>::lanes; ++lane) found |= mask[lane] != 0;
  return found;
}

// Sum over lanes, in double precision.
inline double total_of(Vec<float> x) {
  typedef float Half __attribute__((vector_size(VECTOR_BYTES / 2)));
  typedef double Wide __attribute__((vector_size(VECTOR_BYTES)));
  Half low, high;
  std::memcpy(&low, &x, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof low, sizeof high);
  const Wide sum = __builtin_convertvector(low, Wide) + __builtin_convertvector(high, Wide);
  double total = 0;
  for (int lane = 0; lane < Vector<double>::lanes; ++lane) total += sum[lane];
  return total;
}

inline double total_of(Vec<double> x) {
  double total = 0;
  for (int lane = 0; lane < Vector<double>::lanes; ++lane) total += x[lane];
  return total;
}

// The same with a weight for every lane.
inline double total_of(Vec<float> x, const double* weight) {
  typedef float Half __attribute__((vector_size(VECTOR_BYTES / 2)));
  typedef double Wide __attribute__((vector_size(VECTOR_BYTES)));
  Half low, high;
  Wide first, second;
  std::memcpy(&low, &x, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof low, sizeof high);
  std::memcpy(&first, weight, sizeof first);
  std::memcpy(&second, weight + Vector<double>::lanes, sizeof second);
  const Wide sum = __builtin_convertvector(low, Wide) * first + __builtin_convertvector(high, Wide) * second;
  double total = 0;
  for (int lane = 0; lane < Vector<double>::lanes; ++lane) total += sum[lane];
  return total;
}

inline double total_of(Vec<double> x, const double* weight) {
  double total = 0;
  for (int lane = 0; lane < Vector<double>::lanes; ++lane) total += x[lane] * weight[lane];
  return total;
}

// exp for arguments of at most 0 (or NaN): 0 where the result would be subnormal. Relative error below 2 ulp.
inline Vec<float> exp_negative(Vec<float> x) {
  typedef Vec<float> V;
  const Bits<float> kept = x > all(-87.0f);
  x = kept ? x : V{};
  const V magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const V shifted = x * 1.44269504088896341f + magic;
  const V n = shifted - magic;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = all(1.0f / 5040.0f);
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Bits<float> scale = ((Bits<float>)shifted - (Bits<float>)magic) << 23;
  const V result = (V)((Bits<float>)p + scale);
  return kept ? result : V{};
}

inline Vec<double> exp_negative(Vec<double> x) {
  typedef Vec<double> V;
  const Bits<double> kept = x > all(-708.0);
  x = kept ? x : V{};
  const V magic = all(6755399441055744.0);  // 1.5 * 2^52
  const V shifted = x * 1.4426950408889634074 + magic;
  const V n = shifted - magic;
  V r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  // Taylor's series to degree 12: at |r| <= ln(2)/2 the next term is below 2e-16.
  V p = all(1.0 / 479001600.0);
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const Bits<double> scale = ((Bits<double>)shifted - (Bits<double>)magic) << 52;
  const V result = (V)((Bits<double>)p + scale);
  return kept ? result : V{};
}

// log of normal positive numbers, by the series of the inverse hyperbolic tangent.
inline Vec<float> log_positive(Vec<float> x) {
  typedef Vec<float> V;
  const Bits<float> offset = (Bits<float>)x - 0x3f3504f3;  // mantissas from sqrt(1/2) to sqrt(2)
  const Bits<float> exponent = offset >> 23;
  const V m = (V)((Bits<float>)x - (exponent << 23));
  const V n = __builtin_convertvector(exponent, V);
  const V s = (m - 1.0f) / (m + 1.0f);
  const V q = s * s;
  V p = all(2.0f / 9.0f);
  p = p * q + 2.0f / 7.0f;
  p = p * q + 2.0f / 5.0f;
  p = p * q + 2.0f / 3.0f;
  return n * 0.693147180559945309f + s * (p * q + 2.0f);
}

inline Vec<double> log_positive(Vec<double> x) {
  typedef Vec<double> V;
  const Bits<double> offset = (Bits<double>)x - 0x3fe6a09e667f3bcdLL;
  const Bits<double> exponent = offset >> 52;
  const V m = (V)((Bits<double>)x - (exponent << 52));
  const V n = __builtin_convertvector(exponent, V);
  const V s = (m - 1.0) / (m + 1.0);
  const V q = s * s;
  V p = all(2.0 / 21.0);
  p = p * q + 2.0 / 19.0;
  p = p * q + 2.0 / 17.0;
  p = p * q + 2.0 / 15.0;
  p = p * q + 2.0 / 13.0;
  p = p * q + 2.0 / 11.0;
  p = p * q + 2.0 / 9.0;
  p = p * q + 2.0 / 7.0;
  p = p * q + 2.0 / 5.0;
  p = p * q + 2.0 / 3.0;
  return n * 0.693147180559945309417 + s * (p * q + 2.0);
}

}  // namespace VARIANT
