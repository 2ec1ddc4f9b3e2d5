// SPDX-License-Identifier: Apache-2.0
#include "trace/write_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "trace/json_text.h"

namespace epilogue::trace {
namespace {

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string us(int64_t ns) {
  std::string out;
  append_us(out, ns);
  return out;
}

void append_devices(std::string& out, const std::vector<DeviceProperties>& devices) {
  out += "  \"deviceProperties\": [";
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceProperties& d = devices[i];
    fmt::format_to(std::back_inserter(out),
                   "{}\n    {{\n      \"id\": {}, \"name\": {}, \"totalGlobalMem\": {},\n"
                   "      \"computeMajor\": {}, \"computeMinor\": {},\n"
                   "      \"maxThreadsPerBlock\": {}, \"maxThreadsPerMultiprocessor\": {},\n"
                   "      \"regsPerBlock\": {}, \"warpSize\": {},\n"
                   "      \"sharedMemPerBlock\": {}, \"numSms\": {},\n"
                   "      \"regsPerMultiprocessor\": {}, \"sharedMemPerBlockOptin\": {},"
                   " \"sharedMemPerMultiprocessor\": {}\n    }}",
                   i == 0 ? "" : ",", d.id, json_string(d.name), d.total_global_mem_bytes,
                   d.compute_major, d.compute_minor, d.max_threads_per_block,
                   d.max_threads_per_multiprocessor, d.regs_per_block, d.warp_size,
                   d.shared_mem_per_block_bytes, d.num_sms, d.regs_per_multiprocessor,
                   d.shared_mem_per_block_optin_bytes, d.shared_mem_per_multiprocessor_bytes);
  }
  out += devices.empty() ? "],\n" : "\n  ],\n";
}

// One `"key": value,` per metadata entry. The caller's value is raw JSON; a value that is not
// becomes a string, and a key that the document already has is left out, so that the file stays
// valid.
void append_metadata(std::string& out, const Trace& trace) {
  std::set<std::string, std::less<>> used = {"schemaVersion",   "deviceProperties",
                                             "displayTimeUnit", "baseTimeNanoseconds",
                                             "traceEvents",     "traceName"};
  const auto append = [&](const std::string& key, const std::string& value) {
    if (!used.insert(key).second) return;
    const std::string& json = nlohmann::json::accept(value) ? value : json_string(value);
    out += "  " + json_string(key) + ": " + json + ",\n";
  };
  if (trace.recorded.record_shapes) append("record_shapes", "1");
  if (trace.recorded.profile_memory) append("profile_memory", "1");
  if (trace.recorded.with_stack) append("with_stack", "1");
  if (trace.recorded.with_flops) append("with_flops", "1");
  if (trace.recorded.with_modules) append("with_modules", "1");
  for (const auto& [key, value] : trace.metadata) append(key, value);
}

// A metadata event: {"name": what, "ph": "M", ...}, with args {key: value}.
void append_name(std::string& out, std::string_view what, int64_t ts_ns, std::string_view pid,
                 int64_t tid, std::string_view key, std::string_view value) {
  fmt::format_to(
      std::back_inserter(out),
      "  {{\n    \"name\": \"{}\", \"ph\": \"M\", \"ts\": {}, \"pid\": {}, \"tid\": {},\n"
      "    \"args\": {{\n      \"{}\": {}\n    }}\n  }},\n",
      what, us(ts_ns), pid, tid, key, value);
}

}  // namespace

void append_document_head(std::string& out, const Trace& trace) {
  out += "{\n  \"schemaVersion\": 1,\n";
  append_devices(out, trace.devices);
  append_metadata(out, trace);
  fmt::format_to(std::back_inserter(out),
                 "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {},\n"
                 "  \"traceEvents\": [\n",
                 trace.base_time_ns);
}

void append_names(std::string& out, const Trace& trace) {
  for (const Process& process : trace.processes) {
    const std::string pid = std::to_string(process.pid);
    const auto append = [&](std::string_view what, std::string_view key, const std::string& value) {
      append_name(out, what, trace.start_ns, pid, 0, key, value);
    };
    append("process_name", "name", json_string(process.name));
    append("process_labels", "labels", json_string(process.labels));
    append("process_sort_index", "sort_index", std::to_string(process.sort_index));
  }
  for (const Thread& thread : trace.threads) {
    const std::string pid = std::to_string(thread.pid);
    append_name(out, "thread_name", trace.start_ns, pid, thread.tid, "name",
                json_string(thread.name));
    append_name(out, "thread_sort_index", trace.start_ns, pid, thread.tid, "sort_index",
                std::to_string(thread.sort_index));
  }
}

void append_document_tail(std::string& out, const Trace& trace, const std::string& trace_name) {
  // Kineto's constant: the span sorts below every process and above the devices.
  constexpr std::string_view kSpanSortIndex = "536870912";
  const std::string name = trace.span_name;
  const auto ops = std::count_if(trace.events.begin(), trace.events.end(),
                                 [](const Event& e) { return e.category == Category::cpu_op; });
  fmt::format_to(std::back_inserter(out),
                 "  {{\n    \"ph\": \"X\", \"cat\": \"Trace\", \"ts\": {}, \"dur\": {},\n"
                 "    \"pid\": \"Spans\", \"tid\": {},\n    \"name\": {},\n"
                 "    \"args\": {{\n      \"Op count\": {}\n    }}\n  }},\n",
                 us(trace.start_ns), us(trace.end_ns - trace.start_ns), json_string(name),
                 json_string(name + " (0)"), ops);
  append_name(out, "process_sort_index", trace.start_ns, "\"Spans\"", 0, "sort_index",
              kSpanSortIndex);
  fmt::format_to(std::back_inserter(out),
                 "  {{\n    \"name\": {}, \"ph\": \"i\", \"s\": \"g\",\n"
                 "    \"pid\": \"Traces\", \"tid\": {}, \"ts\": {}\n  }},\n"
                 "  {{\n    \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\",\n"
                 "    \"pid\": \"\", \"tid\": \"\", \"ts\": {}\n  }}\n  ],\n",
                 json_string("Iteration Start: " + name), json_string("Trace " + name),
                 us(trace.start_ns), us(trace.end_ns));
  out += "  \"traceName\": " + json_string(trace_name) + "\n}\n";
}

}  // namespace epilogue::trace
