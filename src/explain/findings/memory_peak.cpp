// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_memory_peak(const Explanation& e, std::vector<Finding>& out) {
  for (const DeviceMemory& m : e.memory) {
    if (m.type == DeviceType::cpu && e.memory.size() > 1) continue;
    Finding f;
    f.title = fmt::format("memory peaks at {}{}", format_bytes(static_cast<double>(m.peak_bytes)),
                          m.is_relative ? " above the level at the start" : "");
    if (m.before_window_bytes.value_or(0) > 0)
      f.evidence.push_back(fmt::format("{} of it was allocated before the window",
                                       format_bytes(static_cast<double>(*m.before_window_bytes))));
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, m.at_peak.size()); ++i)
      f.evidence.push_back(fmt::format(
          "{} {} in {}", m.at_peak[i].op.empty() ? "outside of ops:" : m.at_peak[i].op + " holds",
          format_bytes(static_cast<double>(m.at_peak[i].bytes)),
          counted(m.at_peak[i].allocations, "allocation", "allocations")));
    if (m.largest_python) {
      const PythonMemoryHolder& h = *m.largest_python;
      std::string where = h.module.empty() ? h.function : h.module;
      if (!h.module.empty() && !h.function.empty()) where += ", called in " + h.function;
      if (!where.empty())
        f.evidence.push_back(fmt::format("of the code, {} holds most of that: {}", where,
                                         format_bytes(static_cast<double>(h.bytes))));
    }
    if (m.out_of_memory > 0) {
      f.severity = Severity::error;
      f.evidence.push_back(counted(m.out_of_memory, "allocation", "allocations") + " failed");
    }
    advise(f,
           "if memory is short: smaller batches or micro-batches, activation checkpointing "
           "(torch.utils.checkpoint), 16 bits (torch.autocast), and no_grad() where nothing is "
           "trained");
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kMemoryPeakRule = {
    .id = "memory-peak",
    .says = "the most memory that was in use at once, and who held it",
    .said_if = [] { return std::string("memory was recorded"); },
    .find = find_memory_peak};

}  // namespace epilogue::trace
