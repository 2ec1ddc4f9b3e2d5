// SPDX-License-Identifier: Apache-2.0
#include "explain/answer/expectations.h"

#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::trace::expectations_test {

std::string refused(const std::string& text) {
  return test::message_of([&] { parse_expectations("--expect", {text}); });
}

TEST(ParseExpectations, ReadsNameOpAndNumber) {
  const auto list =
      parse_expectations("EXPR", {"kernels_per_step <= 5", "launches==1e3", " ops  !=\t-2.5 "});
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].quantity, "kernels_per_step");
  EXPECT_EQ(list[0].op, "<=");
  EXPECT_EQ(list[0].expected, 5);
  EXPECT_EQ(list[1].quantity, "launches");
  EXPECT_EQ(list[1].op, "==");
  EXPECT_EQ(list[1].expected, 1000);
  EXPECT_EQ(list[2].text, "ops  !=\t-2.5");
  EXPECT_EQ(list[2].expected, -2.5);
  EXPECT_TRUE(parse_expectations("EXPR", {}).empty());
}

TEST(ParseExpectations, KnowsEveryOperator) {
  for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
    const auto list = parse_expectations("EXPR", {std::string("ops ") + op + " 1"});
    ASSERT_EQ(list.size(), 1U) << op;
    EXPECT_EQ(list[0].op, op);
  }
}

TEST(ParseExpectations, RefusesOtherForms) {
  for (const char* text : {"", "ops", "ops <= ", "<= 5", "ops = 5", "ops <= five", "ops <= 5 x",
                           "ops <= nan", "ops <= inf", "ops =< 5"})
    EXPECT_EQ(refused(text), std::string("[--expect] expected NAME OP NUMBER with OP one of == != "
                                         "< <= > >=, got '") +
                                 text + "'");
}

TEST(ParseExpectations, NamesTheNearestQuantities) {
  EXPECT_EQ(refused("kernels_per_stp <= 5"),
            "[--expect] expected a quantity of epilogue check --list, got 'kernels_per_stp'; did "
            "you mean kernels_per_step, kernel_us_per_step or gemm_kernels_per_step?");
  EXPECT_EQ(refused("xyzzy <= 5"),
            "[--expect] expected a quantity of epilogue check --list, got 'xyzzy'");
}

TEST(ParseExpectations, TheFirstThatIsWrongIsNamed) {
  EXPECT_HAS(test::message_of([] {
               parse_expectations("EXPR", {"ops > 1", "nothing == 1", "also_nothing == 1"});
             }),
             "'nothing'");
}

TEST(QuantityNames, AreNamesThatExpectationsTake) {
  const std::vector<std::string> names = quantity_names();
  ASSERT_GT(names.size(), 10U);
  for (const std::string& name : names)
    EXPECT_EQ(parse_expectations("EXPR", {name + " > 0"}).front().quantity, name);
  EXPECT_NE(std::find(names.begin(), names.end(), "gpu_idle_pct"), names.end());
}

}  // namespace epilogue::trace::expectations_test
