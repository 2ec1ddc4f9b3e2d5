// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "errors/message_of.h"

namespace epilogue::trace::answer_test {
namespace {

const std::string kEager = EPILOGUE_TEST_DATA "/torch/mlp_geglu_eager.json.gz";
const std::string kCompiled = EPILOGUE_TEST_DATA "/torch/mlp_geglu_compile.json.gz";

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

TEST(Answer, OfBytesIsThatOfTheFile) {
  const std::string bytes = content(kEager);
  ASSERT_FALSE(bytes.empty());
  const TraceInput of_bytes = {.bytes = bytes, .name = kEager};
  EXPECT_EQ(explain_answer(of_bytes).value().json(),
            explain_answer({.path = kEager}).value().json());
  EXPECT_EQ(table_answer(of_bytes).value().text(), table_answer({.path = kEager}).value().text());
}

TEST(Answer, TakesTheNameThatItIsGiven) {
  const Answer answer = explain_answer({.path = kEager, .name = "a run"}).value();
  EXPECT_EQ(nlohmann::json::parse(answer.json())["path"], "a run");
}

TEST(Answer, OutlivesTheTracesThatItIsOf) {
  std::optional<Answer> answer = diff_answer({.path = kEager}, {.path = kCompiled}).value();
  const Answer copy = *answer;
  answer.reset();
  EXPECT_EQ(nlohmann::json::parse(copy.json())["ops"], nlohmann::json({105, 42}));
  EXPECT_NE(copy.markdown(), "");
}

TEST(Answer, OfATraceWithoutOpsSaysSo) {
  constexpr std::string_view kFlow =
      R"({"traceEvents": [{"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 1, "cat": "ac2g", "name": "ac2g"}]})";
  const Answer table = table_answer({.bytes = kFlow, .name = "flow"}).value();
  EXPECT_EQ(table.text(), "no op, no annotation and no device work was recorded\n");
  EXPECT_EQ(table.markdown(), table.text());
}

TEST(Answer, SaysWhyThereIsNone) {
  const Result<Answer> none = explain_answer({.path = "/no/such.json"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.failure().code, FailureCode::cannot_open);
  const Result<Answer> no_step = explain_answer({.path = kEager, .step = 99});
  ASSERT_FALSE(no_step);
  EXPECT_EQ(no_step.failure().code, FailureCode::no_such_step);
  EXPECT_NE(test::message_of([] {
              static_cast<void>(check_answer({.path = "/no/such.json"}, {"opps > 1"}));
            }).find("did you mean ops"),
            std::string::npos);
}

TEST(Answer, JudgementsComeInTheOrderOfTheExpressions) {
  const CheckAnswer check = check_answer({.path = kEager}, {"ops == 105", "ops < 100"}).value();
  ASSERT_EQ(check.judgements.size(), 2U);
  EXPECT_TRUE(check.judgements[0].holds);
  EXPECT_FALSE(check.judgements[1].holds);
  EXPECT_FALSE(check.all_hold);
}

TEST(AnswerHooks, WarnOfATraceThatEndsEarly) {
  const std::string whole = content(kEager);
  std::vector<std::string> warnings;
  const AnswerHooks hooks = {.warn = [&](const std::string& text) { warnings.push_back(text); }};
  ASSERT_TRUE(explain_answer(
      {.bytes = std::string_view(whole).substr(0, whole.size() * 3 / 4), .name = "half"}, {},
      hooks));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("half: "), 0U);
}

TEST(AnswerHooks, WhatPollThrowsEndsTheCall) {
  int calls = 0;
  const AnswerHooks hooks = {.poll = [&] {
    if (++calls == 2) throw std::runtime_error("enough");
  }};
  EXPECT_THROW(explain_answer({.path = kEager}, {}, hooks), std::runtime_error);
  EXPECT_EQ(calls, 2);
}

TEST(AnswerHooks, PollIsCalledBetweenTheAnalyses) {
  int calls = 0;
  const Trace trace = load_trace({.path = kEager}).value();
  explain(trace, link(trace), [&] { ++calls; });
  EXPECT_GT(calls, 3);
}

}  // namespace
}  // namespace epilogue::trace::answer_test
