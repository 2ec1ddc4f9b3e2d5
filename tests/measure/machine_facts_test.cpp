// SPDX-License-Identifier: Apache-2.0
#include "measure/machine_facts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "epilogue/runtime.h"

namespace epilogue::measure::machine_facts_test {
namespace {

using nlohmann::json;

MachineFigures some_figures() {
  MachineFigures f;
  f.cpu = cpu_identity();
  f.isa = isa_name(active_isa());
  f.threads = num_threads();
  f.f32_gflops = 123;
  f.f32_gflops_one_thread = 64;
  f.f32_product_gflops = 50;
  f.memory_gb_per_s = 20;
  f.memory_gb_per_s_one_thread = 11;
  f.stream_gb_per_s_one_thread = 12;
  f.read_gb_per_s = {{1 << 15, 200.0}, {1 << 28, 20.0}};
  f.chains = {{"f32", {{1, 10.0}, {64, 90.0}}, 0.2}};
  f.handoff_us = 1.5;
  return f;
}

TEST(MachineFacts, SayWhatCostsNothingToTell) {
  const json facts = machine_facts();
  EXPECT_EQ(facts["threads"], num_threads());
  EXPECT_EQ(facts["isa_used"], active_isa_name());
  EXPECT_EQ(facts["machine_file"], machine_file());
  for (const char* key : {"cpu", "isa_detected", "l1d_bytes", "l2_bytes", "l3_bytes"})
    EXPECT_TRUE(facts.contains(key)) << key;
  EXPECT_FALSE(facts.contains("f32_peak_gflops"));
}

TEST(MachineFacts, TheKnownMachineHasWhatWasMeasured) {
  EXPECT_EQ(known_machine(), machine_facts());  // tests keep nothing between processes
  const MachineFigures figures = some_figures();
  ASSERT_TRUE(set_machine_figures(figures).ok());
  const json machine = known_machine();
  EXPECT_EQ(machine, machine_json(figures));
  EXPECT_EQ(machine["f32_peak_gflops"], 123);
  EXPECT_EQ(machine["memory_read_gb_per_s"], 20);
  EXPECT_EQ(machine["threads"], num_threads());
  EXPECT_FALSE(machine.contains("bf16_peak_gflops"));  // none was found
}

TEST(MachineFacts, ATextOfThisMachineReadsBack) {
  const json machine = machine_json(some_figures());
  const auto read = parse_machine(machine.dump(), "m.json");
  ASSERT_TRUE(read.ok()) << read.failure().message;
  EXPECT_EQ(read.value(), machine);
}

std::string refused(const std::string& text) {
  const auto read = parse_machine(text, "m.json");
  if (read.ok()) return "";
  EXPECT_EQ(read.failure().code, FailureCode::no_machine);
  return read.failure().message;
}

TEST(MachineFacts, OtherTextsAreRefused) {
  const std::string other =
      "expected what epilogue info --measure --format json prints, got m.json";
  for (const char* text : {"", "{", "[]", "1", "null", "{}", R"({"threads": 1})"})
    EXPECT_EQ(refused(text), other) << text;
  json machine = machine_json(some_figures());
  machine["threads"] = num_threads() + 1;
  EXPECT_EQ(refused(machine.dump()), "expected a file measured with threads " +
                                         std::to_string(num_threads()) + ", got " +
                                         std::to_string(num_threads() + 1));
  machine = machine_json(some_figures());
  machine.erase("isa_used");
  EXPECT_EQ(refused(machine.dump()), std::string("expected a file measured with isa_used \"") +
                                         std::string(active_isa_name()) + "\", got null");
}

TEST(MachineFacts, ATraceCarriesWhatAnalysesRead) {
  const auto metadata = trace_metadata(machine_json(some_figures()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : metadata) {
    keys.push_back(key);
    EXPECT_FALSE(json::parse(value).is_null()) << key;
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"cpu", "isa_used", "threads", "f32_peak_gflops",
                                            "memory_read_gb_per_s", "read_gb_per_s_by_bytes",
                                            "row_chain"}));
  EXPECT_EQ(trace_metadata(machine_facts()).size(), 3U);
  EXPECT_TRUE(trace_metadata(json::object()).empty());
}

}  // namespace
}  // namespace epilogue::measure::machine_facts_test
