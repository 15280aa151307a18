// Vectors of numbers, one number per window, and their logarithms; exponentials.h has the powers.
//
// Each instruction set compiles this file in its own namespace with its own VECTOR_BYTES; nothing here is shared
// between them, so a function built for one processor can never be linked into the path of another.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

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

// As many numbers as there are lanes, from memory that need not be aligned.
template <class T, class Source>
inline Vec<T> load(const Source* from) {
  typedef Source Found __attribute__((vector_size(sizeof(Source) * Vector<T>::lanes)));
  Found found;
  std::memcpy(&found, from, sizeof found);
  return __builtin_convertvector(found, Vec<T>);
}

// Numbers of two vectors in turn, from one of them on.
#ifdef __clang__
#define SHUFFLE(T, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(T, a, b, ...) __builtin_shuffle(a, b, Bits<T>{__VA_ARGS__})
#endif
template <class T, size_t from, size_t... index>
inline Vec<T> interleave(Vec<T> a, Vec<T> b, std::index_sequence<index...>) {
  return SHUFFLE(T, a, b, (from + index / 2 + index % 2 * Vector<T>::lanes)...);
}

// P vectors, as many as a power of two, to P numbers of each lane, one lane after the other: interleaving one half of
// them with the other, as cards are shuffled, does it in as many rounds as P has halves.
template <class T, int P = Vector<T>::lanes>
inline __attribute__((always_inline)) void transpose(Vec<T>* rows) {
  constexpr int W = Vector<T>::lanes;
  Vec<T> held[P], next[P];
  for (int i = 0; i < P; ++i) held[i] = rows[i];
  for (int size = P; size > 1; size /= 2) {
    for (int i = 0; i < P / 2; ++i) {
      next[2 * i] = interleave<T, 0>(held[i], held[i + P / 2], std::make_index_sequence<W>());
      next[2 * i + 1] = interleave<T, W / 2>(held[i], held[i + P / 2], std::make_index_sequence<W>());
    }
    for (int i = 0; i < P; ++i) held[i] = next[i];
  }
  for (int i = 0; i < P; ++i) rows[i] = held[i];
}

template <class T>
inline bool any(Bits<T> mask) {
  int64_t found[VECTOR_BYTES / 8];  // by halves
  std::memcpy(found, &mask, sizeof mask);
  for (int size = VECTOR_BYTES / 16; size > 0; size /= 2)
    for (int i = 0; i < size; ++i) found[i] |= found[i + size];
  return found[0] != 0;
}

// Sum over lanes, by halves.
inline double total_of(Vec<double> x) {
  for (int size = Vector<double>::lanes / 2; size > 0; size /= 2)
    for (int lane = 0; lane < size; ++lane) x[lane] += x[lane + size];
  return x[0];
}

// The same with a weight for every lane, in double precision.
inline double total_of(Vec<double> x, const double* weight) { return total_of(x * load<double>(weight)); }

inline double total_of(Vec<float> x, const double* weight) {
  constexpr int half = Vector<double>::lanes;
  const float* from = reinterpret_cast<const float*>(&x);
  return total_of(load<double>(from) * load<double>(weight) + load<double>(from + half) * load<double>(weight + half));
}

// log of normal positive numbers, by the series of the inverse hyperbolic tangent.
template <class T>
inline Vec<T> log_by_series(Vec<T> x) {
  constexpr int mantissa = sizeof(T) == 8 ? 52 : 23, terms = sizeof(T) == 8 ? 10 : 4;
  const Bits<T> offset = (Bits<T>)x - (sizeof(T) == 8 ? 0x3fe6a09e667f3bcdLL : 0x3f3504f3);  // from sqrt(1/2) to sqrt(2)
  const Bits<T> exponent = offset >> mantissa;
  const Vec<T> m = (Vec<T>)((Bits<T>)x - (exponent << mantissa));
  const Vec<T> s = (m - T(1)) / (m + T(1)), q = s * s;
  Vec<T> p = all(T(2) / T(2 * terms + 1));
  for (int term = terms - 1; term >= 0; --term) p = p * q + T(2) / T(2 * term + 1);
  return __builtin_convertvector(exponent, Vec<T>) * T(0.693147180559945309417) + s * p;
}

inline Vec<float> log_positive(Vec<float> x) { return log_by_series<float>(x); }
inline Vec<double> log_positive(Vec<double> x) { return log_by_series<double>(x); }

// The logarithm of a product of normal positive numbers, of which only one factor in many needs a logarithm: exponents
// are added as integers, mantissas multiplied.
template <class T>
struct LogProduct {
  static constexpr int mantissa_bits = sizeof(T) == 8 ? 52 : 23;
  static constexpr int bias = sizeof(T) == 8 ? 1023 : 127;
  static constexpr int most = 64;  // factors between two calls of settle: 2^64 is a number in both precisions
  Vec<T> mantissa = all(T(1));
  Vec<T> logs{};
  Bits<T> exponents{};

  void times(Vec<T> factor) {
    const Bits<T> bits = (Bits<T>)factor;
    exponents += (bits >> mantissa_bits) - bias;
    constexpr auto kept = (decltype(bits[0] + 0)(1) << mantissa_bits) - 1;
    mantissa *= (Vec<T>)((bits & kept) | (Bits<T>)all(T(1)));
  }
  void settle() {
    logs += log_positive(mantissa);
    mantissa = all(T(1));
  }
  Vec<T> log() const { return logs + __builtin_convertvector(exponents, Vec<T>) * T(0.693147180559945309417); }
};

}  // namespace VARIANT
