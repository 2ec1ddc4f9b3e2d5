// SPDX-License-Identifier: Apache-2.0
// A training step (forward, mse_loss, backward, AdamW) of the GeGLU MLP: ours compiled and eager,
// PyTorch's eager and torch.compile, on the same work in the same run. Gradients agree first.
//
//   train_bench [--torch PYTHON] [--seconds S] [--shape ROWS WIDTH HIDDEN]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "agreement.h"
#include "call_memory.h"
#include "epilogue/autograd.h"
#include "epilogue/compile_step.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "epilogue/runtime.h"
#include "harness.h"
#include "torch_peer.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t m, k, h;
};
constexpr Shape kShapes[] = {{1024, 768, 3072}, {128, 768, 3072}, {256, 64, 256}, {64, 784, 256}};
constexpr double kLearningRate = 1e-4;

// The difference that two orders of summation may make; bf16 ones round between ops or not.
double tolerance_of(DType dtype) { return dtype == DType::f32 ? 3e-6 : 8e-3; }

Tensor loss_of(const Tensor& y, const Tensor& target) { return mse_loss(y, target); }

// One way to run the step, with what it needs beside weights, gradients and optimizer state.
struct Candidate {
  Contender timed;
  std::vector<Tensor> gradients;  // of the first step
  std::optional<int64_t> peak_bytes;
};

// A model with its optimizer; every contender has one of its own, made from the same weights.
class Trainee {
 public:
  Trainee(const Shape& s, DType dtype, const std::vector<Tensor>& weights) : model_(s.k, s.h) {
    model_.to(dtype);
    const NoGrad no_grad;
    const std::vector<Tensor> parameters = model_.parameters();
    for (size_t i = 0; i < weights.size(); ++i) copy_(parameters[i], weights[i]);
    optimizer_.emplace(parameters, optim::AdamWOptions{.lr = kLearningRate});
  }
  const nn::GatedMLP& model() const { return model_; }
  std::vector<Tensor> gradients() const {
    std::vector<Tensor> list;
    for (const Tensor& p : model_.parameters()) list.push_back(p.grad());
    return list;
  }
  void step() { optimizer_->step(); }
  void drop() { optimizer_->zero_grad(); }

 private:
  nn::GatedMLP model_;
  std::optional<optim::AdamW> optimizer_;
};

struct Work {
  Shape shape;
  DType dtype;
  std::vector<Tensor> weights;  // gate, up, down
  Tensor x, target;
};

Candidate eager(const Work& work) {
  auto trainee = std::make_shared<Trainee>(work.shape, work.dtype, work.weights);
  const auto gradients = [trainee, &work] {
    const Tensor loss = loss_of(trainee->model()(work.x), work.target);
    loss.backward();
    return loss.detach();
  };
  const auto step = [=] {
    const Tensor loss = gradients();
    trainee->step();
    trainee->drop();
    return loss;
  };
  gradients();
  Candidate c{{"epilogue.eager", [step] { step(); }}, trainee->gradients(), {}};
  trainee->drop();
  step();
  c.peak_bytes = measure_call_memory(step).peak_intermediate_bytes;
  return c;
}

Candidate compiled(const Work& work) {
  auto trainee = std::make_shared<Trainee>(work.shape, work.dtype, work.weights);
  CompiledStep plan = compile_step(trainee->model(), loss_of);
  auto step = [=, &work]() mutable {
    return plan.train(work.x, work.target, [&] { trainee->step(); });
  };
  Candidate c{{"epilogue.compile", [step]() mutable { step(); }}, {}, {}};
  plan.train(work.x, work.target, [&] {
    for (const Tensor& g : trainee->gradients()) c.gradients.push_back(clone(g));
  });
  step();
  // Bytes kept between steps, and bytes made by a step.
  c.peak_bytes = measure_call_memory(step).peak_intermediate_bytes +
                 plan.stats().intermediate_bytes + plan.stats().scratch_bytes;
  return c;
}

void add_torch(const Work& work, TorchPeer& peer, std::vector<Candidate>& all) {
  Model model;
  model.stages.push_back(
      {.weight = work.weights[0], .activation = nn::Activation::geglu, .up = work.weights[1]});
  model.stages.push_back({.weight = work.weights[2]});
  if (auto loaded = peer.load("mlp", model, work.x, work.target); !loaded)
    throw Error("[pytorch] " + loaded.failure().message);
  for (const std::string mode : {"eager", "compile"}) {
    auto prepared = peer.prepare_step(mode, kLearningRate);
    if (!prepared) {
      fmt::print("pytorch.{} left out: {}\n", mode, prepared.failure().message);
      continue;
    }
    auto run = [&peer, mode](const Block& block) { return peer.run(mode, block); };
    all.push_back({{"pytorch." + mode, run, true},
                   prepared.value().gradients,
                   prepared.value().peak_intermediate_bytes});
  }
}

// The largest relative difference of a gradient from the first candidate's.
double largest_difference(const std::vector<Candidate>& all) {
  double largest = 0;
  for (const Candidate& c : all)
    for (size_t i = 0; i < c.gradients.size(); ++i)
      largest = std::max(largest, relative_l2(c.gradients[i], all[0].gradients[i]));
  return largest;
}

bool run_shape(const Shape& s, DType dtype, double seconds, TorchPeer* peer) {
  Work work{s, dtype, {}, randn({s.m, s.k}, dtype), randn({s.m, s.k}, dtype)};
  {
    nn::GatedMLP initial(s.k, s.h);
    initial.to(dtype);
    for (const Tensor& p : initial.parameters()) work.weights.push_back(p.detach());
  }
  std::vector<Candidate> all = {compiled(work), eager(work)};
  if (peer != nullptr) add_torch(work, *peer, all);
  const double difference = largest_difference(all);
  if (!(difference <= tolerance_of(dtype))) {
    fmt::print("{} x {} x {} {}: gradients differ by {:.1e}\n", s.m, s.k, s.h, dtype_name(dtype),
               difference);
    return false;
  }
  std::vector<Contender> contenders;
  for (const Candidate& c : all) contenders.push_back(c.timed);
  const auto times = interleave(contenders, plan_for(contenders, seconds, 500));
  // Three products forward, three for the weights' gradients, one for that of the hidden values.
  const double flops = 7 * 2 * static_cast<double>(s.m) * static_cast<double>(s.k * s.h);
  fmt::print("{} x {} x {} {}, gradients within {:.1e}\n", s.m, s.k, s.h, dtype_name(dtype),
             difference);
  for (size_t i = 0; i < all.size(); ++i) {
    const Timing& t = times[i];
    const std::string memory =
        all[i].peak_bytes
            ? fmt::format("{:.1f} MiB", static_cast<double>(*all[i].peak_bytes) / (1 << 20))
            : "unknown";
    fmt::print("  {:<17}{:>10.3f} ms +-{:>5.1f} %  median{:>10.3f} ms{:>8.1f} GF{:>7.2f}x{:>12}\n",
               t.name, t.min_ns / 1e6, t.mad_ns / t.median_ns * 100, t.median_ns / 1e6,
               flops / t.min_ns, t.min_ns / times[0].min_ns, memory);
  }
  std::fflush(stdout);
  return true;
}

int run(double seconds, const std::string& python, const std::vector<int64_t>& sizes) {
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  if (!sizes.empty()) shapes = {{sizes[0], sizes[1], sizes[2]}};
  std::optional<TorchPeer> peer;
  if (!python.empty()) {
    auto started = TorchPeer::start(python, num_threads());
    if (!started) {
      fmt::print(stderr, "train_bench: --torch {}: {}\n", python, started.failure().message);
      return 2;
    }
    peer.emplace(std::move(started).value());
  }
  fmt::print(
      "GeGLU training step (m x k x hidden): forward, mse_loss, backward, AdamW: {}{}\n"
      "noise probe: {:.2f}x; the fastest sample +- MAD; GF of the products; times "
      "epilogue.compile's "
      "time; memory at its most in a step beside weights and optimizer state\n\n",
      machine_line(), peer ? ", PyTorch " + peer->version() : "", noise_probe());
  bool ok = true;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& s : shapes) ok = run_shape(s, dtype, seconds, peer ? &*peer : nullptr) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  CLI::App app("A training step of the GeGLU MLP, ours and PyTorch's");
  double seconds = 2;
  std::string python;
  app.add_option("--seconds", seconds, "per shape and dtype")->check(CLI::PositiveNumber);
  app.add_option("--torch", python, "a Python with PyTorch, as a peer");
  std::vector<int64_t> sizes;
  app.add_option("--shape", sizes, "rows, width and hidden width in place of the usual shapes")
      ->expected(3)
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return epilogue::bench::run(seconds, python, sizes);
}
