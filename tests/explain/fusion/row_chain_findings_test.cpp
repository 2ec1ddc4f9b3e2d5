// SPDX-License-Identifier: Apache-2.0
// Predicted savings of compile() on traces of our own CPU device, worked out by hand.
#include "epilogue/trace/fusion.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::row_chain_findings_test {

using namespace testing;

// Ops one after another, each as long as its kernel and 2 us more.
class OwnProgram {
 public:
  OwnProgram() { b_.trace.device_label = "KERNEL"; }

  void op(const char* name, int64_t kernel_us, std::vector<OpInput> inputs) {
    b_.op(name, now_, now_ + (kernel_us + 2) * kUs);
    b_.inputs(std::move(inputs));
    b_.kernel(name, now_ + kUs, now_ + (kernel_us + 1) * kUs, b_.last_id());
    now_ += (kernel_us + 2) * kUs;
  }
  // x [100, 50], hidden 200.
  void mlp() {
    op("aten::mm", 40, {tensor({100, 50}), tensor({50, 200})});
    op("aten::relu", 10, {tensor({100, 200})});
    op("aten::mm", 40, {tensor({100, 200}), tensor({200, 50})});
  }
  // 100 GFLOP/s at every number of rows, 3 us per call.
  void measure(const char* by_rows = R"({"f32": [[1, 100.0], [1000, 100.0]]})") {
    b_.trace.metadata = {
        {"row_chain", std::string(R"({"overhead_us": 3, "gflops_by_rows": )") + by_rows + "}"},
        {"read_gb_per_s_by_bytes", "[[1000, 50], [1000000, 50]]"}};
  }
  void set_gradients() {
    for (OpArgs& args : b_.trace.ops) args.sequence_number = 1;
  }
  Trace& trace() { return b_.trace; }

  std::vector<Fusion> row_chains() {
    std::vector<Fusion> list = find_fusions(b_.trace, link(b_.trace)).fusions;
    std::erase_if(list, [](const Fusion& f) { return f.kind != FusionKind::row_chain; });
    return list;
  }

 private:
  TraceBuilder b_;
  int64_t now_ = 0;
};

TEST(RowChainFindings, AnMlpIsOneKernelAtTheMeasuredRate) {
  OwnProgram p;
  p.mlp();
  p.measure();
  const std::vector<Fusion> found = p.row_chains();
  ASSERT_EQ(found.size(), 1U);
  const Fusion& f = found[0];
  EXPECT_EQ(f.ops, (std::vector<std::string>{"aten::mm", "aten::relu", "aten::mm"}));
  EXPECT_EQ(f.kernels_now, 3);
  EXPECT_EQ(f.kernels_after, 1);
  EXPECT_EQ(f.confidence, Confidence::high);
  // Products 2 * 100 * 50 * 200 * 2 = 4 MFLOP: 40 us at 100 GFLOP/s, and 3 us. relu moves bytes
  // only.
  EXPECT_DOUBLE_EQ(f.time_us, 90);
  EXPECT_NEAR(f.device_saving_us, 90 - 43, 1e-9);
  EXPECT_NEAR(f.host_saving_us, 6, 1e-9);
  EXPECT_NEAR(f.predicted_saving_us, 53, 1e-9);
  // Each product 5000 + 10000 + 20000 elements, relu 2 * 20000; after: x, the weights, the result.
  EXPECT_EQ(f.bytes_now, 4 * (2 * 35000 + 40000));
  EXPECT_EQ(f.bytes_after, 4 * (5000 + 2 * 10000 + 5000));
}

TEST(RowChainFindings, RatesBetweenTwoNumbersOfRowsFollowTheLogarithm) {
  OwnProgram p;
  p.mlp();
  p.measure(R"({"f32": [[10, 50.0], [1000, 100.0]]})");  // 100 rows: 75 GFLOP/s
  EXPECT_NEAR(p.row_chains().at(0).device_saving_us, 90 - 3 - 4e6 / 75e3, 1e-9);
}

TEST(RowChainFindings, BytesAreReadAtTheRateOfSoMany) {
  OwnProgram p;
  p.mlp();
  p.measure();
  // Halfway, by the logarithm: 120 kB at 2 GB/s: 60 us.
  p.trace().metadata[1].second = "[[12000, 3], [1200000, 1]]";
  EXPECT_NEAR(p.row_chains().at(0).device_saving_us, 90 - 63, 1e-9);
}

TEST(RowChainFindings, WithoutRatesProductsStayAsFastAsTheyAre) {
  OwnProgram p;
  p.mlp();
  const std::vector<Fusion> found = p.row_chains();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].confidence, Confidence::low);
  EXPECT_NEAR(found[0].device_saving_us, 10, 1e-9);
  EXPECT_NEAR(found[0].host_saving_us, 4, 1e-9) << "two of three dispatches";
}

TEST(RowChainFindings, ElementsOfTheProductsCostToo) {
  OwnProgram p;
  p.mlp();
  p.measure(R"({"f32": [[1, 100.0]]}, "ns_per_element": {"f32": 0.2})");
  // 100 * 200 + 100 * 50 elements: 5 us.
  EXPECT_NEAR(p.row_chains().at(0).device_saving_us, 90 - 43 - 5, 1e-9);
}

TEST(RowChainFindings, WhatWouldBeSlowerIsSaid) {
  OwnProgram p;
  p.op("aten::mm", 10, {tensor({100, 50}), tensor({50, 200})});  // 200 GFLOP/s
  p.measure();
  EXPECT_NEAR(p.row_chains().at(0).predicted_saving_us, 12 - 20 - 3, 1e-9);
  OwnProgram unmeasured;
  unmeasured.op("aten::mm", 10, {tensor({100, 50}), tensor({50, 200})});
  EXPECT_TRUE(unmeasured.row_chains().empty());
}

TEST(RowChainFindings, TrainingAndOtherDevicesAreLeftAlone) {
  OwnProgram training;
  training.mlp();
  training.measure();
  training.set_gradients();
  EXPECT_TRUE(training.row_chains().empty());
  OwnProgram gpu;
  gpu.mlp();
  gpu.measure();
  gpu.trace().device_label = "CUDA";
  EXPECT_TRUE(gpu.row_chains().empty());
}

TEST(RowChainFindings, OddMetadataIsNoModel) {
  for (const char* rates : {"7", R"({"f32": [[1, -5]]})", R"({"f32": 3})", R"({"f32": [["a", 1]]})",
                            R"({"bf16": [[1, 100]]})", R"({"f32": [)"}) {
    OwnProgram p;
    p.mlp();
    p.measure(rates);
    EXPECT_NEAR(p.row_chains().at(0).device_saving_us, 10, 1e-9) << rates;
  }
}

}  // namespace epilogue::trace::row_chain_findings_test
