// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto/perfetto_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>

#include "trace/json_text.h"
#include "trace/perfetto/packets.h"
#include "trace/perfetto/wire.h"

namespace epilogue::trace {
namespace {

constexpr size_t kFirstBytes = 256;
constexpr int kMostNested = 16;  // of values within values

// Gives its head again, then the rest of the source.
class HeadedSource : public ByteSource {
 public:
  HeadedSource(std::string head, std::unique_ptr<ByteSource> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}

  Result<size_t> read(std::span<char> out) override {
    const size_t of_head = std::min(out.size(), head_.size() - at_);
    std::copy_n(head_.data() + at_, of_head, out.data());
    at_ += of_head;
    if (of_head == out.size()) return of_head;
    const Result<size_t> more = rest_->read(out.subspan(of_head));
    if (!more) return more.failure();
    return of_head + more.value();
  }
  bool is_gzip() const override { return rest_->is_gzip(); }
  StreamFaults faults() const override { return rest_->faults(); }
  int64_t file_bytes_read() const override { return rest_->file_bytes_read(); }
  int64_t file_bytes() const override { return rest_->file_bytes(); }

 private:
  std::string head_;
  size_t at_ = 0;
  std::unique_ptr<ByteSource> rest_;
};

void append_key(std::string& out, std::string_view key) {
  append_json_string(out, key);
  out += ':';
}

// Whole numbers, as texts of GPU stages have them: 18 digits at most, as JSON writes them.
bool is_whole_number(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.size() > 18 || (digits.size() > 1 && digits.front() == '0'))
    return false;
  return digits.find_first_not_of("0123456789") == std::string_view::npos;
}

// Events as Kineto writes them. A damaged message is a fault.
class SliceWriter {
 public:
  explicit SliceWriter(const PerfettoTrace& trace) : trace_(trace) {}

  bool has_fault() const { return has_fault_; }

  // Since then times are counted.
  void set_base(int64_t base_ns) { base_ns_ = base_ns; }

  void add_names(std::string& out) {
    for (const auto& [uuid, track] : trace_.tracks) {
      if (!track.pid || track.name.empty()) continue;
      begin_event(out);
      out += track.tid ? R"("ph":"M","name":"thread_name","pid":)"
                       : R"("ph":"M","name":"process_name","pid":)";
      append_int(out, *track.pid);
      out += R"(,"tid":)";
      append_int(out, track.tid.value_or(0));
      out += R"(,"args":{"name":)";
      append_json_string(out, track.name);
      out += "}}";
    }
  }

  void add(std::string& out, const PerfettoSlice& slice) {
    slice.is_stage ? add_stage(out, slice) : add_slice(out, slice);
  }

 private:
  using Table = InternedTexts::Table;

  template <class Visit>
  void each(std::string_view message, Visit visit) {
    WireReader reader(message);
    while (const std::optional<WireField> field = reader.next()) visit(*field);
    has_fault_ |= reader.is_broken();
  }

  static std::string_view text_of(const Table& table, uint64_t id) {
    const auto found = table.find(id);
    return found == table.end() ? std::string_view() : found->second;
  }

  void begin_event(std::string& out) {
    out += is_first_ ? "\n{" : ",\n{";
    is_first_ = false;
  }

  void begin_slice(std::string& out, const PerfettoSlice& slice, std::string_view category,
                   std::string_view name, int64_t pid, int64_t tid) {
    begin_event(out);
    out += slice.dur_ns < 0 ? R"("ph":"B","cat":)" : R"("ph":"X","cat":)";
    append_json_string(out, category);
    out += R"(,"name":)";
    append_json_string(out, name);
    out += R"(,"pid":)";
    append_int(out, pid);
    out += R"(,"tid":)";
    append_int(out, tid);
    out += R"(,"ts":)";
    append_us(out, slice.ts_ns - base_ns_);
    if (slice.dur_ns >= 0) {
      out += R"(,"dur":)";
      append_us(out, slice.dur_ns);
    }
    out += R"(,"args":{)";
  }

  // --- Slices of tracks -------------------------------------------------------------------------

  struct Lane {
    int64_t pid = 0;
    int64_t tid = 0;
    std::string_view process;
  };

  Lane lane_of(uint64_t uuid) const {
    Lane lane;
    bool has_thread = false;
    bool has_process = false;
    uint64_t at = uuid;
    for (int above = 0; above < kMostNested; ++above) {
      const auto found = trace_.tracks.find(at);
      if (found == trace_.tracks.end()) break;
      const PerfettoTrack& track = found->second;
      if (track.tid && !std::exchange(has_thread, true)) lane.tid = *track.tid;
      if (track.pid && !std::exchange(has_process, true)) lane.pid = *track.pid;
      if (track.pid && !track.tid) lane.process = track.name;
      if (track.parent == 0) break;
      at = track.parent;
    }
    if (!has_thread) lane.tid = static_cast<int64_t>(uuid & INT64_MAX);
    return lane;
  }

  void add_slice(std::string& out, const PerfettoSlice& slice) {
    const InternedTexts& texts = trace_.texts[slice.texts];
    std::string_view name;
    std::string_view category;
    std::vector<std::string_view> annotations;
    each(slice.message, [&](const WireField& field) {
      switch (field.number) {
        case 3: {  // one id, or a packed list of them
          const std::optional<uint64_t> id =
              field.is_bytes ? WireReader(field.bytes).next_varint() : field.value;
          if (category.empty() && id) category = text_of(texts.categories, *id);
          break;
        }
        case 4: annotations.push_back(field.bytes); break;
        case 10: name = text_of(texts.names, field.value); break;
        case 22: category = field.bytes; break;
        case 23: name = field.bytes; break;
        default: break;
      }
    });
    const Lane lane = lane_of(slice.track);
    // PyTorch gives these none.
    if (category.empty())
      category = lane.process == "Overhead"         ? "overhead"
                 : lane.process.starts_with("GPU ") ? "cuda_sync"
                                                    : "user_annotation";
    begin_slice(out, slice, category, name, lane.pid, lane.tid);
    bool is_first = true;
    for (const std::string_view annotation : annotations) {
      if (!std::exchange(is_first, false)) out += ',';
      append_key(out, annotation_name(annotation, texts));
      append_value(out, annotation, texts, 0);
    }
    out += "}}";
  }

  std::string_view annotation_name(std::string_view annotation, const InternedTexts& texts) {
    std::string_view name;
    each(annotation, [&](const WireField& field) {
      if (field.number == 1) name = text_of(texts.annotation_names, field.value);
      if (field.number == 10) name = field.bytes;
    });
    return name;
  }

  // A DebugAnnotation gives the last of its values, lists and dictionaries whole.
  void append_value(std::string& out, std::string_view annotation, const InternedTexts& texts,
                    int depth) {
    std::vector<std::string_view> list;
    std::vector<std::string_view> entries;
    std::string value = "[]";  // the wire format has no other form of an empty list
    each(annotation, [&](const WireField& field) {
      switch (field.number) {
        case 2: value = field.value != 0 ? "true" : "false"; break;
        case 3:
        case 7: value = std::to_string(field.value); break;
        case 4: value = std::to_string(field.whole()); break;
        case 5: value.clear(), append_double(value, field.real()); break;
        case 6:
        case 9: value.clear(), append_json_string(value, field.bytes); break;
        case 17:
          value.clear(), append_json_string(value, text_of(texts.annotation_texts, field.value));
          break;
        case 11: entries.push_back(field.bytes); break;
        case 12: list.push_back(field.bytes); break;
        default: break;
      }
    });
    if (depth >= kMostNested || (list.empty() && entries.empty())) {
      out += value;
      return;
    }
    const std::vector<std::string_view>& inner = entries.empty() ? list : entries;
    out += entries.empty() ? '[' : '{';
    for (size_t i = 0; i < inner.size(); ++i) {
      if (i > 0) out += ',';
      if (!entries.empty()) append_key(out, annotation_name(inner[i], texts));
      append_value(out, inner[i], texts, depth + 1);
    }
    out += entries.empty() ? ']' : '}';
  }

  // --- Stages of GPUs ---------------------------------------------------------------------------

  struct Launch {
    std::array<uint64_t, 3> grid = {};
    std::array<uint64_t, 3> block = {};
    std::vector<std::pair<std::string_view, uint64_t>> args;
  };

  std::array<uint64_t, 3> sizes_of(std::string_view message) {
    std::array<uint64_t, 3> sizes = {1, 1, 1};
    each(message, [&](const WireField& field) {
      if (field.number >= 1 && field.number <= 3) sizes[field.number - 1] = field.value;
    });
    return sizes;
  }

  Launch launch_of(std::string_view message, const InternedTexts& texts) {
    Launch launch;
    each(message, [&](const WireField& field) {
      if (field.number == 1) launch.grid = sizes_of(field.bytes);
      if (field.number == 2) launch.block = sizes_of(field.bytes);
      if (field.number != 3) return;
      std::string_view name;
      uint64_t value = 0;
      each(field.bytes, [&](const WireField& inner) {
        if (inner.number == 1) name = text_of(texts.compute_args, inner.value);
        if (inner.number == 3 || inner.number == 4) value = inner.value;
      });
      launch.args.emplace_back(name, value);
    });
    return launch;
  }

  static std::string_view category_of_stage(std::string_view stage) {
    constexpr std::pair<std::string_view, std::string_view> kStages[] = {
        {"Kernel", "kernel"},
        {"Memcpy", "gpu_memcpy"},
        {"Memset", "gpu_memset"},
        {"Annotation", "gpu_user_annotation"}};
    for (const auto& [name, category] : kStages)
      if (stage == name) return category;
    return stage;  // of no kind that is known here
  }

  // Names of Kineto; "": left out.
  static std::string_view arg_name(std::string_view key) {
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"device id", "device"},
        {"context id", "context"},
        {"stream id", "stream"},
        {"registers_per_thread", "registers per thread"},
        {"shared_mem_dynamic", "shared memory"},
        {"thread_count", ""},
        {"process_id", ""},
        {"process_name", ""},
        {"arch", ""}};
    for (const auto& [name, kinetos] : kNames)
      if (key == name) return kinetos;
    return key;
  }

  void add_stage(std::string& out, const PerfettoSlice& slice) {
    const InternedTexts& texts = trace_.texts[slice.texts];
    int64_t gpu = 0;
    int64_t stream = 0;
    std::string_view stage, name, kernel, launch;
    std::vector<std::pair<std::string_view, std::string_view>> extra;
    each(slice.message, [&](const WireField& field) {
      switch (field.number) {
        case 6: {
          std::pair<std::string_view, std::string_view> pair;
          each(field.bytes, [&](const WireField& inner) {
            if (inner.number == 1) pair.first = inner.bytes;
            if (inner.number == 2) pair.second = inner.bytes;
          });
          extra.push_back(pair);
          break;
        }
        case 11: gpu = field.whole(); break;
        case 13: stream = field.whole(); break;
        case 14: stage = text_of(texts.stages, field.value); break;
        case 19: kernel = text_of(texts.kernels, field.value); break;
        case 20: name = text_of(texts.names, field.value); break;
        case 21: launch = field.bytes; break;
        default: break;
      }
    });
    for (const auto& [key, value] : extra)
      if (key == "stream id") std::from_chars(value.data(), value.data() + value.size(), stream);
    if (name.empty()) name = kernel.empty() ? stage : kernel;
    begin_slice(out, slice, category_of_stage(stage), name, gpu, stream);
    bool is_first = true;
    const auto key = [&](std::string_view text) {
      if (!std::exchange(is_first, false)) out += ',';
      append_key(out, text);
    };
    if (!launch.empty()) {
      const Launch parts = launch_of(launch, texts);
      key("grid");
      out += fmt::format("[{}]", fmt::join(parts.grid, ","));
      key("block");
      out += fmt::format("[{}]", fmt::join(parts.block, ","));
      for (const auto& [arg, value] : parts.args) {
        if (arg_name(arg).empty()) continue;
        key(arg_name(arg));
        out += std::to_string(value);
      }
    }
    for (const auto& [arg, value] : extra) {
      if (arg_name(arg).empty()) continue;
      key(arg_name(arg));
      if (is_whole_number(value))
        out += value;
      else
        append_json_string(out, value);
    }
    out += "}}";
  }

  const PerfettoTrace& trace_;
  int64_t base_ns_ = 0;
  bool is_first_ = true;
  bool has_fault_ = false;
};

// JSON of a trace, some events at a time.
class PerfettoSource : public ByteSource {
 public:
  PerfettoSource(std::unique_ptr<ByteSource> file, std::string name, std::string bytes,
                 PerfettoTrace trace)
      : file_(std::move(file)),
        name_(std::move(name)),
        bytes_(std::move(bytes)),
        trace_(std::move(trace)),
        writer_(trace_) {
    // Times before the base would be no times.
    int64_t base_ns = trace_.base_ns;
    for (const PerfettoSlice& slice : trace_.slices)
      if (slice.ts_ns < base_ns) base_ns = 0;
    writer_.set_base(base_ns);
    text_ = fmt::format(R"({{"schemaVersion":1,"baseTimeNanoseconds":{},"traceEvents":[)", base_ns);
    writer_.add_names(text_);
  }

  Result<size_t> read(std::span<char> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      if (at_ == text_.size() && !make_text()) break;
      if (writer_.has_fault())
        return Failure{FailureCode::not_a_trace,
                       name_ + ": expected a Perfetto trace, got one with a damaged slice"};
      const size_t n = std::min(out.size() - filled, text_.size() - at_);
      std::memcpy(out.data() + filled, text_.data() + at_, n);
      filled += n;
      at_ += n;
    }
    return filled;
  }
  bool is_gzip() const override { return file_->is_gzip(); }
  StreamFaults faults() const override { return file_->faults(); }
  int64_t file_bytes_read() const override { return file_->file_bytes_read(); }
  int64_t file_bytes() const override { return file_->file_bytes(); }

 private:
  // False at the end.
  bool make_text() {
    constexpr size_t kChunk = size_t{1} << 16;
    if (is_done_) return false;
    text_.clear();
    at_ = 0;
    while (next_ < trace_.slices.size() && text_.size() < kChunk)
      writer_.add(text_, trace_.slices[next_++]);
    if (next_ == trace_.slices.size()) {
      is_done_ = true;
      text_ += "\n]}\n";
    }
    return true;
  }

  std::unique_ptr<ByteSource> file_;
  std::string name_;
  std::string bytes_;  // which the trace has views into
  PerfettoTrace trace_;
  SliceWriter writer_;
  std::string text_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool is_done_ = false;
};

Result<std::string> rest_of(ByteSource& source, std::string head, const std::string& name) {
  std::string bytes = std::move(head);
  size_t size = bytes.size();
  // A plain file says how long it is.
  size_t wanted = std::max(source.is_gzip() ? 0 : static_cast<size_t>(source.file_bytes()) + 1,
                           size_t{1} << 20);
  while (true) {
    bytes.resize(std::clamp(wanted, size + 1, kMaxPerfettoBytes + 1));
    const size_t room = bytes.size() - size;
    const Result<size_t> n = source.read(std::span(bytes).subspan(size));
    if (!n) return n.failure();
    size += n.value();
    if (size > kMaxPerfettoBytes)
      return Failure{FailureCode::not_a_trace,
                     name + ": expected a Perfetto trace of 4 GiB at most, got a longer one"};
    if (n.value() < room) break;
    wanted = size * 2;
  }
  bytes.resize(size);
  if (source.faults().is_truncated)
    return Failure{FailureCode::not_a_trace,
                   name + ": expected a Perfetto trace, got a compressed file that ends early"};
  return bytes;
}

// '{' or '[' and what JSON has behind it.
bool is_json_start(std::string_view head) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = head.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return true;  // white space, so far
  const size_t second = head.find_first_not_of(kSpace, first + 1);
  const char next = second == std::string_view::npos ? '\0' : head[second];
  if (head[first] == '{') return next == '"' || next == '}' || next == '\0';
  if (head[first] == '[') return next == '{' || next == ']' || next == '[' || next == '\0';
  return false;
}

}  // namespace

bool is_perfetto(std::string_view head) {
  if (!head.starts_with('\x0a') || is_json_start(head)) return false;
  WireReader outer(head.substr(1));
  const std::optional<uint64_t> size = outer.next_varint();
  if (!size || *size == 0) return false;
  size_t at = 1;
  while (at < head.size() && static_cast<uint8_t>(head[at]) >= 0x80) ++at;
  WireReader inner(head.substr(std::min(at + 1, head.size())));
  const std::optional<uint64_t> key = inner.next_varint();
  if (!key) return false;
  const uint64_t type = *key & 7;
  constexpr uint64_t kMostFields = 3000;  // of a TracePacket; test fields are beyond
  return (*key >> 3) != 0 && (*key >> 3) < kMostFields && (type <= 2 || type == 5);
}

Result<std::unique_ptr<ByteSource>> translated_source(std::unique_ptr<ByteSource> source,
                                                      const std::string& name) {
  std::string head(kFirstBytes, '\0');
  const Result<size_t> n = source->read(head);
  if (!n) return n.failure();
  head.resize(n.value());
  if (!is_perfetto(head))
    return std::unique_ptr<ByteSource>(
        std::make_unique<HeadedSource>(std::move(head), std::move(source)));
  Result<std::string> bytes = rest_of(*source, std::move(head), name);
  if (!bytes) return bytes.failure();
  Result<PerfettoTrace> trace = parse_perfetto(bytes.value(), name);
  if (!trace) return trace.failure();
  return std::unique_ptr<ByteSource>(std::make_unique<PerfettoSource>(
      std::move(source), name, std::move(bytes).value(), std::move(trace).value()));
}

}  // namespace epilogue::trace
