// SPDX-License-Identifier: Apache-2.0
// Messages on wrong use of an optimizer or a wrong state, which must change nothing.
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "support/test.h"

namespace epilogue::optim::messages_test {

using test::message_of;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor parameter_with_grad(Dims sizes = {2}) {
  Tensor p = ones(sizes);
  p.set_requires_grad(true);
  p.set_grad(ones(sizes));
  return p;
}

TEST(OptimizerMessages, NoParametersAtAll) {
  EXPECT_ERROR(AdamW o({}), "[AdamW] expected at least one parameter in a group, got none");
  EXPECT_ERROR(Adam o({}), "[Adam] expected at least one parameter in a group, got none");
  EXPECT_ERROR(SGD o({}), "[SGD] expected at least one parameter in a group, got none");
  const Tensor a = ones({2}), b = ones({3});
  EXPECT_EQ(AdamW({a, b}, {.lr = 0.5}).parameters().size(), 2U);
}

TEST(OptimizerMessages, Parameters) {
  EXPECT_ERROR(SGD(std::vector<Tensor>{}),
               "[SGD] expected at least one parameter in a group, got none");
  EXPECT_ERROR(SGD(std::vector<ParamGroup<SGDOptions>>{}),
               "[SGD] expected at least one group of parameters, got none");
  EXPECT_ERROR(Adam({Tensor()}), "[Adam] expected parameters, got an undefined tensor");
  EXPECT_ERROR(Adam({ones({2}, DType::i64)}), "[Adam] expected floating leaf tensors, got i64[2]");
  EXPECT_ERROR(AdamW({mul(parameter_with_grad(), 2.0)}),
               "[AdamW] expected floating leaf tensors, got f32[2], the result of an op");
  const Tensor p = parameter_with_grad();
  EXPECT_ERROR(AdamW({p, p}), "[AdamW] expected every parameter once, got f32[2] twice");
}

TEST(OptimizerMessages, Options) {
  EXPECT_ERROR(SGD({parameter_with_grad()}, {.lr = -1}),
               "[SGD] expected a finite learning rate >= 0, got -1");
  EXPECT_ERROR(SGD({parameter_with_grad()}, {.momentum = -0.5}),
               "[SGD] expected a finite momentum >= 0, got -0.5");
  EXPECT_ERROR(SGD({parameter_with_grad()}, {.nesterov = true}),
               "[SGD] expected a momentum and zero dampening with nesterov, got momentum 0 and "
               "dampening 0");
  EXPECT_ERROR(Adam({parameter_with_grad()}, {.beta1 = 1}),
               "[Adam] expected beta1 in [0, 1), got 1");
  EXPECT_ERROR(AdamW({parameter_with_grad()}, {.weight_decay = -1}),
               "[AdamW] expected a finite weight_decay >= 0, got -1");
  EXPECT_ERROR(AdamW({parameter_with_grad()}).keep_low_precision_copies(DType::f64),
               "[keep_low_precision_copies] expected bf16 or f16, got f64");
}

TEST(OptimizerMessages, StatesOfOthers) {
  AdamW adamw({parameter_with_grad()});
  adamw.step();
  const StateDict good = adamw.state_dict();
  SGD sgd({parameter_with_grad()});
  EXPECT_ERROR(sgd.load_state_dict(good),
               "[load_state_dict] expected the state of SGD, got that of AdamW");
  EXPECT_ERROR(sgd.load_state_dict({}),
               "[load_state_dict] expected the state of SGD, got that of no optimizer");

  AdamW two({parameter_with_grad(), parameter_with_grad()});
  EXPECT_ERROR(two.load_state_dict(good),
               "[load_state_dict] expected 2 parameters in group 0, got 1");
  AdamW other({parameter_with_grad({3})});
  EXPECT_ERROR(other.load_state_dict(good),
               "[load_state_dict] expected sizes [3] for \"state.0.exp_avg\", got f32[2]");

  StateDict bad = good;
  bad.metadata["param_groups.0.lr"] = "fast";
  EXPECT_ERROR(adamw.load_state_dict(bad),
               "[load_state_dict] expected a number for \"lr\", got \"fast\"");
  bad = good;
  bad.metadata.erase("param_groups.0.eps");
  EXPECT_ERROR(adamw.load_state_dict(bad), "[load_state_dict] expected \"eps\", got no such key");
  bad = good;
  bad.tensors.emplace_back("state.7.exp_avg", ones({2}));
  EXPECT_ERROR(adamw.load_state_dict(bad),
               "[load_state_dict] expected states of AdamW, got \"state.7.exp_avg\"");
  bad = good;
  bad.metadata["param_groups.1.params"] = "1";
  EXPECT_ERROR(adamw.load_state_dict(bad),
               "[load_state_dict] expected 1 parameter groups, got more");
  EXPECT_EQ(adamw.state_dict().metadata, good.metadata);
  EXPECT_EQ(adamw.state_dict().tensors[0].second.to_vector(), good.tensors[0].second.to_vector());
}

TEST(OptimizerMessages, StatesThatLackAnEntry) {
  AdamW adamw({parameter_with_grad(), parameter_with_grad()}, {.amsgrad = true});
  adamw.step();
  const StateDict good = adamw.state_dict();
  for (const std::string key :
       {"state.0.step", "state.0.exp_avg", "state.1.exp_avg_sq", "state.1.max_exp_avg_sq"}) {
    StateDict bad = good;
    std::erase_if(bad.tensors, [&](const auto& entry) { return entry.first == key; });
    EXPECT_ERROR(adamw.load_state_dict(bad),
                 "[load_state_dict] expected \"" + key + "\", got no such key");
  }
  // Without amsgrad there need be no greatest v; and a parameter may be before its first step.
  StateDict plain = good;
  plain.metadata["param_groups.0.amsgrad"] = "false";
  std::erase_if(plain.tensors, [](const auto& entry) {
    return entry.first == "state.0.max_exp_avg_sq" || entry.first.starts_with("state.1.");
  });
  EXPECT_EQ(message_of([&] { adamw.load_state_dict(plain); }), "(no error)");
}

TEST(OptimizerMessages, StatesThatCannotBe) {
  AdamW adamw({parameter_with_grad()});
  adamw.step();
  const StateDict good = adamw.state_dict();
  const auto load_step = [&](double step) {
    StateDict bad = good;
    for (auto& [key, tensor] : bad.tensors)
      if (key == "state.0.step") tensor = full({}, step);
    return message_of([&] { adamw.load_state_dict(bad); });
  };
  const std::string start = "[load_state_dict] expected a whole number >= 0 for \"state.0.step\"";
  EXPECT_EQ(load_step(-1), start + ", got -1");
  EXPECT_EQ(load_step(0.5), start + ", got 0.5");
  EXPECT_EQ(load_step(kNaN), start + ", got nan");
  EXPECT_EQ(load_step(kInf), start + ", got inf");
  EXPECT_EQ(load_step(0), "(no error)");
  StateDict twice = good;
  twice.tensors.push_back(twice.tensors.front());
  EXPECT_ERROR(adamw.load_state_dict(twice),
               "[load_state_dict] expected every state once, got \"state.0.exp_avg\" twice");
}

TEST(OptimizerMessages, GroupsThatAreNotThere) {
  AdamW adamw({parameter_with_grad()});
  const std::string message = "[AdamW] expected a group below 1, got 5";
  EXPECT_ERROR(adamw.lr(5), message);
  EXPECT_ERROR(adamw.set_lr(5, 1), message);
  EXPECT_ERROR(adamw.options(5), message);
  EXPECT_ERROR(adamw.group(5), message);
  SGD sgd({parameter_with_grad()});
  EXPECT_ERROR(sgd.set_lr(1, 1), "[SGD] expected a group below 1, got 1");
  EXPECT_ERROR(sgd.lr(1), "[SGD] expected a group below 1, got 1");
  EXPECT_ERROR(sgd.options(1), "[SGD] expected a group below 1, got 1");
}

TEST(OptimizerMessages, RatesThatAreNone) {
  AdamW adamw({parameter_with_grad()}, {.lr = 0.5});
  SGD sgd({parameter_with_grad()}, {.lr = 0.5});
  for (Optimizer* o : {static_cast<Optimizer*>(&adamw), static_cast<Optimizer*>(&sgd)}) {
    const std::string start =
        "[" + o->class_name() + "] expected a finite learning rate >= 0, got ";
    EXPECT_ERROR(o->set_lr(kNaN), start + "nan");
    EXPECT_ERROR(o->set_lr(0, -1), start + "-1");
    EXPECT_ERROR(o->set_lr(kInf), start + "inf");
    EXPECT_EQ(o->lr(), 0.5);
  }
  EXPECT_ERROR(AdamW({parameter_with_grad()}, {.lr = kInf}),
               "[AdamW] expected a finite learning rate >= 0, got inf");
  EXPECT_ERROR(SGD({parameter_with_grad()}, {.dampening = -1}),
               "[SGD] expected a finite dampening >= 0, got -1");
  EXPECT_ERROR(SGD({parameter_with_grad()}, {.dampening = kNaN}),
               "[SGD] expected a finite dampening >= 0, got nan");
}

// options() hands out a reference: the step looks at it, at all groups before any of them moves.
TEST(OptimizerMessages, OptionsThatWereSetToNonsense) {
  const Tensor first = parameter_with_grad();
  AdamW adamw({ParamGroup<AdamWOptions>{{first}, {}}, {{parameter_with_grad()}, {}}});
  adamw.options(1).lr = kNaN;
  EXPECT_ERROR(adamw.step(), "[AdamW] expected a finite learning rate >= 0, got nan");
  EXPECT_EQ(first.to_vector(), (std::vector<double>{1, 1}));
  SGD sgd({first});
  sgd.options().momentum = -1;
  EXPECT_ERROR(sgd.step(), "[SGD] expected a finite momentum >= 0, got -1");
}

TEST(OptimizerMessages, ADtypeThatChangedAfterAStep) {
  nn::Linear layer(2, 1, false);
  layer.weight.set_grad(ones({1, 2}));
  AdamW adamw(layer.parameters());
  adamw.step();
  layer.to(DType::bf16);
  EXPECT_ERROR(adamw.step(),
               "[AdamW] expected parameter 0 to have the dtype of its state, got bf16[1, 2] with "
               "\"state.0.exp_avg\" f32[1, 2]; make the optimizer after Module::to()");
}

TEST(OptimizerMessages, Schedules) {
  SGD sgd({parameter_with_grad()}, {.lr = 0.5});
  EXPECT_ERROR(LrScheduler(sgd, {}), "[LrScheduler] expected a factor, got an empty function");
  const std::string start = "[LrScheduler] expected a finite learning rate >= 0, got ";
  EXPECT_ERROR(LrScheduler(sgd, [](int64_t) { return kNaN; }), start + "nan");
  LrScheduler falling(sgd, [](int64_t step) { return 1.0 - static_cast<double>(step); });
  falling.step();
  EXPECT_ERROR(falling.step(), start + "-0.5");
  EXPECT_EQ(falling.last_step(), 1);
  EXPECT_EQ(sgd.lr(), 0);
  EXPECT_ERROR(cosine_lr(10, 0, kNaN), "[cosine_lr] expected a finite min_factor >= 0, got nan");
  EXPECT_ERROR(step_lr(1, -0.1), "[step_lr] expected a finite gamma >= 0, got -0.1");

  const auto load = [&](const std::string& key, const std::string& value) {
    StateDict state = falling.state_dict();
    state.metadata[key] = value;
    return message_of([&] { falling.load_state_dict(state); });
  };
  EXPECT_EQ(load("last_step", "-3"),
            "[load_state_dict] expected a \"last_step\" of 0 or more, got -3");
  EXPECT_EQ(load("base_lr.0", "nan"),
            "[load_state_dict] expected a finite \"base_lr.0\" >= 0, got nan");
  EXPECT_EQ(falling.last_step(), 1);
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

}  // namespace epilogue::optim::messages_test
