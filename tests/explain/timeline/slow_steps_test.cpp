// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/slow_steps.h"

#include "epilogue/trace/explain.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::slow_steps_test {

using namespace testing;

// A step with four ops one after another, and time in no op.
struct StepOps {
  int64_t mm = 40;
  int64_t add = 20;
  int64_t gelu = 20;
  int64_t copy = 10;
  int64_t between = 10;
};

class Steps {
 public:
  void add(const StepOps& step) {
    const int64_t start = at_;
    op("aten::mm", step.mm);
    op("aten::add", step.add);
    op("aten::gelu", step.gelu);
    op("aten::copy_", step.copy);
    at_ += step.between * kUs;
    builder_.annotation("ProfilerStep#" + std::to_string(count_++), start, at_);
  }
  std::vector<SlowStep> find() {
    const Links links = link(builder_.trace);
    return slow_steps(builder_.trace, links, steps(builder_.trace, links));
  }
  const Trace& trace() const { return builder_.trace; }

 private:
  void op(const char* name, int64_t us) {
    builder_.op(name, at_, at_ + us * kUs);
    at_ += us * kUs;
  }

  TraceBuilder builder_;
  int64_t at_ = 0;
  int count_ = 0;
};

TEST(SlowSteps, SayWhatTheyTakeLongerFor) {
  Steps s;
  s.add({.copy = 90, .between = 40});
  s.add({});
  s.add({});
  s.add({});
  const std::vector<SlowStep> slow = s.find();
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].name, "ProfilerStep#0");
  EXPECT_EQ(slow[0].wall_ns, 210 * kUs);
  EXPECT_EQ(slow[0].median_ns, 100 * kUs);
  ASSERT_EQ(slow[0].above.size(), 2U);
  EXPECT_EQ(slow[0].above[0].name, "aten::copy_");
  EXPECT_EQ(slow[0].above[0].ns, 80 * kUs);
  EXPECT_EQ(slow[0].above[1].name, "time between ops");
  EXPECT_EQ(slow[0].above[1].ns, 30 * kUs);
  EXPECT_FALSE(slow[0].is_slower_throughout);
}

TEST(SlowSteps, KnowAStepOfWhichEveryOpIsSlower) {
  Steps s;
  for (int i = 0; i < 3; ++i) s.add({});
  s.add({80, 40, 40, 20, 20});
  const std::vector<SlowStep> slow = s.find();
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_TRUE(slow[0].is_slower_throughout);
  ASSERT_EQ(slow[0].above.size(), 3U) << "no more than three are named";
  EXPECT_EQ(slow[0].above[0].name, "aten::mm");
}

TEST(SlowSteps, AreNoneAmongTwoStepsOrEvenOnes) {
  Steps two;
  two.add({});
  two.add({.mm = 400});
  EXPECT_TRUE(two.find().empty());
  two.add({.mm = 41});
  two.add({});
  EXPECT_EQ(two.find().size(), 1U);
}

TEST(SlowSteps, ExplainNamesWhatTheyTakeLongerFor) {
  Steps s;
  for (int i = 0; i < 3; ++i) s.add({});
  s.add({80, 40, 40, 20, 20});
  const Explanation e = explain(s.trace(), link(s.trace()));
  const auto f = std::find_if(e.findings.begin(), e.findings.end(),
                              [](const Finding& finding) { return finding.id == "slow-steps"; });
  ASSERT_NE(f, e.findings.end());
  ASSERT_EQ(f->evidence.size(), 3U);
  EXPECT_EQ(f->evidence[0],
            "ProfilerStep#3: 200 us against a median of 100 us; aten::mm takes 40.0 us more, "
            "aten::add 20.0 us, aten::gelu 20.0 us");
  EXPECT_HAS(f->evidence[1], "the machine had other work");
}

}  // namespace epilogue::trace::slow_steps_test
