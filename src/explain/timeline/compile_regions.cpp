// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/json.h"
#include "epilogue/trace/kernel_name.h"
#include "explain/index/intervals.h"
#include "explain/index/op_tree.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kRegionPrefix = "Torch-Compiled Region";
constexpr std::string_view kRegionId = ": ";  // before "FRAME/COMPILATION", since PyTorch 2.2
constexpr std::string_view kGraphMark = "CompiledFxGraph";
constexpr std::string_view kLookupMark = "TorchDynamo Cache Lookup";
constexpr std::string_view kTritonPrefix = "triton_";

bool is_op_or_annotation(const Event& e) {
  return e.category == Category::cpu_op || e.category == Category::user_annotation;
}

// Ranges of one kind, and the device work launched inside each.
std::vector<CompiledRange> ranges(const Trace& trace, const Links& links,
                                  const std::vector<uint32_t>& events) {
  if (events.empty()) return {};
  std::map<StringId, CompiledRange> by_name;
  for (const uint32_t i : events) {
    const Event& e = trace.events[i];
    CompiledRange& range = by_name[e.name];
    range.name = std::string(trace.name(e));
    ++range.count;
    range.cpu_ns += e.dur_ns;
  }
  std::vector<Moment> launches;
  std::vector<uint32_t> work;
  for (const uint32_t i : links.device_work) {
    if (links.launch[i] == kNone) continue;
    const Event& call = trace.events[links.launch[i]];
    launches.push_back({call.pid, call.tid, call.ts_ns});
    work.push_back(i);
  }
  const std::vector<uint32_t> around = innermost_at(trace, events, launches);
  for (size_t i = 0; i < work.size(); ++i) {
    if (around[i] == kNone) continue;
    const Event& e = trace.events[work[i]];
    CompiledRange& range = by_name[trace.events[around[i]].name];
    if (e.category == Category::kernel) ++range.kernels;
    range.device_ns += e.dur_ns;
  }
  std::vector<CompiledRange> list;
  list.reserve(by_name.size());
  for (auto& [name, range] : by_name) list.push_back(std::move(range));
  std::stable_sort(list.begin(), list.end(), [](const CompiledRange& a, const CompiledRange& b) {
    return a.cpu_ns > b.cpu_ns;
  });
  return list;
}

// Kernels of one name, and what was read of where they come from.
struct TritonSums {
  TritonKernel kernel;
  std::set<StringId> args;
  std::set<std::string> files;
};

// Inductor's launch wrapper is an op with these args. Every graph numbers its kernels from 0, so
// that several sources may have a kernel of one name.
void add_provenance(const Trace& trace, uint32_t op, TritonSums& sums) {
  const OpArgs* args = op == kNone ? nullptr : trace.op_args(trace.events[op]);
  if (args == nullptr || args->other_args == 0) return;
  if (!sums.args.insert(args->other_args).second) return;
  const auto json = parse_json(trace.strings[args->other_args]);
  if (!json.is_object()) return;
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_integer() ? std::optional<int64_t>(*found)
                                                             : std::nullopt;
  };
  const std::string file = text("kernel_file");
  if (!file.empty()) sums.files.insert(file);
  TritonKernel& kernel = sums.kernel;
  if (!kernel.file.empty()) return;
  kernel.file = file;
  kernel.hash = text("kernel_hash");
  kernel.config = text("kernel_kwargs");
  kernel.warps = number("num_warps");
  kernel.stages = number("num_stages");
}

std::vector<TritonKernel> triton_kernels(const Trace& trace, const Links& links) {
  std::map<StringId, TritonSums> by_name;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel || !trace.name(e).starts_with(kTritonPrefix)) continue;
    TritonSums& sums = by_name[e.name];
    ++sums.kernel.count;
    sums.kernel.device_ns += e.dur_ns;
    add_provenance(trace, links.op[i], sums);
  }
  std::vector<TritonKernel> list;
  for (auto& [id, sums] : by_name) {
    TritonKernel& kernel = sums.kernel;
    kernel.files = static_cast<int64_t>(sums.files.size());
    kernel.name = std::string(trace.strings[id]);
    kernel.fused_ops = decode_kernel_name(kernel.name).ops;
    list.push_back(std::move(kernel));
  }
  std::stable_sort(list.begin(), list.end(), [](const TritonKernel& a, const TritonKernel& b) {
    return a.device_ns > b.device_ns;
  });
  return list;
}

// "1" of "Torch-Compiled Region: 1/0"; "" where the name has no such part.
std::string_view frame_of(std::string_view region) {
  const size_t colon = region.find(kRegionId);
  if (colon == std::string_view::npos) return {};
  const std::string_view id = region.substr(colon + kRegionId.size());
  const size_t slash = id.find('/');
  return slash == std::string_view::npos ? std::string_view() : id.substr(0, slash);
}

std::optional<double> frames_per_step(const Trace& trace, const Links& links,
                                      const std::vector<uint32_t>& regions) {
  if (links.steps.empty() || regions.empty()) return std::nullopt;
  std::set<std::pair<uint32_t, std::string_view>> frames;
  for (const uint32_t i : regions) {
    const std::string_view frame = frame_of(trace.name(trace.events[i]));
    if (frame.empty()) return std::nullopt;
    if (const uint32_t step = step_at(trace, links, trace.events[i].ts_ns); step != kNone)
      frames.emplace(step, frame);
  }
  return static_cast<double>(frames.size()) / static_cast<double>(links.steps.size());
}

struct NestedRegions {
  int64_t count = 0;     // regions that run within another
  int64_t in_steps = 0;  // of these, in steps
  std::vector<uint32_t> outermost;
};

NestedRegions nested_regions(const Trace& trace, const Links& links,
                             const std::vector<uint32_t>& regions) {
  std::vector<uint32_t> sorted = regions;
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
    return std::tie(x.pid, x.tid, x.ts_ns, y.dur_ns) < std::tie(y.pid, y.tid, y.ts_ns, x.dur_ns);
  });
  NestedRegions found;
  for (const uint32_t i : sorted) {
    const Event& e = trace.events[i];
    const Event* outer = found.outermost.empty() ? nullptr : &trace.events[found.outermost.back()];
    if (outer == nullptr || outer->pid != e.pid || outer->tid != e.tid ||
        e.ts_ns >= outer->end_ns()) {
      found.outermost.push_back(i);
    } else {
      ++found.count;
      if (step_at(trace, links, e.ts_ns) != kNone) ++found.in_steps;
    }
  }
  return found;
}

// Time of `regions` in which none of `graphs` runs, whatever thread that is on.
int64_t outside_ns(const Trace& trace, const std::vector<uint32_t>& regions,
                   const std::vector<uint32_t>& graphs) {
  const auto moments = [&](const std::vector<uint32_t>& events) {
    std::vector<Interval> list;
    list.reserve(events.size());
    for (const uint32_t i : events)
      list.push_back({trace.events[i].ts_ns, trace.events[i].end_ns()});
    return united(std::move(list));
  };
  return total_ns(subtracted(moments(regions), moments(graphs)));
}

}  // namespace

bool is_compilation(std::string_view name) {
  return name.find("_compile.compile_inner") != std::string_view::npos;
}

CompileSummary compile_summary(const Trace& trace, const Links& links) {
  std::vector<uint32_t> regions;
  std::vector<uint32_t> graphs;
  std::vector<Interval> compiling;
  CompileSummary summary;
  summary.cache_lookups.name = std::string(kLookupMark);
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (!is_op_or_annotation(e)) continue;
    const std::string_view name = trace.name(e);
    if (name.starts_with(kRegionPrefix)) {
      regions.push_back(i);
    } else if (name.find(kGraphMark) != std::string_view::npos) {
      graphs.push_back(i);
    } else if (is_compilation(name)) {
      ++summary.compilations;
      compiling.push_back({e.ts_ns, e.end_ns()});
    } else if (name.find(kLookupMark) != std::string_view::npos) {
      ++summary.cache_lookups.count;
      summary.cache_lookups.cpu_ns += e.dur_ns;
    }
  }
  if (!links.steps.empty() && !regions.empty())
    summary.regions_per_step =
        static_cast<double>(regions.size()) / static_cast<double>(links.steps.size());
  const NestedRegions nested = nested_regions(trace, links, regions);
  summary.graph_breaks = nested.count;
  if (summary.regions_per_step)
    summary.graph_breaks_per_step =
        static_cast<double>(nested.in_steps) / static_cast<double>(links.steps.size());
  if (!graphs.empty()) summary.outside_graphs_ns = outside_ns(trace, nested.outermost, graphs);
  summary.frames_per_step = frames_per_step(trace, links, regions);
  summary.compile_ns = total_ns(united(std::move(compiling)));
  summary.regions = ranges(trace, links, regions);
  summary.graphs = ranges(trace, links, graphs);
  summary.triton = triton_kernels(trace, links);
  return summary;
}

}  // namespace epilogue::trace
