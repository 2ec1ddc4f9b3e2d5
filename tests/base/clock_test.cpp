// SPDX-License-Identifier: Apache-2.0
// Ticks never run backwards and convert to the wall clock's nanoseconds.
#include "base/clock.h"
#include "support/test.h"

namespace epilogue::clock_test {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Clock, TicksAndTimesAreMonotone) {
  int64_t last_tick = ticks();
  int64_t last_ns = monotonic_ns();
  for (int i = 0; i < 100'000; ++i) {
    const int64_t tick = ticks();
    const int64_t ns = monotonic_ns();
    ASSERT_GE(tick, last_tick);
    ASSERT_GE(ns, last_ns);
    last_tick = tick;
    last_ns = ns;
  }
}

TEST(Clock, RealtimeIsUnixTime) {
  const int64_t ns_2020 = 1'577'836'800'000'000'000;
  EXPECT_GT(realtime_ns(), ns_2020);
}

// Both clocks are read close together, but this process may lose its core in between: the best of
// some tries shows what the converter is worth.
TEST(TickConverter, IsWithinOnePercentOverTwentyMilliseconds) {
  double best_error = 1;
  for (int i = 0; i < 5; ++i) {
    const int64_t begin_ns = monotonic_ns();
    const TickAnchor begin = tick_anchor();
    sleep_ms(20);
    const TickAnchor end = tick_anchor();
    const auto true_ns = static_cast<double>(monotonic_ns() - begin_ns);
    const TickConverter convert(begin, end);
    best_error = std::min(
        best_error, std::abs(convert.duration_ns(end.ticks - begin.ticks) - true_ns) / true_ns);
  }
  EXPECT_LT(best_error, 0.01);
}

TEST(TickConverter, MapsTheAnchorsToThemselves) {
  const TickAnchor begin{1'000, 5'000'000'000};
  const TickAnchor end{4'001'000, 5'002'000'000};
  const TickConverter convert(begin, end);
  EXPECT_EQ(convert.unix_ns(begin.ticks), begin.unix_ns);
  EXPECT_EQ(convert.unix_ns(end.ticks), end.unix_ns);
  EXPECT_EQ(convert.unix_ns(2'001'000), 5'001'000'000);
  EXPECT_EQ(convert.unix_ns(0), 4'999'999'500);
  EXPECT_DOUBLE_EQ(convert.duration_ns(100), 50);
}

// Anchors that lie too close give no slope; the measured rate stands in, and the call returns.
TEST(TickConverter, CloseAnchorsUseTheMeasuredRate) {
  const TickAnchor here = tick_anchor();
  const TickConverter convert(here, here);
  double best_error = 1;
  for (int i = 0; i < 5; ++i) {
    const int64_t begin_ns = monotonic_ns();
    const int64_t begin = ticks();
    sleep_ms(10);
    const int64_t end = ticks();
    const auto true_ns = static_cast<double>(monotonic_ns() - begin_ns);
    best_error =
        std::min(best_error, std::abs(convert.duration_ns(end - begin) - true_ns) / true_ns);
  }
  EXPECT_LT(best_error, 0.02);
}

TEST(TickConverter, BackwardAnchorsDoNotTurnTimeAround) {
  const TickConverter convert({1'000, 5'000'000'000}, {500, 4'000'000'000});
  EXPECT_GT(convert.duration_ns(1'000), 0);
}

}  // namespace epilogue::clock_test
