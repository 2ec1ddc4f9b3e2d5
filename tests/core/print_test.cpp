// SPDX-License-Identifier: Apache-2.0
// Printed tensors: PyTorch's own text (2.x) for the same values.
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::print_test {

std::string text(const Tensor& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}
std::string row(std::initializer_list<double> values, DType dtype = DType::f32) {
  return text(from_values(values, Dims(static_cast<int64_t>(values.size())), dtype));
}

TEST(Print, FloatingRows) {
  EXPECT_EQ(row({1, 2, 3}), "tensor([1., 2., 3.])");
  EXPECT_EQ(row({1.5, 2.25, -3}), "tensor([ 1.5000,  2.2500, -3.0000])");
  EXPECT_EQ(row({-0.0, 0}), "tensor([-0., 0.])");
  EXPECT_EQ(row({1, 1000}), "tensor([   1., 1000.])");
  EXPECT_EQ(row({NAN, 1, INFINITY}), "tensor([nan, 1., inf])");
  EXPECT_EQ(row({-NAN, 1.5, -INFINITY}), "tensor([   nan, 1.5000,   -inf])");
  EXPECT_EQ(text(full({}, 3)), "tensor(3.)");
}

TEST(Print, ScientificWhereTheRangeIsWideOrFar) {
  EXPECT_EQ(row({1e-5, 1}), "tensor([1.0000e-05, 1.0000e+00])");
  EXPECT_EQ(row({0.001, 1.1}), "tensor([1.0000e-03, 1.1000e+00])");  // over 1000 to 1
  EXPECT_EQ(row({1e-4, 2e-4}), "tensor([1.0000e-04, 2.0000e-04])");  // f32's 1e-4 is below it
  EXPECT_EQ(row({1e9}), "tensor([1.0000e+09])");
  EXPECT_EQ(row({1e8}), "tensor([100000000.])");
  EXPECT_EQ(text(full({}, 1e-7)), "tensor(1.0000e-07)");
}

TEST(Print, OtherDtypesSayTheirNames) {
  EXPECT_EQ(row({1, 2.5}, DType::bf16), "tensor([1.0000, 2.5000], dtype=torch.bfloat16)");
  EXPECT_EQ(row({65504, 1e-4}, DType::f16),
            "tensor([6.5504e+04, 1.0002e-04], dtype=torch.float16)");
  EXPECT_EQ(row({1, 2.5}, DType::f64), "tensor([1.0000, 2.5000], dtype=torch.float64)");
  EXPECT_EQ(row({-5, 100}, DType::i64), "tensor([ -5, 100])");
  EXPECT_EQ(text(full({}, 7, DType::i64)), "tensor(7)");
  EXPECT_EQ(row({1, 0}, DType::boolean), "tensor([ True, False])");
  EXPECT_EQ(text(from_values({{1, 2}, {3, 4}}, DType::u8)),
            "tensor([[1, 2],\n        [3, 4]], dtype=torch.uint8)");
  // Beyond what a double holds.
  EXPECT_EQ(text(from_values({int64_t{9007199254740993}}, 1, DType::i64)),
            "tensor([9007199254740993])");
}

TEST(Print, NothingToPrint) {
  EXPECT_EQ(text(zeros({0})), "tensor([])");
  EXPECT_EQ(text(zeros({0}, DType::i64)), "tensor([], dtype=torch.int64)");
  EXPECT_EQ(text(zeros({0, 3})), "tensor([], size=(0, 3))");
  EXPECT_EQ(text(zeros({2, 0}, DType::i64)), "tensor([], size=(2, 0), dtype=torch.int64)");
  EXPECT_EQ(text(Tensor()), "undefined");
}

TEST(Print, DimensionsNest) {
  EXPECT_EQ(text(view(arange(12, DType::f32), {2, 2, 3})),
            "tensor([[[ 0.,  1.,  2.],\n         [ 3.,  4.,  5.]],\n\n"
            "        [[ 6.,  7.,  8.],\n         [ 9., 10., 11.]]])");
  EXPECT_EQ(text(ones({1, 1, 1})), "tensor([[[1.]]])");
  EXPECT_EQ(text(t(view(arange(6), {2, 3}))), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
}

TEST(Print, LongRowsBreakAtEightyColumns) {
  EXPECT_EQ(text(view(arange(60), {3, 20})),
            "tensor([[ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "         18, 19],\n"
            "        [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37,\n"
            "         38, 39],\n"
            "        [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57,\n"
            "         58, 59]])");
}

TEST(Print, MoreThanAThousandElementsAreSummarised) {
  EXPECT_EQ(text(arange(1001, DType::f32)),
            "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])");
  EXPECT_EQ(text(zeros({1001}, DType::boolean)),
            "tensor([False, False, False,  ..., False, False, False])");
  EXPECT_EQ(text(view(arange(1200), {30, 40})),
            "tensor([[   0,    1,    2,  ...,   37,   38,   39],\n"
            "        [  40,   41,   42,  ...,   77,   78,   79],\n"
            "        [  80,   81,   82,  ...,  117,  118,  119],\n"
            "        ...,\n"
            "        [1080, 1081, 1082,  ..., 1117, 1118, 1119],\n"
            "        [1120, 1121, 1122,  ..., 1157, 1158, 1159],\n"
            "        [1160, 1161, 1162,  ..., 1197, 1198, 1199]])");
  EXPECT_EQ(text(view(arange(2000, DType::f32), {2, 1000})),
            "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 9.9700e+02, 9.9800e+02,\n"
            "         9.9900e+02],\n"
            "        [1.0000e+03, 1.0010e+03, 1.0020e+03,  ..., 1.9970e+03, 1.9980e+03,\n"
            "         1.9990e+03]])");
  const std::string whole = text(ones({1000}));
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '1'), 1000);
}

TEST(Print, PlacesInTheGraph) {
  const Tensor x = ones({2}).set_requires_grad(true);
  EXPECT_EQ(text(x), "tensor([1., 1.], requires_grad=True)");
  EXPECT_EQ(text(x * 2), "tensor([2., 2.], grad_fn=<MulBackward0>)");
  EXPECT_EQ(text((x * 2).detach()), "tensor([2., 2.])");
  EXPECT_EQ(text(sum(x)), "tensor(2., grad_fn=<SumBackward0>)");
}

}  // namespace epilogue::print_test
