// From a call to threads and to the processor's own instructions. One build serves every processor of its kind.
#include "dispatch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define DECLARE(name)                                                                                      \
  namespace name {                                                                                         \
  void run(const Call& call, int wide, int64_t point, int64_t begin, int64_t stop, Sums& out);             \
  int64_t walk(const Paths& paths, int64_t begin, int64_t stop);                                           \
  }
DECLARE(baseline)
#ifdef __x86_64__
#include "processor.h"
DECLARE(avx2)
DECLARE(avx512)
#endif
#undef DECLARE

namespace {

struct Path {
  const char* name;
  int vector_bytes;
  void (*run)(const Call&, int, int64_t, int64_t, int64_t, Sums&);
  int64_t (*walk)(const Paths&, int64_t, int64_t);
};

// The best instructions that the processor has; LONGHMM_INSTRUCTIONS=AVX2 or =baseline asks for less. A build for one
// processor is WITHOUT those of others (see setup.py).
Path choose() {
#ifdef __x86_64__
  const char* given = std::getenv("LONGHMM_INSTRUCTIONS");
  const std::string most = given ? given : "";
  const Processor here = processor();
#ifndef WITHOUT_AVX512
  if (here.avx512 && most != "AVX2" && most != "baseline")
    return {"AVX-512", 64, avx512::run, avx512::walk};
#endif
#ifndef WITHOUT_AVX2
  if (here.avx2 && most != "baseline") return {"AVX2", 32, avx2::run, avx2::walk};
#endif
#endif
  return {"baseline", 16, baseline::run, baseline::walk};
}

const Path& path() {
  static const Path chosen = choose();
  return chosen;
}

// At most BATCH groups are added one after the other, and of what is left no more than one in SHARE, so that threads do
// not wait for the last: the order of sums does not depend on their number. And below this many rows a thread costs more
// than it brings.
constexpr int64_t BATCH = 8, SHARE = 8, ROWS_PER_THREAD = 20000;

// While it lives, numbers below the smallest normal one count as zero: many times faster, and what the bounds on
// underflow allow for.
struct Flushed {
#ifdef __x86_64__
  const unsigned before = __builtin_ia32_stmxcsr();
  Flushed() { __builtin_ia32_ldmxcsr(before | 0x8040); }
  ~Flushed() { __builtin_ia32_ldmxcsr(before); }
#endif
};

// Sends a new thread to another processor. Where whoever waits for the result is still awake there, the system would
// leave it for milliseconds behind the one that made it.
void elsewhere([[maybe_unused]] std::thread& thread) {
#ifdef __linux__
  cpu_set_t all{};
  pthread_getaffinity_np(thread.native_handle(), sizeof all, &all);
  cpu_set_t others = all;
  CPU_CLR(sched_getcpu(), &others);
  for (const cpu_set_t& each : {others, all}) pthread_setaffinity_np(thread.native_handle(), sizeof each, &each);
#endif
}

// Tasks 0, 1, ... on so many threads at most; which thread takes which is left to chance.
template <class Work>
void in_threads(int64_t threads, int64_t tasks, const Work& work) {
  std::atomic<int64_t> next{0};
  auto loop = [&] {
    const Flushed flushed;
    for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(task);
  };
  std::vector<std::thread> pool;
  for (int64_t i = 1; i < std::min(threads, tasks); ++i) elsewhere(pool.emplace_back(loop));
  loop();
  for (std::thread& thread : pool) thread.join();
}

}  // namespace

const char* instruction_set() { return path().name; }

// What is asked of the library outside of compiled programs: also what one of another version does not know.
extern "C" const char* longhmm_instruction_set() { return instruction_set(); }
extern "C" int longhmm_last_kind() { return FRAMES; }
extern "C" int longhmm_terms() { return TERMS; }

void statistics(Call& call, int wide) {
  const int lanes = path().vector_bytes / (wide ? 8 : 4);
  const int64_t n = call.states, n_sums = sums_of(call.kind, call.width, call.pack);
  const int64_t points = int64_t(call.chains) * call.points;
  const int64_t rows = points * call.windows * (call.max_left + call.max_core + call.max_right);
  const int64_t groups = (call.windows + lanes - 1) / lanes;
  std::vector<int64_t> ends{0};
  while (ends.back() < groups) {
    const int64_t left = groups - ends.back(), share = rows < 2 * ROWS_PER_THREAD ? BATCH : points * left / SHARE;
    ends.push_back(ends.back() + std::min(left, std::clamp<int64_t>(share, 1, BATCH)));
  }
  const int64_t batches = int64_t(ends.size()) - 1, tasks = points * batches;
  const int64_t outputs = call.per_window ? points * call.windows : points;
  const int64_t n_moved = call.moves.sums_size, size = 1 + n + n * n + n * n_sums + n_moved;
  const std::pair<double*, int64_t> parts[] = {{call.log_likelihood, 1}, {call.first, n}, {call.transitions, n * n},
                                               {call.statistics, n * n_sums}, {call.moved, n_moved}};
  for (const auto& [to, length] : parts) std::fill_n(to, outputs * length, 0.0);
  const bool direct = call.per_window || batches == 1;
  std::vector<double> partial(direct ? 0 : points * batches * size, 0.0);
  std::vector<Sums> done(points * batches);
  auto work = [&](int64_t task) {
    const int64_t point = task / batches, batch = task % batches, own = call.per_window ? 0 : point;
    Sums& out = done[task];
    if (direct) {
      out = {call.log_likelihood + own, call.first + own * n, call.transitions + own * n * n,
             call.statistics + own * n * n_sums, call.moved + own * n_moved, -1, 0};
    } else {
      double* at = partial.data() + task * size;
      out = {at, at + 1, at + 1 + n, at + 1 + n + n * n, at + size - n_moved, -1, 0};
    }
    path().run(call, wide, point, ends[batch], ends[batch + 1], out);
  };
  in_threads(std::min<int64_t>(call.threads, rows / ROWS_PER_THREAD), tasks, work);

  call.impossible = -1;
  call.redone = 0;
  for (int64_t task = 0; task < tasks; ++task) {
    const Sums& from = done[task];
    call.redone += from.redone;
    if (from.impossible >= 0 && (call.impossible < 0 || from.impossible < call.impossible))
      call.impossible = from.impossible;
    if (direct) continue;
    const double* sum = from.log_likelihood;  // and all others behind it
    for (const auto& [to, length] : parts)
      for (int64_t i = 0; i < length; ++i) to[task / batches * length + i] += *sum++;
  }
}

void find_paths(Paths& paths) {
  const Call& call = paths.call;
  const int64_t lanes = path().vector_bytes / 8, groups = (call.windows + lanes - 1) / lanes;
  const int64_t rows = call.windows * (call.max_left + call.max_core);
  std::atomic<int64_t> redone{0};
  in_threads(std::min<int64_t>(call.threads, rows / ROWS_PER_THREAD), groups,
             [&](int64_t group) { redone += path().walk(paths, group, group + 1); });
  paths.redone = redone;
}
#include "mixed_rows.h"  // last, since it uses what stands above
