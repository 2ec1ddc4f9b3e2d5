// SPDX-License-Identifier: Apache-2.0
// The cost of a call of a compiled or fused MLP over its kernel, from one thread and from as many
// as there are cores.
//
// "kernel" is the row chain alone, with addresses that are at hand. The others bring what a user
// gets with it: guards, a frame, a result. Threads call one object; each thread has its own rows.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bench/harness.h"
#include "core/backend.h"
#include "core/row_chain.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/fused.h"
#include "epilogue/nn.h"
#include "epilogue/runtime.h"

namespace epilogue::bench {
namespace {

constexpr double kBudgetNs = 250;

// down(relu(up x)) of one row.
struct Mlp {
  nn::MLP module{16, 32, 1, nn::Activation::relu, false};
  Tensor x = rand({1, 16});
  Tensor out = empty({1, 16});
  std::unique_ptr<RowChain> chain;

  Mlp() {
    RowChainSpec spec;
    PointwiseProgram first{.inputs = 1, .steps = {{PointwiseFn::relu, 0}}, .outputs = {1}};
    add_stage(spec, {module.fc(0).weight}, std::move(first), 0);
    add_stage(spec, {module.fc(1).weight}, {.inputs = 1, .outputs = {0}}, 0);
    chain = cpu_backend().make_row_chain(spec);
  }
};

// Calls of all threads at once: nanoseconds per call of one thread, the median over rounds.
double threaded_ns(int threads, const std::function<std::function<void()>()>& make_call) {
  constexpr int kRounds = 21;
  constexpr int kCalls = 20'000;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> each(static_cast<size_t>(threads));
    std::vector<std::thread> all;
    for (size_t t = 0; t < each.size(); ++t)
      all.emplace_back([&, t] {
        const NoGrad no_grad;
        const std::function<void()> call = make_call();
        each[t] = run_block(call, {.calls = kCalls, .samples = 1, .dropped = 1})[0];
      });
    for (std::thread& thread : all) thread.join();
    rounds.push_back(*std::max_element(each.begin(), each.end()));
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

int run() {
  const NoGrad no_grad;
  set_num_threads(1);
  Mlp mlp;
  const Compiled compiled = compile(mlp.module);
  const Tensor weights[] = {mlp.module.fc(0).weight, mlp.module.fc(1).weight};
  const FusedMlp fused = FusedMlp::plain(weights, {}, nn::Activation::relu);
  const auto kernel = [&](const Tensor& x, const Tensor& out) {
    const MatrixView from{x.data(), DType::f32, 16, 1};
    const MatrixView to{out.data(), DType::f32, 16, 1};
    mlp.chain->run(1, from, {}, {&to, 1});
  };
  kernel(mlp.x, mlp.out);
  if (compiled(mlp.x).to_vector() != mlp.out.to_vector() ||
      fused(mlp.x).to_vector() != mlp.out.to_vector()) {
    fmt::print("the contenders disagree\n");
    return 1;
  }

  using Call = std::function<void(const Tensor&, const Tensor&)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"kernel", kernel},
      {"fused, run_into", [&](const Tensor& x, const Tensor& out) { fused.run_into(x, out); }},
      {"fused", [&](const Tensor& x, const Tensor&) { fused(x); }},
      {"compiled, run_into",
       [&](const Tensor& x, const Tensor& out) { compiled.run_into(x, out); }},
      {"compiled", [&](const Tensor& x, const Tensor&) { compiled(x); }},
      {"fused_mlp()",
       [&](const Tensor& x, const Tensor&) { fused_mlp(x, weights, {}, nn::Activation::relu); }},
  };
  const int threads = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  fmt::print("a call over its kernel, MLP 1 x 16 x 32 f32: {}\n", machine_line());
  fmt::print("noise probe: {:.2f}x; ns per call, medians; over the kernel in brackets\n\n",
             noise_probe());
  fmt::print("{:<20}{:>18}{:>22}\n", "", "one thread", fmt::format("{} threads", threads));
  std::vector<Contender> contenders;
  for (const auto& [name, call] : calls)
    contenders.push_back(
        {name, std::function<void()>([&, &call = call] { call(mlp.x, mlp.out); })});
  const std::vector<Timing> alone = interleave(contenders, plan_for(contenders, 1.0, 50));
  bool within = true;
  double kernel_ns = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const double together = threaded_ns(threads, [&, &call = calls[i].second] {
      return std::function<void()>(
          [&call, x = clone(mlp.x), out = clone(mlp.out)] { call(x, out); });
    });
    if (i == 0) kernel_ns = together;
    const double over = alone[i].median_ns - alone[0].median_ns;
    const double over_together = together - kernel_ns;
    // The free function looks its weights up in a table that all threads share.
    const bool is_object = i + 1 < calls.size();
    within = within && (!is_object || (over <= kBudgetNs && over_together <= kBudgetNs));
    fmt::print("{:<20}{:>18}{:>22}\n", calls[i].first,
               fmt::format("{:.0f} (+{:.0f})", alone[i].median_ns, over),
               fmt::format("{:.0f} (+{:.0f})", together, over_together));
  }
  fmt::print(
      "\nbudget: {:.0f} ns over the kernel for objects, from one thread and from several: {}\n",
      kBudgetNs, within ? "kept" : "EXCEEDED");
  return within ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main() { return epilogue::bench::run(); }
