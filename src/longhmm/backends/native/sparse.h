// Products with one matrix most of whose entries are 0, such as that of states with many phases: no more work than
// there are transitions.
#pragma once

#include <vector>

#include "vectors.h"

namespace VARIANT {

// The entries of every row of a matrix that are not 0; empty where they are many, or states few.
template <class T>
struct Entries {
  std::vector<int> starts, columns;
  std::vector<T> values;

  Entries(const T* matrix, int n) {
    for (int i = 0; n > 16 && i < n; ++i) {
      starts.push_back(int(columns.size()));
      for (int j = 0; j < n; ++j)
        if (matrix[int64_t(i) * n + j] != T(0)) columns.push_back(j), values.push_back(matrix[int64_t(i) * n + j]);
    }
    starts.push_back(int(columns.size()));
    if (int64_t(columns.size()) * 4 > int64_t(n) * n) starts.assign(1, 0);
  }
  bool some() const { return starts.size() > 1; }

  // out[j] = sum_i matrix[j, i] in[i]
  void multiply(int n, const Vec<T>* in, Vec<T>* out) const {
    for (int j = 0; j < n; ++j) {
      Vec<T> sum{};
      for (int e = starts[j]; e < starts[j + 1]; ++e) sum += values[e] * in[columns[e]];
      out[j] = sum;
    }
  }

  // counts[i, j] += sum over rows of previous[row, i] weighted[row, j], where there are entries
  void add_products(const Vec<T>* previous, const Vec<T>* weighted, int rows, int n, Vec<T>* counts) const {
    for (int i = 0; i < n; ++i)
      for (int e = starts[i]; e < starts[i + 1]; ++e) {
        Vec<T> sum = counts[int64_t(i) * n + columns[e]];
        for (int r = 0; r < rows; ++r) sum += previous[int64_t(r) * n + i] * weighted[int64_t(r) * n + columns[e]];
        counts[int64_t(i) * n + columns[e]] = sum;
      }
  }
};

}  // namespace VARIANT
