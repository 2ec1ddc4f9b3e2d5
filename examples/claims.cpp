// SPDX-License-Identifier: Apache-2.0
// Common claims about this subject, put to the test: example_claims NUMBER, the numbers of
// docs/claims.md that need more than the command. Exit 1 where a count, a gradient or a size is not
// what that page says; times are shown and never judged.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "epilogue/amp.h"
#include "epilogue/autograd.h"
#include "epilogue/compile_step.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"

using namespace epilogue;

namespace {

double milliseconds(const auto& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

struct Times {
  double a_ms = 1e30;
  double b_ms = 1e30;
};

// The fastest call of each. They take turns, so that both see the same machine; the first call of a
// turn finds sleeping threads and the other's data in the caches and does not count.
Times fastest_in_turns(const auto& a, const auto& b) {
  constexpr int kTurns = 3;
  constexpr double kTurnMs = 40;
  const auto turn = [](const auto& f, double& best_ms) {
    f();
    double spent_ms = 0;
    do {
      const double ms = milliseconds(f);
      best_ms = std::min(best_ms, ms);
      spent_ms += ms;
    } while (spent_ms < kTurnMs);
  };
  Times best;
  for (int i = 0; i < kTurns; ++i) {
    turn(a, best.a_ms);
    turn(b, best.b_ms);
  }
  return best;
}

bool expect(bool holds, const char* what) {
  if (!holds) std::printf("NOT SO: %s\n", what);
  return holds;
}

// ||a - b|| / ||b|| in double.
double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor expected = to(b, DType::f64);
  const Tensor d = sub(to(a, DType::f64), expected);
  return std::sqrt(sum(mul(d, d)).item() / sum(mul(expected, expected)).item());
}

// 6: the same 2^28 FLOPs as cubes, strips and slivers.
bool gemm_shapes() {
  struct Shape {
    int64_t m, k, n;
  };
  const Shape shapes[] = {{512, 512, 512},  {8, 4096, 4096},  {4096, 4096, 8},
                          {32, 131072, 32}, {131072, 32, 32}, {2048, 32, 2048}};
  const NoGrad no_grad;
  bool fine = true;
  std::printf("%24s  %8s  %8s  %15s\n", "[m, k] x [k, n], f32", "MFLOP", "GFLOP/s",
              "FLOPs per byte");
  for (const auto [m, k, n] : shapes) {
    const Tensor x = randn({m, k});
    const Tensor w = randn({k, n});
    const auto product = [&] { mm(x, w); };
    const double ms = fastest_in_turns(product, product).a_ms;
    const double flops = 2.0 * static_cast<double>(m * k * n);
    const double bytes = 4.0 * static_cast<double>(m * k + k * n + m * n);
    const std::string name =
        std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n);
    std::printf("%24s  %8.1f  %8.1f  %15.1f\n", name.c_str(), flops / 1e6, flops / ms / 1e6,
                flops / bytes);
    fine = expect(flops == 268435456.0, "every shape has 2^28 FLOPs") && fine;
  }
  return fine;
}

// 7: relu(linear) three times and a linear, by width and rows.
bool stack_of_linears() {
  const NoGrad no_grad;
  bool fine = true;
  std::printf("%6s  %6s  %10s  %10s  %8s  %s\n", "width", "rows", "eager ms", "compile ms",
              "speed-up", "kernels");
  for (const int64_t width : {32, 128, 1024}) {
    const nn::MLP stack(width, width, 3, nn::Activation::relu);
    Compiled fast = compile(stack);
    for (const int64_t rows : {1, 64, 1024}) {
      const Tensor x = randn({rows, width});
      const Times t = fastest_in_turns([&] { stack(x); }, [&] { fast(x); });
      const CompileStats stats = fast.stats();
      std::printf("%6lld  %6lld  %10.4f  %10.4f  %7.2fx  %lld -> %lld\n",
                  static_cast<long long>(width), static_cast<long long>(rows), t.a_ms, t.b_ms,
                  t.a_ms / t.b_ms, static_cast<long long>(stats.eager_kernels),
                  static_cast<long long>(stats.kernels));
      fine = expect(stats.eager_kernels == 7, "four products and three relus, one kernel each") &&
             fine;
      fine = expect(stats.kernels < stats.eager_kernels, "fewer kernels when fused") && fine;
    }
  }
  return fine;
}

// 8: W2 (W1 x) with a wide and with a narrow middle.
bool collapsed_products() {
  const NoGrad no_grad;
  bool fine = true;
  std::printf("%22s  %16s  %14s  %13s  %s\n", "width -> middle -> width", "two products ms",
              "W2 W1 once ms", "MACs per row", "compile, weights frozen");
  struct Case {
    int64_t width, middle;
    bool collapses;
  };
  for (const auto [width, middle, collapses] : {Case{256, 1024, true}, Case{1024, 16, false}}) {
    const nn::Linear first(width, middle, false);
    const nn::Linear second(middle, width, false);
    const Tensor x = randn({512, width});
    const auto both = [&](const Tensor& in) { return second(first(in)); };
    Compiled frozen = compile(both, {.collapse_linears = true});
    const Tensor product = mm(second.weight, first.weight);
    const Times t = fastest_in_turns([&] { both(x); }, [&] { linear(x, product); });
    fine = expect(relative_error(frozen(x), both(x)) < 1e-5, "the same result") && fine;
    bool did = false;
    std::string verdict;
    for (const FusionNote& note : frozen.notes()) {
      if (note.pass != "collapse_linears") continue;
      did = note.reason.empty();
      verdict = did ? "one product" : note.reason;
    }
    std::printf("%8lld -> %4lld -> %4lld  %16.3f  %14.3f  %5lldk -> %4lldk  %s\n",
                static_cast<long long>(width), static_cast<long long>(middle),
                static_cast<long long>(width), t.a_ms, t.b_ms,
                static_cast<long long>(2 * width * middle / 1024),
                static_cast<long long>(width * width / 1024), verdict.c_str());
    fine =
        expect(did == collapses, "collapsed where one product is fewer FLOPs, only there") && fine;
  }
  return fine;
}

enum class ZeroGrad { once, every_micro_batch };

Tensor accumulated_gradient(const nn::Linear& layer, const Tensor& x, const Tensor& target,
                            int64_t parts, ZeroGrad when) {
  optim::SGD sgd(layer.parameters(), {.lr = 0.1});
  sgd.zero_grad();
  for (const optim::MicroBatch& part : optim::micro_batches(x.size(0), parts)) {
    if (when == ZeroGrad::every_micro_batch) sgd.zero_grad();
    const Tensor out = layer(slice(x, 0, part.begin, part.end));
    mul(mse_loss(out, slice(target, 0, part.begin, part.end)), part.share).backward();
  }
  return clone(layer.weight.grad());
}

// 9: where zero_grad() belongs in an accumulation loop.
bool zero_grad_in_the_loop() {
  const nn::Linear layer(64, 64);
  const Tensor x = randn({256, 64});
  const Tensor target = randn({256, 64});
  const Tensor whole = accumulated_gradient(layer, x, target, 1, ZeroGrad::once);
  const Tensor right = accumulated_gradient(layer, x, target, 4, ZeroGrad::once);
  const Tensor wrong = accumulated_gradient(layer, x, target, 4, ZeroGrad::every_micro_batch);
  // A quarter of the last 64 rows' mean loss.
  const Tensor last = mul(accumulated_gradient(layer, slice(x, 0, 192, 256),
                                               slice(target, 0, 192, 256), 1, ZeroGrad::once),
                          0.25);
  const double right_error = relative_error(right, whole);
  const double wrong_error = relative_error(wrong, whole);
  const double wrong_from_last = relative_error(wrong, last);
  std::printf("gradient of 256 rows in 4 micro-batches, relative distance\n");
  std::printf("  zero_grad() once per step,         from the whole batch's: %.1e\n", right_error);
  std::printf("  zero_grad() once per micro-batch,  from the whole batch's: %.1e\n", wrong_error);
  std::printf("  zero_grad() once per micro-batch,  from the last part's:   %.1e\n",
              wrong_from_last);
  return expect(right_error < 1e-6, "accumulated gradients are the whole batch's") &&
         expect(wrong_error > 0.1, "three of four micro-batches are lost") &&
         expect(wrong_from_last < 1e-6, "what is left is the last micro-batch's gradient");
}

struct Gradients {
  Tensor input;
  Tensor weight;  // of the first of two linears
};

// The gradient of a mean over 2^20 outputs that are nearly right, as late in training.
Gradients late_gradients(amp::AutocastOptions options, bool with_scaler) {
  manual_seed(0);
  const nn::MLP model(256, 256);
  Tensor x = randn({4096, 256});
  x.set_requires_grad(true);
  Tensor target;
  {
    const NoGrad no_grad;
    target = add(model(x), mul(randn({4096, 256}), 0.05));
  }
  const amp::GradScaler scaler({.enabled = with_scaler});
  Tensor loss;
  {
    const amp::Autocast autocast(options);
    loss = mse_loss(model(x), target);
  }
  scaler.scale(loss).backward();
  const double unscale = 1 / scaler.get_scale();
  return {mul(x.grad(), unscale), mul(model.fc(0).weight.grad(), unscale)};
}

double zero_share(const Tensor& t) {
  const std::vector<double> values = t.to_vector();
  const auto zeros = std::count(values.begin(), values.end(), 0.0);
  return static_cast<double>(zeros) / static_cast<double>(values.size());
}

// 10: f16's smallest number is 2^-24 = 6e-8.
bool half_underflow() {
  struct Way {
    const char* name;
    amp::AutocastOptions options;
    bool scaled;
    bool is_good;
  };
  const Way ways[] = {{"f16", {.dtype = DType::f16}, false, false},
                      {"f16, loss x 65536", {.dtype = DType::f16}, true, true},
                      {"bf16", {.dtype = DType::bf16}, false, true}};
  const Gradients exact = late_gradients({.enabled = false}, false);
  bool fine = expect(zero_share(exact.input) == 0, "no gradient is 0 in f32");
  std::printf("MSE over 4096 x 256 outputs that are off by 0.05\n");
  std::printf("%20s  %18s  %40s\n", "", "input gradients: 0",
              "weight gradients: error, relative to f32");
  for (const Way& way : ways) {
    const Gradients got = late_gradients(way.options, way.scaled);
    const double zeros = zero_share(got.input);
    const double error = relative_error(got.weight, exact.weight);
    std::printf("%20s  %16.2f %%  %38.1f %%\n", way.name, 100 * zeros, 100 * error);
    fine = expect(way.is_good ? zeros < 1e-3 && error < 0.1 : zeros > 0.1 && error > 0.3,
                  "f16 alone loses gradients, and only f16 alone") &&
           fine;
  }
  return fine;
}

// Most bytes that were allocated at once while `f` ran for the second time, beyond those before the
// first.
int64_t bytes_for(const auto& f) {
  const int64_t before = memory_stats().allocated_bytes;
  f();
  reset_peak_memory();
  f();
  return memory_stats().peak_allocated_bytes - before;
}

// 12: what a step of the gated MLP needs besides weights, x and target.
bool fused_backward_memory() {
  constexpr double kMiB = 1 << 20;
  const nn::GatedMLP model(256, 1024);
  const nn::MSELoss loss;
  bool fine = true;
  std::printf(
      "GeGLU 256 -> 1024, forward and backward in f32, MiB beside weights; 3 are gradients\n");
  std::printf("%6s  %8s  %20s  %20s  %18s  %18s\n", "rows", "eager", "compiled, saving all",
              "as it weighs costs", "recomputing", "measured, compiled");
  for (const int64_t rows : {64, 512, 4096}) {
    const Tensor x = randn({rows, 256});
    const Tensor target = randn({rows, 256});
    const int64_t eager = bytes_for([&] {
      loss(model(x), target).backward();
      for (const Tensor& p : model.parameters()) p.set_grad({});
    });
    CompiledStep step = compile_step(model, loss);
    const int64_t compiled = bytes_for([&] { step.train(x, target, [] {}); });
    const StepMemory memory = step.memory();
    std::printf("%6lld  %8.2f  %20.2f  %20.2f  %18.2f  %18.2f\n", static_cast<long long>(rows),
                static_cast<double>(eager) / kMiB, static_cast<double>(memory.save_bytes) / kMiB,
                static_cast<double>(memory.automatic_bytes) / kMiB,
                static_cast<double>(memory.recompute_bytes) / kMiB,
                static_cast<double>(compiled) / kMiB);
    fine = expect(memory.recompute_bytes <= memory.save_bytes, "recomputing saves memory") && fine;
  }
  return fine;
}

int usage() {
  std::fprintf(stderr, "usage: example_claims 6|7|8|9|10|12, the numbers of docs/claims.md\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  manual_seed(0);
  const std::string claim = argc == 2 ? argv[1] : "";
  if (claim == "6") return gemm_shapes() ? 0 : 1;
  if (claim == "7") return stack_of_linears() ? 0 : 1;
  if (claim == "8") return collapsed_products() ? 0 : 1;
  if (claim == "9") return zero_grad_in_the_loop() ? 0 : 1;
  if (claim == "10") return half_underflow() ? 0 : 1;
  if (claim == "12") return fused_backward_memory() ? 0 : 1;
  return usage();
}
