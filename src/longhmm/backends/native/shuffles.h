// Between vectors of lanes, one for each state, and vectors of states, one for each lane: what looking up matrices needs.
#pragma once

#include <type_traits>

#include "vectors.h"

namespace VARIANT {

// Every other number of two vectors, from the first or the second on.
template <class T, size_t from, size_t... index>
inline Vec<T> every_other(Vec<T> a, Vec<T> b, std::index_sequence<index...>) {
  return SHUFFLE(T, a, b, (from + 2 * index)...);
}

// One lane's number of a vector everywhere; or that of `a` in the first half, and that of `b` in the other.
template <class T, bool both, size_t lane, size_t... index>
inline Vec<T> spread(Vec<T> a, Vec<T> b, std::index_sequence<index...>) {
  constexpr int W = Vector<T>::lanes;
  return SHUFFLE(T, a, b, (lane + (both && index >= W / 2 ? W : 0))...);
}

// Half of `a` and the same half of `b`: the first, or the one from the middle on.
template <class T, size_t from, size_t... index>
inline Vec<T> halves(Vec<T> a, Vec<T> b, std::index_sequence<index...>) {
  constexpr int W = Vector<T>::lanes;
  return SHUFFLE(T, a, b, (from + index + (index >= W / 2 ? W / 2 : 0))...);
}

// What `transpose` did, undone.
template <class T, int P>
inline __attribute__((always_inline)) void transpose_back(Vec<T>* rows) {
  constexpr int W = Vector<T>::lanes;
  Vec<T> held[P], next[P];
  for (int i = 0; i < P; ++i) held[i] = rows[i];
  for (int size = P; size > 1; size /= 2) {
    for (int i = 0; i < P / 2; ++i) {
      next[i] = every_other<T, 0>(held[2 * i], held[2 * i + 1], std::make_index_sequence<W>());
      next[i + P / 2] = every_other<T, 1>(held[2 * i], held[2 * i + 1], std::make_index_sequence<W>());
    }
    for (int i = 0; i < P; ++i) held[i] = next[i];
  }
  for (int i = 0; i < P; ++i) rows[i] = held[i];
}

// Numbers that a lane has for n states: as many as a power of two, or whole vectors. Only where n is known beforehand
// are there fewer than a vector holds.
#ifdef ANY_STATES
constexpr int MOST_KNOWN = 0;
#else
constexpr int MOST_KNOWN = 8;
#endif
constexpr int power_above(int n) {
  int found = 1;
  while (found < n) found *= 2;
  return found;
}
template <class T>
constexpr int padded_to(int n) {
  constexpr int W = Vector<T>::lanes;
  return n < W && n <= MOST_KNOWN ? power_above(n) : (n + W - 1) / W * W;
}

// Vectors of lanes to a row of `padded` numbers for each lane, and back; K states, or 0 for a number not known here.
template <class T, int K>
inline void to_rows(const Vec<T>* from, int states, T* rows) {
  constexpr int W = Vector<T>::lanes, P = K && padded_to<T>(K) < W ? padded_to<T>(K) : W;  // of a tile
  const int n = K ? K : states, padded = padded_to<T>(n);
  for (int first = 0; first < padded; first += P) {
    Vec<T> tile[P];
    for (int i = 0; i < P; ++i) tile[i] = first + i < n ? from[first + i] : Vec<T>{};
    transpose<T, P>(tile);
    if (P < W)
      std::memcpy(rows, tile, sizeof tile);
    else
      for (int lane = 0; lane < W; ++lane) std::memcpy(rows + lane * padded + first, &tile[lane], sizeof tile[lane]);
  }
}

template <class T, int K>
inline void from_rows(const T* rows, int states, Vec<T>* to) {
  constexpr int W = Vector<T>::lanes, P = K && padded_to<T>(K) < W ? padded_to<T>(K) : W;
  const int n = K ? K : states, padded = padded_to<T>(n);
  for (int first = 0; first < padded; first += P) {
    Vec<T> tile[P];
    for (int i = 0; i < P; ++i) tile[i] = load<T>(rows + (P < W ? i * W : i * padded + first));
    transpose_back<T, P>(tile);
    for (int i = 0; i < P && first + i < n; ++i) to[first + i] = tile[i];
  }
}

}  // namespace VARIANT
