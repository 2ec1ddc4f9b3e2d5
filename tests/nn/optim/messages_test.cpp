// SPDX-License-Identifier: Apache-2.0
// What wrong use of an optimizer or a wrong state says; it must change nothing.
#include <gtest/gtest.h>

#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"

namespace epilogue::optim {
namespace {

using test::message_of;

Tensor parameter_with_grad(Dims sizes = {2}) {
  Tensor p = ones(sizes);
  p.set_requires_grad(true);
  p.set_grad(ones(sizes));
  return p;
}

TEST(OptimizerMessages, Parameters) {
  EXPECT_EQ(message_of([] { SGD(std::vector<Tensor>{}); }),
            "[SGD] expected at least one parameter in a group, got none");
  EXPECT_EQ(message_of([] { SGD(std::vector<ParamGroup<SGDOptions>>{}); }),
            "[SGD] expected at least one group of parameters, got none");
  EXPECT_EQ(message_of([] { Adam({Tensor()}); }),
            "[Adam] expected parameters, got an undefined tensor");
  EXPECT_EQ(message_of([] { Adam({ones({2}, DType::i64)}); }),
            "[Adam] expected floating leaf tensors, got i64[2]");
  EXPECT_EQ(message_of([] { AdamW({mul(parameter_with_grad(), 2.0)}); }),
            "[AdamW] expected floating leaf tensors, got f32[2], the result of an op");
  const Tensor p = parameter_with_grad();
  EXPECT_EQ(message_of([&] {
              AdamW({p, p});
            }),
            "[AdamW] expected every parameter once, got f32[2] twice");
}

TEST(OptimizerMessages, Options) {
  EXPECT_EQ(message_of([] { SGD({parameter_with_grad()}, {.lr = -1}); }),
            "[SGD] expected a learning rate >= 0, got -1");
  EXPECT_EQ(message_of([] { SGD({parameter_with_grad()}, {.momentum = -0.5}); }),
            "[SGD] expected a momentum >= 0, got -0.5");
  EXPECT_EQ(message_of([] { SGD({parameter_with_grad()}, {.nesterov = true}); }),
            "[SGD] expected a momentum and zero dampening with nesterov, got momentum 0 and "
            "dampening 0");
  EXPECT_EQ(message_of([] { Adam({parameter_with_grad()}, {.beta1 = 1}); }),
            "[Adam] expected beta1 in [0, 1), got 1");
  EXPECT_EQ(message_of([] { AdamW({parameter_with_grad()}, {.weight_decay = -1}); }),
            "[AdamW] expected weight_decay >= 0, got -1");
  EXPECT_EQ(
      message_of([] { AdamW({parameter_with_grad()}).keep_low_precision_copies(DType::f64); }),
      "[keep_low_precision_copies] expected bf16 or f16, got f64");
}

TEST(OptimizerMessages, StatesOfOthers) {
  AdamW adamw({parameter_with_grad()});
  adamw.step();
  const StateDict good = adamw.state_dict();
  SGD sgd({parameter_with_grad()});
  EXPECT_EQ(message_of([&] { sgd.load_state_dict(good); }),
            "[load_state_dict] expected the state of SGD, got that of AdamW");
  EXPECT_EQ(message_of([&] { sgd.load_state_dict({}); }),
            "[load_state_dict] expected the state of SGD, got that of no optimizer");

  AdamW two({parameter_with_grad(), parameter_with_grad()});
  EXPECT_EQ(message_of([&] { two.load_state_dict(good); }),
            "[load_state_dict] expected 2 parameters in group 0, got 1");
  AdamW other({parameter_with_grad({3})});
  EXPECT_EQ(message_of([&] { other.load_state_dict(good); }),
            "[load_state_dict] expected sizes [3] for \"state.0.exp_avg\", got f32[2]");

  StateDict bad = good;
  bad.metadata["param_groups.0.lr"] = "fast";
  EXPECT_EQ(message_of([&] { adamw.load_state_dict(bad); }),
            "[load_state_dict] expected a number for \"lr\", got \"fast\"");
  bad = good;
  bad.metadata.erase("param_groups.0.eps");
  EXPECT_EQ(message_of([&] { adamw.load_state_dict(bad); }),
            "[load_state_dict] expected \"eps\", got no such key");
  bad = good;
  bad.tensors.emplace_back("state.7.exp_avg", ones({2}));
  EXPECT_EQ(message_of([&] { adamw.load_state_dict(bad); }),
            "[load_state_dict] expected states of AdamW, got \"state.7.exp_avg\"");
  bad = good;
  bad.metadata["param_groups.1.params"] = "1";
  EXPECT_EQ(message_of([&] { adamw.load_state_dict(bad); }),
            "[load_state_dict] expected 1 parameter groups, got more");
  EXPECT_EQ(adamw.state_dict().metadata, good.metadata);
  EXPECT_EQ(adamw.state_dict().tensors[0].second.to_vector(), good.tensors[0].second.to_vector());
}

TEST(OptimizerMessages, ListsThatDisagree) {
  const Tensor p = parameter_with_grad().detach();
  const Tensor none;
  const Attr attrs[] = {0.0, 0.0, 0.1, 0.0, false, false, false, 1.0};
  const auto sgd = [&](const Tensor& grad, const Tensor& buffer, const Tensor& copy) {
    const Tensor in[] = {p, grad, buffer, copy, none, none};
    return message_of([&] { run_op(kFusedSgd_, in, attrs); });
  };
  EXPECT_EQ(sgd(none, none, none),
            "[aten::_fused_sgd_] expected a tensor for 'grads', got undefined");
  EXPECT_EQ(sgd(ones({3}), none, none),
            "[aten::_fused_sgd_] expected every list to have f32[2] at 0, got f32[3]");
  EXPECT_EQ(sgd(ones({2}), ones({2}), none),
            "[aten::_fused_sgd_] expected none without momentum, got f32[2]");
  EXPECT_EQ(sgd(ones({2}), none, ones({2})),
            "[aten::_fused_sgd_] expected a bf16 or f16 copy of sizes [2], got f32[2]");
}

}  // namespace
}  // namespace epilogue::optim
