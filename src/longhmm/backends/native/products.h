// Products of small matrices with vectors of lanes, and sums over states.
#pragma once

#include "vectors.h"

namespace VARIANT {

// out[j] = sum_i matrix[j, i] in[i]
template <class T, int K>
inline void multiply(const T* matrix, int states, const Vec<T>* in, Vec<T>* out) {
  const int n = K ? K : states;
  if constexpr (K > 0 && K <= 16) {
    // All sums grow together: each waits for its own last addition only.
    Vec<T> sum[K];
    for (int j = 0; j < K; ++j) sum[j] = matrix[j * K] * in[0];
    for (int i = 1; i < K; ++i)
      for (int j = 0; j < K; ++j) sum[j] += matrix[j * K + i] * in[i];
    for (int j = 0; j < K; ++j) out[j] = sum[j];
  } else {
    int j = 0;
    for (; j + 4 <= n; j += 4) {
      Vec<T> a{}, b{}, c{}, d{};
      const T* m = matrix + int64_t(j) * n;
      for (int i = 0; i < n; ++i) {
        const Vec<T> x = in[i];
        a += m[i] * x;
        b += m[n + i] * x;
        c += m[2 * n + i] * x;
        d += m[3 * n + i] * x;
      }
      out[j] = a, out[j + 1] = b, out[j + 2] = c, out[j + 3] = d;
    }
    for (; j < n; ++j) {
      Vec<T> sum{};
      for (int i = 0; i < n; ++i) sum += matrix[int64_t(j) * n + i] * in[i];
      out[j] = sum;
    }
  }
}

// counts[i, j] += sum over rows of previous[row, i] weighted[row, j], in tiles that stay in registers.
template <class T, int K>
inline void add_products(const Vec<T>* previous, const Vec<T>* weighted, int rows, int states, Vec<T>* counts) {
  const int n = K ? K : states;
  for (int i0 = 0; i0 < n; i0 += 4) {
    const int ni = n - i0 < 4 ? n - i0 : 4;
    for (int j0 = 0; j0 < n; j0 += 4) {
      const int nj = n - j0 < 4 ? n - j0 : 4;
      if (ni == 4 && nj == 4) {
        Vec<T> tile[4][4];
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) tile[i][j] = counts[int64_t(i0 + i) * n + j0 + j];
        for (int r = 0; r < rows; ++r) {
          const Vec<T>* p = previous + int64_t(r) * n + i0;
          const Vec<T>* w = weighted + int64_t(r) * n + j0;
          const Vec<T> w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
          for (int i = 0; i < 4; ++i) {
            const Vec<T> x = p[i];
            tile[i][0] += x * w0;
            tile[i][1] += x * w1;
            tile[i][2] += x * w2;
            tile[i][3] += x * w3;
          }
        }
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) counts[int64_t(i0 + i) * n + j0 + j] = tile[i][j];
      } else {
        for (int i = 0; i < ni; ++i)
          for (int j = 0; j < nj; ++j) {
            Vec<T> sum = counts[int64_t(i0 + i) * n + j0 + j];
            for (int r = 0; r < rows; ++r)
              sum += previous[int64_t(r) * n + i0 + i] * weighted[int64_t(r) * n + j0 + j];
            counts[int64_t(i0 + i) * n + j0 + j] = sum;
          }
      }
    }
  }
}

// Sum over states, by halves: short chains of additions.
template <class T, int K>
inline Vec<T> sum_of(const Vec<T>* values, int states) {
  if constexpr (K > 0) {
    Vec<T> part[K];
    for (int k = 0; k < K; ++k) part[k] = values[k];
    for (int size = K; size > 1; size = (size + 1) / 2)
      for (int k = 0; k < size / 2; ++k) part[k] += part[(size + 1) / 2 + k];
    return part[0];
  } else {
    Vec<T> sum = values[0];
    for (int k = 1; k < states; ++k) sum += values[k];
    return sum;
  }
}

}  // namespace VARIANT
