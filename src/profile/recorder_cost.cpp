// SPDX-License-Identifier: Apache-2.0
#include "profile/recorder_cost.h"

#include <algorithm>

#include "base/clock.h"

namespace epilogue::profiler {
namespace {

constexpr int kEvents = 500;
constexpr int kRounds = 9;

constinit const OpDef kProbe{.name = "epilogue::probe", .schema = "(Tensor self, Tensor other)"};
const Kernel kProbeKernel{"probe", nullptr, nullptr, [](const Call&, KernelInfo& info) {
                            info.name = "epi_avx512_gemm_f32_6x64_tn_bias";
                          }};

// The median over rounds: what a typical event costs, chunk allocation included.
template <class Body>
double ns_per_event(Body&& body) {
  std::array<int64_t, kRounds> rounds{};
  for (int64_t& ns : rounds) {
    const int64_t start = monotonic_ns();
    for (int i = 0; i < kEvents; ++i) body();
    ns = monotonic_ns() - start;
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return static_cast<double>(rounds[kRounds / 2]) / kEvents;
}

}  // namespace

RecorderCost measure_recorder_cost(const RecorderOptions& options) {
  Recorder& recorder = Recorder::instance();
  recorder.start(options);
  const std::array<Tensor, 2> in = {empty({4, 4}), empty({4, 4})};
  std::array<Tensor, 1> out = {empty({4, 4})};
  const Call call{kProbe, in, {}, out};
  RecorderCost cost;
  // One round to touch the buffers' first pages.
  auto op = [&] {
    recorder.op_begin(kProbe, in, {}, 0);
    recorder.op_end();
  };
  for (int i = 0; i < kEvents; ++i) op();
  cost.ns_per_op = ns_per_event(op);
  cost.ns_per_range = ns_per_event([&] {
    recorder.range_begin("ProfilerStep#0", RangeKind::user, -1, 0);
    recorder.range_end();
  });
  cost.ns_per_kernel = ns_per_event([&] {
    const int64_t begin = ticks();
    recorder.kernel_ran({call, &kProbeKernel, begin, ticks()});
  });
  recorder.stop();
  return cost;
}

}  // namespace epilogue::profiler
