// SPDX-License-Identifier: Apache-2.0
#include "plan/measure_plans.h"

#include <algorithm>

#include "base/clock.h"
#include "base/median.h"
#include "epilogue/autograd.h"

namespace epilogue::plan {
namespace {

constexpr int64_t kBudgetNs = 300'000'000;
constexpr int kFewestRounds = 3;
constexpr int kMostRounds = 15;
// Calls of one turn together: long against the clock and a cache that another one left.
constexpr int64_t kTurnNs = 500'000;
constexpr int kMostCalls = 1000;
constexpr double kWorthIt = 0.98;

}  // namespace

Choice fastest(std::span<const Contender> contenders, std::span<const Tensor> in,
               std::span<Tensor> out, const std::function<void()>& before_call) {
  const NoGrad no_grad;
  const auto call_ns = [&](const Contender& c) {
    before_call();
    const int64_t begin = monotonic_ns();
    c.plan->run(in, out);
    return static_cast<double>(monotonic_ns() - begin);
  };
  std::vector<std::vector<double>> ns(contenders.size());
  std::vector<int> calls(contenders.size(), 1);
  const int64_t end = monotonic_ns() + kBudgetNs;
  for (int round = 0; round < kMostRounds && (round < kFewestRounds || monotonic_ns() < end);
       ++round)
    for (size_t i = 0; i < contenders.size(); ++i) {
      const Contender& c = contenders[i];
      c.plan->tune(c.tuning);
      // The first call plans, packs and warms caches.
      call_ns(c);
      if (round == 0)
        calls[i] = std::clamp(static_cast<int>(kTurnNs / std::max(call_ns(c), 1.0)), 1, kMostCalls);
      double sum = 0;
      for (int k = 0; k < calls[i]; ++k) sum += call_ns(c);
      ns[i].push_back(sum / calls[i]);
    }
  Choice choice;
  size_t best = 0;
  std::vector<double> medians;
  for (size_t i = 0; i < contenders.size(); ++i) {
    medians.push_back(median_of(ns[i]));
    choice.median_us.emplace_back(contenders[i].name, medians[i] * 1e-3);
    if (medians[i] < medians[best]) best = i;
  }
  if (medians[best] > kWorthIt * medians[0]) best = 0;
  choice.name = contenders[best].name;
  return choice;
}

}  // namespace epilogue::plan
