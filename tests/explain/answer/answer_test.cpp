// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/answer.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "epilogue/trace/report.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::trace::answer_test {

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

// Another process ran within one of 12 equal products. The table is the profiler's.
TEST(Answer, IsWithoutPausesAndTheTableWithThem) {
  std::string text = R"({"schemaVersion": 1, "traceEvents": [)";
  int64_t ts = 1000;
  for (int i = 0; i < 12; ++i) {
    const int64_t us = i == 5 ? 4100 : 100;
    text +=
        (i > 0 ? ", " : "") +
        fmt::format(
            R"({{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {}, )"
            R"("dur": {}, "args": {{"External id": {}, "Input Dims": [[64, 64], [64, 64]], )"
            R"("Input type": ["float", "float"]}}}})",
            ts, us, i + 1);
    ts += us + 1;
  }
  text += "]}";
  const TraceInput input = {.bytes = text, .name = "busy"};
  const nlohmann::json e = nlohmann::json::parse(explain_answer(input).value().json());
  const auto said = std::ranges::find_if(
      e["health"], [](const nlohmann::json& item) { return item["id"] == "pauses"; });
  ASSERT_NE(said, e["health"].end());
  EXPECT_HAS(said->at("detail").get<std::string>(), "paused for 4.00 ms of 5.21 ms, in 1 place");
  EXPECT_HAS(table_answer(input).value().text(), "5.200ms");
}

TEST(Answer, SaysWhyThereIsNone) {
  const Result<Answer> none = explain_answer({.path = "/no/such.json"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.failure().code, FailureCode::cannot_open);
  const Result<Answer> no_step = explain_answer({.path = kEager, .step = 99});
  ASSERT_FALSE(no_step);
  EXPECT_EQ(no_step.failure().code, FailureCode::no_such_step);
  EXPECT_HAS(test::message_of(
                 [] { static_cast<void>(check_answer({.path = "/no/such.json"}, {"opps > 1"})); }),
             "did you mean ops");
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

TEST(ExplainAnswer, FramesBesideTheEventsSayWhatFramesAmongThemSay) {
  for (const char* name : {"mlp_stack_eager", "train_stack_eager"}) {
    SCOPED_TRACE(name);
    const std::string path = EPILOGUE_TEST_DATA "/torch/" + std::string(name) + ".json.gz";
    const Trace events = load_trace({.path = path}, PythonFrames::events).value();
    const Trace beside = load_trace({.path = path}, PythonFrames::beside).value();
    ASSERT_GT(beside.frames.size(), 100U);
    EXPECT_EQ(events.events.size(), beside.events.size() + beside.frames.size());
    const Explanation a = explain(events, link(events));
    const Explanation b = explain(beside, link(beside));
    ASSERT_TRUE(a.host && b.host);
    ASSERT_FALSE(a.host->functions.empty());
    ASSERT_EQ(a.host->functions.size(), b.host->functions.size());
    for (size_t i = 0; i < a.host->functions.size(); ++i) {
      EXPECT_EQ(a.host->functions[i].name, b.host->functions[i].name);
      EXPECT_EQ(a.host->functions[i].self_ns, b.host->functions[i].self_ns);
    }
    ASSERT_FALSE(a.memory.empty());
    ASSERT_TRUE(b.memory.front().largest_python);
    EXPECT_EQ(b.memory.front().largest_python->module,
              a.memory.front().at_peak_by_python[0].module);
    EXPECT_EQ(b.memory.front().largest_python->bytes, a.memory.front().at_peak_by_python[0].bytes);
    ASSERT_EQ(a.findings.size(), b.findings.size());
    for (size_t i = 0; i < a.findings.size(); ++i) {
      EXPECT_EQ(a.findings[i].id, b.findings[i].id);
      EXPECT_EQ(a.findings[i].evidence, b.findings[i].evidence);
    }
  }
}

// A folder with the same trace for each of so many ranks.
class RankFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(int rank) const {
    std::ofstream(folder_ / ("rank" + std::to_string(rank) + ".json.gz"), std::ios::binary)
        << content(kEager);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("ranks" + std::to_string(::getpid()));
};

TEST_F(RankFolderTest, OneWatchSeesTheReadingOfAllFiles) {
  for (int rank = 0; rank < 3; ++rank) write(rank);
  const auto bytes = static_cast<int64_t>(3 * content(kEager).size());
  int watches = 0;
  std::vector<int64_t> seen;
  AnswerHooks hooks;
  hooks.watch_reading = [&] {
    ++watches;
    return [&](int64_t done, int64_t total) {
      EXPECT_EQ(total, bytes);
      seen.push_back(done);
    };
  };
  ASSERT_TRUE(explain_answer({.path = folder_.string()}, {}, hooks));
  EXPECT_EQ(watches, 1);
  ASSERT_GE(seen.size(), 3u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(seen.back(), bytes * 2 / 3);
  EXPECT_LE(seen.back(), bytes);
}

TEST_F(RankFolderTest, IsTheSameWhetherRanksAreReadOneByOneOrHeldTogether) {
  for (int rank = 0; rank < 2; ++rank) write(rank);
  const Trace first = load_trace({.path = (folder_ / "rank0.json.gz").string()}).value();
  const Trace second = load_trace({.path = (folder_ / "rank1.json.gz").string()}).value();
  const Links of_first = link(first);
  const Links of_second = link(second);
  const RankTrace ranks[] = {{first, of_first}, {second, of_second}};
  EXPECT_EQ(explain_answer({.path = folder_.string()}).value().json(),
            ranks_json(explain_ranks(ranks)));
}

TEST_F(RankFolderTest, FilesThatAreNoTracesAreCountedAndNamed) {
  for (int rank = 0; rank < 2; ++rank) write(rank);
  std::ofstream(folder_ / "about.json") << "{}";
  std::ofstream(folder_ / "empty.json") << "";
  const auto json =
      nlohmann::json::parse(explain_answer({.path = folder_.string()}).value().json());
  ASSERT_EQ(json["left_out"].size(), 2u);
  EXPECT_HAS(json["left_out"][1].get<std::string>(), "empty.json: ");
  const auto& findings = json["findings"];
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [](const auto& f) { return f["id"] == "left-out-files"; });
  ASSERT_NE(found, findings.end());
  EXPECT_EQ((*found)["title"], "2 files of the folder are left out: they cannot be read as traces");
  // What to do comes last.
  nlohmann::json files = (*found)["evidence"];
  ASSERT_FALSE(files.empty());
  EXPECT_HAS(files.back().get<std::string>(), "keep the traces of one run alone in the folder");
  files.erase(files.size() - 1);
  EXPECT_EQ(files, json["left_out"]);
}

TEST_F(RankFolderTest, OneTraceBesideAFileThatIsNoneIsExplainedItself) {
  write(0);
  std::ofstream(folder_ / "about.json") << "{}";
  std::vector<std::string> warnings;
  AnswerHooks hooks;
  hooks.warn = [&](const std::string& text) { warnings.push_back(text); };
  const Answer answer = explain_answer({.path = folder_.string()}, {}, hooks).value();
  EXPECT_EQ(nlohmann::json::parse(answer.json())["verdict"], "cpu-only");
  EXPECT_EQ(warnings.size(), 1u);
}

}  // namespace epilogue::trace::answer_test
