// SPDX-License-Identifier: Apache-2.0
// The optimizers' arithmetic on the device, element by element on the host, against the references:
// over the op table's samples, in f32.
#include "backend/cuda/optimizers.h"
#include "math_on_host.h"
#include "ops/ops.h"
#include "ops/optimizer_steps.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::cuda::optimizer_math_test {

using test::Layout;

float* floats(const Tensor& t) { return t.defined() ? t.data_as<float>() : nullptr; }
float* at(float* values, int64_t i) { return values != nullptr ? values + i : nullptr; }

// What the kernel does, over host tensors.
void adam_by_elements(const Call& call, bool decoupled) {
  const ListCall lists(call);
  const AdamStep step = adam_step(call, decoupled);
  const auto inverse = static_cast<float>(inverse_grad_scale(call));
  for (size_t t = 0; t < lists.size(); ++t) {
    float* const steps = floats(lists.at(kAdamSteps, t));
    *steps += 1;
    for (int64_t i = 0; i < lists.at(0, t).numel(); ++i)
      adam_on_host(step, inverse, *steps, floats(lists.at(kAdamGrads, t))[i],
                   floats(lists.at(kAdamParams, t))[i], floats(lists.at(kAdamExpAvgs, t))[i],
                   floats(lists.at(kAdamExpAvgSqs, t))[i],
                   at(floats(lists.at(kAdamMaxExpAvgSqs, t)), i));
  }
}
void sgd_by_elements(const Call& call) {
  const ListCall lists(call);
  const SgdStep step = sgd_step(call);
  const auto inverse = static_cast<float>(inverse_grad_scale(call));
  for (size_t t = 0; t < lists.size(); ++t)
    for (int64_t i = 0; i < lists.at(0, t).numel(); ++i)
      sgd_on_host(step, inverse, floats(lists.at(kSgdGrads, t))[i],
                  floats(lists.at(kSgdParams, t))[i],
                  at(floats(lists.at(kSgdMomentumBuffers, t)), i));
}

template <class Step>
void expect_reference(const OpDef& op, Step&& step) {
  for (const Sample& sample : op.samples()) {
    const std::vector<Tensor> in = test::make_inputs(sample, DType::f32, Layout::contiguous);
    const std::vector<Tensor> ours = test::with_copies_to_write(op, in);
    const std::vector<Tensor> theirs = test::with_copies_to_write(op, in);
    step(Call{op, ours, sample.attrs, {}});
    op.reference(Call{op, theirs, sample.attrs, {}});
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i].defined() || in[i].dtype() != DType::f32) continue;
      EXPECT_EQ(test::difference(ours[i], theirs[i], test::tolerance_for(op, in, theirs[i])), "")
          << op.name << " input " << i << ": " << test::describe(in, sample.attrs);
    }
  }
}

TEST(OptimizerMath, IsTheReferences) {
  expect_reference(kFusedAdam_, [](const Call& c) { adam_by_elements(c, false); });
  expect_reference(kFusedAdamW_, [](const Call& c) { adam_by_elements(c, true); });
  expect_reference(kFusedSgd_, sgd_by_elements);
}

// From beta^1 to where 1 - beta^t is 1, and beta1 = 0.
TEST(OptimizerMath, BiasCorrectionsKeepTheirDigits) {
  for (const double beta : {0.0, 0.9, 0.99, 0.999, 0.99999})
    for (const double t : {1.0, 2.0, 10.0, 1000.0, 1e6}) {
      AdamStep step;
      step.lr = 1;
      step.beta1_weight = 1;
      step.log_beta1 = static_cast<float>(std::log(beta));
      step.beta2_weight = 1;
      step.log_beta2 = -1e30F;  // no correction
      float param = 0;
      float exp_avg = 0;
      float exp_avg_sq = 0;
      adam_on_host(step, 1, static_cast<float>(t), 1, param, exp_avg, exp_avg_sq, nullptr);
      const double want = 1 / (1 - std::pow(beta, t));  // m and sqrt(v) are 1
      EXPECT_NEAR(-static_cast<double>(param), want, 1e-6 * want) << beta << " " << t;
    }
}

}  // namespace epilogue::cuda::optimizer_math_test
