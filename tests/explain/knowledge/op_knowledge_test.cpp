// SPDX-License-Identifier: Apache-2.0
#include "explain/knowledge/op_knowledge.h"

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
  EXPECT_GE(seen.size(), 150U);
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
  EXPECT_EQ(family("aten::grid_sampler_2d_backward"), "sampling at points");
  EXPECT_EQ(family("aten::max_pool3d_with_indices_backward"), "pooling");
  EXPECT_EQ(family("aten::slow_conv_dilated2d"), "convolutions without a library");
  EXPECT_EQ(family("aten::_slow_conv2d_forward"), "convolutions without a library");
  EXPECT_EQ(family("torchvision::nms"), "boxes");
  EXPECT_EQ(family("aten::log_sigmoid_backward"), "functions");
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
        case OpClass::rowwise: EXPECT_EQ(row.fuses, OpFuses::reduction); break;
        case OpClass::copy:
        case OpClass::fill: EXPECT_EQ(row.cost, OpCost::bytes); break;
        default: break;
      }
    }
  }
}

}  // namespace epilogue::trace::op_knowledge_test
