// SPDX-License-Identifier: Apache-2.0
// How a difference is shown: what is compared, of what the lists are, in text and JSON.
#include <nlohmann/json.hpp>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/report.h"
#include "explain/render/has_text.h"
#include "support/test.h"

namespace epilogue::trace::diff_document_test {

using testing::has_text;

TraceDiff by_steps(int64_t before, int64_t after) {
  TraceDiff d;
  d.by_steps = true;
  d.per_step = before != after;
  d.has_device_work = true;
  d.steps = {before, after};
  d.wall_ns = {936'000, 1'010'000};
  d.kernels = {16, 5.5};
  d.parts.push_back({"aten::mm: same kernel, gemm", "1 executions", 0, 74'000});
  d.kernels_changed.push_back({"gemm", "gemm", {16, 5.5}, {10'000, 84'000}});
  return d;
}

TEST(DiffDocument, AnotherDeviceIsSaid) {
  TraceDiff d = by_steps(3, 3);
  EXPECT_FALSE(has_text(diff_text(d), "different devices"));
  d.devices = {"NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-32GB"};
  EXPECT_TRUE(has_text(diff_text(d),
                       "The traces are of different devices: NVIDIA A100-SXM4-40GB -> Tesla "
                       "V100-SXM2-32GB."));
}

TEST(DiffDocument, RunsWithoutADeviceSayNothingOfOne) {
  TraceDiff d = by_steps(3, 3);
  d.has_device_work = false;
  d.ops = {99, 192};
  const std::string text = diff_text(d);
  EXPECT_TRUE(has_text(text, "sum of 3 -> 3 steps; ops 99 -> 192\n")) << text;
  EXPECT_FALSE(has_text(text, "device busy")) << text;
}

TEST(DiffDocument, AveragesOfStepsSaySo) {
  const std::string text = diff_text(by_steps(3, 2));
  EXPECT_TRUE(
      text.starts_with("wall time per step 936 us -> 1.01 ms (+74.0 us), 0.93x\n"
                       "per step, averages over 3 -> 2 steps: "))
      << text;
  EXPECT_TRUE(has_text(text, "kernels 16 -> 5.50")) << text;
  EXPECT_TRUE(has_text(text, "Kernels that changed, per step")) << text;
  const auto parsed = nlohmann::json::parse(diff_json(by_steps(3, 2)));
  EXPECT_EQ(parsed["per_step"], true);
  EXPECT_EQ(parsed["steps"], (std::vector<int>{3, 2}));
  EXPECT_TRUE(parsed["kernels"][0].is_number_integer());
  EXPECT_EQ(parsed["kernels"][1], 5.5);
}

TEST(DiffDocument, EqualNumbersOfStepsAreSums) {
  const std::string text = diff_text(by_steps(3, 3));
  EXPECT_TRUE(text.starts_with("wall time 936 us")) << text;
  EXPECT_TRUE(has_text(text, "\nsum of 3 -> 3 steps; ")) << text;
  EXPECT_FALSE(has_text(text, "per step")) << text;
}

TEST(DiffDocument, NoDifferenceIsSaid) {
  TraceDiff d = by_steps(3, 3);
  d.parts.clear();
  EXPECT_TRUE(has_text(diff_text(d), "No part takes longer or shorter than before."))
      << diff_text(d);
}

TEST(DiffDocument, OpsAreListedAsOps) {
  TraceDiff d;
  d.ops_removed.push_back({"aten::linear", "aten::linear", {9, 0}, {122'000, 0}});
  const std::string text = diff_text(d);
  EXPECT_TRUE(has_text(text, "Ops only before (time in themselves)\n  op ")) << text;
  EXPECT_FALSE(has_text(text, "Kernels only")) << text;
  const auto parsed = nlohmann::json::parse(diff_json(d));
  EXPECT_TRUE(parsed["kernels_removed"].empty());
  EXPECT_EQ(parsed["ops_removed"][0]["name"], "aten::linear");
  EXPECT_EQ(parsed["ops_removed"][0]["total_us"][0], 122.0);
}

// A waterfall or a script reads names in full, a list the short one.
TEST(DiffDocument, ListsShowLabelsAndJsonBoth) {
  TraceDiff d = by_steps(3, 3);
  d.kernels_changed[0].name = std::string(300, 'k');
  d.kernels_changed[0].label = "elementwise add f32";
  d.parts[0].kernel_names[0] = {std::string(300, 'k')};
  EXPECT_TRUE(has_text(diff_text(d), "  elementwise add f32  16 -> 5.50")) << diff_text(d);
  const auto parsed = nlohmann::json::parse(diff_json(d));
  EXPECT_EQ(parsed["kernels_changed"][0]["name"], std::string(300, 'k'));
  EXPECT_EQ(parsed["kernels_changed"][0]["label"], "elementwise add f32");
  EXPECT_EQ(parsed["parts"][0]["kernel_names"][0][0], std::string(300, 'k'));
}

}  // namespace epilogue::trace::diff_document_test
