// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_occupancy_artefact(const Explanation& e, std::vector<Finding>& out) {
  int64_t kernels = 0;
  const KernelOccupancy* longest = nullptr;
  for (const KernelOccupancy& k : e.occupancies) {
    if (!k.is_recorded_zero_artefact) continue;
    kernels += k.count;
    if (longest == nullptr) longest = &k;
  }
  if (longest == nullptr) return;
  Finding f;
  f.title = fmt::format("{} recorded with 0 % occupancy, which is wrong",
                        counted(kernels, "kernel is", "kernels are"));
  f.evidence.push_back(longest->kernel + ": " + longest->note);
  advise(f, "read the occupancy in \"resources\", which is computed from registers and sizes");
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kOccupancyArtefactRule = {
    .id = "occupancy-artefact",
    .says = "which kernels were recorded with 0 % occupancy although they fit",
    .said_if = [] { return std::string("there are such kernels"); },
    .find = find_occupancy_artefact};

}  // namespace epilogue::trace
