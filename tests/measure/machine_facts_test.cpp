// SPDX-License-Identifier: Apache-2.0
#include "measure/machine_facts.h"

#include <nlohmann/json.hpp>

#include "base/machine_figures.h"
#include "epilogue/runtime.h"
#include "support/test.h"

namespace epilogue::measure::machine_facts_test {

using nlohmann::json;
using samples::figures_of_now;

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
  MachineFigures figures = figures_of_now();
  figures.bf16_gflops = 0;
  ASSERT_TRUE(set_machine_figures(figures).ok());
  const json machine = known_machine();
  EXPECT_EQ(machine, machine_json(figures));
  EXPECT_EQ(machine["f32_peak_gflops"], figures.f32_gflops);
  EXPECT_EQ(machine["memory_read_gb_per_s"], figures.memory_gb_per_s);
  EXPECT_EQ(machine["threads"], num_threads());
  EXPECT_FALSE(machine.contains("bf16_peak_gflops"));  // none was found
}

TEST(MachineFacts, ATextOfThisMachineReadsBack) {
  const json machine = machine_json(figures_of_now());
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
  json machine = machine_json(figures_of_now());
  machine["threads"] = num_threads() + 1;
  EXPECT_EQ(refused(machine.dump()), "expected a file measured with threads " +
                                         std::to_string(num_threads()) + ", got " +
                                         std::to_string(num_threads() + 1));
  machine = machine_json(figures_of_now());
  machine.erase("isa_used");
  EXPECT_EQ(refused(machine.dump()), std::string("expected a file measured with isa_used \"") +
                                         std::string(active_isa_name()) + "\", got null");
}

TEST(MachineFacts, ATraceCarriesWhatAnalysesRead) {
  const auto metadata = trace_metadata(machine_json(figures_of_now()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : metadata) {
    keys.push_back(key);
    EXPECT_FALSE(json::parse(value).is_null()) << key;
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"cpu", "isa_used", "threads", "f32_peak_gflops",
                                            "bf16_peak_gflops", "memory_read_gb_per_s",
                                            "read_gb_per_s_by_bytes", "row_chain"}));
  EXPECT_EQ(trace_metadata(machine_facts()).size(), 3U);
  EXPECT_TRUE(trace_metadata(json::object()).empty());
}

}  // namespace epilogue::measure::machine_facts_test
