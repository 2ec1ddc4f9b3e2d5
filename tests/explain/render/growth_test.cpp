// SPDX-License-Identifier: Apache-2.0
// How the work for a page grows with the trace: a loop over all threads for each thread once took
// minutes.
#include <time.h>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::growth_test {

using testing::TraceBuilder;

constexpr int kFew = 4000;
constexpr int kTimes = 16;
// Linear work takes about kTimes as long, quadratic work kTimes as long as that: the limit is far
// from both, so that a busy machine does not matter.
constexpr double kMostTimes = 4.0 * kTimes;

// Of this thread alone: what others do on the machine hardly counts.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_of_page(const Trace& trace) {
  const double begin = cpu_seconds();
  const Links links = link(trace);
  const Explanation explanation = explain(trace, links);
  const std::string page =
      html_report({.trace = trace, .links = links, .explanation = explanation});
  EXPECT_FALSE(page.empty());
  return cpu_seconds() - begin;
}

// How much longer a page of kTimes as many takes: the least of some runs.
double growth(const std::function<Trace(int n)>& make) {
  const Trace few = make(kFew);
  const Trace many = make(kFew * kTimes);
  double ratio = kMostTimes;
  for (int i = 0; i < 3 && ratio >= kMostTimes; ++i)
    ratio = seconds_of_page(many) / seconds_of_page(few);
  return ratio;
}

Trace threads(int n) {
  TraceBuilder b;
  for (int i = 0; i < n; ++i) {
    b.op("aten::add", i * 100, i * 100 + 1000);
    b.trace.events.back().tid = i + 10;
    b.trace.threads.push_back(
        {.pid = b.trace.events.back().pid, .tid = i + 10, .name = "thread " + std::to_string(i)});
  }
  return std::move(b.trace);
}

Trace streams(int n) {
  TraceBuilder b;
  for (int i = 0; i < n; ++i) {
    const int64_t id = b.op("aten::add", i * 100, i * 100 + 90).external_id;
    b.kernel("add", i * 100 + 50, i * 100 + 80, id);
    b.trace.events.back().tid = i + 7;
  }
  return std::move(b.trace);
}

Trace names(int n) {
  TraceBuilder b;
  for (int i = 0; i < n; ++i) {
    const int64_t id = b.op("op_" + std::to_string(i), i * 100, i * 100 + 90).external_id;
    b.kernel("kernel_" + std::to_string(i), i * 100 + 50, i * 100 + 80, id);
  }
  return std::move(b.trace);
}

TEST(Growth, APageOfManyThreadsTakesTimeInProportion) { EXPECT_LT(growth(threads), kMostTimes); }
TEST(Growth, APageOfManyStreamsTakesTimeInProportion) { EXPECT_LT(growth(streams), kMostTimes); }
TEST(Growth, APageOfManyNamesTakesTimeInProportion) { EXPECT_LT(growth(names), kMostTimes); }

}  // namespace epilogue::trace::growth_test
