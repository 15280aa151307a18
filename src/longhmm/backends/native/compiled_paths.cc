// The interface for compiled JAX programs: one call of `find_paths`. Chunks are joined by whoever calls (see stitch.py).
#include <vector>

#include "dispatch.h"
#include "given_rows.h"
#include "moves_of.h"

namespace {

typedef ffi::Buffer<ffi::S32> Ints;
typedef ffi::Buffer<ffi::F64> Doubles;
typedef ffi::Buffer<ffi::U8> Bytes;

ffi::Error find(ffi::AnyBuffer rows, Ints begin, Ints left, Ints core, Ints right, Ints opens, Doubles matrices,
                Ints index, Doubles covariates, Doubles coefficients, Doubles initial, Doubles start, Doubles natural,
                Doubles log_before, Ints following, ffi::Buffer<ffi::U32> key,
                ffi::Buffer<ffi::S64> row_number, Ints log_space, ffi::Result<Doubles> before,
                ffi::Result<Doubles> leaving, ffi::Result<Doubles> log_likelihood, ffi::Result<Bytes> maps,
                ffi::Result<Bytes> states, ffi::Result<ffi::Buffer<ffi::S64>> redone, ffi::Dictionary attributes) {
  auto asked = [&](const char* name) { return attributes.get<int32_t>(name).value(); };
  int64_t windows = begin.element_count();
  while (windows > 0 && core.typed_data()[windows - 1] == 0) --windows;  // those at the end are padding
  const std::vector<int64_t> wide_begin(begin.typed_data(), begin.typed_data() + windows);
  const std::vector<int32_t> none(windows, 0);
  auto longest = [&](const Ints& lengths) {
    return windows ? *std::max_element(lengths.typed_data(), lengths.typed_data() + windows) : 0;
  };
  Paths paths{};
  Call& call = paths.call;
  if (!read_rows(rows, asked("kind"), asked("width"), call))
    return ffi::Error::InvalidArgument("find_paths: rows must be float32 or float64");
  call.pack = call.kind == GIVEN || call.kind == PAIR ? 0 : int32_t(natural.dimensions().back());
  call.left = left.typed_data();
  call.core = core.typed_data();
  const Ints* by_index = asked("by_index") ? &index : nullptr;
  call.moves = moves_of<ffi::F64>(asked("source"), initial.dimensions().back(), matrices, by_index, covariates);
  call.moves.coefficients = coefficients.typed_data();
  // The row behind a chunk says how the chunk is left, where rows differ in that.
  call.right = varies(call) ? right.typed_data() : none.data();
  call.max_right = varies(call) ? longest(right) : 0;
  call.at_start = opens.typed_data();
  call.begin = wide_begin.data();
  call.windows = windows;
  call.chains = call.points = 1;
  call.max_left = longest(left);
  call.max_core = longest(core);
  call.states = int32_t(initial.dimensions().back());
  call.transition = matrices.typed_data();
  call.initial = initial.typed_data();
  call.start = start.typed_data();
  call.packs = natural.typed_data();
  call.forward_only = 1;
  call.threads = asked("threads");
  paths.drawn = asked("drawn");
  paths.logarithms = log_space.typed_data()[0];
  std::copy_n(key.typed_data(), 2, paths.key);
  paths.row_number = row_number.typed_data()[0];
  paths.log_before = asked("given_before") ? log_before.typed_data() : nullptr;
  // A state that does not exist, as messages without a number give, stands for none.
  std::vector<int32_t> behind(following.typed_data(), following.typed_data() + following.element_count());
  for (int32_t& state : behind)
    if (state < -1 || state >= call.states) state = -1;
  paths.following = behind.data();
  // Whatever belongs to no chunk is 0.
  auto wanted = [](auto& result, int32_t is) {
    std::fill_n(result->typed_data(), result->element_count(), 0);
    return is ? result->typed_data() : nullptr;
  };
  paths.before = wanted(before, asked("messages_wanted"));
  paths.leaving = wanted(leaving, asked("messages_wanted"));
  paths.log_likelihood = wanted(log_likelihood, asked("messages_wanted"));
  paths.maps = wanted(maps, asked("maps_wanted"));
  paths.states = wanted(states, asked("states_wanted"));
  find_paths(paths);
  redone->typed_data()[0] = paths.redone;
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(longhmm_find_paths, find);
