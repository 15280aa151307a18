// Gaussian rows of which some features are missing: the others are looked at alone, and what is expected of the missing
// ones, given these, completes the sums. By Fisher's identity (F8) their gradient is then that of the marginal density.
#pragma once

#include <cmath>

#include "call.h"
#include "vectors.h"

namespace VARIANT {

// Numbers of one group of windows, in the order (row, number, window). `present` is 1 or 0, or minus the bits of those
// features of a Gaussian row that are missing; the other numbers of what is missing are zero, or NaN of STUDENT.
template <class T>
struct Rows {
  Vec<T>* values;
  Vec<T>* present;
  int width;
  bool missing = false, parts = false;  // whether a row is, and whether features of one are
};

// One state's Gaussian, for rows with features missing. The precision, swept at these, holds the precision of the
// others, how the missing ones follow from them, and minus the covariance of what that leaves open.
struct Marginal {
  int64_t holes = 0;  // bits of the missing features
  double constant = 0, swept[MOST_PARTS][MOST_PARTS], away[MOST_PARTS];

  template <class T>
  void find(const T* pack, int d, int64_t missing) {
    if (missing == holes) return;
    holes = missing;
    constant = pack[0];
    for (int i = 0; i < d; ++i)
      for (int j = 0; j < d; ++j) {
        swept[i][j] = 0;
        for (int r = i > j ? i : j; r < d; ++r) {
          const T* row = pack + 1 + d + r * (r + 1) / 2;
          swept[i][j] += double(row[i]) * double(row[j]);
        }
      }
    for (int m = 0; m < d; ++m) {
      if (!(holes >> m & 1)) continue;
      const double pivot = swept[m][m];
      constant += 0.5 * std::log(2 * 3.14159265358979323846 / pivot);
      for (int i = 0; i < d; ++i)
        for (int j = 0; j < d; ++j)
          if (i != m && j != m) swept[i][j] -= swept[i][m] * swept[m][j] / pivot;
      for (int i = 0; i < d; ++i) swept[i][m] = swept[m][i] /= i == m ? -pivot * pivot : pivot;
    }
  }

  // The log density of what is there of a row; `away` becomes its expected distance from the mean.
  template <class T>
  double complete(const T* mean, int d, const Vec<T>* row, int lane) {
    double square = 0;
    for (int i = 0; i < d; ++i) away[i] = holes >> i & 1 ? 0 : double(row[i][lane]) - double(mean[i]);
    for (int i = 0; i < d; ++i) {
      double sum = 0;
      for (int j = 0; j < d; ++j) sum += holes >> j & 1 ? 0 : swept[i][j] * away[j];
      if (holes >> i & 1)
        away[i] = -sum;
      else
        square += sum * away[i];
    }
    return constant - 0.5 * square;
  }
};

// Calls `give(marginal, log density, row, state, lane)` for Gaussian rows with features missing.
template <class T, class Give>
inline void each_part(const Call& call, const T* pack, const Rows<T>& rows, int from, int count, Give give) {
  if (!rows.parts) return;
  for (int k = 0; k < call.states; ++k, pack += call.pack) {
    Marginal marginal;
    for (int r = 0; r < count; ++r)
      for (int lane = 0; lane < Vector<T>::lanes; ++lane) {
        if (!(rows.present[from + r][lane] < 0)) continue;
        marginal.find(pack, call.width, -int64_t(rows.present[from + r][lane]));
        const Vec<T>* row = rows.values + int64_t(from + r) * call.width;
        give(marginal, marginal.complete(pack + 1, call.width, row, lane), r, k, lane);
      }
  }
}

}  // namespace VARIANT
