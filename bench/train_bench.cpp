// SPDX-License-Identifier: Apache-2.0
// A training step (forward, loss, backward) of the GeGLU MLP, eager and compiled, on the same work
// in the same run. Gradients agree first.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "epilogue/compile_step.h"
#include "epilogue/nn.h"
#include "harness.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t m, k, h;
};
constexpr Shape kShapes[] = {{1024, 768, 3072}, {128, 768, 3072}, {256, 64, 256}};

// Of what two orders of summation may differ by; bf16 ones round between ops or not.
double tolerance_of(DType dtype) { return dtype == DType::f32 ? 3e-6 : 8e-3; }

double relative_l2(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector();
  const auto y = b.to_vector();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

Tensor loss_of(const Tensor& y, const Tensor& target) { return mse_loss(y, target); }

// The largest relative difference of a gradient, which both left in .grad.
double largest_difference(nn::Module& model, CompiledStep& step, const Tensor& x,
                          const Tensor& target) {
  loss_of(model(x), target).backward();
  std::vector<Tensor> eager;
  for (const Tensor& p : model.parameters()) eager.push_back(p.grad());
  model.zero_grad();
  step(x, target);
  double largest = 0;
  const std::vector<Tensor> parameters = model.parameters();
  for (size_t i = 0; i < eager.size(); ++i)
    largest = std::max(largest, relative_l2(parameters[i].grad(), eager[i]));
  model.zero_grad();
  return largest;
}

bool run_shape(const Shape& s, DType dtype, bool input_gradient, double seconds) {
  nn::GatedMLP model(s.k, s.h);
  model.to(dtype);
  Tensor x = randn({s.m, s.k}, dtype);
  x.set_requires_grad(input_gradient);
  const Tensor target = randn({s.m, s.k}, dtype);
  CompiledStep step = compile_step(model, loss_of);
  const double difference = largest_difference(model, step, x, target);
  if (!(difference <= tolerance_of(dtype))) {
    fmt::print("{} x {} x {}: gradients differ by {:.1e}\n", s.m, s.k, s.h, difference);
    return false;
  }
  const auto drop = [&] {
    model.zero_grad();
    x.set_grad({});
  };
  const std::vector<Contender> contenders = {{"compiled",
                                              [&] {
                                                step(x, target);
                                                drop();
                                              }},
                                             {"eager", [&] {
                                                loss_of(model(x), target).backward();
                                                drop();
                                              }}};
  const auto t = interleave(contenders, plan_for(contenders, seconds, 500));
  const double units = input_gradient ? 9 : 7;
  const double flops = units * 2 * static_cast<double>(s.m) * static_cast<double>(s.k * s.h);
  const auto cell = [&](const Timing& c) {
    return fmt::format("{:>9.2f} ms {:>7.1f} GF +-{:>4.1f} %", c.min_ns / 1e6, flops / c.min_ns,
                       c.mad_ns / c.median_ns * 100);
  };
  const StepMemory m = step.memory();
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print(
      "{:>5} x{:>4} x{:>5} {:<5}{:<4}{:>32}{:>32}{:>7.2f}   {:.1e}   {:.1f} / {:.1f} / {:.1f}\n",
      s.m, s.k, s.h, dtype_name(dtype), input_gradient ? "dx" : "", cell(t[0]), cell(t[1]),
      t[1].min_ns / t[0].min_ns, difference, mib(m.planned_bytes), mib(m.save_bytes),
      mib(m.recompute_bytes));
  std::fflush(stdout);
  return true;
}

int run(double seconds) {
  fmt::print(
      "GeGLU training step without the optimizer (m x k x hidden; dx: with the input's gradient): "
      "{}\nnoise probe: {:.2f}x; from the fastest sample, +- MAD; the ratio above 1: compiled is "
      "faster; the largest difference of a gradient; MiB of intermediate values as planned / all "
      "saved / least saved\n\n",
      machine_line(), noise_probe());
  bool ok = true;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& s : kShapes)
      for (const bool input_gradient : {false, true})
        ok = run_shape(s, dtype, input_gradient, seconds) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  return epilogue::bench::run(argc > 1 ? std::atof(argv[1]) : 2.0);
}
