// The interface for compiled JAX programs where transitions vary by row, or likelihoods depend on both states: one set of
// parameters, many windows. Part of compiled.cc.
#pragma once

#include "moves_of.h"

namespace {

template <ffi::DataType type>
ffi::Error varying(ffi::AnyBuffer rows, ffi::Buffer<ffi::S32> begin, ffi::Buffer<ffi::S32> left,
                   ffi::Buffer<ffi::S32> core, ffi::Buffer<ffi::S32> right, ffi::Buffer<ffi::S32> at_start,
                   ffi::Buffer<type> weight, ffi::Buffer<type> matrices, ffi::Buffer<ffi::S32> index,
                   ffi::Buffer<type> covariates, ffi::Buffer<type> coefficients, ffi::Buffer<type> initial,
                   ffi::Buffer<type> start, ffi::Buffer<type> packs, ffi::Buffer<type> before, ffi::Buffer<type> after,
                   ffi::Result<ffi::Buffer<type>> log_likelihood, ffi::Result<ffi::Buffer<type>> first,
                   ffi::Result<ffi::Buffer<type>> transitions, ffi::Result<ffi::Buffer<type>> statistics_out,
                   ffi::Result<ffi::Buffer<type>> gamma, ffi::Result<ffi::Buffer<type>> moved,
                   ffi::Result<ffi::Buffer<type>> edges, ffi::Result<ffi::Buffer<ffi::S32>> impossible,
                   ffi::Dictionary attributes) {
  auto asked = [&](const char* name) { return attributes.get<int32_t>(name).value(); };
  const int64_t room = begin.element_count(), states = initial.dimensions().back(), square = states * states;
  int64_t windows = room;
  while (windows > 1 && core.typed_data()[windows - 1] == 0) --windows;  // those at the end are padding

  const std::vector<int64_t> wide_begin(begin.typed_data(), begin.typed_data() + room);
  auto wide = [](const ffi::Buffer<type>& from, int64_t count) {
    return std::vector<double>(from.typed_data(), from.typed_data() + count);
  };
  const auto weights = wide(weight, room), pi = wide(initial, states), law_before = wide(start, states);
  const auto pack = wide(packs, packs.element_count()), linear = wide(coefficients, coefficients.element_count());
  const auto one = wide(matrices, square);
  const auto messages_before = given_messages(before, asked("given_before"));
  const auto messages_after = given_messages(after, asked("given_after"));

  std::vector<double> logs(log_likelihood->element_count()), firsts(first->element_count());
  std::vector<double> counts(transitions->element_count()), sums(statistics_out->element_count());
  Call call{};
  if (!read_rows(rows, asked("kind"), asked("width"), call))
    return ffi::Error::InvalidArgument("varying: rows must be float32 or float64");
  call.pack = call.kind == GIVEN || call.kind == PAIR ? 0 : int32_t(packs.dimensions().back());
  call.left = left.typed_data();
  call.core = core.typed_data();
  call.right = right.typed_data();
  call.at_start = at_start.typed_data();
  call.begin = wide_begin.data();
  call.windows = windows;
  call.chains = call.points = 1;
  call.max_left = longest(left);
  call.max_core = longest(core);
  call.max_right = longest(right);
  call.states = int32_t(states);
  call.transition = one.data();
  call.initial = pi.data();
  call.start = law_before.data();
  call.packs = pack.data();
  call.weight = weights.data();
  call.per_window = asked("per_window");
  call.log_likelihood = logs.data();
  call.first = firsts.data();
  call.transitions = counts.data();
  call.statistics = sums.data();
  call.log_before = messages_before.empty() ? nullptr : messages_before.data();
  call.log_after = messages_after.empty() ? nullptr : messages_after.data();
  call.forward_only = asked("forward_only");
  call.threads = asked("threads");

  call.moves = moves_of<type>(asked("source"), states, matrices, asked("by_index") ? &index : nullptr, covariates);
  call.moves.coefficients = linear.data();
  // Matrices of rows have posteriors of rows; what others need is summed, in double precision.
  const bool by_row = call.moves.source == INDEXED && !call.moves.index, sums_wanted = asked("sums_wanted");
  std::vector<double> summed(by_row || !sums_wanted ? 0 : moved->element_count());
  call.moves.pairs = by_row && sums_wanted ? moved->typed_data() : nullptr;
  call.moves.sums_size = int64_t(summed.size()) / (call.per_window ? room : 1);
  call.moved = summed.data();
  // Posteriors of rows outside all cores are 0.
  if (call.moves.pairs) std::fill_n(moved->typed_data(), moved->element_count(), 0);
  if (asked("gamma_wanted")) {
    call.gamma = gamma->typed_data();
    blank_outside(call, gamma->typed_data(), gamma->element_count());
  }
  std::vector<double> messages(asked("edges_wanted") ? edges->element_count() : 0);
  if (!messages.empty()) {
    double** const ends[] = {&call.edge_before, &call.edge_leaving, &call.edge_after, &call.edge_entering};
    for (int i = 0; i < 4; ++i) *ends[i] = messages.data() + i * room * states;
  }
  statistics(call, type == ffi::F64);
  narrow(logs, log_likelihood->typed_data());
  narrow(firsts, first->typed_data());
  narrow(counts, transitions->typed_data());
  narrow(sums, statistics_out->typed_data());
  narrow(summed, moved->typed_data());
  narrow(messages, edges->typed_data());
  impossible->typed_data()[0] = int32_t(call.impossible);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(longhmm_varying_f32, varying<ffi::F32>);
XLA_FFI_DEFINE_HANDLER_SYMBOL(longhmm_varying_f64, varying<ffi::F64>);
