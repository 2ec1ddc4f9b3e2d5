// SPDX-License-Identifier: Apache-2.0
#include "explain/index/aten_ops.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::aten_ops_test {

using namespace testing;

std::vector<int64_t> dims_of(std::string_view op, std::vector<OpInput> inputs) {
  const auto shape = output_shape(op, inputs);
  return shape ? shape->dims : std::vector<int64_t>{-1};
}
const std::vector<int64_t> kNothing = {-1};

TEST(OpClass, InPlaceFormsCountAsTheirOps) {
  EXPECT_EQ(op_class("aten::add_"), OpClass::pointwise);
  EXPECT_EQ(op_class("aten::copy_"), OpClass::copy);
  EXPECT_EQ(op_class("aten::_unsafe_view"), OpClass::view);
  EXPECT_EQ(op_class("aten::_softmax"), OpClass::rowwise);
  EXPECT_EQ(op_class("aten::bmm"), OpClass::gemm);
}

TEST(OpClass, OthersAreUnknown) {
  EXPECT_EQ(op_class("add"), OpClass::unknown);
  EXPECT_EQ(op_class("aten::"), OpClass::unknown);
  EXPECT_EQ(op_class("aten::_"), OpClass::unknown);
  EXPECT_EQ(op_class("my::gelu"), OpClass::unknown);
}

TEST(IsTranscendental, TellsArithmeticFromTraffic) {
  for (const char* op : {"aten::gelu", "aten::silu_backward", "aten::tanh_", "aten::pow"})
    EXPECT_TRUE(is_transcendental(op)) << op;
  for (const char* op : {"aten::relu", "aten::mul", "aten::add_", "aten::copy_", "gelu"})
    EXPECT_FALSE(is_transcendental(op)) << op;
}

TEST(ElementBytes, KnowsC10sNames) {
  EXPECT_EQ(element_bytes("c10::BFloat16"), 2);
  EXPECT_EQ(element_bytes("double"), 8);
  EXPECT_EQ(element_bytes("c10::Float8_e4m3fn"), 1);
  EXPECT_EQ(element_bytes("Scalar"), std::nullopt);
  EXPECT_EQ(element_bytes(""), std::nullopt);
}

TEST(OutputShape, PointwiseOpsBroadcast) {
  EXPECT_EQ(dims_of("aten::add", {tensor({8, 1, 4}), tensor({5, 1}), scalar("1")}),
            (std::vector<int64_t>{8, 5, 4}));
  EXPECT_EQ(dims_of("aten::add_", {tensor({8, 4}), tensor({4})}), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(dims_of("aten::add", {tensor({3}), tensor({4})}), kNothing);
}

TEST(OutputShape, TheWidestFloatingTypeWinsButNumbersDoNotWiden) {
  const std::vector<OpInput> mixed = {tensor({4}, "c10::BFloat16"), tensor({4}, "float")};
  EXPECT_EQ(output_shape("aten::mul", mixed)->type, "float");
  const std::vector<OpInput> number = {tensor({4}, "c10::BFloat16"), tensor({}, "double")};
  EXPECT_EQ(output_shape("aten::mul", number)->type, "c10::BFloat16");
}

TEST(OutputShape, ComparisonsGiveBooleans) {
  const std::vector<OpInput> inputs = {tensor({4}, "double"), tensor({4}, "double")};
  for (const char* op : {"aten::gt", "aten::eq", "aten::logical_and", "aten::isnan"})
    EXPECT_EQ(output_shape(op, inputs)->type, "bool") << op;
  EXPECT_EQ(output_shape("aten::gt_", inputs)->type, "double") << "in place";
  EXPECT_EQ(output_shape("aten::maximum", inputs)->type, "double");
}

TEST(OutputShape, TheConditionOfWhereDoesNotDecideTheType) {
  const std::vector<OpInput> where = {tensor({4}, "bool"), tensor({4}, "long int"),
                                      tensor({4}, "long int")};
  EXPECT_EQ(output_shape("aten::where", where)->type, "long int");
  EXPECT_EQ(dims_of("aten::where", {tensor({4}, "bool")}), kNothing) << "indices";
}

TEST(ReducedRows, KeepTheOtherSizesAndCountInLong) {
  const TensorShape mask{{135, 534, 800}, "bool"};
  EXPECT_EQ(reduced_rows("aten::sum", mask), (TensorShape{{135, 534, 1}, "long int"}));
  EXPECT_EQ(reduced_rows("aten::any", mask), (TensorShape{{135, 534, 1}, "bool"}));
  EXPECT_EQ(reduced_rows("aten::cumsum", mask), (TensorShape{{135, 534, 800}, "long int"}));
  const TensorShape floats{{4, 8}, "c10::BFloat16"};
  EXPECT_EQ(reduced_rows("aten::sum", floats), (TensorShape{{4, 1}, "c10::BFloat16"}));
  EXPECT_EQ(reduced_rows("aten::argmax", floats), (TensorShape{{4, 1}, "long int"}));
  EXPECT_EQ(reduced_rows("aten::sum", TensorShape{{4, 8}, ""}), (TensorShape{{4, 1}, ""}));
  EXPECT_EQ(reduced_rows("aten::sum", TensorShape{{}, "float"}), std::nullopt);
}

TEST(OutputShape, ProductsOfMatrices) {
  EXPECT_EQ(dims_of("aten::mm", {tensor({2, 3}), tensor({3, 5})}), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(dims_of("aten::addmm", {tensor({5}), tensor({2, 3}), tensor({3, 5})}),
            (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(dims_of("aten::bmm", {tensor({7, 2, 3}), tensor({7, 3, 5})}),
            (std::vector<int64_t>{7, 2, 5}));
  EXPECT_EQ(dims_of("aten::mm", {tensor({2, 3})}), kNothing);
}

TEST(OutputShape, IsUnknownWhereItDoesNotFollow) {
  EXPECT_EQ(dims_of("aten::sum", {tensor({2, 3})}), kNothing);
  EXPECT_EQ(dims_of("aten::topk", {tensor({2, 3})}), kNothing);
  EXPECT_EQ(dims_of("aten::relu", {}), kNothing);
}

TEST(TensorInputs, ListsAreFlattenedAndOtherArgumentsLeftOut) {
  const std::vector<OpInput> inputs = {tensor_list({tensor({2}), tensor({3})}), scalar("1"),
                                       tensor({4})};
  const auto tensors = tensor_inputs(inputs);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[1].dims, std::vector<int64_t>{3});
}

TEST(TensorInputs, ElementsOfListsAreTensorsAlsoWhereTheirTypeIsNotRecorded) {
  const auto tensors =
      tensor_inputs(std::vector<OpInput>{tensor_list({tensor({2}, ""), tensor({3}, "Scalar")})});
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].type, "");
  EXPECT_EQ(tensors[0].bytes(), std::nullopt);
}

TEST(TensorShape, BytesThatDoNotFitAreUnknown) {
  EXPECT_EQ((TensorShape{{2, 3}, "float", 3}).bytes(), 8) << "expanded";
  EXPECT_EQ((TensorShape{{2, 3}, "float"}).bytes(), 24);
  EXPECT_EQ((TensorShape{{INT64_MAX}, "float"}).bytes(), std::nullopt);
  EXPECT_EQ((TensorShape{{INT64_MAX, 4}, "float"}).numel(), 0);
}

TEST(TensorInputs, BytesOfExpandedAndSparseTensors) {
  OpInput dense{{200, 64}, {64, 1}, {}, false, "float", ""};
  OpInput expanded{{200, 64}, {0, 1}, {}, false, "float", ""};
  OpInput sparse{{200, 64}, {}, {}, false, "float", ""};
  const std::vector<OpInput> inputs = {dense, expanded, sparse};
  const std::vector<TensorShape> tensors = tensor_inputs(inputs);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].bytes(), 200 * 64 * 4);
  EXPECT_EQ(tensors[1].bytes(), 64 * 4);
  EXPECT_EQ(tensors[2].bytes(), std::nullopt) << "of a sparse tensor no strides are recorded";
  const std::vector<OpInput> old = {sparse};
  EXPECT_EQ(tensor_inputs(old)[0].bytes(), 200 * 64 * 4) << "old traces record no strides at all";
}

}  // namespace epilogue::trace::aten_ops_test
