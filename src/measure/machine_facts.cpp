// SPDX-License-Identifier: Apache-2.0
#include "measure/machine_facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/caches.h"
#include "base/cpu_features.h"
#include "base/json.h"
#include "epilogue/runtime.h"

namespace epilogue::measure {
namespace {

using nlohmann::json;

// The part of machine_json() that analyses of a trace read.
constexpr const char* kTraceKeys[] = {"cpu",
                                      "isa_used",
                                      "threads",
                                      "f32_peak_gflops",
                                      "bf16_peak_gflops",
                                      "memory_read_gb_per_s",
                                      "read_gb_per_s_by_bytes",
                                      "row_chain"};

}  // namespace

json machine_facts() {
  const Caches caches = cpu_caches();
  return {{"cpu", cpu_model_name()},       {"isa_detected", detected_isa_name()},
          {"isa_used", active_isa_name()}, {"threads", num_threads()},
          {"l1d_bytes", caches.l1d_bytes}, {"l2_bytes", caches.l2_bytes},
          {"l3_bytes", caches.l3_bytes},   {"machine_file", machine_file()}};
}

json machine_json(const MachineFigures& figures) {
  json machine = machine_facts();
  machine.update(parse_json_or_throw(figures_json(figures)));
  return machine;
}

json known_machine() {
  const auto figures = machine_figures();
  return figures ? machine_json(*figures) : machine_facts();
}

Result<json> parse_machine(std::string_view text, const std::string& path) {
  json machine = parse_json(text);
  if (!machine.is_object() || !machine.contains("f32_peak_gflops"))
    return Failure{FailureCode::no_machine,
                   "expected what epilogue info --measure --format json prints, got " + path};
  const json facts = machine_facts();
  for (const char* key : {"threads", "isa_used"}) {
    const json found = machine.value(key, json());
    if (found != facts[key])
      return Failure{FailureCode::no_machine,
                     fmt::format("expected a file measured with {} {}, got {}", key,
                                 json_text(facts[key]), json_text(found))};
  }
  return machine;
}

std::vector<std::pair<std::string, std::string>> trace_metadata(const json& machine) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const char* key : kTraceKeys)
    if (machine.contains(key)) list.emplace_back(key, json_text(machine[key]));
  return list;
}

}  // namespace epilogue::measure
