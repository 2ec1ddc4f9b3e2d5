// SPDX-License-Identifier: Apache-2.0
#include "plan/step_memory.h"

namespace epilogue::plan {
namespace {

int64_t arena_bytes(const Entry& entry, CompileOptions options, Saved saved) {
  options.saved = saved;
  graph::Graph graph = entry.captured();
  passes::run_pipeline(graph, pipeline_options(options, entry.candidate()));
  std::vector<int64_t> bytes;
  bytes.reserve(graph.values.size());
  for (const graph::Value& value : graph.values)
    bytes.push_back(element_count(value.sizes) * static_cast<int64_t>(dtype_bytes(value.dtype)));
  return plan_memory(graph, bytes, entry.handed_out()).arena_bytes;
}

}  // namespace

StepMemory step_memory(const Entry& entry, const CompileOptions& options) {
  return {entry.intermediate_bytes(), arena_bytes(entry, options, Saved::automatic),
          arena_bytes(entry, options, Saved::save), arena_bytes(entry, options, Saved::recompute)};
}

}  // namespace epilogue::plan
