// SPDX-License-Identifier: Apache-2.0
// Work and traffic of ops that are no matrix products, and how near that is to the device's
// limits.
#include "epilogue/trace/file.h"
#include "explain/products/device_samples.h"
#include "explain/products/gemm_trace.h"
#include "explain/products/op_problem.h"
#include "support/test.h"
#include "trace/real_traces.h"

namespace epilogue::trace::op_rooflines_test {

using namespace testing;

OpProblem problem(std::string_view op, const std::vector<OpInput>& inputs) {
  return op_problem(op, inputs).value();
}

std::vector<OpInput> convolution(const char* padding, const char* groups, const char* transposed) {
  return {tensor({4, 8, 10, 12}), tensor({16, 4, 3, 3}), scalar("", ""),
          scalar("[2, 1]"),       scalar(padding),       scalar("[1, 1]"),
          scalar(transposed),     scalar("[0, 0]"),      scalar(groups)};
}

TEST(OpProblems, CountAConvolution) {
  // Result [4, 16, 5, 12]: (10 + 2 - 3) / 2 + 1 and (12 + 2 - 3) / 1 + 1.
  const OpProblem p = problem("aten::convolution", convolution("[1, 1]", "2", "False"));
  EXPECT_EQ(p.kind, RooflineKind::convolution);
  EXPECT_EQ(p.flops, 2.0 * 4 * 16 * 5 * 12 * (4 * 3 * 3));
  EXPECT_EQ(p.bytes, 4.0 * (4 * 8 * 10 * 12 + 16 * 4 * 3 * 3 + 4 * 16 * 5 * 12));
  EXPECT_FALSE(op_problem("aten::convolution", convolution("[1, 1]", "2", "True")));
  EXPECT_FALSE(op_problem("aten::convolution", convolution("", "2", "False")));
}

TEST(OpProblems, CountOneProductForEachGradientOfAConvolution) {
  std::vector<OpInput> inputs = {tensor({4, 16, 5, 12}),
                                 tensor({4, 8, 10, 12}),
                                 tensor({16, 8, 3, 3}),
                                 scalar("[16]"),
                                 scalar("[2, 1]"),
                                 scalar("[1, 1]"),
                                 scalar("[1, 1]"),
                                 scalar("False"),
                                 scalar("[0, 0]"),
                                 scalar("1"),
                                 scalar("[True, True, False]")};
  const double product = 2.0 * (4 * 16 * 5 * 12) * (8 * 3 * 3);
  EXPECT_EQ(problem("aten::convolution_backward", inputs).flops, 2 * product);
  inputs.back() = scalar("[False, True, False]");
  EXPECT_EQ(problem("aten::convolution_backward", inputs).flops, product);
}

TEST(OpProblems, CountHalfOfACausalAttention) {
  const auto inputs = [](const char* causal) {
    const OpInput x = tensor({2, 3, 100, 64}, kBf16);
    return std::vector<OpInput>{x, x, x, scalar("0."), scalar(causal), scalar("False")};
  };
  const OpProblem whole = problem("aten::_scaled_dot_product_flash_attention", inputs("False"));
  EXPECT_EQ(whole.kind, RooflineKind::attention);
  EXPECT_EQ(whole.flops, 4.0 * 2 * 3 * 100 * 100 * 64);
  EXPECT_EQ(whole.bytes, 4.0 * 2 * (2 * 3 * 100 * 64));
  EXPECT_EQ(problem("aten::_scaled_dot_product_flash_attention", inputs("True")).flops,
            *whole.flops / 2);
}

TEST(OpProblems, CountNormsSoftmaxElementsAndReductions) {
  const OpProblem norm = problem("aten::native_layer_norm",
                                 {tensor({4, 197, 768}, kBf16), scalar("[768]", "ScalarList"),
                                  tensor({768}, kBf16), tensor({768}, kBf16), scalar("1e-12")});
  EXPECT_EQ(norm.flops, 5.0 * 4 * 197 * 768);
  EXPECT_EQ(norm.bytes, 2.0 * (2 * 4 * 197 * 768 + 2 * 768));
  // Half in, float out.
  const OpProblem softmax =
      problem("aten::_softmax", {tensor({8, 100}, kBf16), scalar("-1"), scalar("True")});
  EXPECT_EQ(softmax.bytes, (2.0 + 4.0) * 800);
  const OpProblem mul = problem("aten::mul", {tensor({16, 559, 1024}), tensor({16, 559, 1})});
  EXPECT_EQ(mul.flops, 16.0 * 559 * 1024);
  EXPECT_EQ(mul.bytes, 4.0 * (2 * 16 * 559 * 1024 + 16 * 559));
  // The tensor that copy_ writes is not read.
  const OpProblem cast =
      problem("aten::copy_", {tensor({10, 10}), tensor({10, 10}, kBf16), scalar("False")});
  EXPECT_EQ(cast.bytes, 100.0 * (4 + 2));
  EXPECT_EQ(problem("aten::fill_", {tensor({10, 10}), scalar("0")}).bytes, 400);
  const OpProblem mean = problem(
      "aten::mean", {tensor({16, 559, 1024}), scalar("[-1]"), scalar("True"), scalar("", "")});
  EXPECT_EQ(mean.kind, RooflineKind::reduction);
  EXPECT_EQ(mean.flops, 16.0 * 559 * 1024);
  EXPECT_EQ(mean.bytes, 4.0 * (16 * 559 * 1024 + 16 * 559));
  EXPECT_EQ(problem("aten::sum", {tensor({10, 10}), scalar("", "")}).bytes, 4.0 * 101);
}

TEST(OpProblems, AreNoneForOtherOpsAndForShapesThatDoNotFit) {
  EXPECT_FALSE(op_problem("aten::mm", std::vector{tensor({2, 2}), tensor({2, 2})}));
  EXPECT_FALSE(op_problem("mine::op", std::vector{tensor({2, 2})}));
  EXPECT_FALSE(op_problem("aten::mul", std::vector{tensor({2, 3}), tensor({4, 5})}));
  EXPECT_FALSE(op_problem("aten::sum", std::vector{tensor({2, 3}), scalar("[7]")}));
  EXPECT_FALSE(op_problem("aten::mul", {}));
}

TEST(OpRooflines, AreOfAllRunsWithTheSameInputs) {
  GemmTrace t(a100());
  for (const int64_t ns : {1000, 1200, 1100})
    t.product("aten::add", {tensor({1024, 1024}), tensor({1024, 1024}), scalar("1")}, "add", ns);
  t.product("aten::add", {tensor({16}), tensor({16}), scalar("1")}, "add", 900);
  t.product("aten::mm", testing::mm(64, 64, 64, kBf16), testing::kGate, 5000);
  const std::vector<OpRoofline> list = op_rooflines(t.trace, link(t.trace));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].shapes, "[1024, 1024] f32, [1024, 1024] f32");
  EXPECT_EQ(list[0].time.count, 3);
  EXPECT_EQ(list[0].time.median_ns, 1100);
  EXPECT_DOUBLE_EQ(list[0].gb_per_s.value(), 3.0 * 4 * 1024 * 1024 / 1100);
  EXPECT_EQ(list[0].side, RooflineSide::memory);
  EXPECT_DOUBLE_EQ(list[0].attainable_pct.value(),
                   *list[0].gb_per_s / *list[0].peak_gb_per_s * 100);
}

TEST(OpRooflines, GiveKernelsOfInnerOpsToNormsAndNotToElementwiseOps) {
  GemmTrace t(a100());
  const auto nest = [&](const char* outer, std::vector<OpInput> inputs) {
    t.op(outer, t.now, t.now + 2000);
    t.inputs(std::move(inputs));
    t.product("mine::inner", {tensor({4, 8})}, "kernel", 700);
    t.now += 2000;
  };
  nest("aten::native_layer_norm", {tensor({4, 8}), scalar("[8]"), tensor({8}), tensor({8})});
  nest("aten::add", {tensor({4, 8}), tensor({4, 8})});
  const std::vector<OpRoofline> list = op_rooflines(t.trace, link(t.trace));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].op, "aten::native_layer_norm");
  EXPECT_EQ(list[0].kernels, 1);
}

// --- Beside TraceLens's own tables --------------------------------------------------------------

// RFC 4180, as TraceLens writes it.
std::vector<std::map<std::string, std::string>> read_csv(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::vector<std::string>> lines(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& cell = lines.back().back();
    if (c == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') {
      cell += text[i++];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      lines.back().emplace_back();
    } else if (c == '\n' && !quoted) {
      lines.push_back({""});
    } else if (c != '\r') {
      cell += c;
    }
  }
  std::vector<std::map<std::string, std::string>> rows;
  for (size_t l = 1; l < lines.size(); ++l)
    if (lines[l].size() == lines[0].size())
      for (size_t c = 0; c < lines[l].size(); ++c) {
        if (c == 0) rows.emplace_back();
        rows.back()[lines[0][c]] = lines[l][c];
      }
  return rows;
}

bool is_near(double a, double b) { return std::abs(a - b) <= 0.03 * std::abs(b); }

TEST(OpRooflines, AgreeWithTraceLensToThreePercent) {
  if (!has_real_trace("tracelens_expected")) GTEST_SKIP() << "no ../shared/traces";
  int compared = 0;
  for (const char* name : {"h100_bert_small", "h100_qwen_0.5b", "h100_vit", "mi300_bert_small"}) {
    const Trace trace =
        read_trace(real_trace_path(std::string("tracelens/") + name + ".json.gz")).value();
    const std::vector<OpRoofline> list = op_rooflines(trace, link(trace));
    for (const char* table : {"BinaryElementwise", "UnaryElementwise", "Normalization", "SDPA_fwd",
                              "CONV_fwd", "Reduce_fwd"}) {
      const std::string path =
          real_trace_path(std::string("tracelens_expected/") + name + "/" + table + ".csv");
      for (auto& row : read_csv(path)) {
        // Its own kernels are native_layer_norm's, which is another row.
        if (row["name"] == "aten::layer_norm") continue;
        double us = std::stod(row["Kernel Time (µs)_median"]);
        // TraceLens counts the bias's add_ (3.968 us), a row of its own, in the convolution too.
        if (row["name"] == "aten::convolution") us -= 3.968;
        const auto same = [&](const OpRoofline& r) {
          return r.op == row["name"] && r.time.count == std::stoll(row["name_count"]) &&
                 is_near(static_cast<double>(r.time.median_ns) * 1e-3, us) &&
                 is_near(r.flops.value_or(0), std::stod(row["GFLOPS_first"]) * 1e9) &&
                 is_near(r.bytes, std::stod(row["Data Moved (MB)_first"]) * (1 << 20));
        };
        EXPECT_TRUE(std::any_of(list.begin(), list.end(), same))
            << name << " " << row["name"] << " " << row["Input Dims_first"] << " " << us << " us";
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 35);
}

}  // namespace epilogue::trace::op_rooflines_test
