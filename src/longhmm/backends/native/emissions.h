// Rows to likelihoods, and posteriors to sums: the two ends of the kernel that know what an observation is.
//
// Gaussian densities are computed from differences to each state's own mean, and their sums are sums of such
// differences: the natural form (products of raw values) would cancel when means are large against the spread.
#pragma once

#include <type_traits>

#include "densities.h"
#include "marginal.h"
#include "statistics.h"

namespace VARIANT {

// Log likelihoods of a block of rows: states outermost, so that a state's numbers stay in registers over all rows. ONLY:
// all rows of the triangle but the last are zeros, as in a regression on rows before, and are left out.
template <class T, int D, bool ONLY>
inline void gaussian_logs(const Vec<T>* y, int rows, const T* pack, int size, int width, int states, Vec<T>* logs) {
  const int d = D ? D : width, from = ONLY ? d - 1 : 0, triangle = d * (d + 1) / 2;
  T near[D ? D * (D + 1) / 2 : 1];  // where there is room, the half is in the triangle: its squares need no factor
  for (int k = 0; k < states; ++k) {
    const T* mean = pack + int64_t(k) * size + 1;
    for (int i = 0; D && i < triangle; ++i) near[i] = T(0.70710678118654752440) * mean[d + i];
    const T* const rows_of_triangle = (D ? near : mean + d) + from * (from + 1) / 2;
    for (int r = 0; r < rows; ++r) {
      const Vec<T>* row = y + int64_t(r) * d;
      const T* whitening = rows_of_triangle;
      Vec<T> log = all(mean[-1]);
      for (int i = from; i < d; ++i) {
        Vec<T> z{};
        for (int j = 0; j <= i; ++j) z += *whitening++ * (row[j] - mean[j]);
        log -= D ? z * z : T(0.5) * z * z;
      }
      logs[int64_t(r) * states + k] = log;
    }
  }
}

// The sums of a block of rows: states outermost, so that a state's sums stay in registers over all its rows.
template <class T, int D>
inline void gaussian_sums(const Vec<T>* y, int rows, const T* pack, int pack_size, int width, int states,
                          const Vec<T>* gamma, Vec<T>* sums) {
  const int d = D ? D : width, size = 1 + d + d * (d + 1) / 2;
  Vec<T> near[1 + D + D * (D + 1) / 2];
  for (int k = 0; k < states; ++k, sums += size) {
    const T* mean = pack + int64_t(k) * pack_size + 1;
    Vec<T>* const sum = D ? near : sums;
    for (int i = 0; D && i < size; ++i) near[i] = sums[i];
    for (int r = 0; r < rows; ++r) {
      const Vec<T> g = gamma[int64_t(r) * states + k];
      const Vec<T>* row = y + int64_t(r) * d;
      sum[0] += g;
      for (int i = 0, at = 1 + d; i < d; ++i) {
        const Vec<T> weighted = g * (row[i] - mean[i]);
        sum[1 + i] += weighted;
        for (int j = i; j < d; ++j) sum[at++] += weighted * (row[j] - mean[j]);
      }
    }
    for (int i = 0; D && i < size; ++i) sums[i] = near[i];
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

// Calls `run` with a number up to 5 that the compiler knows, or with 0.
template <int D = 1, class Run>
inline void with_width(int width, Run run) {
  if (D == 6 || width == D) return run(std::integral_constant<int, D % 6>());
  if constexpr (D < 6) with_width<D + 1>(width, run);
}

// Log likelihoods of `count` rows; of those that are missing, anything.
template <class T>
__attribute__((noinline)) void block_logs(const Call& call, const T* pack, const Rows<T>& rows, int from, int count, Vec<T>* logs) {
  const int n = call.states;
  const Vec<T>* y = rows.values + int64_t(from) * call.width;
  switch (call.kind) {
    case GAUSSIAN:
      with_width(call.width, [&](auto width) {
        constexpr int D = decltype(width)::value;
        const bool only = call.width > 1 && pack[call.pack - call.width - 1] == 0;  // the last of the diagonal but one
        (only ? gaussian_logs<T, D, true> : gaussian_logs<T, D, false>)(y, count, pack, call.pack, call.width, n, logs);
      });
      return each_part(call, pack, rows, from, count, [&](const Marginal&, double log, int r, int k, int lane) {
        logs[int64_t(r) * n + k][lane] = T(log);
      });
    case LINEAR:
      return linear_logs<T>(y, count, pack, call.width, n, logs);
    case TABLE:
      return table_logs<T>(y, count, pack, call.pack, n, logs);
    case STUDENT:
      return student_logs<T>(y, count, pack, call.width, n, logs);
    case MIXTURE:
      return with_width(call.pack / 3, [&](auto known) {
        mixture_logs<T, decltype(known)::value>(y, count, pack, call.pack / 3, n, logs);
      });
    default:
      for (int64_t i = 0; i < int64_t(count) * n; ++i) logs[i] = y[i];
  }
}

// Adds what `count` rows with posteriors `gamma` say of the parameters; those of rows that are missing become 0.
template <class T>
__attribute__((noinline)) void block_sums(const Call& call, const T* pack, const Rows<T>& rows, int from, int count, Vec<T>* gamma,
                       Vec<T>* sums) {
  const int n = call.states, d = call.width, n_sums = sums_of(call.kind, call.width, call.pack);
  const Vec<T>* y = rows.values + int64_t(from) * d;
  each_part(call, pack, rows, from, count, [&](const Marginal& at, double, int r, int k, int lane) {
    const T g = gamma[int64_t(r) * n + k][lane];
    Vec<T>* own = sums + int64_t(k) * n_sums;
    own[0][lane] += g;
    for (int i = 0, next = 1 + d; i < d; ++i) {
      own[1 + i][lane] += g * T(at.away[i]);
      for (int j = i; j < d; ++j, ++next) {
        const bool open = at.holes >> i & at.holes >> j & 1;
        own[next][lane] += g * T(at.away[i] * at.away[j] - (open ? at.swept[i][j] : 0));
      }
    }
  });
  for (int r = 0; rows.missing && r < count; ++r) {
    const Bits<T> here = rows.present[from + r] > Vec<T>{};
    for (int k = 0; k < n; ++k) gamma[int64_t(r) * n + k] = here ? gamma[int64_t(r) * n + k] : Vec<T>{};
  }
  switch (call.kind) {
    case GAUSSIAN:
      return with_width(d, [&](auto width) {
        gaussian_sums<T, decltype(width)::value>(y, count, pack, call.pack, d, n, gamma, sums);
      });
    case LINEAR:
      return linear_sums<T>(y, count, d, n, gamma, sums);
    case TABLE:
      return table_sums<T>(y, count, call.pack, n, gamma, sums);
    case STUDENT:
      return student_sums<T>(y, count, pack, d, n, gamma, sums);
    case MIXTURE:
      return with_width(call.pack / 3, [&](auto known) {
        mixture_sums<T, decltype(known)::value>(y, count, pack, call.pack / 3, n, gamma, sums);
      });
  }
}

// Copy the rows of a group of windows into its lanes; rows outside a window are NaN, which means missing. A lane without
// a window repeats the last one, and its results are dropped.
template <class T, class Source>
inline void load_from(const Call& call, const Source* source, int64_t width, int64_t base, int count, Vec<T>* values) {
  constexpr int W = Vector<T>::lanes;
  const int64_t total = (call.max_left + call.max_core + call.max_right) * width;
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
inline void load_values(const Call& call, int64_t base, int count, Vec<T>* values) {
  if (call.wide_rows)
    load_from<T>(call, static_cast<const double*>(call.rows), call.columns, base, count, values);
  else
    load_from<T>(call, static_cast<const float*>(call.rows), call.columns, base, count, values);
}

template <class T>
__attribute__((noinline)) void load_rows(const Call& call, int64_t base, int count, Vec<T>* numbers) {
  if (!call.terms) return load_values<T>(call, base, count, numbers);
  const Unflushed unflushed;
  const int total = call.max_left + call.max_core + call.max_right;
  static thread_local std::vector<Vec<T>> values;
  values.resize(size_t(total) * call.columns);
  load_values<T>(call, base, count, values.data());
  make_numbers<T>(call, values.data(), 0, total, numbers);
}

// Ask for rows [from, stop) of windows that come next: the cores of many windows lie too far apart for the processor to
// foresee them.
__attribute__((noinline)) static void fetch_ahead(const Call& call, int64_t window, int from, int stop, int count) {
  const int64_t row_bytes = int64_t(call.columns) * (call.wide_rows ? 8 : 4);
  for (int64_t next = window; next < window + count; ++next) {
    const char* origin = static_cast<const char*>(call.rows) + (call.begin[next] - call.max_left) * row_bytes;
    for (int64_t at = from * row_bytes; at < stop * row_bytes; at += 64) __builtin_prefetch(origin + at);
  }
}

// Which rows are there.
template <class T>
__attribute__((noinline)) void find_present(const Call& call, Rows<T>& rows, int total) {
  Bits<T> missing{}, parts{};
  for (int r = 0; r < total; ++r) {
    const Vec<T>* row = rows.values + int64_t(r) * rows.width;
    Bits<T> here = row[0] == row[0], some = here;
    for (int i = 1; i < rows.width; ++i) here &= row[i] == row[i], some |= row[i] == row[i];
    rows.present[r] = here ? all(T(1)) : Vec<T>{};
    missing |= ~here;
    parts |= some & ~here;
  }
  rows.missing = any<T>(missing);
  // A regression on rows before, whose triangle begins with zeros, needs them all.
  const bool gaussian = call.kind == GAUSSIAN && call.packs[1 + rows.width] != 0, student = call.kind == STUDENT;
  const bool by_part = (gaussian || student) && rows.width <= MOST_PARTS && any<T>(parts);
  for (int r = 0; by_part && r < total; ++r) {
    const Vec<T>* row = rows.values + int64_t(r) * rows.width;
    Vec<T> holes{};
    for (int i = 0; i < rows.width; ++i) holes += row[i] != row[i] ? all(T(int64_t(1) << i)) : Vec<T>{};
    const Bits<T> some = (holes > Vec<T>{}) & (holes < all(T((int64_t(1) << rows.width) - 1)));
    rows.present[r] = some ? (student ? all(T(1)) : -holes) : rows.present[r];
  }
  rows.parts = gaussian && by_part;
  for (int64_t i = 0; rows.missing && !student && i < int64_t(total) * rows.width; ++i)
    rows.values[i] = rows.values[i] == rows.values[i] ? rows.values[i] : Vec<T>{};
}

}  // namespace VARIANT
