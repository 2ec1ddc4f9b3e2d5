// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <fmt/format.h>

#include "base/cpu_features.h"
#include "base/file.h"
#include "base/progress.h"
#include "epilogue/runtime.h"
#include "measure.h"

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

Ceilings measured() {
  ProgressBar bar("measuring", 100);
  return measure_ceilings([&](double share) { bar.update(static_cast<int64_t>(share * 100)); });
}

nlohmann::json chains_json(const Ceilings& c) {
  nlohmann::json gflops = nlohmann::json::object();
  nlohmann::json ns_per_element = nlohmann::json::object();
  for (const ChainRates& chain : c.chains) {
    gflops[std::string(dtype_name(chain.dtype))] = chain.gflops;
    ns_per_element[std::string(dtype_name(chain.dtype))] = chain.ns_per_element;
  }
  return {{"overhead_us", c.chain_overhead_us},
          {"ns_per_element", std::move(ns_per_element)},
          {"gflops_by_rows", std::move(gflops)}};
}

}  // namespace

nlohmann::json machine_facts() {
  const Caches caches = cpu_caches();
  return {{"cpu", cpu_model_name()},       {"isa_detected", detected_isa_name()},
          {"isa_used", active_isa_name()}, {"threads", num_threads()},
          {"l1d_bytes", caches.l1d_bytes}, {"l2_bytes", caches.l2_bytes},
          {"l3_bytes", caches.l3_bytes}};
}

nlohmann::json measured_machine() {
  nlohmann::json machine = machine_facts();
  const Ceilings c = measured();
  machine["f32_peak_gflops"] = c.f32_gflops;
  machine["f32_peak_gflops_one_thread"] = c.f32_gflops_one_thread;
  if (c.bf16_gflops > 0) machine["bf16_peak_gflops"] = c.bf16_gflops;
  machine["memory_read_gb_per_s"] = c.memory_gb_per_s;
  machine["memory_read_gb_per_s_one_thread"] = c.memory_gb_per_s_one_thread;
  machine["read_gb_per_s_by_bytes"] = c.read_gb_per_s;
  machine["row_chain"] = chains_json(c);
  return machine;
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
