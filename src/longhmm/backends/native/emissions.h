// Rows to likelihoods, and posteriors to sums: the two ends of the kernel that know what an observation is.
//
// Gaussian densities are computed from differences to each state's own mean, and their sums are sums of such
// differences: the natural form (products of raw values) would cancel when means are large against the spread.
#pragma once

#include "call.h"
#include "vectors.h"

namespace VARIANT {

// Numbers of one group of windows, in the order (row, number, window); present is 1 or 0.
template <class T>
struct Rows {
  Vec<T>* values;
  Vec<T>* present;
  int width;
};

// Log likelihoods of a block of rows: states outermost, so that a state's numbers stay in registers over all rows.
template <class T, int D>
inline void gaussian_logs(const Vec<T>* y, int rows, const T* pack, int pack_size, int width, int states,
                          Vec<T>* logs) {
  const int d = D ? D : width;
  for (int k = 0; k < states; ++k) {
    const T* mean = pack + int64_t(k) * pack_size + 1;
    for (int r = 0; r < rows; ++r) {
      const Vec<T>* row = y + int64_t(r) * d;
      const T* whitening = mean + d;
      Vec<T> square{};
      for (int i = 0; i < d; ++i) {
        Vec<T> z{};
        for (int j = 0; j <= i; ++j) z += *whitening++ * (row[j] - mean[j]);
        square += z * z;
      }
      logs[int64_t(r) * states + k] = mean[-1] - T(0.5) * square;
    }
  }
}

// The sums of a block of rows: states outermost, so that a state's sums stay in registers over all its rows.
template <class T, int D>
inline void gaussian_sums(const Vec<T>* y, int rows, const T* pack, int pack_size, int width, int states,
                          const Vec<T>* gamma, Vec<T>* sums) {
  const int d = D ? D : width;
  constexpr int held = D ? 1 + D + D * (D + 1) / 2 : 1;
  for (int k = 0; k < states; ++k) {
    const T* mean = pack + int64_t(k) * pack_size + 1;
    if constexpr (D > 0) {
      Vec<T> sum[held];
      for (int i = 0; i < held; ++i) sum[i] = sums[i];
      for (int r = 0; r < rows; ++r) {
        const Vec<T> g = gamma[int64_t(r) * states + k];
        const Vec<T>* row = y + r * D;
        sum[0] += g;
        for (int i = 0, at = 1 + D; i < D; ++i) {
          const Vec<T> weighted = g * (row[i] - mean[i]);
          sum[1 + i] += weighted;
          for (int j = i; j < D; ++j) sum[at++] += weighted * (row[j] - mean[j]);
        }
      }
      for (int i = 0; i < held; ++i) sums[i] = sum[i];
      sums += held;
    } else {
      Vec<T>* second = sums;
      for (int r = 0; r < rows; ++r) {
        const Vec<T> g = gamma[int64_t(r) * states + k];
        const Vec<T>* row = y + int64_t(r) * d;
        sums[0] += g;
        second = sums + 1 + d;
        for (int i = 0; i < d; ++i) {
          const Vec<T> weighted = g * (row[i] - mean[i]);
          sums[1 + i] += weighted;
          for (int j = i; j < d; ++j) *second++ += weighted * (row[j] - mean[j]);
        }
      }
      sums = second;
    }
  }
}

template <class T>
inline void linear_logs(const Vec<T>* y, int rows, const T* pack, int width, int states, Vec<T>* logs) {
  for (int k = 0; k < states; ++k, pack += width + 1)
    for (int r = 0; r < rows; ++r) {
      Vec<T> value = all(pack[0]);
      for (int i = 0; i < width; ++i) value += pack[1 + i] * y[int64_t(r) * width + i];
      logs[int64_t(r) * states + k] = value;
    }
}

template <class T>
inline void linear_sums(const Vec<T>* y, int rows, int width, int states, const Vec<T>* gamma, Vec<T>* sums) {
  for (int k = 0; k < states; ++k) {
    Vec<T> visits{};
    for (int r = 0; r < rows; ++r) visits += gamma[int64_t(r) * states + k];
    *sums++ += visits;
    for (int i = 0; i < width; ++i) {
      Vec<T> sum{};
      for (int r = 0; r < rows; ++r) sum += gamma[int64_t(r) * states + k] * y[int64_t(r) * width + i];
      *sums++ += sum;
    }
  }
}

template <class T>
inline void table_logs(const Vec<T>* y, int rows, const T* pack, int pack_size, int states, Vec<T>* logs) {
  for (int r = 0; r < rows; ++r, logs += states)
    for (int lane = 0; lane < Vector<T>::lanes; ++lane) {
      // Data may change after they were checked: what is no category is impossible, and never read.
      const int code = int(y[r][lane]);
      const bool known = code >= 0 && code < pack_size;
      for (int k = 0; k < states; ++k)
        logs[k][lane] = known ? pack[int64_t(k) * pack_size + code] : -std::numeric_limits<T>::infinity();
    }
}

template <class T>
inline void table_sums(const Vec<T>* y, int rows, int pack_size, int states, const Vec<T>* gamma, Vec<T>* sums) {
  for (int r = 0; r < rows; ++r)
    for (int lane = 0; lane < Vector<T>::lanes; ++lane) {
      const int code = int(y[r][lane]);
      for (int k = 0; code >= 0 && code < pack_size && k < states; ++k)
        sums[int64_t(k) * pack_size + code][lane] += gamma[int64_t(r) * states + k][lane];
    }
}

template <class T>
inline void block_logs(const Call& call, const T* pack, const Vec<T>* y, int rows, Vec<T>* logs) {
  const int n = call.states;
  switch (call.kind) {
    case GAUSSIAN:
      switch (call.width) {
        case 1:
          return gaussian_logs<T, 1>(y, rows, pack, call.pack, 1, n, logs);
        case 2:
          return gaussian_logs<T, 2>(y, rows, pack, call.pack, 2, n, logs);
        case 3:
          return gaussian_logs<T, 3>(y, rows, pack, call.pack, 3, n, logs);
        default:
          return gaussian_logs<T, 0>(y, rows, pack, call.pack, call.width, n, logs);
      }
    case LINEAR:
      return linear_logs<T>(y, rows, pack, call.width, n, logs);
    case TABLE:
      return table_logs<T>(y, rows, pack, call.pack, n, logs);
    default:
      for (int64_t i = 0; i < int64_t(rows) * n; ++i) logs[i] = y[i];
  }
}

template <class T>
inline void block_sums(const Call& call, const T* pack, const Vec<T>* y, int rows, const Vec<T>* gamma, Vec<T>* sums) {
  const int n = call.states;
  switch (call.kind) {
    case GAUSSIAN:
      switch (call.width) {
        case 1:
          return gaussian_sums<T, 1>(y, rows, pack, call.pack, 1, n, gamma, sums);
        case 2:
          return gaussian_sums<T, 2>(y, rows, pack, call.pack, 2, n, gamma, sums);
        case 3:
          return gaussian_sums<T, 3>(y, rows, pack, call.pack, 3, n, gamma, sums);
        default:
          return gaussian_sums<T, 0>(y, rows, pack, call.pack, call.width, n, gamma, sums);
      }
    case LINEAR:
      return linear_sums<T>(y, rows, call.width, n, gamma, sums);
    case TABLE:
      return table_sums<T>(y, rows, call.pack, n, gamma, sums);
    default:
      return;
  }
}

// Copy the rows of a group of windows into its lanes; rows outside a window are NaN, which means missing. A lane without
// a window repeats the last one, and its results are dropped.
template <class T, class Source>
inline void load_from(const Call& call, const Source* source, int64_t base, int count, Vec<T>* values) {
  constexpr int W = Vector<T>::lanes;
  const int64_t width = call.width, total = (call.max_left + call.max_core + call.max_right) * width;
  const Source* from[W];
  int64_t first[W], last[W], all_from = 0, all_to = total;
  for (int lane = 0; lane < W; ++lane) {
    const int64_t window = base + (lane < count ? lane : count - 1);
    first[lane] = (call.max_left - call.left[window]) * width;
    last[lane] = (call.max_left + call.core[window] + call.right[window]) * width;
    from[lane] = source + (call.begin[window] - call.max_left) * width;
    all_from = first[lane] > all_from ? first[lane] : all_from;
    all_to = last[lane] < all_to ? last[lane] : all_to;
  }
  for (int64_t i = 0; i < total;) {
    if (i >= all_from && i + W <= all_to) {
      for (int lane = 0; lane < W; ++lane) values[i + lane] = load<T>(from[lane] + i);
      transpose<T>(values + i);
      i += W;
      continue;
    }
    for (int lane = 0; lane < W; ++lane) {
      const bool inside = i >= first[lane] && i < last[lane];
      values[i][lane] = inside ? T(from[lane][i]) : std::numeric_limits<T>::quiet_NaN();
    }
    ++i;
  }
}

template <class T>
inline void load_rows(const Call& call, int64_t base, int count, Vec<T>* values) {
  if (call.wide_rows)
    load_from<T>(call, static_cast<const double*>(call.rows), base, count, values);
  else
    load_from<T>(call, static_cast<const float*>(call.rows), base, count, values);
}

// Ask for rows [from, stop) of windows that come next: the cores of many windows lie too far apart for the processor to
// foresee them.
inline void fetch_ahead(const Call& call, int64_t window, int from, int stop, int count) {
  const int64_t row_bytes = int64_t(call.width) * (call.wide_rows ? 8 : 4);
  for (int64_t next = window; next < window + count; ++next) {
    const char* origin = static_cast<const char*>(call.rows) + (call.begin[next] - call.max_left) * row_bytes;
    for (int64_t at = from * row_bytes; at < stop * row_bytes; at += 64) __builtin_prefetch(origin + at);
  }
}

// Which rows are there; the numbers of the others become zero. False where none is missing.
template <class T>
inline bool find_present(Rows<T> rows, int total) {
  Bits<T> missing{};
  for (int r = 0; r < total; ++r) {
    Vec<T>* row = rows.values + int64_t(r) * rows.width;
    Bits<T> here = row[0] == row[0];
    for (int i = 1; i < rows.width; ++i) here &= row[i] == row[i];
    rows.present[r] = here ? all(T(1)) : Vec<T>{};
    for (int i = 0; i < rows.width; ++i) row[i] = here ? row[i] : Vec<T>{};
    missing |= ~here;
  }
  return any<T>(missing);
}

}  // namespace VARIANT
