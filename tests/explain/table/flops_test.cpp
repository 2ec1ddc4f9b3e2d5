// SPDX-License-Identifier: Apache-2.0
#include "explain/table/flops.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::flops_test {

using namespace testing;
using Inputs = std::vector<OpInput>;

TEST(TorchFlops, MatrixProducts) {
  EXPECT_EQ(torch_flops("aten::mm", Inputs{tensor({3, 4}), tensor({4, 5})}), 2U * 3 * 4 * 5);
  EXPECT_EQ(torch_flops("aten::addmm", Inputs{tensor({5}), tensor({3, 4}), tensor({4, 5}),
                                              scalar("1"), scalar("1")}),
            2U * 3 * 4 * 5);
  EXPECT_EQ(torch_flops("aten::bmm", Inputs{tensor({7, 3, 4}), tensor({7, 4, 5})}),
            2U * 7 * 3 * 4 * 5);
  EXPECT_EQ(
      torch_flops("aten::baddbmm", Inputs{tensor({7, 3, 5}), tensor({7, 3, 4}), tensor({7, 4, 5})}),
      2U * 7 * 3 * 4 * 5);
  // The gate of the demo's MLP: 38.65 GFLOP.
  EXPECT_EQ(torch_flops("aten::mm", Inputs{tensor({8192, 768}), tensor({768, 3072})}),
            38654705664U);
}

TEST(TorchFlops, EmptyProducts) {
  EXPECT_EQ(torch_flops("aten::mm", Inputs{tensor({3, 0}), tensor({0, 5})}), 0U);
  EXPECT_EQ(torch_flops("aten::mm", Inputs{tensor({0, 4}), tensor({4, 5})}), 0U);
  EXPECT_EQ(torch_flops("aten::bmm", Inputs{tensor({0, 3, 4}), tensor({0, 4, 5})}), 0U);
}

TEST(TorchFlops, PointwiseCountsTheFirstInput) {
  EXPECT_EQ(torch_flops("aten::mul", Inputs{tensor({2, 3}), tensor({10, 2, 3})}), 6U);
  EXPECT_EQ(torch_flops("aten::add", Inputs{tensor({}), tensor({8})}), 1U);
}

TEST(TorchFlops, OtherOpsHaveNone) {
  for (const char* op :
       {"aten::add_", "aten::mul_", "aten::linear", "aten::matmul", "aten::gelu", ""})
    EXPECT_EQ(torch_flops(op, Inputs{tensor({4, 4}), tensor({4, 4})}), 0U) << op;
}

// input [N C H W], weight [O C/g kh kw].
Inputs conv(std::string stride, std::string padding, std::string dilation, std::string groups) {
  return {tensor({2, 4, 10, 12}),
          tensor({8, 4, 3, 5}),
          tensor({8}),
          scalar(std::move(stride), "ScalarList"),
          scalar(std::move(padding), "ScalarList"),
          scalar(std::move(dilation), "ScalarList"),
          scalar(std::move(groups))};
}

TEST(TorchFlops, Conv2d) {
  // Output 8 x 8, then (10 + 2 - 4 - 1) / 2 + 1 = 4 by (12 + 4 - 8 - 1) / 3 + 1 = 3.
  EXPECT_EQ(torch_flops("aten::conv2d", conv("[1, 1]", "[0, 0]", "[1, 1]", "1")),
            2U * 2 * 8 * 8 * 3 * 5 * 4 * 8);
  EXPECT_EQ(torch_flops("aten::conv2d", conv("[2, 3]", "[1, 2]", "[2, 2]", "2")),
            2U * 2 * 4 * 3 * 3 * 5 * 4 * 8 / 2);
  EXPECT_EQ(torch_flops("aten::conv2d", conv("1", "0", "1", "1")), 2U * 2 * 8 * 8 * 3 * 5 * 4 * 8);
}

TEST(TorchFlops, ArgumentsThatDoNotFitAreZero) {
  EXPECT_EQ(torch_flops("aten::mm", Inputs{}), 0U);
  EXPECT_EQ(torch_flops("aten::mm", Inputs{tensor_list({tensor({2, 2})}), tensor({2, 2})}), 0U);
  EXPECT_EQ(torch_flops("aten::addmm", Inputs{tensor({2, 2}), scalar("1")}), 0U);
  EXPECT_EQ(torch_flops("aten::mm", Inputs{tensor({-3, 4}), tensor({4, 5})}), 0U);
  EXPECT_EQ(torch_flops("aten::mul", Inputs{}), 0U);
  EXPECT_EQ(torch_flops("aten::mul", Inputs{tensor({-1})}), 0U);
  EXPECT_EQ(torch_flops("aten::conv2d", Inputs{tensor({1, 1, 8, 8})}), 0U);
  for (const char* bad : {"", "[]", "x", "[a, 1]", "99999999999999999999"})
    EXPECT_EQ(torch_flops("aten::conv2d", conv(bad, "0", "1", "1")), 0U) << bad;
  EXPECT_EQ(torch_flops("aten::conv2d", conv("0", "0", "1", "1")), 0U);
  EXPECT_EQ(torch_flops("aten::conv2d", conv("1", "0", "1", "0")), 0U);
  EXPECT_EQ(torch_flops("aten::conv2d", conv("1", "0", "100", "1")),
            0U);  // kernel beyond the image
  // Overflow wraps; it must not trap.
  (void)torch_flops("aten::mm", Inputs{tensor({INT64_MAX, INT64_MAX}), tensor({INT64_MAX, 3})});
  (void)torch_flops("aten::conv2d", conv("1", "-9223372036854775808", "9223372036854775807", "1"));
}

}  // namespace epilogue::trace::flops_test
