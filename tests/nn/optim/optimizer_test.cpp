// SPDX-License-Identifier: Apache-2.0
// A step besides its formula: one kernel, scaling, clipping, skipping, copies, state.
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "ops/op_testing.h"
#include "support/test.h"

namespace epilogue::optim::optimizer_test {

using testing::CallTree;

Tensor parameter(Dims sizes, DType dtype = DType::f32) {
  Tensor p = randn(sizes, dtype);
  p.set_requires_grad(true);
  return p;
}
// Two of different sizes, the larger one of several tiles, with gradients.
std::vector<Tensor> parameters() {
  manual_seed(1);
  std::vector<Tensor> params = {parameter({33, 300}), parameter({7})};
  for (const Tensor& p : params) p.set_grad(randn(p.sizes()));
  return params;
}
std::vector<Tensor> copies_of(const std::vector<Tensor>& params) {
  std::vector<Tensor> copies;
  for (const Tensor& p : params) {
    Tensor copy = clone(p.detach());
    copy.set_requires_grad(true);
    if (p.grad().defined()) copy.set_grad(clone(p.grad()));
    copies.push_back(copy);
  }
  return copies;
}
void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].to_vector(), b[i].to_vector());
}

TEST(OptimizerStep, IsOneKernelOverAllParameters) {
  const std::vector<Tensor> params = parameters();
  AdamW adamw(params);
  Adam adam(params);
  SGD sgd(params, {.momentum = 0.9});
  for (Optimizer* o : std::initializer_list<Optimizer*>{&adamw, &adam, &sgd}) o->step();
  CallTree tree;
  adamw.step();
  adam.step();
  sgd.step();
  EXPECT_EQ(tree.text, "aten::_fused_adamw_(*) aten::_fused_adam_(*) aten::_fused_sgd_(*)");
}

class Ranges final : public RunObserver {
 public:
  Ranges() { set_run_observer(this); }
  ~Ranges() override { set_run_observer(nullptr); }
  std::vector<std::string> names;
  void op_begin(const OpDef&, std::span<const Tensor>, std::span<const Attr>, int64_t) override {}
  void op_end() override {}
  void kernel_ran(const KernelRun&) override {}
  void range_begin(std::string_view name, RangeKind, int64_t, uint64_t) override {
    names.emplace_back(name);
  }
  void range_end() override {}
};

TEST(OptimizerStep, AnnouncesPyTorchsRanges) {
  AdamW adamw(parameters());
  SGD sgd(parameters());
  Ranges ranges;
  adamw.step();
  adamw.zero_grad();
  sgd.step();
  EXPECT_EQ(ranges.names, (std::vector<std::string>{"Optimizer.step#AdamW.step",
                                                    "Optimizer.zero_grad#AdamW.zero_grad",
                                                    "Optimizer.step#SGD.step"}));
}

// Power-of-two factors are exact: the fused path must be bitwise that of scaled gradients.
TEST(OptimizerStep, UnscalesAndClipsOnTheWayIn) {
  const std::vector<Tensor> plain = parameters();
  const std::vector<Tensor> scaled = copies_of(plain);
  AdamW a(plain);
  AdamW b(scaled);
  for (const Tensor& p : scaled) mul_(p.grad(), 1024.0);
  for (const Tensor& p : plain) mul_(p.grad(), 0.25);
  const std::vector<double> before = scaled[0].grad().to_vector();
  a.step();
  b.step({.grad_scale = full({}, 1024), .clip_coefficient = 0.25});
  expect_same(plain, scaled);
  EXPECT_EQ(scaled[0].grad().to_vector(), before) << "gradients are only read";
}

TEST(OptimizerStep, FoundInfChangesNothingAndDoesNotCount) {
  const std::vector<Tensor> params = parameters();
  const std::vector<Tensor> others = copies_of(params);
  AdamW skipping(params);
  AdamW straight(others);
  skipping.step({.found_inf = ones({})});
  expect_same(params, others);
  EXPECT_EQ(skipping.state_dict().tensors.front().first, "state.0.exp_avg");
  for (const auto& [name, tensor] : skipping.state_dict().tensors)
    for (const double v : tensor.to_vector()) EXPECT_EQ(v, 0) << name;
  skipping.step({.found_inf = zeros({})});
  straight.step();
  expect_same(params, others);
}

// The buffer of the first step is the gradient itself, without dampening: a skipped one is no step.
TEST(OptimizerStep, SkippedFirstStepOfSgdLeavesNoBuffer) {
  const std::vector<Tensor> params = parameters();
  const std::vector<Tensor> others = copies_of(params);
  const SGDOptions options = {.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  SGD skipping(params, options);
  SGD straight(others, options);
  skipping.step({.found_inf = ones({})});
  EXPECT_TRUE(skipping.state_dict().tensors.empty());
  for (int i = 0; i < 2; ++i) {
    skipping.step();
    straight.step();
  }
  expect_same(params, others);
}

TEST(OptimizerStep, BumpsVersionsSoThatSavedAndPackedWeightsAreNoticed) {
  const std::vector<Tensor> params = parameters();
  SGD sgd(params);
  const uint32_t first = params[0].version();
  const uint32_t second = params[1].version();
  sgd.step();
  EXPECT_EQ(params[0].version(), first + 1);
  EXPECT_EQ(params[1].version(), second + 1);

  Tensor w = parameter({2, 2});
  Tensor x = ones({2, 2});
  x.set_requires_grad(true);
  const Tensor loss = sum(mm(x, w));
  w.set_grad(ones({2, 2}));
  SGD({w}).step();
  EXPECT_THROW(loss.backward(), Error);
}

TEST(OptimizerStep, NonFiniteGradientsSpreadLikeThePlainFormulas) {
  Tensor p = full({3}, 1);
  p.set_requires_grad(true);
  p.set_grad(from_values({std::nan(""), INFINITY, 1}, {3}));
  AdamW({p}).step();
  const std::vector<double> v = p.to_vector();
  EXPECT_TRUE(std::isnan(v[0]));
  EXPECT_TRUE(std::isnan(v[1]));  // inf / inf
  EXPECT_NEAR(v[2], 1 - 1e-3 - 1e-5, 1e-6);
}

TEST(OptimizerStep, LowPrecisionCopiesAreTheRoundedParameters) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<Tensor> params = parameters();
    AdamW adamw(params);
    SGD sgd(copies_of(params), {.momentum = 0.9});
    for (Optimizer* o : std::initializer_list<Optimizer*>{&adamw, &sgd}) {
      o->keep_low_precision_copies(dtype);
      o->step();
      o->step();
      for (const Tensor& p : o->parameters())
        EXPECT_EQ(o->low_precision_copy(p).to_vector(), to(p.detach(), dtype).to_vector());
    }
    EXPECT_FALSE(adamw.low_precision_copy(ones({2})).defined());
  }
}

TEST(OptimizerStep, LowPrecisionParametersKeepLowPrecisionState) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor p = full({50}, 1, dtype);
    p.set_requires_grad(true);
    p.set_grad(full({50}, 0.5, dtype));
    AdamW adamw({p}, {.lr = 0.125, .weight_decay = 0});
    adamw.step();
    // m = 0.05 and v = 0.00025 rounded; the first step is lr m / (1 - b1) / sqrt(v / (1 - b2)) =
    // lr.
    EXPECT_NEAR(p.to_vector()[49], 0.875, dtype == DType::bf16 ? 0x1p-8 : 0x1p-11);
    EXPECT_EQ(adamw.state_dict().tensors.front().second.dtype(), dtype);
  }
}

TEST(OptimizerStep, WorksOnStridedParametersAndEmptyOnes) {
  Tensor storage = randn({8, 6});
  Tensor strided = transpose(storage, 0, 1).detach();
  Tensor dense = contiguous(strided).detach();
  Tensor nothing = zeros({0});
  strided.set_requires_grad(true);
  dense.set_requires_grad(true);
  nothing.set_requires_grad(true);
  const Tensor g = randn({6, 8});
  strided.set_grad(g);
  dense.set_grad(g);
  nothing.set_grad(zeros({0}));
  AdamW a({nothing, strided});
  AdamW b({dense});
  a.step();
  b.step();
  testing::expect_close(strided.detach(), dense.detach(), 1e-7, "strided");
}

TEST(OptimizerGroups, HaveOptionsOfTheirOwn) {
  Tensor a = full({1}, 1);
  Tensor b = full({1}, 1);
  for (Tensor* t : {&a, &b}) {
    t->set_requires_grad(true);
    t->set_grad(full({1}, 1));
  }
  SGD sgd({ParamGroup<SGDOptions>{{a}, {.lr = 0.5}}, ParamGroup<SGDOptions>{{b}, {.lr = 0.25}}});
  sgd.step();
  EXPECT_EQ(a.item(), 0.5);
  EXPECT_EQ(b.item(), 0.75);
  sgd.set_lr(1, 0.125);
  EXPECT_EQ(sgd.lr(0), 0.5);
  EXPECT_EQ(sgd.lr(1), 0.125);
  sgd.set_lr(0.0625);
  EXPECT_EQ(sgd.options(0).lr, 0.0625);
  EXPECT_EQ(sgd.parameters().size(), 2U);
}

TEST(OptimizerZeroGrad, DropsOrFills) {
  const std::vector<Tensor> params = parameters();
  SGD sgd(params);
  sgd.zero_grad(false);
  for (const double v : params[0].grad().to_vector()) EXPECT_EQ(v, 0);
  sgd.zero_grad();
  EXPECT_FALSE(params[0].grad().defined());
  const std::vector<double> before = params[0].to_vector();
  sgd.step();
  EXPECT_EQ(params[0].to_vector(), before) << "nothing has a gradient";
}

// Stops half way, goes on from the state in fresh objects: bitwise as without the stop.
TEST(OptimizerState, ResumesBitwise) {
  const auto run = [](Optimizer& o, int from, int to) {
    for (int step = from; step < to; ++step) {
      manual_seed(static_cast<uint64_t>(step));
      for (const Tensor& p : o.parameters()) p.set_grad(randn(p.sizes()));
      o.step();
    }
  };
  const std::vector<Tensor> straight = parameters();
  const std::vector<Tensor> stopped = copies_of(straight);
  AdamW a(straight, {.lr = 0.01, .amsgrad = true});
  AdamW b(stopped, {.lr = 0.01, .amsgrad = true});
  run(a, 0, 6);
  run(b, 0, 3);
  const std::vector<Tensor> resumed = copies_of(stopped);
  AdamW c(resumed, {.lr = 0.5});  // options come with the state
  c.load_state_dict(b.state_dict());
  run(c, 3, 6);
  expect_same(straight, resumed);
  EXPECT_EQ(c.options().lr, 0.01);
  EXPECT_TRUE(c.options().amsgrad);
}

TEST(OptimizerState, NamesAndNumbersReadBackExactly) {
  const std::vector<Tensor> params = parameters();
  SGD sgd(params, {.lr = 0.1, .momentum = 1.0 / 3});
  params[1].set_grad({});
  sgd.step();
  const StateDict dict = sgd.state_dict();
  ASSERT_EQ(dict.tensors.size(), 1U) << "a parameter without a gradient has no state";
  EXPECT_EQ(dict.tensors[0].first, "state.0.momentum_buffer");
  EXPECT_EQ(dict.metadata.at("optimizer"), "SGD");
  EXPECT_EQ(dict.metadata.at("param_groups.0.lr"), "0.1");
  EXPECT_EQ(dict.metadata.at("param_groups.0.params"), "2");
  EXPECT_EQ(std::stod(dict.metadata.at("param_groups.0.momentum")), 1.0 / 3);
  SGD other(copies_of(params));
  other.load_state_dict(dict);
  EXPECT_EQ(other.state_dict().metadata, dict.metadata);
  EXPECT_FALSE(other.state_dict().tensors[0].second.data() == dict.tensors[0].second.data());
}

}  // namespace epilogue::optim::optimizer_test
