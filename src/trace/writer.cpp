// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/file.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/file.h"
#include "trace/gzip_stream.h"
#include "trace/json_text.h"
#include "trace/nesting.h"
#include "trace/write_args.h"
#include "trace/write_document.h"

namespace epilogue::trace {
namespace {

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
