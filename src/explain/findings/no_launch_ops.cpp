// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

void find_no_launch_ops(const Explanation& e, std::vector<Finding>& out) {
  // Where most device work has no launch, launches were not linked: nobody knows which ops start
  // it.
  if (2 * e.kernels_without_launch > e.kernels) return;
  int64_t self_ns = 0;
  int64_t count = 0;
  int64_t view_ns = 0;
  const NoLaunchOp* longest = longest_no_launch(e);
  for (const NoLaunchOp& op : e.chains.no_launch) {
    self_ns += op.self_ns;
    if (op_class(op.name) == OpClass::view) view_ns += op.self_ns;
    count += op.count;
  }
  if (!is_worth_it(e, to_us(self_ns))) return;
  Finding f;
  // One op that takes more than all others together is no habit of the program.
  const bool is_one = 2 * longest->max_self_ns > self_ns;
  f.title = is_one ? fmt::format("one {} starts no device work and takes {} of the host's time",
                                 longest->name, duration(longest->max_self_ns))
                   : fmt::format("{} start no device work and take {} of the host's time",
                                 counted(count, "op", "ops"), duration(self_ns));
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.chains.no_launch.size()); ++i) {
    const NoLaunchOp& op = e.chains.no_launch[i];
    f.evidence.push_back(fmt::format("{}: {}, {}", op.name, counted(op.count, "time", "times"),
                                     duration(op.self_ns)));
  }
  const bool is_views = 2 * view_ns >= self_ns;
  if (is_one) {
    f.evidence.emplace_back(
        "a first call may pay for initialisation; if it occurs again, its stack says where it "
        "comes from");
    advise(f, kFirstCallAdvice);
  } else {
    f.evidence.emplace_back(is_views
                                ? "mostly views and allocations before kernels"
                                : "mostly no views and no allocations: this is work on the host, "
                                  "or ops that call others");
    if (is_views)
      advise(f, is_mostly_compiled(e)
                    ? "CUDA graphs (torch.compile mode=\"reduce-overhead\") leave out views and "
                      "allocations"
                    : "torch.compile leaves out most views and allocations, CUDA graphs leave out "
                      "all");
  }
  // Only time that the device waited for can be saved.
  if (!is_one && 2 * view_ns >= self_ns && e.verdicts.whole.bound == Bound::overhead)
    f.saving_us = to_us(std::min(self_ns, idle_ns(e, IdleCause::host_in_ops)));
  if (f.saving_us) claim_idle(e, f, {IdleCause::host_in_ops}, *f.saving_us);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kNoLaunchOpsRule = {
    .id = "no-launch-ops",
    .says = "which ops take host time and start no device work",
    .said_if = [] { return "they take " + over_min_share() + ", and most kernels have a launch"; },
    .find = find_no_launch_ops,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
