// One group of windows, one window in each lane of a vector: rows in, expected statistics out.
//
// The cores of all windows are aligned. The forward recursion runs over the left margin and the core, the backward
// one over the right margin and the core: no work is spent on posteriors of rows that are not asked for.
//
// Likelihoods are divided by their peak. With u the forward messages, whose sum c is the likelihood of a row given
// those before it, w the likelihoods over the c of the row before, and v the backward messages scaled so that
// sum_k u v = 1, the recursions are u' = (A^T u) w, v = A (w v'), and u_i A_ij (w v')_j is the posterior of a
// transition. Whatever underflows on the way changes the likelihood by a relative `tiny * w v'` at most, so a bound of
// w v' proves that nothing was lost. A window without that proof is redone on logarithms (see careful.h).
#pragma once

#include <cstdlib>
#include <vector>

#include "careful.h"
#include "emissions.h"

namespace VARIANT {

constexpr int BLOCK = 16;  // rows whose transitions and sums are added while they are in the nearest cache

// Memory of one thread; grows and is reused.
template <class T>
struct Scratch {
  void* memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
  Vec<T>* reserve(size_t vectors) {
    const size_t wanted = vectors * sizeof(Vec<T>);
    if (wanted > size) {
      std::free(memory);
      memory = std::aligned_alloc(64, (wanted + 63) / 64 * 64);
      size = memory ? wanted : 0;
    }
    return static_cast<Vec<T>*>(memory);
  }
};

// Parameters of one point in the precision of the recursion.
template <class T>
struct Point {
  std::vector<T> transition, transposed, initial, start, pack;
  int64_t index;
  Point(const Call& call, int64_t index) : index(index) {
    const int states = call.states;
    auto copy = [index](const double* from, int64_t count) {
      return std::vector<T>(from + index * count, from + (index + 1) * count);
    };
    transition = copy(call.transition, int64_t(states) * states);
    initial = copy(call.initial, states);
    start = copy(call.start, states);
    if (call.pack) pack = copy(call.packs, int64_t(states) * call.pack);
    transposed.resize(transition.size());
    for (int i = 0; i < states; ++i)
      for (int j = 0; j < states; ++j) transposed[j * states + i] = transition[i * states + j];
  }
};

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

// Log likelihoods of one row become likelihoods over the largest one, whose logarithm is returned.
template <class T, int K>
inline Vec<T> to_likelihoods(Vec<T>* logs, int states) {
  const int n = K ? K : states;
  Vec<T> top = logs[0];
  for (int k = 1; k < n; ++k) top = larger<T>(logs[k], top);
  top = top < all(-std::numeric_limits<T>::max()) ? Vec<T>{} : top;  // all impossible: zeros, not NaN
  for (int k = 0; k < n; ++k) logs[k] = exp_negative(logs[k] - top);
  return top;
}

template <class T, int K>
void run_group(const Call& call, const Point<T>& point, int64_t chain, int64_t window0, int count, Scratch<T>& scratch,
               Sums& out) {
  typedef Vec<T> V;
  constexpr int W = Vector<T>::lanes;
  const int n = K ? K : call.states;
  const int L = call.max_left, C = call.max_core, R = call.max_right, total = L + C + R;
  const int width = call.width;
  const int n_sums = sums_of(call.kind, call.width, call.pack);
  const int64_t base = chain * call.windows + window0;

  V* memory = scratch.reserve(size_t(total) * (width + 1 + n) + size_t(C + 1) * n + size_t(n) * (n + 6) +
                              size_t(n) * n_sums + size_t(BLOCK) * (n + 1) + 64);
  auto take = [&memory](size_t vectors) {
    V* taken = memory;
    memory += vectors;
    return taken;
  };
  Rows<T> rows{take(size_t(total) * width), take(total), width};
  V* b = take(size_t(total) * n);      // likelihoods over the normaliser of the row before; later times beta
  V* peak = take(BLOCK);               // largest log likelihood of each row
  V* alpha = take(size_t(C + 1) * n);  // not normalised; [0] is the law before the core
  V* counts = take(size_t(n) * n);
  V* sums = take(size_t(n) * n_sums);
  // Few states stay in registers.
  constexpr bool held_near = K > 0 && K <= 16;
  V near_law[held_near ? K : 1], near_moved[held_near ? K : 1], near_beta[held_near ? K : 1];
  V* const law = held_near ? near_law : take(n);
  V* const moved = held_near ? near_moved : take(n);
  V* const beta = held_near ? near_beta : take(n);
  V* first = take(n);
  V* after_edge = take(n);
  V* gamma = take(size_t(BLOCK) * n);

  load_rows<T>(call, base, count, rows.values);
  const bool missing = find_present<T>(rows, total);
  const T* pack = point.pack.data();

  // Where each lane's window begins, and which core rows are its own.
  V begins{}, core_rows{}, starts{};
  bool ragged = false, opening = false;
  for (int lane = 0; lane < W; ++lane) {
    const int64_t window = base + (lane < count ? lane : count - 1);
    begins[lane] = T(L - call.left[window]);
    core_rows[lane] = lane < count ? T(call.core[window]) : T(0);
    starts[lane] = T(call.at_start[window]);
    ragged |= lane >= count || call.core[window] != C;
    opening |= call.at_start[window] != 0;
  }

  // Forward, in blocks of rows whose likelihoods are still in the nearest cache. Messages are kept without their
  // normaliser: 1 / c is multiplied to the likelihoods of the next row, so that no step has to wait for the division.
  for (int k = 0; k < n; ++k) law[k] = all(point.start[k]);
  V scale = all(T(1));
  if (call.before) {
    for (int k = 0; k < n; ++k)
      for (int lane = 0; lane < W; ++lane)
        law[k][lane] = T(call.before[(base + (lane < count ? lane : count - 1)) * n + k]);
    scale = T(1) / sum_of<T, K>(law, n);
  }
  for (int k = 0; k < n; ++k) alpha[k] = law[k];  // with no rows before the core, the law before it is this one
  Bits<T> lost = {};
  LogProduct<T> likelihoods;
  V peaks{};
  const V tiny = all(std::numeric_limits<T>::min());
  for (int from = 0; from < total; from += BLOCK) {
    const int stop = from + BLOCK < total ? from + BLOCK : total;
    block_logs<T>(call, pack, rows.values + size_t(from) * width, stop - from, b + size_t(from) * n);
    for (int r = from; r < stop; ++r) peak[r - from] = to_likelihoods<T, K>(b + size_t(r) * n, n);
    for (int r = from; missing && r < stop; ++r) {
      const Bits<T> here = rows.present[r] != V{};
      for (int k = 0; k < n; ++k) b[size_t(r) * n + k] = here ? b[size_t(r) * n + k] : all(T(1));
      peak[r - from] = here ? peak[r - from] : V{};
    }
    if (window0 + 2 * W <= call.windows) fetch_ahead(call, base + W, from, stop, W);
    for (int r = from; r < stop && r < L + C; ++r) {
      V* likelihood = b + size_t(r) * n;
      multiply<T, K>(point.transposed.data(), n, law, moved);
      if (opening) {
        const Bits<T> here = (begins == all(T(r))) & (starts != V{});
        for (int k = 0; k < n; ++k) moved[k] = here ? all(point.initial[k]) : moved[k];
        scale = here ? all(T(1)) : scale;
      }
      for (int k = 0; k < n; ++k) {
        likelihood[k] *= scale;
        law[k] = moved[k] * likelihood[k];
      }
      if (r >= L - 1)
        for (int k = 0; k < n; ++k) alpha[size_t(r + 1 - L) * n + k] = law[k];
      V c = sum_of<T, K>(law, n);
      lost |= ~(c > tiny);
      c = larger<T>(c, tiny);
      scale = T(1) / c;
      if (r >= L) {
        const Bits<T> own = all(T(r - L)) < core_rows;
        likelihoods.times(ragged ? (own ? c : all(T(1))) : c);
        peaks += ragged ? (own ? peak[r - from] : V{}) : peak[r - from];
      }
    }
    likelihoods.settle();
  }
  V log_likelihood = likelihoods.log() + peaks;

  const V* leaving = alpha + size_t(C) * n;
  for (int k = 0; k < n; ++k) first[k] = V{};
  if (!call.forward_only) {
    // Backward over the right margin.
    for (int k = 0; k < n; ++k) beta[k] = all(T(1));
    if (call.after)
      for (int k = 0; k < n; ++k)
        for (int lane = 0; lane < W; ++lane)
          beta[k][lane] = T(call.after[(base + (lane < count ? lane : count - 1)) * n + k]);
    for (int r = total - 1; r >= L + C; --r) {
      const V* likelihood = b + size_t(r) * n;
      for (int k = 0; k < n; ++k) moved[k] = beta[k] * likelihood[k];
      multiply<T, K>(point.transition.data(), n, moved, beta);
      V top = beta[0];
      for (int k = 1; k < n; ++k) top = larger<T>(beta[k], top);
      lost |= ~(top > tiny);
      const V scale = T(1) / larger<T>(top, tiny);
      for (int k = 0; k < n; ++k) beta[k] *= scale;
    }
    V agreed{};
    for (int k = 0; k < n; ++k) {
      after_edge[k] = beta[k];
      agreed += leaving[k] * beta[k];
    }
    lost |= ~(agreed > tiny);
    agreed = T(1) / larger<T>(agreed, tiny);
    for (int k = 0; k < n; ++k) beta[k] *= agreed;

    // Backward over the core, in blocks of rows.
    for (int64_t i = 0; i < int64_t(n) * n; ++i) counts[i] = V{};
    for (int64_t i = 0; i < int64_t(n) * n_sums; ++i) sums[i] = V{};
    V top = beta[0];
    for (int k = 1; k < n; ++k) top = larger<T>(beta[k], top);
    for (int stop = C; stop > 0; stop -= BLOCK) {
      const int from = stop > BLOCK ? stop - BLOCK : 0;
      for (int r = stop - 1; r >= from; --r) {
        V* likelihood = b + size_t(L + r) * n;
        const V* a = alpha + size_t(r + 1) * n;
        V* posterior = gamma + size_t(r - from) * n;
        for (int k = 0; k < n; ++k) {
          posterior[k] = a[k] * beta[k];
          moved[k] = likelihood[k] * beta[k];
          top = larger<T>(moved[k], top);
          likelihood[k] = moved[k];
        }
        multiply<T, K>(point.transition.data(), n, moved, beta);
        if (call.gamma)
          for (int lane = 0; lane < count; ++lane)
            if (r < call.core[base + lane]) {
              T* to = static_cast<T*>(call.gamma) + (call.begin[base + lane] + r - call.gamma_origin) * n;
              for (int k = 0; k < n; ++k) to[k] = posterior[k][lane];
            }
        if (ragged) {
          const Bits<T> own = all(T(r)) < core_rows;
          for (int k = 0; k < n; ++k) {
            posterior[k] = own ? posterior[k] : V{};
            likelihood[k] = own ? likelihood[k] : V{};
          }
        }
        if (opening) {
          // The first row of a sequence has a first state, and no transition into it.
          const Bits<T> here = (begins == all(T(L + r))) & (starts != V{});
          for (int k = 0; k < n; ++k) {
            first[k] = here ? posterior[k] : first[k];
            likelihood[k] = here ? V{} : likelihood[k];
          }
        }
      }
      add_products<T, K>(alpha + size_t(from) * n, b + size_t(L + from) * n, stop - from, n, counts);
      for (int r = from; missing && r < stop; ++r) {
        V* posterior = gamma + size_t(r - from) * n;
        const V here = rows.present[L + r];
        for (int k = 0; k < n; ++k) posterior[k] *= here;
      }
      block_sums<T>(call, pack, rows.values + size_t(L + from) * width, stop - from, gamma, sums);
    }
    const T bound = std::numeric_limits<T>::epsilon() / std::numeric_limits<T>::min() / T(total) / T(n);
    lost |= ~(top < all(bound));
  } else if (call.gamma) {
    for (int r = 0; r < C; ++r)
      for (int lane = 0; lane < count; ++lane)
        if (r < call.core[base + lane]) {
          T* to = static_cast<T*>(call.gamma) + (call.begin[base + lane] + r - call.gamma_origin) * n;
          T sum = 0;
          for (int k = 0; k < n; ++k) sum += alpha[size_t(r + 1) * n + k][lane];
          for (int k = 0; k < n; ++k) to[k] = alpha[size_t(r + 1) * n + k][lane] / sum;
        }
  }

  // A window without proof leaves the lanes and is done again.
  for (int lane = 0; lane < count; ++lane) {
    if (!lost[lane]) continue;
    ++out.careful;
    log_likelihood[lane] = 0;
    if (!call.forward_only) {
      for (int k = 0; k < n; ++k) first[k][lane] = 0;
      for (int64_t i = 0; i < int64_t(n) * n; ++i) counts[i][lane] = 0;
      for (int64_t i = 0; i < int64_t(n) * n_sums; ++i) sums[i][lane] = 0;
    }
    const int64_t to = call.per_window ? lane : 0;
    const double weight = call.weight && !call.per_window ? call.weight[base + lane] : 1.0;
    const int64_t row =
        careful_window(call, sizeof(T) == 8, point.index, base + lane, weight, out.log_likelihood + to,
                       out.first + to * n, out.transitions + to * n * n, out.statistics + to * n * n_sums);
    if (row >= 0) out.log_likelihood[to] = -INFINITY;
    if (row >= 0 && (out.impossible < 0 || row < out.impossible)) out.impossible = row;
  }
  // Out of the lanes; one that holds no window of its own has contributed nothing.
  double weights[W] = {};
  if (call.weight) std::copy_n(call.weight + base, count, weights);
  auto give = [&](double* to, int64_t size, const V* from, const T* factor) {
    for (int64_t i = 0; i < size; ++i) {
      const double times = factor ? double(factor[i]) : 1.0;
      if (call.per_window)
        for (int lane = 0; lane < count; ++lane) to[lane * size + i] += times * double(from[i][lane]);
      else
        to[i] += times * (call.weight ? total_of(from[i], weights) : total_of(from[i]));
    }
  };
  give(out.log_likelihood, 1, &log_likelihood, nullptr);
  if (!call.forward_only) {
    give(out.first, n, first, nullptr);
    give(out.transitions, int64_t(n) * n, counts, point.transition.data());
    give(out.statistics, int64_t(n) * n_sums, sums, nullptr);
  }
  if (call.edge_before)
    for (int lane = 0; lane < count; ++lane) {
      if (lost[lane]) continue;
      const int64_t at = point.index * call.edge_stride + (window0 + lane) * n;
      auto note = [&](double* edge, const V* message) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += double(message[k][lane]);
        for (int k = 0; k < n; ++k) edge[at + k] = double(message[k][lane]) / sum;
      };
      note(call.edge_before, alpha);
      note(call.edge_leaving, leaving);
      if (call.forward_only) continue;
      note(call.edge_after, after_edge);
      note(call.edge_entering, beta);
    }
}

}  // namespace VARIANT
