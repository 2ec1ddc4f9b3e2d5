// SPDX-License-Identifier: Apache-2.0
// The schedule function and the session's transitions, against torch.profiler's tables.
#include "core/observer.h"
#include "epilogue/ops.h"
#include "epilogue/profiler.h"
#include "support/test.h"

namespace epilogue::profiler::schedule_test {

std::string sequence(const Schedule& s, int steps) {
  std::string text;
  for (int i = 0; i < steps; ++i) text += "NWRS"[static_cast<int>(s(i))];
  return text;
}

struct Golden {
  ScheduleOptions options;
  std::string expected;
};

TEST(Schedule, GoldenSequences) {
  const std::vector<Golden> table = {
      {{.wait = 1, .warmup = 1, .active = 2, .repeat = 1}, "NWRSNNNNN"},
      {{.wait = 1, .warmup = 1, .active = 2}, "NWRSNWRSNWRS"},
      {{.wait = 2, .warmup = 1, .active = 1, .repeat = 2, .skip_first = 3}, "NNNNNWSNNWSNNN"},
      {{.wait = 4, .warmup = 1, .active = 2, .repeat = 2, .skip_first = 2, .skip_first_wait = 1},
       "NNWRSNNNNWRSNN"},
      {{.active = 1}, "SSSS"},
      {{.warmup = 1, .active = 3, .repeat = 1}, "WRRSNN"},
      {{.wait = 5, .warmup = 1, .active = 1, .repeat = 2, .skip_first_wait = 1}, "WSNNNNNWSNN"}};
  for (const Golden& g : table)
    EXPECT_EQ(sequence(schedule(g.options), static_cast<int>(g.expected.size())), g.expected);
}

TEST(Schedule, RefusesNonsense) {
  EXPECT_THROW(schedule({.wait = -1}), Error);
  EXPECT_THROW(schedule({.active = 0}), Error);
  try {
    schedule({.warmup = 2, .active = -3});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "[schedule] expected wait, warmup, repeat and skip_first of 0 or more and active of "
        "1 or more, got wait=0 warmup=2 active=-3 repeat=0 skip_first=0");
  }
}

// Runs a fixed list of actions and notes, per step, whether ops are recorded, and the ready calls.
struct Session {
  std::string recorded;                              // 'x' where ops were recorded during the step
  std::vector<int64_t> ready_at;                     // step_num inside on_trace_ready
  std::vector<std::vector<std::string>> step_names;  // ProfilerStep ranges of each saved trace
  std::vector<std::string> warnings;
};

Session run(const std::string& actions) {
  Session session;
  ProfileOptions options;
  options.schedule = [actions](int64_t step) {
    const auto i = std::min(static_cast<size_t>(step), actions.size() - 1);
    return static_cast<Action>(std::string("NWRS").find(actions[i]));
  };
  options.on_trace_ready = [&](Profile& p) {
    session.ready_at.push_back(p.step_num());
    std::vector<std::string> names;
    for (const trace::Event& e : p.trace().events)
      if (p.trace().name(e).starts_with("ProfilerStep")) names.emplace_back(p.trace().name(e));
    session.step_names.push_back(names);
  };
  Profile prof(options);
  prof.start();
  for (size_t i = 0; i < actions.size(); ++i) {
    session.recorded += run_observer() != nullptr ? 'x' : '.';
    if (i + 1 < actions.size()) prof.step();
  }
  prof.stop();
  EXPECT_EQ(run_observer(), nullptr);
  session.warnings = prof.warnings();
  return session;
}

using Names = std::vector<std::vector<std::string>>;

TEST(Transitions, OneCycle) {
  const Session s = run("NWRSN");
  EXPECT_EQ(s.recorded, "..xx.");
  EXPECT_EQ(s.ready_at, std::vector<int64_t>({4}));  // already the number of the next step
  EXPECT_EQ(s.step_names, Names({{"ProfilerStep#2", "ProfilerStep#3"}}));
  EXPECT_TRUE(s.warnings.empty());
}

TEST(Transitions, SaveThenEverything) {
  EXPECT_EQ(run("SSS").step_names,
            Names({{"ProfilerStep#0"}, {"ProfilerStep#1"}, {"ProfilerStep#2"}}));
  EXPECT_EQ(run("SRS").step_names,
            Names({{"ProfilerStep#0"}, {"ProfilerStep#1", "ProfilerStep#2"}}));
  EXPECT_EQ(run("SWS").step_names, Names({{"ProfilerStep#0"}, {"ProfilerStep#2"}}));
  EXPECT_EQ(run("NRSN").recorded, ".xx.");
  EXPECT_EQ(run("NSN").ready_at, std::vector<int64_t>({2}));
}

TEST(Transitions, ExitSavesWhatIsRecorded) {
  EXPECT_EQ(run("RR").step_names, Names({{"ProfilerStep#0", "ProfilerStep#1"}}));
  EXPECT_EQ(run("WS").step_names, Names({{"ProfilerStep#1"}}));
  EXPECT_TRUE(run("WW").ready_at.empty());
  EXPECT_TRUE(run("NN").ready_at.empty());
}

TEST(Transitions, WrongSchedulesWarnAndLoseTheTrace) {
  Session s = run("RN");
  EXPECT_TRUE(s.ready_at.empty());
  EXPECT_EQ(s.warnings, std::vector<std::string>({"Incorrect schedule: RECORD followed by NONE"}));
  s = run("RW");
  EXPECT_TRUE(s.ready_at.empty());
  EXPECT_EQ(s.warnings,
            std::vector<std::string>({"Incorrect schedule: RECORD followed by WARMUP"}));
  s = run("WN");
  EXPECT_TRUE(s.ready_at.empty());
  EXPECT_EQ(s.warnings, std::vector<std::string>({"Incorrect schedule: WARMUP followed by NONE"}));
  // Recording again after a lost trace works.
  EXPECT_EQ(run("RWS").step_names, Names({{"ProfilerStep#2"}}));
}

TEST(Profile, WithoutScheduleRecordsAllAndHasNoSteps) {
  Profile prof;
  prof.start();
  add(ones({2}), ones({2}));
  prof.step();
  prof.stop();
  ASSERT_EQ(prof.trace().ops.size(), 1U);
  for (const trace::Event& e : prof.trace().events)
    EXPECT_FALSE(prof.trace().name(e).starts_with("ProfilerStep"));
}

TEST(Profile, MisuseIsSaid) {
  Profile prof;
  EXPECT_THROW(prof.step(), Error);
  EXPECT_THROW(prof.stop(), Error);
  EXPECT_THROW((void)prof.trace(), Error);
  prof.start();
  EXPECT_THROW(prof.start(), Error);
  Profile other;
  EXPECT_THROW(other.start(), Error);
  prof.stop();
  other.start();
  other.stop();
}

TEST(Profile, AnExceptionLeavesNothingRecording) {
  try {
    Profile prof;
    prof.start();
    throw Error("elsewhere");
  } catch (const Error&) {
  }
  EXPECT_EQ(run_observer(), nullptr);
  Profile next;
  next.start();
  next.stop();
}

}  // namespace epilogue::profiler::schedule_test
