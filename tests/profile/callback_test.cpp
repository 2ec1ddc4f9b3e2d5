// SPDX-License-Identifier: Apache-2.0
// Callbacks: on_trace_ready or the schedule throws, or calls back into the profile.
#include "core/observer.h"
#include "epilogue/ops.h"
#include "epilogue/profiler.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::profiler::callback_test {

using test::message_of;

ProfileOptions failing_options() {
  return {.schedule = schedule({.active = 1}),
          .on_trace_ready = [](Profile&) { throw std::runtime_error("disk full"); }};
}

// Nothing records, and another profile may.
void expect_stopped(Profile& p) {
  EXPECT_EQ(run_observer(), nullptr);
  EXPECT_ERROR(p.step(), "[profile] expected start() before step()");
  EXPECT_ERROR(p.stop(), "[profile] expected start() before stop()");
  Profile other;
  EXPECT_EQ(message_of([&] {
              other.start();
              other.stop();
            }),
            "(no error)");
}

TEST(Callback, AnExceptionInStepStopsTheProfile) {
  Profile p(failing_options());
  p.start();
  add(ones({2}), ones({2}));
  EXPECT_THROW(p.step(), std::runtime_error);
  expect_stopped(p);
  EXPECT_FALSE(p.trace().events.empty()) << "the cycle was finished";
}

TEST(Callback, AnExceptionInStopStopsTheProfile) {
  Profile p(failing_options());
  p.start();
  EXPECT_THROW(p.stop(), std::runtime_error);
  expect_stopped(p);
}

TEST(Callback, AStoppedProfileCanBeStartedAgain) {
  int calls = 0;
  Profile p({.on_trace_ready = [&](Profile&) {
    if (++calls == 1) throw std::runtime_error("disk full");
  }});
  p.start();
  EXPECT_THROW(p.stop(), std::runtime_error);
  p.start();
  p.stop();
  EXPECT_EQ(calls, 2);
}

TEST(Callback, AnExceptionOfTheScheduleStopsTheProfile) {
  Profile p({.schedule = [](int64_t step) {
    if (step == 1) throw std::runtime_error("no plan");
    return Action::record;
  }});
  p.start();
  EXPECT_THROW(p.step(), std::runtime_error);
  expect_stopped(p);
}

TEST(Callback, CallsFromWithinItAreRefused) {
  std::string step;
  std::string stop;
  std::string start;
  Profile p({.schedule = schedule({.active = 1}), .on_trace_ready = [&](Profile& self) {
               step = message_of([&] { self.step(); });
               stop = message_of([&] { self.stop(); });
               start = message_of([&] { self.start(); });
             }});
  p.start();
  p.step();
  const std::string end = "() outside of on_trace_ready, got a call from within it";
  EXPECT_EQ(step, "[profile] expected step" + end);
  EXPECT_EQ(stop, "[profile] expected stop" + end);
  EXPECT_EQ(start, "[profile] expected start() once, got a second call");
  EXPECT_EQ(p.step_num(), 1) << "the profile goes on";
  p.step();
  p.stop();
}

}  // namespace epilogue::profiler::callback_test
