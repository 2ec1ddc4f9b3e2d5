// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <zlib.h>
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/file.h"
#include "trace/gzip_format.h"
#include "trace/json_text.h"
#include "trace/nesting.h"

namespace epilogue::trace {

namespace {

// write() any number of times, then finish() once, which puts the file in place. Without finish()
// nothing is left behind. Not thread-safe.
class GzipStream {
 public:
  explicit GzipStream(AtomicFile file);
  ~GzipStream();

  Status write(std::string_view bytes);
  Status finish();

 private:
  struct State;  // keeps zlib out of the header; zlib's own state must not move
  std::unique_ptr<State> state_;
};

// Traces repeat themselves: level 1 shrinks them about 15-fold already, and the levels above cost
// more time than the disk they save.
constexpr int kLevel = 1;

struct GzipStream::State {
  explicit State(AtomicFile f) : file(std::move(f)) {}
  ~State() { deflateEnd(&z); }

  // Feeds `bytes` through deflate and writes what comes out.
  Status pump(std::string_view bytes, int flush) {
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    z.avail_in = static_cast<uInt>(bytes.size());
    do {
      z.next_out = reinterpret_cast<Bytef*>(out.data());
      z.avail_out = static_cast<uInt>(out.size());
      const int code = deflate(&z, flush);
      EPI_ASSERT(code != Z_STREAM_ERROR, "deflate was misused");
      if (Status s = file.write({out.data(), out.size() - z.avail_out}); !s) return s;
    } while (z.avail_out == 0);
    return ok_status();
  }

  AtomicFile file;
  z_stream z{};
  std::array<char, 1 << 16> out{};
};

GzipStream::GzipStream(AtomicFile file) : state_(std::make_unique<State>(std::move(file))) {
  const int code = deflateInit2(&state_->z, kLevel, Z_DEFLATED, MAX_WBITS + kGzipWrapper,
                                kDefaultMemLevel, Z_DEFAULT_STRATEGY);
  if (code != Z_OK) throw Error("[gzip] expected memory for a compressor, got none");
}
GzipStream::~GzipStream() = default;

Status GzipStream::write(std::string_view bytes) {
  // zlib counts in 32 bits.
  constexpr size_t kPiece = size_t{1} << 30;
  for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece)) {
    if (Status s = state_->pump(bytes.substr(0, kPiece), Z_NO_FLUSH); !s) return s;
  }
  return state_->pump(bytes, Z_NO_FLUSH);
}

Status GzipStream::finish() {
  if (Status s = state_->pump({}, Z_FINISH); !s) return s;
  return state_->file.commit();
}

// Renders args; what repeats (names, stacks, argument lists) is rendered once and kept.
class ArgsWriter {
 public:
  explicit ArgsWriter(const Trace& trace);

  // The quoted JSON string of an interned string.
  const std::string& quoted(StringId id);
  // The members of the event's args object, without braces; nothing when it has none.
  void append_args(std::string& out, const Event& event);
  static void append_memory_args(std::string& out, const MemoryEvent& memory);

 private:
  void append_op(std::string& out, const Event& event);
  void append_kernel(std::string& out, const Event& event);
  void append_copy(std::string& out, const Event& event);
  void append_python(std::string& out, const Event& event) const;
  void append_call(std::string& out, const Event& event) const;

  const Trace& trace_;
  std::vector<std::string> quoted_;  // by StringId; "" until first used
  std::vector<std::string> inputs_;  // by inputs id, likewise
};

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
    const std::string& json = is_json(value) ? value : json_string(value);
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

// From "{" to the opening bracket of traceEvents.
void append_document_head(std::string& out, const Trace& trace) {
  out += "{\n  \"schemaVersion\": 1,\n";
  append_devices(out, trace.devices);
  append_metadata(out, trace);
  fmt::format_to(std::back_inserter(out),
                 "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {},\n"
                 "  \"traceEvents\": [\n",
                 trace.base_time_ns);
}

// The M events: names, labels and sort order of processes and threads. Each ends with a comma.
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

// The span, its instants and everything to the closing "}".
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

// Appends `"key": ` after a comma unless it is the first member since `start`.
class Members {
 public:
  explicit Members(std::string& out) : out_(out), start_(out.size()) {}

  std::string& key(std::string_view name) {
    if (out_.size() > start_) out_ += ", ";
    out_ += '"';
    out_ += name;
    out_ += "\": ";
    return out_;
  }
  void integer(std::string_view name, int64_t value) { append_int(key(name), value); }
  void number(std::string_view name, double value) { append_double(key(name), value); }
  void known(std::string_view name, int64_t value) {
    if (value >= 0) integer(name, value);
  }
  void known(std::string_view name, double value) {
    if (value >= 0) number(name, value);
  }
  void linked(std::string_view name, int64_t id) {
    if (id != 0) integer(name, id);
  }
  void triple(std::string_view name, const std::array<int64_t, 3>& values) {
    key(name) += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      append_int(out_, values[i]);
    }
    out_ += ']';
  }

 private:
  std::string& out_;
  size_t start_;
};

ArgsWriter::ArgsWriter(const Trace& trace)
    : trace_(trace), quoted_(trace.strings.size()), inputs_(trace.inputs.size()) {}

const std::string& ArgsWriter::quoted(StringId id) {
  std::string& text = quoted_[id];
  if (text.empty()) append_json_string(text, trace_.strings[id]);
  return text;
}

void ArgsWriter::append_args(std::string& out, const Event& event) {
  switch (event.category) {
    case Category::cpu_op:
    case Category::user_annotation: return append_op(out, event);
    case Category::kernel: return append_kernel(out, event);
    case Category::gpu_memcpy:
    case Category::gpu_memset: return append_copy(out, event);
    case Category::python_function: return append_python(out, event);
    default: return append_call(out, event);
  }
}

void ArgsWriter::append_op(std::string& out, const Event& event) {
  Members members(out);
  members.linked("External id", event.external_id);
  const OpArgs* args = trace_.op_args(event);
  if (args == nullptr) return;
  members.integer("Record function id", args->record_function_id);
  if (args->sequence_number >= 0) {
    members.integer("Sequence number", args->sequence_number);
    members.integer("Fwd thread id", args->fwd_tid);
  }
  members.known("Ev Idx", args->ev_idx);
  if (args->overload_name != 0) members.key("Overload name") += quoted(args->overload_name);
  if (args->is_async) members.key("Async") += "true";
  if (args->stack != 0) members.key("Call stack") += quoted(args->stack);
  if (args->module_hierarchy != 0)
    members.key("Module Hierarchy") += quoted(args->module_hierarchy);
  if (args->fused_ops != 0) members.key("fused ops") += quoted(args->fused_ops);
  if (args->inputs >= inputs_.size()) return;
  std::string& inputs = inputs_[args->inputs];
  if (inputs.empty()) append_inputs_json(inputs, trace_.inputs[args->inputs]);
  out += ", ";  // an op has a record function id: never the first member
  out += inputs;
}

void ArgsWriter::append_kernel(std::string& out, const Event& event) {
  Members members(out);
  members.linked("External id", event.external_id);
  const KernelArgs* args = trace_.kernel_args(event);
  if (args == nullptr) return members.linked("correlation", event.correlation);
  members.integer("queued", args->queued);
  members.integer("device", args->device);
  members.integer("context", args->context);
  members.integer("stream", args->stream);
  members.integer("correlation", event.correlation);
  members.known("registers per thread", int64_t{args->registers_per_thread});
  members.known("shared memory", args->shared_memory_bytes);
  members.known("blocks per SM", args->blocks_per_sm);
  members.known("warps per SM", args->warps_per_sm);
  members.triple("grid", args->grid);
  members.triple("block", args->block);
  members.known("est. achieved occupancy %", int64_t{args->est_occupancy_pct});
  members.known("graph id", args->graph_id);
  members.known("graph node id", args->graph_node_id);
  members.known("bytes", args->bytes);
  members.known("flops", args->flops);
  members.known("threads", int64_t{args->threads});
  if (args->fused_ops != 0) members.key("fused ops") += quoted(args->fused_ops);
  members.known("unfused bytes", args->unfused_bytes);
}

void ArgsWriter::append_copy(std::string& out, const Event& event) {
  Members members(out);
  members.linked("External id", event.external_id);
  const KernelArgs* args = trace_.kernel_args(event);
  if (args == nullptr) return members.linked("correlation", event.correlation);
  members.integer("device", args->device);
  members.integer("context", args->context);
  members.integer("stream", args->stream);
  members.integer("correlation", event.correlation);
  members.known("bytes", args->bytes);
  if (args->bytes >= 0 && event.dur_ns > 0) {
    members.number("memory bandwidth (GB/s)",
                   static_cast<double>(args->bytes) / static_cast<double>(event.dur_ns));
  }
}

void ArgsWriter::append_python(std::string& out, const Event& event) const {
  if (event.args >= trace_.python.size()) return;
  const PythonArgs& args = trace_.python[event.args];
  Members members(out);
  if (args.parent_id < 0) {
    members.key("Python parent id") += "null";
  } else {
    members.integer("Python parent id", args.parent_id);
  }
  members.integer("Python id", args.id);
  members.known("Python module id", args.module_id);
  members.known("Ev Idx", args.ev_idx);
}

void ArgsWriter::append_call(std::string& out, const Event& event) const {
  Members members(out);
  members.linked("External id", event.external_id);
  if (is_launch_category(event.category) && event.args < trace_.runtime_calls.size())
    members.known("cbid", int64_t{trace_.runtime_calls[event.args].cbid});
  members.linked("correlation", event.correlation);
}

void ArgsWriter::append_memory_args(std::string& out, const MemoryEvent& memory) {
  Members members(out);
  members.known("Ev Idx", memory.ev_idx);
  members.integer("Device Type", static_cast<int64_t>(memory.device_type));
  members.integer("Device Id", memory.device_id);
  // A pointer is unsigned: above 2^63 it must not turn negative.
  if (!memory.out_of_memory) members.key("Addr") += std::to_string(memory.addr);
  members.integer("Bytes", memory.bytes);
  members.integer("Total Allocated", memory.total_allocated);
  members.integer("Total Reserved", memory.total_reserved);
  if (memory.category != MemoryCategory::unknown)
    members.integer("Category", static_cast<int64_t>(memory.category));
}

using Drain = std::function<Status(std::string_view)>;
constexpr size_t kFlushBytes = size_t{1} << 20;

// Sorted correlation ids of the events that `keep` accepts.
template <class Keep>
std::vector<int64_t> correlations(const Trace& trace, Keep keep) {
  std::vector<int64_t> ids;
  for (const Event& event : trace.events)
    if (event.correlation != 0 && keep(event.category)) ids.push_back(event.correlation);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Kineto writes threads as unsigned; INT64_MIN has no absolute value.
int64_t written_tid(int64_t tid) { return tid == INT64_MIN ? 0 : std::abs(tid); }

// Renders events one by one and hands full buffers on.
class EventWriter {
 public:
  EventWriter(const Trace& trace, Drain drain)
      : trace_(trace),
        args_(trace),
        drain_(std::move(drain)),
        launches_(correlations(trace, is_launch_category)),
        works_(correlations(trace, is_device_category)) {}

  Status write(const std::string& trace_name) {
    buffer_.reserve(kFlushBytes + (kFlushBytes >> 2));
    append_document_head(buffer_, trace_);
    append_names(buffer_, trace_);
    for (const uint32_t i : event_order(trace_)) {
      append_event(trace_.events[i]);
      if (Status s = flush_above(kFlushBytes); !s) return s;
    }
    for (const uint32_t i : memory_order()) {
      append_memory(trace_.memory[i]);
      if (Status s = flush_above(kFlushBytes); !s) return s;
    }
    for (const Flow& flow : trace_.flows) {
      append_flow('s', flow.id, flow.start, "fwdbwd");
      append_flow('f', flow.id, flow.end, "fwdbwd");
      if (Status s = flush_above(kFlushBytes); !s) return s;
    }
    append_document_tail(buffer_, trace_, trace_name);
    return flush_above(0);
  }

 private:
  Status flush_above(size_t bytes) {
    if (buffer_.size() <= bytes) return ok_status();
    Status status = drain_(buffer_);
    buffer_.clear();
    return status;
  }

  std::vector<uint32_t> memory_order() const {
    std::vector<uint32_t> order(trace_.memory.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return trace_.memory[a].ts_ns < trace_.memory[b].ts_ns;
    });
    return order;
  }

  void append_lane(int64_t pid, int64_t tid) {
    buffer_ += "\"pid\": ";
    append_int(buffer_, pid);
    buffer_ += ", \"tid\": ";
    append_int(buffer_, written_tid(tid));
  }

  void append_event(const Event& event) {
    // As Kineto does: one nanosecond of margin on both sides makes viewers nest the kernels inside.
    const int64_t margin_ns = event.category == Category::gpu_user_annotation ? 1 : 0;
    const bool is_kernel = event.category == Category::kernel;
    buffer_ += "  {\n    \"ph\": \"X\", \"cat\": \"";
    buffer_ += category_name(event.category);
    buffer_ += "\", \"name\": ";
    // Kineto renames it; viewers take a slice named as its category for a header.
    buffer_ +=
        is_kernel && trace_.name(event) == "kernel" ? "\"Kernel\"" : args_.quoted(event.name);
    buffer_ += ", ";
    append_lane(event.pid, event.tid);
    buffer_ += ",\n    \"ts\": ";
    append_us(buffer_, event.ts_ns - margin_ns);
    buffer_ += ", \"dur\": ";
    append_us(buffer_, event.dur_ns + 2 * margin_ns);
    buffer_ += ",\n    \"args\": {\n      ";
    args_.append_args(buffer_, event);
    buffer_ += "\n    }\n  },\n";
    append_launch_flow(event);
  }

  // The arrow from a launch call to its work; neither end is written without the other.
  void append_launch_flow(const Event& event) {
    const auto in = [&](const std::vector<int64_t>& ids) {
      return std::binary_search(ids.begin(), ids.end(), event.correlation);
    };
    if (event.correlation == 0) return;
    const Flow::End end{event.ts_ns, event.tid, event.pid};
    if (is_launch_category(event.category) && in(works_)) {
      append_flow('s', event.correlation, end, "ac2g");
    } else if (is_device_category(event.category) && in(launches_)) {
      append_flow('f', event.correlation, end, "ac2g");
    }
  }

  void append_memory(const MemoryEvent& memory) {
    buffer_ += "  {\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"";
    buffer_ += memory.out_of_memory ? "[OutOfMemory]" : "[memory]";
    buffer_ += "\", ";
    append_lane(memory.pid, memory.tid);
    buffer_ += ",\n    \"ts\": ";
    append_us(buffer_, memory.ts_ns);
    buffer_ += ",\n    \"args\": {\n      ";
    ArgsWriter::append_memory_args(buffer_, memory);
    buffer_ += "\n    }\n  },\n";
  }

  void append_flow(char phase, int64_t id, const Flow::End& end, std::string_view kind) {
    buffer_ += "  {\n    \"ph\": \"";
    buffer_ += phase;
    buffer_ += "\", \"id\": ";
    append_int(buffer_, id);
    buffer_ += ", ";
    append_lane(end.pid, end.tid);
    buffer_ += ", \"ts\": ";
    append_us(buffer_, end.ts_ns);
    buffer_ += ",\n    \"cat\": \"";
    buffer_ += kind;
    buffer_ += "\", \"name\": \"";
    buffer_ += kind;
    buffer_ += phase == 'f' ? "\", \"bp\": \"e\"\n  },\n" : "\"\n  },\n";
  }

  const Trace& trace_;
  ArgsWriter args_;
  Drain drain_;
  std::vector<int64_t> launches_;
  std::vector<int64_t> works_;
  std::string buffer_;
};

}  // namespace

Status write_chrome_trace(const Trace& trace, const std::string& path) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  if (path.ends_with(".gz")) {
    GzipStream gzip(std::move(file).value());
    EventWriter writer(trace, [&](std::string_view text) { return gzip.write(text); });
    if (Status s = writer.write(path); !s) return s;
    return gzip.finish();
  }
  AtomicFile plain = std::move(file).value();
  EventWriter writer(trace, [&](std::string_view text) { return plain.write(text); });
  if (Status s = writer.write(path); !s) return s;
  return plain.commit();
}

std::string chrome_trace_json(const Trace& trace, const std::string& trace_name) {
  std::string out;
  const auto drain = [&](std::string_view text) {
    out += text;
    return ok_status();
  };
  EventWriter(trace, drain).write(trace_name).value();
  return out;
}

}  // namespace epilogue::trace
