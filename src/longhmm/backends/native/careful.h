// One window on logarithms, in double precision, one number at a time: slow, and right where linear numbers underflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "call.h"

namespace VARIANT {

inline double log_sum(const double* values, int count) {
  const double top = *std::max_element(values, values + count);
  if (!(top > -INFINITY)) return -INFINITY;
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += std::exp(values[i] - top);
  return top + std::log(sum);
}

// Log likelihoods of one row; false where it is missing. `row` receives its numbers.
inline bool careful_logs(const Call& call, const double* packs, int64_t index, double* row, double* logs) {
  const int n = call.states, width = call.width;
  for (int i = 0; i < width; ++i) {
    row[i] = call.wide_rows ? static_cast<const double*>(call.rows)[index * width + i]
                            : double(static_cast<const float*>(call.rows)[index * width + i]);
    if (row[i] != row[i]) {
      std::fill(logs, logs + n, 0.0);
      return false;
    }
  }
  for (int k = 0; k < n; ++k) {
    const double* pack = packs + int64_t(k) * call.pack;
    switch (call.kind) {
      case GAUSSIAN: {
        const double* mean = pack + 1;
        const double* whitening = mean + width;
        double square = 0;
        for (int i = 0; i < width; ++i) {
          double z = 0;
          for (int j = 0; j <= i; ++j) z += *whitening++ * (row[j] - mean[j]);
          square += z * z;
        }
        logs[k] = pack[0] - 0.5 * square;
        break;
      }
      case LINEAR:
        logs[k] = pack[0];
        for (int i = 0; i < width; ++i) logs[k] += pack[1 + i] * row[i];
        break;
      case TABLE:
        logs[k] = row[0] >= 0 && row[0] < call.pack ? pack[int(row[0])] : -INFINITY;
        break;
      default:
        logs[k] = row[k];
    }
  }
  return true;
}

inline void careful_sums(const Call& call, const double* packs, const double* row, int k, double weight, double* sums) {
  const int width = call.width;
  switch (call.kind) {
    case GAUSSIAN: {
      const double* mean = packs + int64_t(k) * call.pack + 1;
      *sums++ += weight;
      double* second = sums + width;
      for (int i = 0; i < width; ++i) {
        *sums++ += weight * (row[i] - mean[i]);
        for (int j = i; j < width; ++j) *second++ += weight * (row[i] - mean[i]) * (row[j] - mean[j]);
      }
      break;
    }
    case LINEAR:
      *sums++ += weight;
      for (int i = 0; i < width; ++i) *sums++ += weight * row[i];
      break;
    case TABLE:
      if (row[0] >= 0 && row[0] < call.pack) sums[int(row[0])] += weight;
      break;
    default:
      break;
  }
}

// Adds the window's statistics, times `weight`, to the sums. Returns the first row that no reachable state allows, or -1.
inline int64_t careful_window(const Call& call, bool wide, int64_t point, int64_t window, double weight,
                              double* log_likelihood, double* first, double* transitions, double* statistics) {
  const int n = call.states, width = call.width;
  const int left = call.left[window], core = call.core[window], right = call.right[window];
  const int total = left + core + right;
  const int64_t origin = call.begin[window] - left;
  const int n_sums = sums_of(call.kind, call.width, call.pack);
  const double* packs = call.packs + point * n * call.pack;
  const double* initial = call.initial + point * n;
  std::vector<double> log_a(size_t(n) * n), logs(size_t(total) * n), alpha(size_t(total + 1) * n), c(total);
  std::vector<double> beta(n), next(n), row(std::max(width, 1)), terms(n), message(n);
  for (int i = 0; i < n * n; ++i) log_a[i] = std::log(call.transition[point * n * n + i]);
  for (int k = 0; k < n; ++k)
    alpha[k] = call.log_before ? call.log_before[window * n + k] : std::log(call.start[point * n + k]);
  if (call.log_before) {
    const double all = log_sum(alpha.data(), n);
    for (int k = 0; k < n && all > -INFINITY; ++k) alpha[k] -= all;
  }
  for (int r = 0; r < total; ++r) {
    double* b = &logs[size_t(r) * n];
    careful_logs(call, packs, origin + r, row.data(), b);
    double* a = &alpha[size_t(r + 1) * n];
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) terms[i] = alpha[size_t(r) * n + i] + log_a[i * n + j];
      const double moved = r == 0 && call.at_start[window] ? std::log(initial[j]) : log_sum(terms.data(), n);
      a[j] = moved + b[j];
    }
    c[r] = log_sum(a, n);
    if (!(c[r] > -INFINITY)) return origin + r;
    for (int j = 0; j < n; ++j) a[j] -= c[r];
    if (r >= left && r < left + core) *log_likelihood += weight * c[r];
  }
  auto note = [&](double* edge, const double* log_values) {
    if (!edge) return;
    std::copy_n(log_values, n, edge + point * call.edge_stride + window % call.windows * n);
  };
  note(call.edge_before, &alpha[size_t(left) * n]);
  note(call.edge_leaving, &alpha[size_t(left + core) * n]);
  auto write = [&](int r, const std::vector<double>& posterior) {
    const int64_t to = (origin + r - call.gamma_origin) * n;
    for (int k = 0; k < n; ++k) {
      if (wide)
        static_cast<double*>(call.gamma)[to + k] = posterior[k];
      else
        static_cast<float*>(call.gamma)[to + k] = float(posterior[k]);
    }
  };
  if (call.forward_only) {
    if (call.gamma)
      for (int r = left; r < left + core; ++r) {
        for (int k = 0; k < n; ++k) next[k] = std::exp(alpha[size_t(r + 1) * n + k]);
        write(r, next);
      }
    return -1;
  }
  for (int k = 0; k < n; ++k) beta[k] = call.log_after ? call.log_after[window * n + k] : 0.0;
  for (int k = 0; k < n; ++k) terms[k] = alpha[size_t(total) * n + k] + beta[k];
  const double scale = log_sum(terms.data(), n);
  for (int k = 0; k < n; ++k) beta[k] -= scale;
  for (int r = total - 1; r >= left; --r) {
    if (r == left + core - 1) note(call.edge_after, beta.data());
    const bool inside = r < left + core;
    const bool opens = r == 0 && call.at_start[window];
    if (inside) {
      const bool seen = careful_logs(call, packs, origin + r, row.data(), terms.data());
      for (int k = 0; k < n; ++k) {
        next[k] = std::exp(alpha[size_t(r + 1) * n + k] + beta[k]);
        if (opens) first[k] += weight * next[k];
        if (seen) careful_sums(call, packs, row.data(), k, weight * next[k], statistics + int64_t(k) * n_sums);
      }
      if (call.gamma) write(r, next);
    }
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        terms[j] = log_a[i * n + j] + logs[size_t(r) * n + j] - c[r] + beta[j];
        if (inside && !opens) transitions[i * n + j] += weight * std::exp(alpha[size_t(r) * n + i] + terms[j]);
      }
      message[i] = log_sum(terms.data(), n);
    }
    beta = message;
  }
  note(call.edge_entering, beta.data());
  return -1;
}

}  // namespace VARIANT
