// SPDX-License-Identifier: Apache-2.0
// What the tests of compiled training steps share.
#pragma once

#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "epilogue/compile_step.h"
#include "plan_testing.h"

namespace epilogue::testing {

inline Tensor mse(const Tensor& y, const Tensor& target) { return mse_loss(y, target); }

inline int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// A small gated MLP, and what it is trained on.
class SmallMlp : public ::testing::Test {
 protected:
  nn::GatedMLP mlp_{16, 40};
  Tensor x_ = randn({6, 16});
  Tensor target_ = randn({6, 16});
};

struct StepCase {
  nn::MlpConfig config;
  Dims sizes;
  DType dtype;
  Saved saved = Saved::automatic;
  Packed packed = Packed::always;
};

inline std::string describe(const StepCase& c) {
  return std::string(nn::activation_name(c.config.activation)) + " " +
         std::string(dtype_name(c.dtype)) + to_string(c.sizes) + " hidden " +
         std::to_string(c.config.hidden) + " layers " + std::to_string(c.config.layers) +
         (c.config.bias ? " bias" : "") + " norm " + std::string(nn::norm_name(c.config.norm)) +
         (c.config.residual ? " residual" : "") + " saved " +
         std::to_string(static_cast<int>(c.saved)) + " packed " +
         std::to_string(static_cast<int>(c.packed));
}

// Gradients of x and of all parameters after an eager step, which are then dropped.
inline std::vector<Tensor> eager_gradients(nn::Module& module, const Tensor& x,
                                           const Tensor& target) {
  mse(module(x), target).backward();
  std::vector<Tensor> gradients = {x.grad()};
  for (const Tensor& p : module.parameters()) gradients.push_back(p.grad());
  module.zero_grad();
  x.set_grad({});
  return gradients;
}

// The same in f64 arithmetic on the very numbers that the module holds.
inline std::vector<std::vector<double>> exact_gradients(nn::Module& module, const Tensor& x,
                                                        const Tensor& target) {
  nn::NamedTensors state;
  for (const auto& [name, tensor] : module.state_dict()) state.emplace_back(name, clone(tensor));
  const DType dtype = x.dtype();
  module.to(DType::f64);
  Tensor exact_x = to(x.detach(), DType::f64);
  exact_x.set_requires_grad(true);
  std::vector<std::vector<double>> exact;
  for (const Tensor& g : eager_gradients(module, exact_x, to(target, DType::f64)))
    exact.push_back(g.to_vector());
  module.to(dtype);
  module.load_state_dict(state);
  return exact;
}

// What the gradients of one MLP lose at most, relative L2 against f64: sums in f32, and one
// rounding of each value that is stored. Deeper ones lose more, and so does eager.
inline double largest_error(DType dtype) {
  if (dtype == DType::f32) return 2e-6;
  return dtype == DType::bf16 ? 5e-3 : 7e-4;
}

// What the errors of two gradients of a few dozen elements may differ by.
inline constexpr double kChance = 1.5;

struct ErrorPair {
  double ours;
  double theirs;
};

// Errors of many gradients: single ones of few elements vary by chance, and those of one module in
// f32 by 5 %.
class ErrorTally {
 public:
  // Every case has numbers of its own, so that chance evens out over them.
  uint64_t next_seed() { return kFirstSeed + cases_++; }
  void add(double ours, double theirs) {
    ours_ += ours * ours;
    theirs_ += theirs * theirs;
  }
  ~ErrorTally() {
    EXPECT_GT(theirs_, 0);
    EXPECT_LE(std::sqrt(ours_), 1.05 * std::sqrt(theirs_));
  }

 private:
  static constexpr uint64_t kFirstSeed = 11;

  uint64_t cases_ = 0;
  double ours_ = 0;
  double theirs_ = 0;
};

// Gradients of x and of all parameters: each within the error of its dtype or near eager's, and all
// of them together no less accurate than eager's.
inline std::vector<ErrorPair> expect_step_equals_eager(const StepCase& c, ErrorTally& tally) {
  manual_seed(tally.next_seed());
  const auto module = nn::make_mlp(c.config);
  module->to(c.dtype);
  Tensor x = randn(c.sizes, c.dtype);
  x.set_requires_grad(true);
  const Tensor target = randn(c.sizes, c.dtype);
  const std::vector<std::vector<double>> exact = exact_gradients(*module, x, target);
  const std::vector<Tensor> eager = eager_gradients(*module, x, target);
  CompiledStep step = compile_step(*module, mse, {.saved = c.saved, .packed = c.packed});
  step(x, target);
  std::vector<Tensor> compiled = {x.grad()};
  for (const Tensor& p : module->parameters()) compiled.push_back(p.grad());
  std::vector<ErrorPair> errors;
  for (size_t i = 0; i < compiled.size(); ++i) {
    const std::string what = describe(c) + " gradient " + std::to_string(i);
    EXPECT_TRUE(compiled[i].defined()) << what;
    if (!compiled[i].defined()) continue;
    expect_same_kind(compiled[i], eager[i], what);
    const double ours = relative_l2(compiled[i], exact[i]);
    const double theirs = relative_l2(eager[i], exact[i]);
    EXPECT_LE(ours, std::max(largest_error(c.dtype), kChance * theirs)) << what;
    tally.add(ours, theirs);
    errors.push_back({ours, theirs});
  }
  return errors;
}

}  // namespace epilogue::testing
