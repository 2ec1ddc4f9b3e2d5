// SPDX-License-Identifier: Apache-2.0
#include "trace/write_args.h"

#include "trace/json_text.h"

namespace epilogue::trace {
namespace {

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

}  // namespace

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

}  // namespace epilogue::trace
