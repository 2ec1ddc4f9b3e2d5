// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trace/trace_builder.h"

namespace epilogue::trace {
namespace {

// Two steps; the first one's kernel runs while the second is under way.
Trace two_steps() {
  testing::TraceBuilder b;
  b.annotation("ProfilerStep#3", 0, 1'000'000);
  b.op("first", 100'000, 200'000);
  const int64_t first = b.last_id();
  b.annotation("ProfilerStep#4", 1'000'000, 2'000'000);
  b.op("second", 1'100'000, 1'200'000);
  const int64_t second = b.last_id();
  b.kernel("k1", 150'000, 160'000, first);
  b.trace.events.back().ts_ns = 1'500'000;
  b.kernel("k2", 1'150'000, 1'160'000, second);
  b.trace.events.back().ts_ns = 1'600'000;
  b.memory(150'000, 64);
  b.memory(1'150'000, 64);
  b.trace.end_ns = 2'000'000;
  return std::move(b.trace);
}

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> names;
  for (const Event& e : trace.events) names.emplace_back(trace.name(e));
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Select, AStepTakesTheKernelsThatItLaunched) {
  const Trace t = select_step(two_steps(), 3).value();
  EXPECT_EQ(names(t),
            (std::vector<std::string>{"ProfilerStep#3", "epiLaunchKernel", "first", "k1"}));
  EXPECT_EQ(t.memory.size(), 1U);
  EXPECT_EQ(t.start_ns, 0);
  EXPECT_EQ(t.end_ns, 1'000'000);
  EXPECT_EQ(names(select_step(two_steps(), 4).value()),
            (std::vector<std::string>{"ProfilerStep#4", "epiLaunchKernel", "k2", "second"}));
}

TEST(Select, AnUnknownStepNamesTheKnownOnes) {
  const auto none = select_step(two_steps(), 9);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.failure().code, "NoSuchStep");
  EXPECT_NE(none.failure().message.find("it has 3, 4"), std::string::npos)
      << none.failure().message;
  EXPECT_NE(select_step(Trace(), 1).failure().message.find("no ProfilerStep"), std::string::npos);
}

TEST(Select, ARangeTakesWhatStartsInIt) {
  const Trace t = select_range(two_steps(), 1.0, 1.55).value();
  EXPECT_EQ(names(t),
            (std::vector<std::string>{"ProfilerStep#4", "epiLaunchKernel", "k1", "second"}));
  EXPECT_EQ(t.start_ns, 1'000'000);
  EXPECT_EQ(t.end_ns, 1'550'000);
  EXPECT_EQ(select_range(two_steps(), {}, 0.12).value().events.size(), 2U);
  EXPECT_EQ(select_range(two_steps(), 5.0, {}).failure().code, "EmptyRange");
  EXPECT_EQ(select_range(two_steps(), 1.0, 0.5).failure().code, "EmptyRange");
}

}  // namespace
}  // namespace epilogue::trace
