// SPDX-License-Identifier: Apache-2.0
// Every op on a device against its reference: the samples of the op table, each dtype and layout.
#include "ops/ops.h"
#include "backend/device/device_testing.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::ops_test {

using DeviceOps = OnDevice;

// What an op gives, or what it writes.
std::vector<Tensor> results_of(const OpDef& op, const std::vector<Tensor>& in,
                               const std::vector<Attr>& attrs) {
  manual_seed(kSeed);
  const Outputs out = run_op(op, in, attrs);
  if (op.kind == OpKind::inplace) return written_inputs(op, in);
  return {out.span().begin(), out.span().end()};
}

void expect_reference(const OpDef& op, const Sample& sample, DType dtype, Layout layout) {
  const std::vector<Tensor> in = make_inputs(sample, dtype, layout);
  std::vector<Tensor> device;
  for (const Tensor& t : in) device.push_back(on_device(t));
  std::vector<Tensor> want;
  try {
    want = results_of(op, with_copies_to_write(op, in), sample.attrs);
  } catch (const Error&) {
    return;  // a dtype that the op does not take: tests/errors
  }
  const std::vector<Tensor> got = results_of(op, device, sample.attrs);
  ASSERT_EQ(got.size(), want.size());
  const std::vector<Tensor> reference = reference_results(op, in, sample.attrs, want);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].device(), kCuda);
    const std::string worst =
        difference(on_host(got[i]), reference[i], tolerance_for(op, in, reference[i]));
    EXPECT_EQ(worst, "") << op.name << " " << test::describe(in, sample.attrs) << " result " << i;
  }
}

class EachOp : public OnDevice, public ::testing::WithParamInterface<const OpDef*> {};

TEST_P(EachOp, AgreesWithItsReference) {
  const OpDef* const op = GetParam();
  if (op->samples == nullptr || op->reference == nullptr) GTEST_SKIP() << "has no reference";
  for (const Sample& sample : op->samples())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
      for (const Layout layout : kLayouts) {
        // What as_strided means depends on how its input lies in memory.
        if (op == &kAsStrided && layout != Layout::contiguous) continue;
        expect_reference(*op, sample, dtype, layout);
      }
}

INSTANTIATE_TEST_SUITE_P(Ops, EachOp, ::testing::ValuesIn(kOps), op_test_name);

TEST_F(DeviceOps, LargeSumsAreCutIntoPartsAndTheSameEveryTime) {
  const Tensor x = on_device(numbers({3001, 517}));
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}}) {
    const std::vector<double> once = sum(x, dims).to_vector();
    const std::vector<double> want = sum(on_host(x), dims).to_vector();
    ASSERT_EQ(once.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(once[i], want[i], 2e-2);
    EXPECT_EQ(sum(x, dims).to_vector(), once);
  }
}

TEST_F(DeviceOps, CopiesConvertAsTheHostDoes) {
  for (const DType from : kDTypes)
    for (const DType to_dtype : kDTypes) {
      const Tensor x = to(from_values({-3.7, 0, 1, 2.5, 200, 1e6}, {6}, DType::f64), from);
      EXPECT_EQ(to(on_device(x), to_dtype).to_vector(), to(x, to_dtype).to_vector())
          << dtype_name(from) << " to " << dtype_name(to_dtype);
    }
}

TEST_F(DeviceOps, GradientsAreTheHosts) {
  const auto run = [](Device device) {
    manual_seed(1);
    std::vector<Tensor> leaves;
    for (const Dims& sizes : {Dims{9, 16}, Dims{24, 16}, Dims{24, 16}, Dims{16, 24}}) {
      const NoGrad no_grad;
      leaves.push_back(randn(sizes).to(device));
    }
    for (Tensor& t : leaves) t.set_requires_grad(true);
    const Tensor hidden =
        gelu(linear(leaves[0], leaves[1]), Gelu::tanh) * linear(leaves[0], leaves[2]);
    sum(linear(hidden, leaves[3])).backward();
    std::vector<std::vector<double>> gradients;
    for (const Tensor& t : leaves) gradients.push_back(t.grad().to_vector());
    return gradients;
  };
  const auto got = run(kCuda);
  const auto want = run({});
  for (size_t t = 0; t < want.size(); ++t)
    for (size_t i = 0; i < want[t].size(); ++i)
      EXPECT_NEAR(got[t][i], want[t][i], 1e-3) << "leaf " << t << ", element " << i;
}

}  // namespace epilogue::test::ops_test
