// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/machine.h"

#include <fmt/format.h>

#include "base/caches.h"
#include "base/cpu_features.h"
#include "base/file.h"
#include "base/progress.h"
#include "epilogue/runtime.h"
#include "measure/measure.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

// Of machine_facts() and measured_machine(), what analyses of a trace read.
constexpr const char* kTraceKeys[] = {"cpu",
                                      "isa_used",
                                      "threads",
                                      "f32_peak_gflops",
                                      "bf16_peak_gflops",
                                      "memory_read_gb_per_s",
                                      "read_gb_per_s_by_bytes",
                                      "row_chain"};

MachineFigures measure_now() {
  MachineFigures figures;
  {
    ProgressBar bar("measuring this machine, once", 100);
    figures = measure::measure_machine(
        [&](double share) { bar.update(static_cast<int64_t>(share * 100)); });
  }
  // A folder that cannot be written costs the next run a second.
  if (const Status kept = set_machine_figures(figures); !kept)
    warn("what was measured is not kept: " + kept.failure().message);
  return figures;
}

}  // namespace

nlohmann::json machine_facts() {
  const Caches caches = cpu_caches();
  return {{"cpu", cpu_model_name()},       {"isa_detected", detected_isa_name()},
          {"isa_used", active_isa_name()}, {"threads", num_threads()},
          {"l1d_bytes", caches.l1d_bytes}, {"l2_bytes", caches.l2_bytes},
          {"l3_bytes", caches.l3_bytes},   {"machine_file", machine_file()}};
}

nlohmann::json measured_machine(bool again) {
  std::optional<MachineFigures> figures = machine_figures();
  if (again || !figures) figures = measure_now();
  nlohmann::json machine = machine_facts();
  machine.update(nlohmann::json::parse(figures_json(*figures)));
  return machine;
}

nlohmann::json known_machine() {
  nlohmann::json machine = machine_facts();
  if (const auto figures = machine_figures())
    machine.update(nlohmann::json::parse(figures_json(*figures)));
  return machine;
}

void know_machine() {
  if (!machine_file().empty() && !machine_figures()) measure_now();
}

nlohmann::json machine_of_file(const std::string& path) {
  const nlohmann::json machine =
      nlohmann::json::parse(read_file(path).value(), nullptr, /*allow_exceptions=*/false);
  if (!machine.is_object() || !machine.contains("f32_peak_gflops"))
    throw Error("[--machine] expected what epilogue info --measure --format json prints, got " +
                path);
  const nlohmann::json facts = machine_facts();
  for (const char* key : {"threads", "isa_used"})
    if (machine.value(key, nlohmann::json()) != facts[key])
      throw Error(fmt::format("[--machine] expected a file measured with {} {}, got {}", key,
                              facts[key].dump(), machine.value(key, nlohmann::json()).dump()));
  return machine;
}

std::vector<std::pair<std::string, std::string>> machine_metadata(const nlohmann::json& machine) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const char* key : kTraceKeys)
    if (machine.contains(key)) list.emplace_back(key, machine[key].dump());
  return list;
}

}  // namespace epilogue::tool
