// SPDX-License-Identifier: Apache-2.0
#include "explain/timeline/pauses.h"

#include <algorithm>
#include <map>

#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::pauses_test {

using namespace testing;

constexpr int64_t kMs = 1000 * kUs;

// Steps of `calls` products each. Products take 100 us, or as long as `slow` says of (step, call);
// the gaps between them 10 us, or as long as `gaps` says of what comes before the call.
struct Steps {
  using Times = std::map<std::pair<int, int>, int64_t>;
  Times slow = {};
  Times gaps = {};
  std::string op = "aten::mm";
  std::vector<int64_t> dims = {256, 256};
  int64_t usual_ns = 100 * kUs;
  int first_step = 2;
  // Of each gap the function that runs in it; "": no frame was recorded.
  std::string function = "";
  std::string slow_function = "";  // of slow gaps; "": the same
  bool has_sizes = true;
  int steps = 4;
  int calls = 6;

  GpuTrace trace() const {
    GpuTrace b;
    int64_t ts = kMs;
    const auto time_of = [](const Times& times, int step, int call, int64_t usual) {
      const auto found = times.find({step, call});
      return found == times.end() ? usual : found->second;
    };
    for (int step = 0; step < steps; ++step) {
      const int64_t begin = ts;
      for (int call = 0; call < calls; ++call) {
        const int64_t gap = time_of(gaps, step, call, 10 * kUs);
        if (!function.empty()) {
          const bool is_other = gap > kMs && !slow_function.empty();
          b.event(Category::python_function, is_other ? slow_function : function, ts + kUs,
                  ts + gap - kUs);
        }
        ts += gap;
        const int64_t time = time_of(slow, step, call, usual_ns);
        b.op(op, ts, ts + time);
        if (has_sizes) b.inputs({tensor(dims), tensor(dims)});
        ts += time;
      }
      b.annotation("ProfilerStep#" + std::to_string(first_step + step), begin, ts);
      ts += 5 * kUs;
    }
    b.trace.end_ns = ts;
    return b;
  }
};

int64_t paused_ns(const GpuTrace& b) { return total_ns(find_pauses(b.trace, link(b.trace))); }

TEST(Pauses, AreWhatOneCallTakesAboveTheMedianOfEqualOnes) {
  EXPECT_EQ(paused_ns(Steps().trace()), 0);
  EXPECT_EQ(paused_ns(Steps{.slow = {{{1, 3}, 4100 * kUs}}}.trace()), 4000 * kUs);
  EXPECT_EQ(paused_ns(Steps{.slow = {{{1, 3}, 1900 * kUs}}}.trace()), 0) << "too short";
  EXPECT_EQ(paused_ns(Steps{.slow = {{{1, 3}, 90 * kMs}}}.trace()), 0) << "no turn takes so long";
  EXPECT_EQ(paused_ns(Steps{.slow = {{{1, 3}, 7 * kMs}}, .usual_ns = kMs}.trace()), 0)
      << "the usual calls take long, too";
  EXPECT_EQ(paused_ns(Steps{.slow = {{{0, 0}, 4100 * kUs}}}.trace()), 0)
      << "the first call makes what the others use";
}

TEST(Pauses, AreNotWhatRecurs) {
  EXPECT_EQ(paused_ns(Steps{.slow = {{{1, 3}, 4100 * kUs}, {{2, 3}, 4100 * kUs}}}.trace()), 0)
      << "one of six layers, in half of the steps";
  EXPECT_EQ(paused_ns(Steps{.slow = {{{1, 3}, 4100 * kUs}, {{2, 1}, 4100 * kUs}}}.trace()),
            8000 * kUs)
      << "at different places";
  EXPECT_EQ(
      paused_ns(Steps{.slow = {{{2, 1}, 4100 * kUs}, {{2, 2}, 4100 * kUs}, {{2, 3}, 4100 * kUs}}}
                    .trace()),
      0)
      << "side by side: values, not another process";
  EXPECT_EQ(paused_ns(Steps{.slow = {{{0, 1}, 4100 * kUs},
                                     {{0, 4}, 4100 * kUs},
                                     {{1, 2}, 4100 * kUs},
                                     {{2, 0}, 4100 * kUs},
                                     {{3, 5}, 4100 * kUs}}}
                          .trace()),
            0)
      << "more than a fifth";
}

TEST(Pauses, OfABusyMachineAreShorterOnesToo) {
  Steps run{.slow = {{{1, 3}, 9 * kMs}, {{2, 1}, 9 * kMs}}, .usual_ns = kMs};
  EXPECT_EQ(paused_ns(run.trace()), 16 * kMs);
  run.slow[{3, 4}] = 5 * kMs;
  EXPECT_EQ(paused_ns(run.trace()), 20 * kMs) << "five times the median, beside two sure ones";
  run.slow.erase({3, 4});
  run.slow[{0, 0}] = 9 * kMs;
  EXPECT_EQ(paused_ns(run.trace()), 24 * kMs) << "steps before the trace made the first calls";
  run.first_step = 0;
  EXPECT_EQ(paused_ns(run.trace()), 16 * kMs);
}

TEST(Pauses, WithoutSizesAreOfCallsThatLookEqual) {
  Steps run{.slow = {{{1, 1}, 8100 * kUs}}, .has_sizes = false, .steps = 2, .calls = 2};
  EXPECT_EQ(paused_ns(run.trace()), 8000 * kUs);
  run.slow[{0, 1}] = 300 * kUs;
  EXPECT_EQ(paused_ns(run.trace()), 0) << "they may have other sizes";
}

TEST(Pauses, OfAViewNeedNoEqualOnes) {
  Steps run{.slow = {{{1, 0}, 4 * kMs}}, .op = "aten::select", .usual_ns = kUs, .steps = 2};
  run.calls = 1;
  EXPECT_EQ(paused_ns(run.trace()), 3980 * kUs);
  run.op = "aten::mm";
  EXPECT_EQ(paused_ns(run.trace()), 0);
  run.op = "aten::sub";
  run.dims = {16};
  EXPECT_EQ(paused_ns(run.trace()), 3980 * kUs) << "64 bytes";
  run.dims = {1 << 16};
  EXPECT_EQ(paused_ns(run.trace()), 0);
}

TEST(Pauses, OfPythonAreGapsWithTheFunctionsOfShortOnes) {
  Steps run{.gaps = {{{1, 3}, 4010 * kUs}}};
  EXPECT_EQ(paused_ns(run.trace()), 0) << "without frames nothing shows that the same was done";
  run.function = "model.py(7): forward";
  EXPECT_EQ(paused_ns(run.trace()), 4000 * kUs);
  run.slow_function = "log.py(3): write";
  EXPECT_EQ(paused_ns(run.trace()), 0) << "another function runs";
  run.slow_function = "";
  run.function = "<built-in method wait of Work object at 0x7f00>";
  EXPECT_EQ(paused_ns(run.trace()), 0) << "it waits";
}

TEST(Pauses, AreNotTimesInWhichOthersWork) {
  const Steps run{.slow = {{{1, 3}, 4100 * kUs}}};
  GpuTrace other = run.trace();
  const Interval pause = find_pauses(other.trace, link(other.trace)).front();
  other.op("aten::mul", pause.begin_ns + kMs, pause.begin_ns + 2 * kMs, 2);
  EXPECT_EQ(paused_ns(other), 0) << "another thread";
  GpuTrace device = run.trace();
  device.call("cudaLaunchKernel", kMs, kMs + kUs, 1);
  device.gpu_kernel("k", kMs + kUs, kMs + 2 * kUs, 1);
  EXPECT_EQ(paused_ns(device), 0) << "a device";
}

TEST(Pauses, AreNoTimeOfTheTraceWhileTheyAreTakenOut) {
  GpuTrace b = Steps{.slow = {{{1, 3}, 4100 * kUs}, {{2, 1}, 8100 * kUs}}}.trace();
  const GpuTrace quiet = Steps().trace();
  b.memory(b.trace.end_ns, 16);
  const std::vector<Event> before = b.trace.events;
  const Links links = link(b.trace);
  {
    const TimeWithoutPauses without(b.trace, links, true);
    EXPECT_EQ(without.pauses().count, 2);
    EXPECT_EQ(without.pauses().ns, 12 * kMs);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(b.trace.events[i].ts_ns, quiet.trace.events[i].ts_ns) << i;
      EXPECT_EQ(b.trace.events[i].dur_ns, quiet.trace.events[i].dur_ns) << i;
    }
    EXPECT_EQ(b.trace.end_ns, quiet.trace.end_ns);
    EXPECT_EQ(b.trace.memory.front().ts_ns, quiet.trace.end_ns);
    const Explanation e = explain(b.trace, links, ExplainOptions{.pauses = without.pauses()});
    const auto said = std::ranges::find(e.health, "pauses", &HealthItem::id);
    ASSERT_NE(said, e.health.end());
    EXPECT_HAS(said->detail, "paused for 12.0 ms of 14.7 ms, in 2 places");
    EXPECT_EQ(find_finding(e, "slow-steps"), nullptr);
  }
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(b.trace.events[i].end_ns(), before[i].end_ns()) << i;
  EXPECT_NE(find_finding(explain(b.trace, links), "slow-steps"), nullptr);
}

// A step of a busy machine that is slow all the same costs, and no change of the program saves it.
TEST(Pauses, MakeSlowStepsOfEqualCallsAQuestionOfTheMachine) {
  GpuTrace b = Steps{.slow = {{{2, 1}, 3 * kMs}}}.trace();
  const Links links = link(b.trace);
  const Explanation quiet = explain(b.trace, links);
  ASSERT_NE(find_finding(quiet, "slow-steps"), nullptr);
  EXPECT_TRUE(find_finding(quiet, "slow-steps")->saving_us.has_value());
  const Explanation busy =
      explain(b.trace, links, ExplainOptions{.pauses = {.count = 2, .ns = 8 * kMs}});
  ASSERT_NE(find_finding(busy, "slow-steps"), nullptr);
  EXPECT_FALSE(find_finding(busy, "slow-steps")->saving_us.has_value());
  EXPECT_HAS(find_finding(busy, "slow-steps")->action, "a machine that does nothing else");
}

}  // namespace epilogue::trace::pauses_test
