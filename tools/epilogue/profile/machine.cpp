// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/machine.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/progress.h"
#include "measure/machine_facts.h"
#include "measure/measure.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

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

nlohmann::json measured_machine(bool again) {
  const std::optional<MachineFigures> figures = again ? std::nullopt : machine_figures();
  return measure::machine_json(figures ? *figures : measure_now());
}

void know_machine() {
  if (!machine_file().empty() && !machine_figures()) measure_now();
}

nlohmann::json machine_of_file(const std::string& path) {
  auto machine = measure::parse_machine(read_file(path).value(), path);
  if (!machine) throw Error("[--machine] " + machine.failure().message);
  return std::move(machine).value();
}

}  // namespace epilogue::tool
