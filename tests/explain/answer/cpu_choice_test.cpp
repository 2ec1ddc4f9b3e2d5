// SPDX-License-Identifier: Apache-2.0
// The CPU that users name for a trace.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/machine_figures.h"
#include "epilogue/trace/answer.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::trace::cpu_choice_test {

const std::string kEager = EPILOGUE_TEST_DATA "/torch/mlp_geglu_rich_eager.json.gz";

// One product of 2 GFLOP in `us` microseconds.
std::string product_trace(int us, const char* type = "float") {
  return R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,)"
         R"( "ts": 0, "dur": )" +
         std::to_string(us) + R"(, "args": {"External id": 1, "Input type": [")" + type +
         R"(", ")" + type +
         R"("], "Input Dims": [[1000, 1000], [1000, 1000]], "Concrete Inputs": ["", ""]}}]})";
}

Answer explained(const std::string& trace, const CpuChoice& cpu) {
  return explain_answer({.bytes = trace, .name = "t"}, {.cpu = cpu}).value();
}
nlohmann::json host_of(const Answer& answer) {
  return nlohmann::json::parse(answer.json()).at("host");
}
bool says(const Answer& answer, const std::string& text) {
  return answer.text().find(text) != std::string::npos;
}

TEST(CpuChoice, WithoutOneNothingIsCompared) {
  const Answer answer = explained(product_trace(10'000), {});
  const nlohmann::json host = host_of(answer);
  EXPECT_TRUE(host["peaks"].is_null());
  EXPECT_TRUE(host["products"][0]["peak_pct"].is_null());
  EXPECT_TRUE(says(answer, "Rates are not compared with a peak"));
  EXPECT_TRUE(says(answer, "GFLOP/s  FLOP/byte")) << "no column of shares";
}

TEST(CpuChoice, AnEstimateIsSaidToBeOne) {
  const Answer answer = explained(product_trace(10'000), {"EPYC 7763", 8});  // 200 of 640
  const nlohmann::json host = host_of(answer);
  EXPECT_EQ(host["peaks"]["family"], "Zen 3");
  EXPECT_EQ(host["peaks"]["is_estimate"], true);
  EXPECT_EQ(host["peaks"]["is_too_low"], false);
  EXPECT_EQ(host["peaks"]["threads"], 8);
  EXPECT_DOUBLE_EQ(host["peaks"]["f32_gflops"], 640);
  EXPECT_DOUBLE_EQ(host["peaks"]["bf16_gflops"], 0) << "no instructions";
  EXPECT_TRUE(host["peaks"]["i8_gops"].is_null()) << "not known";
  EXPECT_DOUBLE_EQ(host["products"][0]["peak_pct"], 31.25);
  EXPECT_TRUE(says(answer, "  200.0  31 %  "));
  EXPECT_TRUE(says(answer,
                   "Peak: estimated from the CPU's name: Zen 3, 8 cores, 2.5 GHz, 640 GFLOP/s f32. "
                   "Each thread is assumed to have a core of its own. 2.5 GHz is assumed"));
  EXPECT_FALSE(says(answer, "too low"));
  EXPECT_FALSE(says(answer, "no instructions")) << "the trace has no product in 16 bits";
  EXPECT_TRUE(says(explained(product_trace(10'000, "c10::BFloat16"), {"EPYC 7763", 8}),
                   "It has no instructions for bf16: the peak is that of f32."));
}

TEST(CpuChoice, WhatIsAboveTheEstimateSaysThatItIsTooLow) {
  const Answer answer = explained(product_trace(10'000), {"EPYC 7763", 1});  // 200 of 80
  EXPECT_DOUBLE_EQ(host_of(answer)["products"][0]["peak_pct"], 250);
  EXPECT_EQ(host_of(answer)["peaks"]["is_too_low"], true);
  EXPECT_TRUE(says(answer, "One product is faster than that: the estimate is too low"));
  EXPECT_FALSE(says(answer, "threads or more")) << "their number was told";
  const Answer assumed = explained(product_trace(10'000), {"EPYC 7763"});
  EXPECT_TRUE(says(assumed, "If the clock is right, the run had 3 threads or more."));
}

TEST(CpuChoice, HereIsWhatWasMeasured) {
  setenv("EPILOGUE_CACHE_DIR", "off", 1);
  const std::string trace = product_trace(10'000);
  EXPECT_HAS(test::message_of([&] { explained(trace, {"here"}); }), "info --measure");
  MachineFigures figures = samples::figures_of_now();
  figures.f32_gflops = 400;
  figures.f32_gflops_one_thread = 250;
  figures.bf16_gflops = 1600;
  ASSERT_TRUE(set_machine_figures(figures));
  const Answer answer = explained(trace, {"here"});
  const nlohmann::json host = host_of(answer);
  EXPECT_EQ(host["peaks"]["is_estimate"], false);
  EXPECT_EQ(host["peaks"]["threads"], num_threads());
  EXPECT_DOUBLE_EQ(host["products"][0]["peak_pct"], 50);
  EXPECT_TRUE(says(answer, "Peak: measured on this machine, "));
  EXPECT_DOUBLE_EQ(host_of(explained(product_trace(10'000, "c10::BFloat16"),
                                     {"here"}))["products"][0]["peak_pct"],
                   12.5);
  EXPECT_DOUBLE_EQ(
      host_of(explained(product_trace(10'000, "double"), {"here"}))["products"][0]["peak_pct"],
      100);
  if (num_threads() > 1) {
    EXPECT_DOUBLE_EQ(host_of(explained(trace, {"here", 1}))["products"][0]["peak_pct"], 80);
  }
}

TEST(CpuChoice, WhatIsNoCpuIsRefusedBeforeTheTraceIsRead) {
  const auto refusal = [](const CpuChoice& cpu) {
    return test::message_of(
        [&] { static_cast<void>(explain_answer({.path = "/no/such.json"}, {.cpu = cpu})); });
  };
  EXPECT_HAS(refusal({"Zen 33"}), "[--cpu] expected a CPU of one of the families Haswell, ");
  EXPECT_HAS(refusal({"Zen 33"}), "got 'Zen 33'; did you mean ");
  EXPECT_HAS(refusal({"Zen 3", -1}), "[--cpu-threads] expected");
  EXPECT_EQ(refusal({"", 4}), "[--cpu-threads] expected --cpu beside it, got none");
}

TEST(CpuChoice, WhereItHasNoUseItIsWarnedOf) {
  std::vector<std::string> warnings;
  const AnswerHooks hooks = {.warn = [&](const std::string& text) { warnings.push_back(text); }};
  const ExplainAnswerOptions options = {.cpu = {"Zen 3"}};
  ASSERT_TRUE(explain_answer({.path = kEager}, options, hooks));
  EXPECT_EQ(warnings.size(), 0U);
  constexpr std::string_view kDevice =
      R"({"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 4, "dur": 9,
         "args": {"device": 0, "stream": 7}}]})";
  ASSERT_TRUE(explain_answer({.bytes = kDevice, .name = "gpu"}, options, hooks));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "gpu: --cpu is not used: the trace is of a run with a device: products are compared "
            "with the device's peak");
}

TEST(CpuChoice, OfRanksThereIsNone) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("cpus" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const char* name : {"rank0.json", "rank1.json"})
    std::ofstream(folder / name) << product_trace(10'000);
  EXPECT_HAS(test::message_of([&] {
               static_cast<void>(explain_answer({.path = folder.string()}, {.cpu = {"Zen 3"}}));
             }),
             "[--cpu] expected one trace");
  std::filesystem::remove_all(folder);
}

}  // namespace epilogue::trace::cpu_choice_test
