// Transitions of rows that have one of few matrices: no matrix is made for a row, its number in a table is enough.
//
// Where as many numbers as an entry may have fit into two or four registers, each lane picks its own from these.
// Otherwise products are formed for one lane after the other, whose matrix then lies in memory as it is needed.
// Outside its windows a row has the last matrix, the identity; what counts for nothing is added to the sums of that.
#pragma once

#include <type_traits>
#include <vector>

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

// Every other number of two vectors, from the first or the second on.
template <class T, size_t from, size_t... index>
inline Vec<T> every_other(Vec<T> a, Vec<T> b, std::index_sequence<index...>) {
  return SHUFFLE(T, a, b, (from + 2 * index)...);
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

// The matrices of a call as products need them; empty where they are not looked up, or many.
template <class T>
struct Table {
  static constexpr int W = Vector<T>::lanes;
  static constexpr size_t MOST = 1 << 20;  // bytes
  int n, padded, count, room = 0;          // of `room` numbers for each entry, which are picked
  std::vector<Vec<T>> held[3];             // whose vectors do not lie across two lines of the cache
  T *matrices = nullptr, *transposed = nullptr, *entries = nullptr;  // (count + 1, n, padded), twice; (n, n, room)

  explicit Table(const Call& call)
      : n(call.states), padded(padded_to<T>(n)),
        count(call.moves.index && !of_pairs(call) ? call.moves.count : 0) {
    const size_t size = (size_t(count + 1) * n * padded + W - 1) / W * W;
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
          matrices[(size_t(m) * n + i) * padded + j] = transposed[(size_t(m) * n + j) * padded + i] = chance;
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
  std::vector<Bits<T>> which;     // matrix of each row and lane
  const Bits<T>* now = nullptr;
  bool picked = false;             // whether entries are picked at this row: all lanes are inside their windows
  mutable std::vector<T> by_lane;  // numbers of each lane, where K is not known beforehand
  std::vector<V> many;             // and of each state
  // Sums of u_i (w v)_j over rows that have one matrix: n^2 numbers where a vector holds them, else (n, padded).
  const bool small, summed;
  const int cell;
  const bool apart;
  std::vector<V> held;
  T* sums = nullptr;

  LookedUp(const Call& call, const Table<T>& table, int64_t base, int count)
      : call(call), table(table), n(K ? K : call.states), padded(K ? P : table.padded), least(T(call.moves.least)),
        least_possible(T(call.moves.least_possible)), weights(call, base, count), base(base), count(count),
        placed(call, base, count), by_lane(K ? 0 : W * padded), many(K ? 0 : n), small(K && K * K <= W), summed(call.moves.sums_size > 0),
        cell(small ? SQUARE : n * padded),
        apart(call.per_window || size_t(table.count + 1) * cell * W * sizeof(T) <= MOST_APART) {
    const int total = call.max_left + call.max_core + call.max_right;
    std::vector<V> numbers(total);
    load_from<T>(call, call.moves.index, 1, base, count, numbers.data());
    which.resize(total);
    for (int r = 0; r < total; ++r) {
      const V number = numbers[r] == numbers[r] ? numbers[r] : all(T(table.count));
      which[r] = __builtin_convertvector(number, Bits<T>);
    }
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
    if (any<T>(~sound))
      for (Bits<T>& each : which) each = sound ? each : Bits<T>{} + table.count;
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

  // out[j] = sum_i in[i] m[i, j], with the matrix m of each lane.
  __attribute__((noinline)) void by_lanes(const T* matrices, const V* in, V* out) const {
    const int n = K ? K : this->n, padded = K ? P : this->padded;
    alignas(V) T near[K ? W * P : 1];
    T* const rows = K ? near : by_lane.data();
    for (int lane = 0; lane < W; ++lane) {
      const T* const matrix = matrices + int64_t((*now)[lane]) * n * padded;
      for (int t = 0; t < padded; t += S) {
        Part sum = in[0][lane] * part(matrix + t);
        for (int i = 1; i < n; ++i) sum += in[i][lane] * part(matrix + i * padded + t);
        std::memcpy(rows + lane * padded + t, &sum, sizeof sum);
      }
    }
    from_rows<T, K>(rows, n, out);
  }

  template <bool transposed>
  void multiply(const V* in, V* out) const {
    const Bits<T> at = *now;
    const T* const entries = table.entries;
    if (!picked) return by_lanes(transposed ? table.transposed : table.matrices, in, out);
    if (table.room == 2 * W) return product<transposed>([&](int q) { return pick(entries + q * 2 * W, at); }, in, out);
    const Bits<T> high = at >= 2 * W;
    product<transposed>(
        [&](int q) { return high ? pick(entries + q * 4 * W + 2 * W, at) : pick(entries + q * 4 * W, at); }, in, out);
  }
  void forward(const V* in, V* out) const { multiply<false>(in, out); }
  void backward(const V* in, V* out) const { multiply<true>(in, out); }
  // Nothing is known of the matrix behind the core but that its entries are at most 1.
  void predict(const V* in, V* out) const { std::copy_n(in, n, out); }

  __attribute__((noinline)) void add_row(int r, const V* before, const V* onward, const V*, Bits<T>, V*, V*) {
    if (!summed) return;
    const int n = K ? K : this->n, padded = K ? P : this->padded;
    const Bits<T> at = which[call.max_left + r];
    V weight = all(T(1));
    if (!apart) weight = load<T>(weights.of);
    const int64_t span = apart ? int64_t(table.count + 1) * cell : 0;
    if constexpr (K && K * K <= W) {
      typedef T Square __attribute__((vector_size(SQUARE * sizeof(T))));
      V tile[SQUARE];
      for (int q = 0; q < SQUARE; ++q) tile[q] = q < n * n ? before[q / n] * (onward[q % n] * weight) : V{};
      transpose<T, SQUARE>(tile);
      for (int lane = 0; lane < W; ++lane) {
        T* const to = sums + lane * span + int64_t(at[lane]) * cell;
        Square sum, own;
        std::memcpy(&sum, to, sizeof sum);
        std::memcpy(&own, reinterpret_cast<const T*>(tile) + lane * SQUARE, sizeof own);
        sum += own;
        std::memcpy(to, &sum, sizeof sum);
      }
      return;
    }
    alignas(V) T near[K ? W * P : 1];
    T* const right = K ? near : by_lane.data();
    V weighted[K ? K : 1];
    V* const scaled = K ? weighted : many.data();
    for (int j = 0; j < n; ++j) scaled[j] = onward[j] * weight;
    to_rows<T, K>(scaled, n, right);
    for (int lane = 0; lane < W; ++lane) {
      T* const to = sums + lane * span + int64_t(at[lane]) * cell;
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
    for (int lane = 0; summed && lane < (apart ? count : 1); ++lane) {
      const double weight = apart && !call.per_window ? weights.of[lane] : 1.0;
      const int64_t own = call.per_window ? lane : 0, square = int64_t(n) * n;
      for (int64_t m = 0; m < table.count; ++m)
        for (int q = 0; q < n * n; ++q) {
          const double chance = table.matrices[(m * n + q / n) * padded + q % n];
          const T sum = sums[(lane * int64_t(table.count + 1) + m) * cell + (small ? q : q / n * padded + q % n)];
          const double found = chance > 0 ? weight * chance * double(sum) : 0.0;
          out.moved[(own * table.count + m) * square + q] += found;
          out.transitions[own * square + q] += found;
        }
    }
  }
};

}  // namespace VARIANT
