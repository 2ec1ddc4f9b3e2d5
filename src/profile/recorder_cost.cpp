// SPDX-License-Identifier: Apache-2.0
#include "profile/recorder_cost.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "epilogue/ops.h"

namespace epilogue::profiler {
namespace {

constexpr int kCalls = 400;
constexpr int kRounds = 11;

using Probe = void (*)(const Tensor&);
void run_view(const Tensor& x) { view(x, {8, 8}); }  // one op, no kernel
void run_kernel(const Tensor& x) { add(x, x); }      // one op, one kernel
void run_range(const Tensor&) { const ScopedRange range("ProfilerStep#0"); }

// The mean without the fastest and the two slowest rounds: new chunks of the buffers count, an
// interrupt does not.
double mean_ns_per_call(Probe probe, const Tensor& x) {
  std::array<double, kRounds> rounds{};
  for (double& ns : rounds) {
    const int64_t start = monotonic_ns();
    for (int i = 0; i < kCalls; ++i) probe(x);
    ns = static_cast<double>(monotonic_ns() - start) / kCalls;
  }
  std::sort(rounds.begin(), rounds.end());
  double sum = 0;
  for (int i = 1; i < kRounds - 2; ++i) sum += rounds[static_cast<size_t>(i)];
  return sum / (kRounds - 3);
}

struct Times {
  double view_ns;
  double kernel_ns;
  double range_ns;
};
Times measure() {
  const Tensor x = ones({64});
  return {mean_ns_per_call(run_view, x), mean_ns_per_call(run_kernel, x),
          mean_ns_per_call(run_range, x)};
}

// Ends the session; the time that the recorder itself took for one of a last series of views.
double own_ns_per_view(Recorder& recorder, const RecorderOptions& options) {
  const Tensor x = ones({64});
  recorder.stop();
  recorder.start(options);
  const TickAnchor begin = tick_anchor();
  set_run_observer(&recorder);
  for (int i = 0; i < kCalls * 4; ++i) run_view(x);
  set_run_observer(nullptr);
  const TickConverter clock(begin, tick_anchor());
  int64_t ticks = 0;
  for (const auto& buffer : recorder.stop()) ticks += buffer->own_ticks.load();
  return clock.duration_ns(ticks) / (kCalls * 4);
}

}  // namespace

// The difference between the same calls with and without the recorder: what it does, and the slower
// way that run_op takes for it.
RecorderCost measure_recorder_cost(const RecorderOptions& options) {
  ThreadState& state = thread_state();
  const ThreadState before = state;
  state.grad_enabled = false;
  state.capture = nullptr;
  measure();  // warms caches and allocators
  const Times plain = measure();
  Recorder& recorder = Recorder::instance();
  recorder.start(options);
  set_run_observer(&recorder);
  measure();  // touches the buffers' pages
  const Times recorded = measure();
  set_run_observer(nullptr);
  const double own_ns = own_ns_per_view(recorder, options);
  state.grad_enabled = before.grad_enabled;
  state.capture = before.capture;

  RecorderCost cost;
  cost.ns_per_op = std::max(recorded.view_ns - plain.view_ns, 0.0);
  cost.ns_unseen_per_op = std::max(cost.ns_per_op - own_ns, 0.0);
  cost.ns_per_kernel = std::max(recorded.kernel_ns - plain.kernel_ns - cost.ns_per_op, 0.0);
  cost.ns_per_range = std::max(recorded.range_ns - plain.range_ns, 0.0);
  return cost;
}

}  // namespace epilogue::profiler
