// Transitions of rows that have one of few matrices: no matrix is made for a row, its number in a table is enough.
//
// Where as many numbers as an entry may have fit into two or four registers, each lane picks its own from these.
// Otherwise products are formed for one lane after the other, whose matrix then lies in memory as it is needed.
// Outside its windows a row has the last matrix, the identity; what counts for nothing is added to the sums of that.
#pragma once

#include <vector>

#include "shuffles.h"
#include "varying.h"
#if VECTOR_BYTES == 64
#include <immintrin.h>
#endif

namespace VARIANT {

// Of twice as many numbers as there are lanes, those at `which`.
#if VECTOR_BYTES == 64
constexpr bool PICKS = true;
inline Vec<double> pick(const double* of, Bits<double> which) {
  return (Vec<double>)_mm512_permutex2var_pd(_mm512_loadu_pd(of), (__m512i)which, _mm512_loadu_pd(of + 8));
}
inline Vec<float> pick(const float* of, Bits<float> which) {
  return (Vec<float>)_mm512_permutex2var_ps(_mm512_loadu_ps(of), (__m512i)which, _mm512_loadu_ps(of + 16));
}
#else
constexpr bool PICKS = false;
template <class T, class Which>
inline Vec<T> pick(const T*, Which) {
  return Vec<T>{};
}
#endif

// The matrices of a call as products need them; empty where they are not looked up, or many.
template <class T>
struct Table {
  static constexpr int W = Vector<T>::lanes;
  static constexpr size_t MOST = 1 << 20;  // bytes
  int n, padded, stride, count, room = 0;  // of `room` numbers for each entry, which are picked
  std::vector<Vec<T>> held[3];             // whose vectors do not lie across two lines of the cache
  T *matrices = nullptr, *transposed = nullptr, *entries = nullptr;  // (count + 1, stride), twice; (n, n, room)

  explicit Table(const Call& call)
      : n(call.states), padded(padded_to<T>(n)), stride((n * padded + W - 1) / W * W),
        count(call.moves.index && !of_pairs(call) ? call.moves.count : 0) {
    const size_t size = size_t(count + 1) * stride;
    if (size * sizeof(T) > MOST) count = 0;
    if (!count) return;
    auto made = [](std::vector<Vec<T>>& in, size_t numbers) {
      in.assign(numbers / W, Vec<T>{});
      return reinterpret_cast<T*>(in.data());
    };
    matrices = made(held[0], size);
    transposed = made(held[1], size);
    const int most = n > 4 ? 2 * W : 4 * W;  // four registers for an entry are worth it where entries are few
    if (PICKS && count <= most) room = count <= 2 * W ? 2 * W : 4 * W;
    entries = made(held[2], size_t(n) * n * room);
    for (int m = 0; m <= count; ++m)
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
          const T chance = m < count ? number<T>(call.moves, (int64_t(m) * n + i) * n + j) : T(i == j);
          matrices[size_t(m) * stride + i * padded + j] = transposed[size_t(m) * stride + j * padded + i] = chance;
          if (m < count && room) entries[size_t(i * n + j) * room + m] = chance;
        }
  }
};

// Calls `serve` with how many states may be taken for granted, as a type: all up to MOST_KNOWN, as `padded_to` expects.
template <int K, class Serve>
inline void with_known(int states, Serve serve) {
  if constexpr (K == 0 && MOST_KNOWN) {
    if (states == 1) return serve(std::integral_constant<int, 1>());
    if (states == 5) return serve(std::integral_constant<int, 5>());
    if (states == 6) return serve(std::integral_constant<int, 6>());
    if (states == 7) return serve(std::integral_constant<int, 7>());
  }
  serve(std::integral_constant<int, (K > MOST_KNOWN ? 0 : K)>());
}

template <class T, int K>
struct LookedUp {
  typedef Vec<T> V;
  typedef ByRow<double, 0> Logs;
  static constexpr bool by_row = true, pairs = false;
  static constexpr int W = Vector<T>::lanes, P = padded_to<T>(K), SQUARE = power_above(K * K);
  static constexpr int S = K && P < W ? P : W;  // of a row that are multiplied at once
  // Rows of a matrix in a vector: where it is one or two, all that is done with those of a lane stays in registers.
  static constexpr int R = K && P <= W ? W / P : 0;
  static constexpr bool near = R == 1 || R == 2;
  static constexpr int LINES = near ? (K + R - 1) / R : 0;
  // Sums are added on the way back where a row of a matrix is a vector: then they are those of (w v)_i u_j.
  static constexpr bool adds_on_the_way = R == 1;
  typedef T Part __attribute__((vector_size(S * sizeof(T))));
  static constexpr int MOST_APART = 1 << 14;  // bytes of sums for each lane: lanes do not wait for one another
  const Call& call;
  const Table<T>& table;
  const int n, padded;
  const T least, least_possible;
  V peak{};
  const Weights<T> weights;
  const int64_t base;
  const int count;
  Placed<T> placed;
  Bits<T>* which = nullptr;        // matrix of each row and lane
  const Bits<T>* now = nullptr;
  bool picked = false;             // whether entries are picked at this row: all lanes are inside their windows
  mutable std::vector<T> by_lane;  // numbers of each lane, where K is not known beforehand
  std::vector<V> many;             // and of each state
  // Sums of u_i (w v)_j over rows that have one matrix: n^2 numbers where a vector holds them, else as matrices.
  const bool small, summed;
  const int cell;
  const bool apart;
  std::vector<V> held;
  T* sums = nullptr;

  LookedUp(const Call& call, const Table<T>& table, int64_t base, int count)
      : call(call), table(table), n(K ? K : call.states), padded(K ? P : table.padded), least(T(call.moves.least)),
        least_possible(T(call.moves.least_possible)), weights(call, base, count), base(base), count(count),
        placed(call, base, count), by_lane(K ? 0 : W * padded), many(K ? 0 : n),
        small(K && K * K <= W), summed(call.moves.sums_size > 0),
        cell(small ? SQUARE : table.stride),
        apart(call.per_window || size_t(table.count + 1) * cell * W * sizeof(T) <= MOST_APART) {
    const int total = call.max_left + call.max_core + call.max_right;
    static thread_local std::vector<V> numbers;
    static thread_local std::vector<Bits<T>> found;
    numbers.resize(total), found.resize(total);
    load_from<T>(call, call.moves.index, 1, base, count, numbers.data());
    for (int r = 0; r < total; ++r) {
      const V number = numbers[r] == numbers[r] ? numbers[r] : all(T(table.count));
      found[r] = __builtin_convertvector(number, Bits<T>);
    }
    which = found.data();
    if (summed) held.assign((size_t(table.count + 1) * cell * (apart ? W : 1) + W - 1) / W, V{});
    sums = reinterpret_cast<T*>(held.data());
  }

  void bind(const V*, const V*, V*) {}
  void begin(int, Bits<T>, const T*, V*, V*, V*, V&) const {}
  void at(int r) {
    now = &which[r];
    picked = table.room && placed.whole(r);
  }

  // Windows that are not sound count for nothing.
  void start(Bits<T> sound) {
    for (int lane = count; lane < W; ++lane) sound[lane] = 0;
    const int total = any<T>(~sound) ? call.max_left + call.max_core + call.max_right : 0;
    for (int r = 0; r < total; ++r) which[r] = sound ? which[r] : Bits<T>{} + table.count;
  }

  template <bool transposed, class Entry>
  void product(Entry entry, const V* in, V* out) const {
    const int n = K ? K : this->n;
    V sum[K ? K : 1];
    V* const to = K ? sum : out;
    auto at = [&](int i, int j) { return entry(transposed ? j * n + i : i * n + j); };  // out[j] from in[i]
    for (int j = 0; j < n; ++j) to[j] = at(0, j) * in[0];
    for (int i = 1; i < n; ++i)
      for (int j = 0; j < n; ++j) to[j] += at(i, j) * in[i];
    for (int j = 0; K && j < n; ++j) out[j] = sum[j];
  }

  // Numbers of one lane, in memory that is aligned to as many.
  static Part part(const T* from) {
    Part found;
    std::memcpy(&found, from, sizeof found);
    return found;
  }

  // Numbers of one lane, those that meet line l of its matrix, each as often as the line has numbers for it.
  template <size_t lane>
  static inline __attribute__((always_inline)) V meeting(const V* in, int l) {
    return spread<T, R == 2, lane>(in[l * R], in[l * R + R <= K ? l * R + R - 1 : l * R], std::make_index_sequence<W>());
  }

  template <size_t lane>
  inline __attribute__((always_inline)) V sum_of_lane(const T* matrices, const V* in) const {
    const T* const matrix = matrices + int64_t((*now)[lane]) * (LINES * W);
    V sum[2];
#pragma GCC unroll 16
    for (int l = 0; l < LINES; ++l) {
      const V own = meeting<lane>(in, l) * load<T>(matrix + l * W);
      sum[l % 2] = l < 2 ? own : sum[l % 2] + own;
    }
    return LINES == 1 ? sum[0] : sum[0] + sum[1];
  }

  // What lanes have found, from vectors of states to those of lanes.
  template <size_t... lane>
  static inline __attribute__((always_inline)) void together(V* rows, V* out, std::index_sequence<lane...> each) {
    for (int i = 0; R == 2 && i < P; ++i)
      rows[i] = halves<T, 0>(rows[2 * i], rows[2 * i + 1], each) + halves<T, W / 2>(rows[2 * i], rows[2 * i + 1], each);
    transpose_back<T, P>(rows);
    for (int j = 0; j < K; ++j) out[j] = rows[j];
  }

  // out[j] = sum_i in[i] m[i, j], with the matrix m of each lane.
  template <size_t... lane>
  inline __attribute__((always_inline)) void nearby(const T* matrices, const V* in, V* out,
                                                    std::index_sequence<lane...> each) const {
    V given[K];
    for (int i = 0; i < K; ++i) given[i] = in[i];
    V rows[W] = {sum_of_lane<lane>(matrices, given)...};
    together(rows, out, each);
  }

  // The same by way of memory.
  __attribute__((noinline)) void by_lanes(const T* matrices, const V* in, V* out) const {
    const int n = K ? K : this->n, padded = K ? P : this->padded;
    alignas(V) T held_rows[K ? W * P : 1];
    T* const rows = K ? held_rows : by_lane.data();
    for (int lane = 0; lane < W; ++lane) {
      const T* const matrix = matrices + int64_t((*now)[lane]) * table.stride;
      for (int t = 0; t < padded; t += S) {
        Part sum = in[0][lane] * part(matrix + t);
        for (int i = 1; i < n; ++i) sum += in[i][lane] * part(matrix + i * padded + t);
        std::memcpy(rows + lane * padded + t, &sum, sizeof sum);
      }
    }
    from_rows<T, K>(rows, n, out);
  }

  template <bool transposed>
  inline __attribute__((always_inline)) void multiply(const V* in, V* out) const {
    const T* const matrices = transposed ? table.transposed : table.matrices;
    if constexpr (near) return nearby(matrices, in, out, std::make_index_sequence<W>());
    if (!picked) return by_lanes(matrices, in, out);
    const Bits<T> at = *now;
    const T* const entries = table.entries;
    if (table.room == 2 * W) return product<transposed>([&](int q) { return pick(entries + q * 2 * W, at); }, in, out);
    const Bits<T> high = at >= 2 * W;
    product<transposed>(
        [&](int q) { return high ? pick(entries + q * 4 * W + 2 * W, at) : pick(entries + q * 4 * W, at); }, in, out);
  }
  inline __attribute__((always_inline)) void forward(const V* in, V* out) const { multiply<false>(in, out); }
  inline __attribute__((always_inline)) void backward(const V* in, V* out) const { multiply<true>(in, out); }
  // Nothing is known of the matrix behind the core but that its entries are at most 1.
  void predict(const V* in, V* out) const { std::copy_n(in, n, out); }

  // Both steps of one lane at a core row: sum_j m[i, j] w[j], which is given back, and u_i w_j, which is added to `to`.
  template <size_t lane>
  static inline __attribute__((always_inline)) V back_of_lane(const V* onward, const V* rows, const T* matrix, T* to) {
    V found[2];
#pragma GCC unroll 16
    for (int l = 0; l < LINES; ++l) {
      const V each = meeting<lane>(onward, l), sum = load<T>(to + l * W) + each * rows[lane];
      found[l % 2] = l < 2 ? each * load<T>(matrix + l * W) : found[l % 2] + each * load<T>(matrix + l * W);
      std::memcpy(to + l * W, &sum, sizeof sum);
    }
    return found[0] + found[1];
  }

  // `to`: the matrices that sums of the lanes belong to.
  template <size_t... lane>
  inline __attribute__((always_inline)) void back_nearby(const V* before, const V* onward, V weight, const Bits<T>* to,
                                                         V* out, std::index_sequence<lane...> each) const {
    constexpr int64_t SIZE = LINES * W;
    const int64_t span = apart ? (table.count + 1) * SIZE : 0;
    const T* const matrices = table.transposed;
    const Bits<T>* const from = now;
    T* const sums = this->sums;  // what is written might change members, as far as the compiler knows
    V left[P], given[K];
    for (int i = 0; i < P; ++i) left[i] = i < K ? before[i] * weight : V{};
    for (int j = 0; j < K; ++j) given[j] = onward[j];
    transpose<T, P>(left);
    V rows[W] = {back_of_lane<lane>(given, left, matrices + int64_t((*from)[lane]) * SIZE,
                                    sums + int64_t(lane) * span + int64_t((*to)[lane]) * SIZE)...};
    together(rows, out, each);
  }

  __attribute__((noinline)) void back_and_add(const V* before, const V* onward, Bits<T> counted, V* out) const {
    const Bits<T> elsewhere = counted ? *now : Bits<T>{} + table.count;
    const V weight = apart ? all(T(1)) : load<T>(weights.of);
    const Bits<T>* const to = any<T>(~counted) ? &elsewhere : now;
    back_nearby(before, onward, weight, to, out, std::make_index_sequence<W>());
  }

  // The step back over a core row, from w v at it; what is added for it counts in some lanes only.
  inline __attribute__((always_inline)) void step_back(const V* before, const V* onward, Bits<T> counted, V* out) const {
    if constexpr (adds_on_the_way)
      if (summed) return back_and_add(before, onward, counted, out);
    backward(onward, out);
  }

  __attribute__((noinline)) void add_row(int, const V* before, const V* onward, const V*, Bits<T>, V*, V*) {
    if (adds_on_the_way || !summed) return;
    const int n = K ? K : this->n, padded = K ? P : this->padded;
    const int64_t size = K ? (K * K <= W ? SQUARE : (K * P + W - 1) / W * W) : cell;
    const int64_t span = apart ? (table.count + 1) * size : 0;
    const Bits<T>* const at = now;
    T* const sums = this->sums;
    V weight = all(T(1));
    if (!apart) weight = load<T>(weights.of);
    if constexpr (K && K * K <= W) {
      typedef T Square __attribute__((vector_size(SQUARE * sizeof(T))));
      V tile[SQUARE];
      for (int q = 0; q < SQUARE; ++q) tile[q] = q < n * n ? before[q / n] * (onward[q % n] * weight) : V{};
      transpose<T, SQUARE>(tile);
      for (int lane = 0; lane < W; ++lane) {
        T* const to = sums + lane * span + int64_t((*at)[lane]) * size;
        Square sum, own;
        std::memcpy(&sum, to, sizeof sum);
        std::memcpy(&own, reinterpret_cast<const T*>(tile) + lane * SQUARE, sizeof own);
        sum += own;
        std::memcpy(to, &sum, sizeof sum);
      }
      return;
    }
    alignas(V) T held_rows[K ? W * P : 1];
    T* const right = K ? held_rows : by_lane.data();
    V weighted[K ? K : 1];
    V* const scaled = K ? weighted : many.data();
    for (int j = 0; j < n; ++j) scaled[j] = onward[j] * weight;
    to_rows<T, K>(scaled, n, right);
    for (int lane = 0; lane < W; ++lane) {
      T* const to = sums + lane * span + int64_t((*at)[lane]) * size;
      for (int t = 0; t < padded; t += S) {
        const Part own = part(right + lane * padded + t);
        for (int i = 0; i < n; ++i) {
          const Part sum = part(to + i * padded + t) + before[i][lane] * own;
          std::memcpy(to + i * padded + t, &sum, sizeof sum);
        }
      }
    }
  }
  void add_block(const V*, const V*, int, V*) const {}

  // Expected transitions by each matrix, and by any: all, or those of every window.
  __attribute__((noinline)) void give_sums(Sums& out) const {
    std::vector<double> sum(n * n);
    for (int lane = 0; summed && lane < (apart ? count : 1); ++lane) {
      const double weight = apart && !call.per_window ? weights.of[lane] : 1.0;
      const int64_t own = call.per_window ? lane : 0, square = int64_t(n) * n;
      const T* const chances = adds_on_the_way ? table.transposed : table.matrices;
      for (int64_t m = 0; m < table.count; ++m) {
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < n; ++j) {
            const T chance = chances[m * table.stride + i * padded + j];
            const T found = sums[(lane * int64_t(table.count + 1) + m) * cell + i * (small ? n : padded) + j];
            sum[adds_on_the_way ? j * n + i : i * n + j] = chance > 0 ? weight * double(chance) * double(found) : 0.0;
          }
        for (int q = 0; q < square; ++q) {
          out.moved[(own * table.count + m) * square + q] += sum[q];
          out.transitions[own * square + q] += sum[q];
        }
      }
    }
  }
};

}  // namespace VARIANT
