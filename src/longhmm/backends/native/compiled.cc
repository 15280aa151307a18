// The interface for compiled JAX programs: window statistics inside a loop, many chains in one call.
#include <algorithm>
#include <cmath>
#include <vector>

#include "dispatch.h"
#include "given_rows.h"
#include "moves_of.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

template <ffi::DataType type> using Out = ffi::Result<ffi::Buffer<type>>;

// Product of all dimensions but the last `own`: how many sets of something an operand holds.
template <class Buffer>
int64_t sets(const Buffer& buffer, size_t own) {
  const auto dimensions = buffer.dimensions();
  int64_t count = 1;
  for (size_t i = 0; i + own < dimensions.size(); ++i) count *= dimensions[i];
  return count;
}

template <class T>
void narrow(const std::vector<double>& from, T* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = T(from[i]);
}

// Log messages `(windows, K)` in double precision; empty where none were given.
template <class Buffer>
std::vector<double> given_messages(const Buffer& logs, bool given) {
  return std::vector<double>(logs.typed_data(), logs.typed_data() + (given ? logs.element_count() : 0));
}

int32_t longest(const ffi::Buffer<ffi::S32>& lengths) {
  const int32_t* from = lengths.typed_data();
  return lengths.element_count() ? *std::max_element(from, from + lengths.element_count()) : 0;
}

// Whether sets of windows are the outer ones: after a dimension that windows share, none in which they differ.
template <class Windows, class Output>
bool nested(const Windows& windows, const Output& output, size_t own) {
  const auto given = windows.dimensions(), wanted = output.dimensions();
  if (given.size() - 1 != wanted.size() - own) return given.size() == 1;
  bool shared = false;
  for (size_t i = 0; i + 1 < given.size(); ++i) {
    if (shared && given[i] > 1) return false;
    shared |= given[i] == 1 && wanted[i] > 1;
  }
  return true;
}

// Parameters in double precision, one set for each point; those that all chains share are repeated.
template <class T>
std::vector<double> spread(const T* from, int64_t given, int64_t wanted, int64_t size) {
  std::vector<double> result(wanted * size);
  for (int64_t set = 0; set < wanted; ++set) std::copy_n(from + set % given * size, size, result.data() + set * size);
  return result;
}

// The distribution in which a chain rests, by eliminating one state after the other: nothing is ever subtracted.
void stationary(const double* transition, int n, std::vector<double>& chain, double* pi) {
  chain.assign(transition, transition + n * n);
  for (double& entry : chain) entry += 1e-18;  // a whisper of jumps makes the answer unique
  for (int last = n - 1; last > 0; --last) {
    double out = 0;
    for (int j = 0; j < last; ++j) out += chain[last * n + j];
    for (int i = 0; i < last; ++i) {
      const double into = chain[i * n + last] / out;
      chain[i * n + last] = into;
      for (int j = 0; j < last; ++j) chain[i * n + j] += into * chain[last * n + j];
    }
  }
  double total = pi[0] = 1;
  for (int state = 1; state < n; ++state) {
    pi[state] = 0;
    for (int i = 0; i < state; ++i) pi[state] += pi[i] * chain[i * n + state];
    total += pi[state];
  }
  for (int state = 0; state < n; ++state) pi[state] /= total;
}

template <ffi::DataType type>
ffi::Error window_statistics(ffi::AnyBuffer rows, ffi::Buffer<ffi::S32> begin, ffi::Buffer<ffi::S32> left,
                             ffi::Buffer<ffi::S32> core, ffi::Buffer<ffi::S32> right, ffi::Buffer<ffi::S32> at_start,
                             ffi::Buffer<type> weight, ffi::Buffer<type> transition, ffi::Buffer<type> initial,
                             ffi::Buffer<type> start, ffi::Buffer<type> packs, ffi::Buffer<type> before,
                             ffi::Buffer<type> after, ffi::AnyBuffer mixed, Out<type> log_likelihood, Out<type> first,
                             Out<type> transitions, Out<type> excess, Out<type> statistics_out, Out<type> gamma,
                             Out<type> edges, Out<ffi::S32> impossible, ffi::Dictionary attributes) {
  auto asked = [&](const char* name) { return attributes.get<int32_t>(name).value(); };
  const int32_t kind = asked("kind"), width = asked("width"), threads = asked("threads");
  const bool per_window = asked("per_window"), stationary_start = asked("stationary_start");
  const bool given_before = asked("given_before"), given_after = asked("given_after");
  const bool gamma_wanted = asked("gamma_wanted"), edges_wanted = asked("edges_wanted");
  const int64_t states = initial.dimensions().back();
  const int64_t room = begin.dimensions().back();
  int64_t windows = room;
  const int64_t chains = sets(begin, 1);
  const int64_t given = std::max(std::max(sets(transition, 2), sets(initial, 1)),
                                 std::max(sets(start, 1), sets(packs, 2)));
  const int64_t total = std::max(sets(*log_likelihood, per_window ? 1 : 0), given);
  const bool fits = chains > 0 && total % chains == 0 && nested(begin, *log_likelihood, per_window ? 1 : 0);
  if (!fits || (sets(weight, 1) != 1 && sets(weight, 1) != chains))
    return ffi::Error::InvalidArgument("window_statistics: sets of windows and of parameters do not fit together");
  const auto* told = mixed.element_type() == ffi::U64 ? static_cast<const uint64_t*>(mixed.untyped_data()) : nullptr;
  if (total > 1 && (given_before || given_after || (gamma_wanted && kind != GIVEN) || told))
    return ffi::Error::InvalidArgument("window_statistics: messages and posteriors are those of one set of parameters");

  // Windows without a core at the end are padding, and cost nothing.
  if (total == 1)
    while (windows > 1 && core.typed_data()[windows - 1] == 0) --windows;

  std::vector<int64_t> wide_begin(begin.typed_data(), begin.typed_data() + begin.element_count());
  const int32_t* places[4] = {left.typed_data(), core.typed_data(), right.typed_data(), at_start.typed_data()};
  std::vector<int32_t> repeated[4];
  std::vector<double> weights = spread(weight.typed_data(), sets(weight, 1), chains, windows);
  if (kind == GIVEN) {
    // Log likelihoods belong to a point: every point has its own rows, so it gets its own windows.
    const int64_t own = rows.dimensions()[rows.dimensions().size() - 2], sources = sets(rows, 2);
    const std::vector<int64_t> once = wide_begin;
    wide_begin.resize(total * windows);
    for (int64_t point = 0; point < total; ++point)
      for (int64_t w = 0; w < windows; ++w)
        wide_begin[point * windows + w] = once[(point * chains / total) * windows + w] + (point % sources) * own;
    auto repeat = [&](const auto* from, auto& to) {
      to.resize(total * windows);
      for (int64_t at = 0; at < total; ++at) std::copy_n(from + at * chains / total * windows, windows, &to[at * windows]);
      return to.data();
    };
    for (int i = 0; i < 4; ++i) places[i] = repeat(places[i], repeated[i]);
    const std::vector<double> of_windows = weights;
    repeat(of_windows.data(), weights);
  }
  const int64_t pack = packs.dimensions().back();
  auto A = spread(transition.typed_data(), sets(transition, 2), total, states * states);
  // Rows that came in single precision sum to one only nearly; scaled up to long data the difference would show.
  for (int64_t row = 0; row < total * states; ++row) {
    double sum = 0;
    for (int64_t j = 0; j < states; ++j) sum += A[row * states + j];
    for (int64_t j = 0; j < states && sum > 0; ++j) A[row * states + j] /= sum;
  }
  const auto pi = spread(initial.typed_data(), sets(initial, 1), total, states);
  auto law_before = spread(start.typed_data(), sets(start, 1), total, states);
  std::vector<double> chain;
  for (int64_t point = 0; stationary_start && point < total; ++point)
    stationary(A.data() + point * states * states, int(states), chain, law_before.data() + point * states);
  const auto all_packs = spread(packs.typed_data(), sets(packs, 2), total, states * pack);

  std::vector<double> logs(log_likelihood->element_count()), firsts(first->element_count());
  std::vector<double> moves(transitions->element_count()), sums(statistics_out->element_count());
  Call call{};
  if (!read_rows(rows, kind, width, call))
    return ffi::Error::InvalidArgument("window_statistics: rows must be float32 or float64");
  call.pack = kind == GIVEN ? 0 : int32_t(pack);
  call.left = places[0];
  call.core = places[1];
  call.right = places[2];
  call.at_start = places[3];
  call.begin = wide_begin.data();
  call.windows = windows;
  call.chains = int32_t(kind == GIVEN ? total : chains);
  call.points = int32_t(kind == GIVEN ? 1 : total / chains);
  call.max_left = longest(left);
  call.max_core = longest(core);
  call.max_right = longest(right);
  call.states = int32_t(states);
  call.transition = A.data();
  call.initial = pi.data();
  call.start = law_before.data();
  call.packs = all_packs.data();
  call.weight = weights.data();
  call.per_window = per_window;
  call.log_likelihood = logs.data();
  call.first = firsts.data();
  call.transitions = moves.data();
  call.statistics = sums.data();
  call.gamma = gamma_wanted ? gamma->typed_data() : nullptr;
  const auto messages_before = given_messages(before, given_before), messages_after = given_messages(after, given_after);
  call.log_before = given_before ? messages_before.data() : nullptr;
  call.log_after = given_after ? messages_after.data() : nullptr;
  call.forward_only = asked("forward_only");
  if (told) call.mixed = reinterpret_cast<const Mixed*>(told[0]), call.mixed_first = told[1], call.mixed_width = told[2];
  // Of every point: the log messages before, leaving, after and entering its windows.
  std::vector<double> messages(edges_wanted ? edges->element_count() : 0);
  if (edges_wanted) {
    const int64_t size = room * states;
    call.edge_before = messages.data();
    call.edge_leaving = call.edge_before + size;
    call.edge_after = call.edge_leaving + size;
    call.edge_entering = call.edge_after + size;
    call.edge_stride = 4 * size;
  }
  call.threads = threads;
  if (gamma_wanted) blank_outside(call, gamma->typed_data(), gamma->element_count());
  statistics(call, type == ffi::F64);
  narrow(logs, log_likelihood->typed_data());
  narrow(firsts, first->typed_data());
  narrow(moves, transitions->typed_data());
  // n_ij - A_ij n_i, taken in double precision: what is left of large counts is small.
  const int64_t per_point = per_window ? windows : 1;
  for (int64_t row = 0; row < total * per_point * states; ++row) {
    const double* a = A.data() + (row / (per_point * states)) * states * states + (row % states) * states;
    double* n = moves.data() + row * states;
    double sum = 0;
    for (int64_t j = 0; j < states; ++j) sum += n[j];
    for (int64_t j = 0; j < states; ++j) n[j] -= a[j] * sum;
  }
  narrow(moves, excess->typed_data());
  narrow(sums, statistics_out->typed_data());
  narrow(messages, edges->typed_data());
  std::fill_n(impossible->typed_data(), impossible->element_count(), int32_t(call.impossible));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(longhmm_windows_f32, window_statistics<ffi::F32>);
XLA_FFI_DEFINE_HANDLER_SYMBOL(longhmm_windows_f64, window_statistics<ffi::F64>);

#include "compiled_varying.h"
