// SPDX-License-Identifier: Apache-2.0
// Optimizers against PyTorch's own runs, against hand-worked tables, and on every instruction set.
#include "nn/golden.h"

#include "base/cpu_features.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "support/test.h"

namespace epilogue::optim::golden_test {

using nlohmann::json;
using test::expect_golden;
using test::golden;
using test::tensors_of;

template <class Options>
void read_adam(const json& o, Options& options) {
  options.lr = o.value("lr", options.lr);
  options.eps = o.value("eps", options.eps);
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.amsgrad = o.value("amsgrad", false);
  options.maximize = o.value("maximize", false);
  if (o.contains("betas")) {
    options.beta1 = o["betas"][0];
    options.beta2 = o["betas"][1];
  }
}

std::unique_ptr<Optimizer> make(const json& c, const std::vector<Tensor>& params) {
  const json& o = c["options"];
  if (c["optimizer"] == "SGD") {
    SGDOptions options;
    options.lr = o.value("lr", options.lr);
    options.momentum = o.value("momentum", 0.0);
    options.dampening = o.value("dampening", 0.0);
    options.weight_decay = o.value("weight_decay", 0.0);
    options.nesterov = o.value("nesterov", false);
    options.maximize = o.value("maximize", false);
    return std::make_unique<SGD>(params, options);
  }
  if (c["optimizer"] == "Adam") {
    AdamOptions options;
    read_adam(o, options);
    return std::make_unique<Adam>(params, options);
  }
  AdamWOptions options;
  read_adam(o, options);
  return std::make_unique<AdamW>(params, options);
}

// The run of the script: the second parameter has no gradient in the first step.
void check_case(const json& c, DType dtype, double tolerance) {
  const json& data = golden()["optimizers"];
  std::vector<Tensor> params = tensors_of(data["initial"], data["shapes"], dtype);
  for (Tensor& p : params) p.set_requires_grad(true);
  const auto optimizer = make(c, params);
  for (size_t step = 0; step < data["gradients"].size(); ++step) {
    const std::vector<Tensor> grads = tensors_of(data["gradients"][step], data["shapes"], dtype);
    for (size_t i = 0; i < params.size(); ++i)
      params[i].set_grad(i == 1 && step == 0 ? Tensor() : grads[i]);
    optimizer->step();
  }
  const json& expected = c[std::string(dtype_name(dtype))];
  const std::string what = c["optimizer"].get<std::string>() + " " + c["options"].dump();
  for (size_t i = 0; i < params.size(); ++i)
    expect_golden(params[i], expected["params"][i], tolerance, what);
  size_t found = 0;
  for (const auto& [name, tensor] : optimizer->state_dict().tensors) {
    const auto index = static_cast<size_t>(std::stoi(name.substr(std::string("state.").size())));
    const std::string key = name.substr(name.rfind('.') + 1);
    expect_golden(tensor, expected["state"][index].at(key), tolerance, what + " " + name);
    ++found;
  }
  EXPECT_EQ(found, expected["state"][0].size() + expected["state"][1].size()) << what;
}

TEST(OptimizerGolden, F64RunsEqualPyTorchs) {
  ASSERT_EQ(golden()["optimizers"]["cases"].size(), 11U);
  for (const json& c : golden()["optimizers"]["cases"]) check_case(c, DType::f64, 1e-13);
}

TEST(OptimizerGolden, F32RunsEqualPyTorchsOnEveryInstructionSet) {
  ASSERT_EQ(golden()["optimizers"]["cases"].size(), 11U);
  const Isa before = active_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!is_available(isa)) break;
    set_active_isa(isa);
    // A few roundings in each of 4 steps.
    for (const json& c : golden()["optimizers"]["cases"]) check_case(c, DType::f32, 5e-7);
  }
  set_active_isa(before);
}

// p0 = 1 and gradients 0.1, -0.2, 0.3; worked out in double precision from the formulas.
template <class O, class Options>
double after_three_steps(Options options) {
  Tensor p = full({1}, 1, DType::f64);
  p.set_requires_grad(true);
  O optimizer({p}, options);
  for (const double g : {0.1, -0.2, 0.3}) {
    p.set_grad(full({1}, g, DType::f64));
    optimizer.step();
  }
  return p.item();
}

TEST(OptimizerGolden, HandWorkedTable) {
  constexpr double kTolerance = 1e-14;
  EXPECT_NEAR(after_three_steps<Adam>(AdamOptions{}), 0.9990228625394775, kTolerance);
  EXPECT_NEAR(after_three_steps<Adam>(AdamOptions{.weight_decay = 0.01}), 0.9989248573749913,
              kTolerance);
  EXPECT_NEAR(after_three_steps<AdamW>(AdamWOptions{}), 0.9989928791783396, kTolerance);
  EXPECT_NEAR(after_three_steps<SGD>(SGDOptions{.lr = 0.1}), 0.98, kTolerance);
  EXPECT_NEAR(after_three_steps<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9}), 0.9809, kTolerance);
  EXPECT_NEAR(after_three_steps<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true}),
              0.96281, kTolerance);
  EXPECT_NEAR(after_three_steps<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5}),
              0.9769, kTolerance);
  EXPECT_NEAR(after_three_steps<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}),
              0.975312789, kTolerance);
}

}  // namespace epilogue::optim::golden_test
