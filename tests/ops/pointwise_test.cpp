// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels against the references: every op, layout, dtype mix and instruction set.
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "op_testing.h"
#include "support/test.h"

namespace epilogue::pointwise_test {

using namespace testing;

struct Case {
  const OpDef* op;
  int inputs;
  std::vector<Attr> attrs = {};
  double low = -3;  // of the last input
  double high = 3;
};
const std::vector<Case> kCases = {
    {&kAdd, 2, {1.0}},
    {&kAdd, 2, {-0.5}},
    {&kSub, 2, {1.0}},
    {&kSub, 2, {2.5}},
    {&kMul, 2},
    {&kDiv, 2, {}, 0.5, 3},
    {&kNeg, 1},
    {&kExp, 1},
    {&kRelu, 1},
    {&kSigmoid, 1, {}, -20, 20},
    {&kTanh, 1, {}, -10, 10},
    {&kSilu, 1, {}, -20, 20},
    {&kGelu, 1, {int64_t{0}}, -6, 6},
    {&kGelu, 1, {int64_t{1}}, -6, 6},
    {&kThresholdBackward, 2, {0.0}},
    {&kSigmoidBackward, 2, {}, 0, 1},
    {&kTanhBackward, 2, {}, -1, 1},
    {&kSiluBackward, 2, {}, -20, 20},
    {&kGeluBackward, 2, {int64_t{0}}, -6, 6},
    {&kGeluBackward, 2, {int64_t{1}}, -6, 6},
};

// Sizes around rows (128), tiles (1024) and threads.
Dims random_sizes(Random& random) {
  static const std::vector<Dims> kEdges = {
      {},       {1},       {64},     {1023},     {1024},    {1025},    {3, 127},       {3, 128},
      {3, 129}, {5, 1030}, {700, 3}, {2, 3, 40}, {4, 1, 9}, {1, 1, 1}, {2, 2, 2, 150}, {70000}};
  const int64_t i = pick(random, 0, static_cast<int64_t>(kEdges.size()) + 3);
  if (i < static_cast<int64_t>(kEdges.size())) return kEdges[static_cast<size_t>(i)];
  Dims sizes;
  for (int64_t d = pick(random, 1, 4); d > 0; --d) sizes.push_back(pick(random, 1, 9));
  return sizes;
}

// Sizes that broadcast to `sizes`: some leading dimensions dropped, some others of size 1.
Dims broadcastable(Random& random, const Dims& sizes) {
  Dims result;
  const int64_t dropped = pick(random, 0, 3) == 0 ? pick(random, 0, sizes.rank()) : 0;
  for (int d = static_cast<int>(dropped); d < sizes.rank(); ++d)
    result.push_back(pick(random, 0, 3) == 0 ? 1 : sizes[d]);
  return result;
}

Tensor random_input(Random& random, const Dims& sizes, DType dtype, double low, double high) {
  return make_tensor(sizes, dtype, kLayouts[pick(random, 0, 4)], low, high);
}

void check(Random& random, const Case& c) {
  constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};
  const Dims sizes = random_sizes(random);
  std::vector<Tensor> in;
  for (int k = 0; k < c.inputs; ++k) {
    const bool last = k == c.inputs - 1;
    const DType dtype = kFloats[pick(random, 0, 2)];
    const Dims own = c.inputs == 2 ? broadcastable(random, sizes) : sizes;
    in.push_back(random_input(random, own, dtype, last ? c.low : -3, last ? c.high : 3));
  }
  std::string what = std::string(c.op->name) + " on " + std::string(isa_name(active_isa())) + ":";
  for (const Tensor& t : in) what.append(" ").append(to_string(t) + to_string(t.strides()));
  ASSERT_HAS(explain_kernels(*c.op, in, c.attrs), "simd: chosen") << what;
  const Tensor got = run_op(*c.op, in, c.attrs)[0];
  expect_close(got, reference_of(*c.op, in, c.attrs, got), 3e-6, what);
}

class OnEveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "this machine lacks it";
    set_active_isa(GetParam());
    manual_seed(7);
  }
  void TearDown() override { set_active_isa(detected_isa()); }
};
INSTANTIATE_TEST_SUITE_P(Pointwise, OnEveryIsa, ::testing::ValuesIn(kIsas),
                         [](const auto& param) { return std::string(isa_name(param.param)); });

TEST_P(OnEveryIsa, EqualTheReferencesForAnyLayoutAndDTypes) {
  Random random(3);
  for (const Case& c : kCases)
    for (int trial = 0; trial < 40; ++trial) check(random, c);
}

TEST_P(OnEveryIsa, InPlaceWritesTheViewAndNothingElse) {
  Random random(5);
  const Case kInplace[] = {{&kAdd_, 2, {0.5}}, {&kMul_, 2}, {&kDiv_, 2, {}, 0.5, 3}};
  constexpr Layout kOwn[] = {Layout::contiguous, Layout::transposed, Layout::stepped,
                             Layout::offset};
  for (const Case& c : kInplace) {
    for (int trial = 0; trial < 40; ++trial) {
      const DType dtype = trial % 2 == 0 ? DType::f32 : DType::bf16;
      const Dims sizes = random_sizes(random);
      const Layout layout = kOwn[pick(random, 0, 3)];
      const Tensor self = make_tensor(sizes, dtype, layout);
      const Tensor other =
          random_input(random, broadcastable(random, sizes), DType::f32, c.low, c.high);
      const auto stored = static_cast<int64_t>(self.impl()->storage->bytes() / dtype_bytes(dtype));
      const Tensor storage = as_strided(self, {stored}, {1}, 0);
      const Tensor before = clone(storage);
      Tensor want = clone(self);
      const std::vector<Tensor> in = {want, other};
      c.op->reference(Call{*c.op, in, c.attrs, {&want, 1}});
      const uint32_t version = self.version();
      const Tensor result = run_op(*c.op, std::vector<Tensor>{self, other}, c.attrs)[0];
      EXPECT_TRUE(result.is_same(self));
      EXPECT_GT(self.version(), version);
      expect_close(self, want, 3e-6, std::string(c.op->name) + " " + to_string(self));
      // With the view zeroed on both sides, what lies outside of it must be as before.
      zero_(self);
      const auto* first = static_cast<const std::byte*>(self.data());
      const int64_t offset = (first - static_cast<const std::byte*>(storage.data())) /
                             static_cast<int64_t>(dtype_bytes(dtype));
      const Tensor outside = clone(before);
      zero_(as_strided(outside, self.sizes(), self.strides(), offset));
      expect_equal(storage, outside, "outside of the view");
    }
  }
}

TEST_P(OnEveryIsa, ThreadsDoNotChangeTheResult) {
  const Tensor a = randn({300001});
  const Tensor b = t(randn({517, 580}));
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<double> one = gelu(a).to_vector();
  const std::vector<double> one_strided = mul(b, 2.0).to_vector();
  set_num_threads(3);
  EXPECT_EQ(gelu(a).to_vector(), one);
  EXPECT_EQ(mul(b, 2.0).to_vector(), one_strided);
  set_num_threads(threads);
}

TEST(Pointwise, OperandsMayBeTheSameTensor) {
  const Tensor a = randn({1500}, DType::bf16);
  std::vector<double> squares;
  for (const double v : a.to_vector()) squares.push_back(v * v);
  const Tensor want = from_values(squares, {1500}, DType::bf16);
  expect_equal(mul(a, a), want, "mul");
  expect_equal(mul_(a, a), want, "mul_");
}

TEST(Pointwise, NumbersOnEitherSide) {
  const Tensor x = from_values({1, 2, 4}, {3}, DType::bf16);
  EXPECT_EQ(sub(scalar(1.0), x).to_vector(), (std::vector<double>{0, -1, -3}));
  EXPECT_EQ(div(scalar(int64_t{8}), x).to_vector(), (std::vector<double>{8, 4, 2}));
  EXPECT_EQ((x * 0.5).dtype(), DType::bf16);
  EXPECT_EQ(add(scalar(1.0), scalar(2.0)).item(), 3);
  EXPECT_EQ(mul(x, full({}, 3, DType::f64)).dtype(), DType::bf16);
}

TEST(Pointwise, DoublesKeepTheirPrecision) {
  const Tensor a = uniform({5, 700}, -1, 1, DType::f64);
  const Tensor b = t(uniform({700, 5}, 1, 2, DType::f64));
  for (const OpDef* op : {&kAdd, &kSub, &kMul, &kDiv}) {
    const std::vector<Tensor> in = {a, b};
    const std::vector<Attr> attrs =
        op == &kAdd || op == &kSub ? std::vector<Attr>{0.7} : std::vector<Attr>{};
    const Tensor got = run_op(*op, in, attrs)[0];
    EXPECT_HAS(explain_kernels(*op, in, attrs), "f64: chosen");
    expect_close(got, reference_of(*op, in, attrs, got), 1e-15, std::string(op->name));
  }
  EXPECT_EQ(neg(t(a)).to_vector()[1], -a.to_vector()[700]);
}

TEST(Pointwise, KernelsSayWhyTheyDecline) {
  const Tensor i = arange(3);
  EXPECT_EQ(explain_kernels(kMul, std::vector<Tensor>{i, i}),
            "simd: needs f32, bf16 or f16 tensors\nf64: needs f64 tensors\nreference: chosen\n");
  const Tensor x = ones({3});
  EXPECT_EQ(explain_kernels(kThresholdBackward, std::vector<Tensor>{x, x}, std::vector<Attr>{1.0}),
            "simd: needs threshold 0\nreference: chosen\n");
  EXPECT_EQ(run_op(kThresholdBackward, {x, x * 2.0}, {1.0}).to_vector(),
            (std::vector<double>{1, 1, 1}));
}

TEST(Pointwise, KernelInfo) {
  LastKernel last;
  gelu(ones({3000}, DType::bf16), Gelu::tanh);
  EXPECT_TRUE(last.info.name.view().ends_with("_gelu_tanh_bf16")) << last.info.name.view();
  EXPECT_EQ(last.info.grid[0], 3);
  EXPECT_EQ(last.info.threads, 1);
  mul(t(ones({30, 40})), ones({40, 30}));
  EXPECT_TRUE(last.info.name.view().ends_with("_mul_strided_f32")) << last.info.name.view();
}

TEST(IntegerArithmetic, WrapsAround) {
  const Tensor big = full({2}, 0, DType::i64);
  for (int i = 0; i < 2; ++i) static_cast<int64_t*>(big.data())[i] = INT64_MAX;
  EXPECT_EQ(static_cast<int64_t*>(add(big, big).data())[0], -2);
  EXPECT_EQ(static_cast<int64_t*>(mul(big, big).data())[1], 1);
  EXPECT_EQ(static_cast<int64_t*>(sub(neg(big), big).data())[0], 2);
}

// A number may stand on either side of an operator, and keeps the tensor's dtype.
TEST(Operators, NumbersStandOnEitherSide) {
  const Tensor x = from_values({1, -2, 4}, {3}, DType::bf16);
  EXPECT_EQ((2.0 * x).to_vector(), (std::vector<double>{2, -4, 8}));
  EXPECT_EQ((1 + x).to_vector(), (std::vector<double>{2, -1, 5}));
  EXPECT_EQ((1.0 - x).to_vector(), (std::vector<double>{0, 3, -3}));
  EXPECT_EQ((8 / x).to_vector(), (std::vector<double>{8, -4, 2}));
  for (const Tensor& y : {2.0 * x, 1 + x, 1.0 - x, 8 / x}) EXPECT_EQ(y.dtype(), DType::bf16);
}

TEST(Operators, OfANumberOnTheLeftHaveGradients) {
  Tensor x = from_values({1, 2}, {2}, DType::f64);
  x.set_requires_grad(true);
  sum(3.0 * x + (1.0 - x) + 4.0 / x).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{3 - 1 - 4, 3 - 1 - 1}));
}

TEST(Tensor, ToADTypeIsTheOp) {
  Tensor x = from_values({1, 2.7}, {2});
  EXPECT_EQ(x.to(DType::i64).to_vector(), (std::vector<double>{1, 2}));
  EXPECT_TRUE(x.to(DType::f32).is_same(x));
  x.set_requires_grad(true);
  sum(x.to(DType::f64) * 2.0).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{2, 2}));
}

}  // namespace epilogue::pointwise_test
