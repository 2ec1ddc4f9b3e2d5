// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Products that miss the tensor cores for one reason, by time.
struct TensorCoreMisses {
  std::vector<const Gemm*> gemms;
  int64_t total_ns = 0;
};

Finding tensor_core_finding(const TensorCoreMisses& misses) {
  const Gemm& first = *misses.gemms.front();
  Finding f;
  f.severity = Severity::warning;
  f.title =
      misses.gemms.size() == 1
          ? fmt::format("{} does not use tensor cores: {}", product_text(first),
                        first.tensor_core_note)
          : fmt::format("{} matrix products, {} in all, do not use tensor cores: {}",
                        misses.gemms.size(), duration(misses.total_ns), first.tensor_core_note);
  const size_t shown = std::min(kGemmsShown, misses.gemms.size());
  for (size_t i = 0; i < shown; ++i) {
    f.evidence.push_back(gemm_line(*misses.gemms[i]));
    f.kernels.push_back(misses.gemms[i]->kernel);
  }
  if (shown < misses.gemms.size())
    f.evidence.push_back(fmt::format("and {} more", misses.gemms.size() - shown));
  advise(f, first.tensor_core_advice);
  f.cost_us = to_us(misses.total_ns);
  return f;
}

// Products that nothing is known to bring to the tensor cores are no finding.
void find_tensor_core_misses(const Explanation& e, std::vector<Finding>& out) {
  std::vector<TensorCoreMisses> groups;
  for (const Gemm& g : e.gemms.gemms) {
    if (g.uses_tensor_cores != false || g.tensor_core_advice.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const TensorCoreMisses& other) {
      return other.gemms.front()->tensor_core_note == g.tensor_core_note;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), TensorCoreMisses());
    group->gemms.push_back(&g);
    group->total_ns += g.time.total_ns;
  }
  for (const TensorCoreMisses& group : groups)
    if (to_us(group.total_ns) >= kMinShare * wall_us(e)) out.push_back(tensor_core_finding(group));
}

}  // namespace

constinit const ExplanationRule kNoTensorCoresRule = {
    .id = "no-tensor-cores",
    .says = "which matrix products do not use tensor cores, why, and what would change that",
    .said_if = [] { return "they take " + share_of_span(kMinShare); },
    .find = find_tensor_core_misses};

}  // namespace epilogue::trace
