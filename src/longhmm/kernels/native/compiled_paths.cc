// The interface for compiled JAX programs: a path of states drawn from its posterior, through all data.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr double TOLERANCE = 1e-11;  // log odds below which two messages count as the same (see proofs.py)
constexpr double ROUNDING = 64 * std::numeric_limits<double>::epsilon();

// The logarithm of a law one step on, its largest entry 0: what is too small to matter is gone after the step.
void predict(const double* law, const std::vector<double>& log_transition, int n, double* out) {
  double peak = -INFINITY;
  for (int j = 0; j < n; ++j) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; ++i) top = std::max(top, law[i] + log_transition[i * n + j]);
    for (int i = 0; i < n && top > -INFINITY; ++i) sum += std::exp(law[i] + log_transition[i * n + j] - top);
    out[j] = top > -INFINITY ? top + std::log(sum) : -INFINITY;
    peak = std::max(peak, out[j]);
  }
  for (int j = 0; j < n; ++j) out[j] -= peak;
}

// Whether what leaves each chunk is what the next one of its sequence began with.
bool agree(const Call& call, const std::vector<double>& before, const std::vector<double>& leaving,
           const int32_t* room) {
  const int n = call.states;
  std::vector<double> log_transition(size_t(n) * n), one(n), other(n);
  for (int i = 0; i < n * n; ++i) log_transition[i] = std::log(call.transition[i]);
  for (int64_t w = 1; w < call.windows; ++w) {
    if (room[w] == 0) continue;
    predict(&leaving[(w - 1) * n], log_transition, n, one.data());
    predict(&before[w * n], log_transition, n, other.data());
    for (int k = 0; k < n; ++k) {
      if (one[k] == -INFINITY && other[k] == -INFINITY) continue;
      if (!(std::abs(one[k] - other[k]) <= TOLERANCE + ROUNDING * std::abs(one[k]))) return false;
    }
  }
  return true;
}

ffi::Error draw(ffi::AnyBuffer rows, ffi::Buffer<ffi::S32> begin, ffi::Buffer<ffi::S32> core,
                ffi::Buffer<ffi::S32> room, ffi::Buffer<ffi::F64> transition, ffi::Buffer<ffi::F64> initial,
                ffi::Buffer<ffi::F64> start, ffi::Buffer<ffi::F64> packs, ffi::Buffer<ffi::U32> key,
                ffi::Result<ffi::Buffer<ffi::U8>> states, ffi::Result<ffi::Buffer<ffi::F64>> first,
                ffi::Result<ffi::Buffer<ffi::F64>> transitions, ffi::Result<ffi::Buffer<ffi::F64>> log_likelihood,
                ffi::Result<ffi::Buffer<ffi::S32>> sound, ffi::Span<const int32_t> reaches, int32_t kind,
                int32_t threads) {
  if (rows.element_type() != ffi::F32 && rows.element_type() != ffi::F64)
    return ffi::Error::InvalidArgument("draw: rows must be float32 or float64");
  const int n = int(initial.dimensions().back());
  const int64_t windows = begin.dimensions().back();
  const std::vector<int64_t> wide_begin(begin.typed_data(), begin.typed_data() + windows);
  const std::vector<int32_t> none(windows, 0);
  std::vector<int32_t> left(windows), at_start(windows);
  Paths paths{};
  Call& call = paths.call;
  call.rows = rows.untyped_data();
  call.wide_rows = rows.element_type() == ffi::F64;
  call.width = int32_t(rows.dimensions().back());
  call.kind = kind;
  call.pack = kind == GIVEN ? 0 : int32_t(packs.dimensions().back());
  call.core = core.typed_data();
  call.left = left.data();
  call.right = none.data();
  call.at_start = at_start.data();
  call.begin = wide_begin.data();
  call.windows = windows;
  call.chains = call.points = 1;
  call.max_core = *std::max_element(call.core, call.core + windows);
  call.states = n;
  call.transition = transition.typed_data();
  call.initial = initial.typed_data();
  call.start = start.typed_data();
  call.packs = packs.typed_data();
  call.threads = threads;
  paths.drawn = 1;
  paths.key[0] = key.typed_data()[0];
  paths.key[1] = key.typed_data()[1];

  auto reach_back = [&](int32_t reach) {
    for (int64_t w = 0; w < windows; ++w) {
      left[w] = std::min(room.typed_data()[w], reach);
      at_start[w] = room.typed_data()[w] <= reach;
    }
    call.max_left = *std::max_element(left.begin(), left.end());
  };
  std::vector<double> before(windows * n), leaving(windows * n), parts(windows);
  std::vector<uint8_t> maps(windows * (n + 1));
  std::vector<int32_t> following(windows);

  // True where a path was found; on plain numbers it may turn out that they do not do.
  auto attempt = [&](bool logarithms) {
    paths.logarithms = logarithms;
    bool proved = false;
    for (size_t i = 0; i < reaches.size() && !proved; ++i) {
      reach_back(reaches[i]);
      paths.log_before = nullptr;
      paths.before = before.data();
      paths.leaving = leaving.data();
      paths.log_likelihood = parts.data();
      paths.maps = nullptr;
      paths.states = nullptr;
      find_paths(paths);
      proved = agree(call, before, leaving, room.typed_data());
    }
    if (!proved) return false;
    reach_back(0);
    paths.log_before = before.data();
    paths.before = paths.leaving = paths.log_likelihood = nullptr;
    paths.maps = maps.data();
    find_paths(paths);
    if (paths.careful) return false;
    int state = -1;  // the first state of the chunk to the right
    for (int64_t w = windows - 1; w >= 0; --w) {
      const bool ends = w == windows - 1 || room.typed_data()[w + 1] == 0;
      following[w] = ends ? -1 : state;
      state = maps[w * (n + 1) + (ends ? n : state)];
      if (state == NO_STATE) return false;
    }
    paths.maps = nullptr;
    paths.following = following.data();
    paths.states = states->typed_data();
    find_paths(paths);
    return paths.careful == 0;
  };
  const bool found = attempt(false) || attempt(true);
  sound->typed_data()[0] = found;
  std::fill_n(first->typed_data(), n, 0.0);
  std::fill_n(transitions->typed_data(), n * n, 0.0);
  log_likelihood->typed_data()[0] = 0;
  if (!found) {
    std::fill_n(states->typed_data(), states->element_count(), uint8_t(0));
    return ffi::Error::Success();
  }
  std::vector<int64_t> counts(size_t(n) * n, 0);
  for (int64_t w = 0; w < windows; ++w) {
    const uint8_t* path = states->typed_data() + wide_begin[w];
    log_likelihood->typed_data()[0] += parts[w];
    if (room.typed_data()[w] == 0)
      first->typed_data()[path[0]] += 1;
    else
      ++counts[path[-1] * n + path[0]];
    for (int32_t r = 1; r < call.core[w]; ++r) ++counts[path[r - 1] * n + path[r]];
  }
  std::copy(counts.begin(), counts.end(), transitions->typed_data());
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(longhmm_draw, draw,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Ret<ffi::Buffer<ffi::U8>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<ffi::Span<const int32_t>>("reaches")
                                  .Attr<int32_t>("kind")
                                  .Attr<int32_t>("threads"));
