// SPDX-License-Identifier: Apache-2.0
#include "explain/knowledge/op_knowledge.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "explain/index/aten_ops.h"
#include "support/test.h"

namespace epilogue::trace::op_knowledge_test {

std::vector<std::string> names_of(const OpKnowledge& row) {
  std::istringstream in{std::string(row.names)};
  std::vector<std::string> names;
  for (std::string name; in >> name;) names.push_back(name);
  return names;
}

TEST(OpKnowledge, EveryOpIsInOneFamily) {
  std::set<std::string> seen;
  std::set<std::string_view> families;
  for (const OpKnowledge& row : all_op_knowledge()) {
    EXPECT_TRUE(families.insert(row.family).second) << row.family;
    for (const std::string& name : names_of(row)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " stands twice";
      EXPECT_EQ(op_knowledge("aten::" + name), &row) << name;
    }
  }
  EXPECT_GE(families.size(), 150U);
  EXPECT_GE(seen.size(), 1000U);
}

std::filesystem::path root() {
  return (std::filesystem::path(__FILE__) / "../../../..").lexically_normal();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Names that traces hold and PyTorch 2.15 has no schema of.
bool is_known_elsewhere(std::string_view name) {
  static const std::set<std::string_view> kNames = {
      // mkldnn::, torchvision:: and torchao's
      "_linear_pointwise", "nms", "roi_align", "roi_pool", "box_iou",
      "choose_qparams_per_token_asymmetric",
      // kernels that BLAS libraries' linear layers are traced as
      "_mkldnn_linear", "_mkl_linear",
      // aten:: of earlier releases
      "_cat", "slow_conv2d", "mkldnn_convolution_backward", "_coo_to_sparse", "cholesky", "qr",
      "solve", "lstm_mps",
      // functions of torch and torch.nn.functional, of which annotations have the names
      "unique", "fold", "_unfold", "mkldnn_transposed_convolution", "local_response_norm",
      "softmin", "xlog1py", "logsigmoid", "tolist", "interpolate", "lp_pool2d", "lobpcg"};
  return kNames.contains(name);
}

// tests/data/aten_ops.txt is the list of PyTorch itself.
TEST(OpKnowledge, EveryNameIsOneOfPyTorch) {
  std::istringstream in(read_file(root() / "tests/data/aten_ops.txt"));
  std::set<std::string> aten;
  std::string line;
  std::getline(in, line);
  ASSERT_TRUE(line.starts_with('#'));
  while (std::getline(in, line)) aten.insert(line);
  ASSERT_GT(aten.size(), 1500U);
  for (const OpKnowledge& row : all_op_knowledge())
    for (const std::string& name : names_of(row)) {
      const bool is_aten = aten.contains(name) || aten.contains(name + "_");
      EXPECT_NE(is_aten, is_known_elsewhere(name)) << name << " of " << row.family;
    }
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string cost_text(const OpKnowledge& row) {
  const std::string_view unit = op_cost_unit(row.cost);
  if (row.unit_ns <= 0) return fmt::format("by {}", unit);
  const std::string number =
      row.unit_ns >= 100 ? fmt::format("{:.0f}", row.unit_ns) : fmt::format("{:.2g}", row.unit_ns);
  return fmt::format("{} ns for each {}", number, unit);
}

std::string table_of_ops() {
  std::string table =
      "| family | ops | costs | fuses | a loss if | then |\n|---|---|---|---|---|---|\n";
  for (const OpKnowledge& row : all_op_knowledge())
    table += fmt::format("| {} | `{}` | {} ({}) | {} | {} | {} |\n", row.family, row.names,
                         cost_text(row), op_cost_name(row.cost), op_fuses_name(row.fuses),
                         cell(row.misuse), cell(row.remedy));
  return table;
}

// EPILOGUE_UPDATE_GOLDENS=1 (scripts/update_goldens.sh) writes the page anew.
TEST(OpKnowledge, ThePageIsMadeOfTheTable) {
  const std::filesystem::path path = root() / "docs/ops.md";
  const std::string page = read_file(path);
  const std::string mark = "<!-- table of ops -->\n";
  const size_t from = page.find(mark);
  ASSERT_NE(from, std::string::npos);
  const std::string made = page.substr(0, from + mark.size()) + "\n" + table_of_ops();
  if (std::getenv("EPILOGUE_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << made;
  EXPECT_EQ(made, read_file(path)) << "scripts/update_goldens.sh writes docs/ops.md";
}

// Most costs are measured; each unit is one of some family's.
TEST(OpKnowledge, CostsAreNumbersWithUnits) {
  size_t measured = 0;
  std::set<OpCost> costs;
  for (const OpKnowledge& row : all_op_knowledge()) {
    measured += row.unit_ns > 0 ? 1 : 0;
    EXPECT_GE(row.unit_ns, 0) << row.family;
    EXPECT_LT(row.unit_ns, 10'000) << row.family;
    costs.insert(row.cost);
    EXPECT_FALSE(op_cost_unit(row.cost).empty());
  }
  EXPECT_GE(measured, 100U);
  EXPECT_EQ(costs.size(), static_cast<size_t>(OpCost::metadata) + 1);
}

TEST(OpKnowledge, AMisuseHasARemedy) {
  for (const OpKnowledge& row : all_op_knowledge()) {
    EXPECT_EQ(row.misuse.empty(), row.remedy.empty()) << row.family;
    for (const std::string_view text : {row.misuse, row.remedy}) {
      EXPECT_FALSE(text.ends_with('.')) << row.family;
      EXPECT_EQ(text.find("  "), text.npos) << row.family;
    }
  }
}

// A finding about an op that is a question has something to say; each sign belongs to some family.
TEST(OpKnowledge, WhatIsAQuestionHasARemedy) {
  std::set<OpSign> signs;
  for (const OpKnowledge& row : all_op_knowledge()) {
    if (row.role != OpRole::main) {
      EXPECT_FALSE(row.remedy.empty()) << row.family;
    }
    EXPECT_FALSE(row.loop.ends_with('.')) << row.family;
    signs.insert(row.sign);
  }
  for (int i = 0; i <= static_cast<int>(OpSign::then_product); ++i) {
    const auto sign = static_cast<OpSign>(i);
    EXPECT_TRUE(signs.contains(sign)) << op_sign_name(sign);
    EXPECT_FALSE(op_sign_name(sign).empty());
  }
  EXPECT_EQ(op_role_name(OpRole::aside), "aside");
}

TEST(OpKnowledge, FormsOfAnOpCountAsTheOp) {
  const auto family = [](std::string_view name) {
    const OpKnowledge* row = op_knowledge(name);
    return row == nullptr ? std::string_view("none") : row->family;
  };
  EXPECT_EQ(family("aten::cumsum_"), "scans");
  EXPECT_EQ(family("aten::index_add_"), "sums by index");
  EXPECT_EQ(family("aten::index_put_"), "writes by index");
  EXPECT_EQ(family("aten::cumsum_out"), "scans");
  EXPECT_EQ(family("aten::grid_sampler_2d_backward"), "gradients of sampling at points");
  EXPECT_EQ(family("aten::max_pool3d_with_indices_backward"), "gradients of max pooling");
  EXPECT_EQ(family("aten::slow_conv_dilated2d"), "convolutions without a library");
  EXPECT_EQ(family("aten::_slow_conv2d_forward"), "convolutions without a library");
  EXPECT_EQ(family("torchvision::nms"), "suppression of boxes");
  EXPECT_EQ(family("aten::log_sigmoid_backward"), "gradients of activations");
  EXPECT_EQ(family("aten::no_such_op"), "none");
  EXPECT_EQ(family("_"), "none");
  EXPECT_EQ(family(""), "none");
}

// Both tables speak of the same ops: where they meet they agree.
TEST(OpKnowledge, AgreesWithTheClassesOfOps) {
  for (const OpKnowledge& row : all_op_knowledge()) {
    for (const std::string& name : names_of(row)) {
      SCOPED_TRACE(name);
      switch (op_class("aten::" + name)) {
        case OpClass::gemm: EXPECT_EQ(row.cost, OpCost::flops); break;
        case OpClass::pointwise:
          EXPECT_TRUE(row.fuses == OpFuses::pointwise || row.fuses == OpFuses::draws);
          break;
        case OpClass::rowwise:
          EXPECT_TRUE(row.fuses == OpFuses::reduction || row.fuses == OpFuses::rows ||
                      row.fuses == OpFuses::norms);
          break;
        case OpClass::copy:
        case OpClass::fill: EXPECT_EQ(row.cost, OpCost::bytes); break;
        default: break;
      }
    }
  }
}

}  // namespace epilogue::trace::op_knowledge_test
