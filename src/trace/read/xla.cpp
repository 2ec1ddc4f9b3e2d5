// SPDX-License-Identifier: Apache-2.0
#include "trace/read/xla.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "trace/read/json/number_text.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kHost = "/host:";
constexpr std::string_view kDevice = "/device:";
constexpr std::string_view kStream = "Stream #";
constexpr std::string_view kOps = "XLA Ops";
constexpr std::string_view kAsyncOps = "Async XLA Ops";
constexpr std::string_view kModules = "XLA Modules";
constexpr std::string_view kSparseOps = "Sparse Core Ops";
constexpr std::string_view kSparseModules = "Sparse Core Modules";

enum class LaneKind : uint8_t { unknown, host, stream, ops, async_ops, modules, derived };
struct XlaLane {
  LaneKind kind = LaneKind::unknown;
  int32_t pid = 0;  // of a device: its number
  int64_t tid = 0;  // of a stream: its number
};

// The texts of an event's args. Each is "" or -1 where it is not there.
struct XlaArgs {
  std::string kernel_details;  // "regs:32 static_shared:0 dynamic_shared:0 grid:128,1,1 ..."
  std::string memcpy_details;  // "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"
  std::string memset_details;  // "kind:device size:4096 async:1 value:0"
  std::string category;        // of a TPU's op: "convolution fusion", "data formatting", ...
  bool has_hlo_op = false;
  int64_t step = -1;
  int64_t context = 0;
  int64_t graph = -1;
  int64_t graph_node = -1;
  int64_t flops = -1;
  int64_t bytes = -1;
  double occupancy_pct = -1;
};

std::string text_at(const nlohmann::json& args, const char* key) {
  const auto found = args.find(key);
  return found != args.end() && found->is_string() ? found->get<std::string>() : std::string();
}
// The trace viewer writes numbers as texts; a context as "$$1".
int64_t number_at(const nlohmann::json& args, const char* key, int64_t missing) {
  const auto found = args.find(key);
  if (found == args.end()) return missing;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return missing;
  std::string_view text = found->get_ref<const std::string&>();
  text.remove_prefix(std::min(text.find_first_not_of('$'), text.size()));
  const ExactNumber number = parse_integer(text);
  return number.ok() ? number.value : missing;
}

XlaArgs parse_args(std::string_view text) {
  XlaArgs args;
  const auto json = parse_json(text);
  if (!json.is_object()) return args;
  args.kernel_details = text_at(json, "kernel_details");
  args.memcpy_details = text_at(json, "memcpy_details");
  for (const char* key : {"Memset_details", "memset_details"})
    if (args.memset_details.empty()) args.memset_details = text_at(json, key);
  args.category = text_at(json, "hlo_category");
  args.has_hlo_op = json.contains("hlo_op");
  args.step = number_at(json, "step_num", -1);
  args.context = number_at(json, "context_id", 0);
  args.graph = number_at(json, "cuda_graph_id", -1);
  args.graph_node = number_at(json, "cuda_graph_node_id", -1);
  args.flops = number_at(json, "flops", -1);
  args.bytes = number_at(json, "bytes_accessed", -1);
  const auto occupancy = json.find("theoretical_occupancy_pct");
  if (occupancy != json.end())
    args.occupancy_pct =
        parse_real(occupancy->is_string() ? occupancy->get<std::string>() : occupancy->dump())
            .value_or(-1);
  return args;
}

// "size" of "kind_src:pageable size:4096": "4096"; "" where it is not there.
std::string_view detail(std::string_view details, std::string_view key) {
  for (size_t at = 0; at < details.size();) {
    const size_t end = std::min(details.find(' ', at), details.size());
    const std::string_view part = details.substr(at, end - at);
    if (part.size() > key.size() && part.starts_with(key) && part[key.size()] == ':')
      return part.substr(key.size() + 1);
    at = end + 1;
  }
  return {};
}
int64_t detail_number(std::string_view details, std::string_view key, int64_t missing) {
  const ExactNumber number = parse_integer(detail(details, key));
  return number.ok() ? number.value : missing;
}
// "128,1,1"
bool detail_triple(std::string_view details, std::string_view key, std::array<int64_t, 3>& out) {
  const std::string_view text = detail(details, key);
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  std::array<int64_t, 3> read{};
  for (size_t i = 0; i < read.size(); ++i) {
    const auto [stop, error] = std::from_chars(at, end, read[i]);
    if (error != std::errc() || (i + 1 < read.size() && (stop == end || *stop != ',')))
      return false;
    at = stop + 1;
  }
  out = read;
  return true;
}

std::string capitalised(std::string_view kind) {
  std::string text(kind);
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// "MemcpyH2D", from pageable to device -> "Memcpy HtoD (Pageable -> Device)", as Kineto has it.
std::string kineto_copy_name(std::string_view name, std::string_view details) {
  constexpr std::string_view kCopy = "Memcpy";
  const std::string_view way = name.substr(std::min(kCopy.size(), name.size()));
  std::string text(name);
  if (name.starts_with(kCopy) && way.size() == 3 && way[1] == '2')
    text = fmt::format("Memcpy {}to{}", way[0], way[2]);
  const std::string_view from = detail(details, "kind_src");
  const std::string_view to = detail(details, "kind_dst");
  if (!from.empty() && !to.empty())
    text += fmt::format(" ({} -> {})", capitalised(from), capitalised(to));
  return text;
}

bool is_driver_call(std::string_view name) {
  const bool is_cuda =
      name.size() > 2 && name.starts_with("cu") && name[2] >= 'A' && name[2] <= 'Z';
  return is_cuda || name.starts_with("cuda") || name.starts_with("hip");
}

// "$array.py:315 __iter__" -> "array.py(315): __iter__", as PyTorch writes a frame.
std::string frame_name(std::string_view name) {
  name.remove_prefix(1);
  const size_t space = name.find(' ');
  const size_t colon = name.substr(0, space).rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos) return std::string(name);
  return fmt::format("{}({}): {}", name.substr(0, colon), name.substr(colon + 1, space - colon - 1),
                     name.substr(space + 1));
}

// "jit_step(1234567)" -> "jit_step": the number is of the compiled program.
std::string_view module_name(std::string_view name) {
  const size_t open = name.rfind('(');
  if (open == std::string_view::npos || !name.ends_with(')')) return name;
  const std::string_view inside = name.substr(open + 1, name.size() - open - 2);
  const bool is_number =
      !inside.empty() && inside.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? name.substr(0, open) : name;
}

class XlaSettler {
 public:
  XlaSettler(Trace& trace, PythonFrames frames) : trace_(trace), frames_(frames) {}

  // False: no trace of XLA; nothing was changed.
  bool settle() {
    if (!find_lanes()) return false;
    find_containers();
    std::vector<Event> kept;
    kept.reserve(trace_.events.size());
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      Event e = trace_.events[i];
      if (e.category != Category::other || settle(e, i)) kept.push_back(e);
    }
    trace_.events = std::move(kept);
    rename_lanes();
    trace_.span_name = "XLA profiler";
    trace_.metadata.emplace_back("xla_profiler", "true");
    if (has_tpu_) trace_.metadata.emplace_back("xla_device", "\"TPU\"");
    if (derived_ > 0) trace_.metadata.emplace_back("xla_derived_events", std::to_string(derived_));
    return true;
  }

 private:
  bool find_lanes() {
    std::map<int32_t, bool> is_host;  // by pid of the file
    int32_t next = 0;
    for (const Process& p : trace_.processes) {
      if (p.name.starts_with(kHost)) is_host[p.pid] = true;
      if (!p.name.starts_with(kDevice)) continue;
      is_host[p.pid] = false;
      has_tpu_ |= p.name.starts_with("/device:TPU:");
      // "/device:GPU:3"; a "/device:TPU:0 SparseCore 1" comes after the devices that have a number.
      const std::string_view digits = std::string_view(p.name).substr(p.name.rfind(':') + 1);
      int32_t number = 0;
      const auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), number);
      const bool is_whole = error == std::errc() && stop == digits.data() + digits.size();
      device_of_[p.pid] = is_whole && number >= 0 ? number : -1;
      next = std::max(next, device_of_[p.pid] + 1);
    }
    if (is_host.empty()) return false;
    for (auto& [pid, device] : device_of_)
      if (device < 0) device = next++;
    bool has_streams = false;
    for (const Thread& t : trace_.threads) {
      const auto found = is_host.find(t.pid);
      if (found == is_host.end()) continue;
      const XlaLane lane =
          found->second ? XlaLane{LaneKind::host, t.pid, t.tid} : device_lane(device_of_[t.pid], t);
      has_streams |= lane.kind == LaneKind::stream;
      lanes_[{t.pid, t.tid}] = lane;
    }
    for (const auto& [pid, host] : is_host)
      if (host) hosts_.push_back(pid);
    // The ops say again what a stream ran.
    if (has_streams)
      for (auto& [key, lane] : lanes_)
        if (lane.kind == LaneKind::ops || lane.kind == LaneKind::async_ops)
          lane.kind = LaneKind::derived;
    return true;
  }

  static XlaLane device_lane(int32_t device, const Thread& thread) {
    const std::string_view name = thread.name;
    XlaLane lane{LaneKind::derived, device, thread.tid};
    if (name.starts_with(kStream)) {
      lane.kind = LaneKind::stream;
      const std::string_view number = name.substr(kStream.size());
      std::from_chars(number.data(), number.data() + number.size(), lane.tid);
    } else if (name == kOps || name == kSparseOps) {
      lane.kind = LaneKind::ops;
    } else if (name == kAsyncOps) {
      lane.kind = LaneKind::async_ops;
    } else if (name == kModules || name == kSparseModules) {
      lane.kind = LaneKind::modules;
    }
    return lane;
  }

  XlaLane lane_of(const Event& e) const {
    const auto found = lanes_.find({e.pid, e.tid});
    if (found != lanes_.end()) return found->second;
    const bool is_host = std::find(hosts_.begin(), hosts_.end(), e.pid) != hosts_.end();
    if (is_host) return {LaneKind::host, e.pid, e.tid};
    // Some writers name no threads of a device; its work says what it is.
    if (const auto device = device_of_.find(e.pid); device != device_of_.end())
      return {LaneKind::stream, device->second, e.tid};
    return {};
  }

  // Ops of a TPU that enclose others (loops, calls, conditionals): their time is that of the
  // others.
  void find_containers() {
    std::vector<uint32_t> ops;
    for (uint32_t i = 0; i < trace_.events.size(); ++i)
      if (trace_.events[i].category == Category::other &&
          lane_of(trace_.events[i]).kind == LaneKind::ops)
        ops.push_back(i);
    if (ops.empty()) return;
    is_container_.resize(trace_.events.size());
    std::sort(ops.begin(), ops.end(), [&](uint32_t a, uint32_t b) {
      const Event& x = trace_.events[a];
      const Event& y = trace_.events[b];
      return std::tie(x.pid, x.tid, x.ts_ns, y.dur_ns, a) <
             std::tie(y.pid, y.tid, y.ts_ns, x.dur_ns, b);
    });
    std::vector<uint32_t> open;
    for (const uint32_t i : ops) {
      const Event& e = trace_.events[i];
      while (!open.empty()) {
        const Event& outer = trace_.events[open.back()];
        if (outer.pid == e.pid && outer.tid == e.tid && e.end_ns() <= outer.end_ns() &&
            e.ts_ns < outer.end_ns())
          break;
        open.pop_back();
      }
      if (!open.empty()) is_container_[open.back()] = true;
      open.push_back(i);
    }
  }

  const XlaArgs& args_of(const Event& e) {
    static const XlaArgs kNothing;
    const OpArgs* const ops = e.args == kNone ? nullptr : &trace_.ops[e.args];
    if (ops == nullptr || ops->other_args == 0) return kNothing;
    const auto [found, is_new] = parsed_.try_emplace(ops->other_args);
    if (is_new) found->second = parse_args(trace_.strings[ops->other_args]);
    return found->second;
  }

  // False: the event is left out.
  bool settle(Event& e, size_t index) {
    const XlaLane lane = lane_of(e);
    switch (lane.kind) {
      case LaneKind::unknown: e.args = kNone; return true;
      case LaneKind::derived: ++derived_; return false;
      case LaneKind::host: return settle_host(e);
      case LaneKind::modules:
        e.name = trace_.strings.intern(std::string(module_name(trace_.name(e))));
        return settle_range(e, lane);
      case LaneKind::ops:
      case LaneKind::async_ops:
        if (!is_container_.empty() && is_container_[index]) return settle_range(e, lane);
        break;
      case LaneKind::stream: break;
    }
    settle_work(e, lane);
    return true;
  }

  static bool settle_range(Event& e, const XlaLane& lane) {
    e.category = Category::gpu_user_annotation;
    e.pid = lane.pid;
    e.tid = lane.tid;
    e.args = kNone;
    e.correlation = 0;
    return true;
  }

  bool settle_host(Event& e) {
    const std::string_view name = trace_.name(e);
    if (name.starts_with('$')) return settle_frame(e);
    // Marks that the profiler makes of its own listening to thread pools.
    if (name.starts_with("ThreadpoolListener::")) {
      ++derived_;
      return false;
    }
    const XlaArgs& args = args_of(e);
    if (e.correlation != 0 && is_driver_call(name)) {
      const bool is_driver = !name.starts_with("cuda") && !name.starts_with("hip");
      e.category = is_driver ? Category::cuda_driver : Category::cuda_runtime;
      e.args = static_cast<uint32_t>(trace_.runtime_calls.size());
      RuntimeArgs& call = trace_.runtime_calls.emplace_back();
      call.bytes = detail_number(args.memcpy_details, "size", -1);
      return true;
    }
    e.correlation = 0;
    if (args.step >= 0) {
      e.category = Category::user_annotation;
      e.name = trace_.strings.intern(fmt::format("{}{}", kStepPrefix, args.step));
      if (e.args != kNone) trace_.ops[e.args].scope = Scope::user_scope;
      return true;
    }
    e.category = Category::cpu_op;
    if (e.args == kNone) {
      e.args = static_cast<uint32_t>(trace_.ops.size());
      trace_.ops.emplace_back();
    }
    return true;
  }

  bool settle_frame(Event& e) {
    if (frames_ == PythonFrames::counted) {
      ++trace_.import.python_functions_left_out;
      return false;
    }
    const StringId name = trace_.strings.intern(frame_name(trace_.name(e)));
    if (frames_ == PythonFrames::beside) {
      ++trace_.import.python_functions_left_out;
      trace_.frames.push_back(
          {.ts_ns = e.ts_ns, .dur_ns = e.dur_ns, .tid = e.tid, .pid = e.pid, .name = name});
      return false;
    }
    e.category = Category::python_function;
    e.name = name;
    e.args = static_cast<uint32_t>(trace_.python.size());
    trace_.python.push_back({.id = static_cast<int64_t>(trace_.python.size()) + 1});
    return true;
  }

  void settle_work(Event& e, const XlaLane& lane) {
    const XlaArgs& args = args_of(e);
    const std::string_view name = trace_.name(e);
    const StringId other = e.args == kNone ? 0 : trace_.ops[e.args].other_args;
    // "copy-start.1" of a TPU moves data beside the ops.
    const bool is_copy = lane.kind == LaneKind::async_ops && name.starts_with("copy");
    if (is_copy) {
      e.category = Category::gpu_memcpy;
    } else if (!args.memcpy_details.empty() || name.starts_with("Memcpy")) {
      e.category = Category::gpu_memcpy;
      e.name = trace_.strings.intern(kineto_copy_name(name, args.memcpy_details));
    } else if (!args.memset_details.empty() || name.starts_with("Memset")) {
      e.category = Category::gpu_memset;
      e.name = trace_.strings.intern("Memset (Device)");
    } else {
      e.category = Category::kernel;
    }
    e.pid = lane.pid;
    e.tid = lane.tid;
    const auto key = std::make_tuple(lane.pid, lane.tid, other, e.category);
    const auto [found, is_new] =
        work_.try_emplace(key, static_cast<uint32_t>(trace_.kernels.size()));
    if (is_new) trace_.kernels.push_back(kernel_args(args, lane, e.category, other));
    e.args = found->second;
  }

  static KernelArgs kernel_args(const XlaArgs& args, const XlaLane& lane, Category category,
                                StringId other) {
    KernelArgs k;
    const std::string_view details = args.kernel_details;
    k.device = lane.pid;
    k.context = static_cast<int32_t>(args.context);
    k.stream = lane.tid;
    k.registers_per_thread = static_cast<int32_t>(detail_number(details, "regs", -1));
    const int64_t fixed = detail_number(details, "static_shared", -1);
    const int64_t dynamic = detail_number(details, "dynamic_shared", -1);
    k.shared_memory_bytes =
        fixed < 0 && dynamic < 0 ? -1 : std::max<int64_t>(fixed, 0) + std::max<int64_t>(dynamic, 0);
    const bool has_grid = detail_triple(details, "grid", k.grid);
    const bool has_block = detail_triple(details, "block", k.block);
    k.has_grid = has_grid && has_block;
    double occupancy = args.occupancy_pct;
    if (occupancy < 0) occupancy = parse_real(detail(details, "occ_pct")).value_or(-1);
    if (occupancy >= 0) k.est_occupancy_pct = static_cast<int32_t>(occupancy + 0.5);
    k.graph_id = args.graph;
    k.graph_node_id = args.graph_node;
    k.flops = args.flops;
    k.bytes = category == Category::kernel       ? args.bytes
              : category == Category::gpu_memcpy ? detail_number(args.memcpy_details, "size", -1)
                                                 : detail_number(args.memset_details, "size", -1);
    k.other_args = other;
    return k;
  }

  void rename_lanes() {
    for (Process& p : trace_.processes)
      if (const auto found = device_of_.find(p.pid); found != device_of_.end()) {
        p.labels = p.name;
        p.pid = found->second;
      }
    std::erase_if(trace_.threads, [&](Thread& t) {
      const auto found = lanes_.find({t.pid, t.tid});
      if (found == lanes_.end()) return false;
      t.pid = found->second.pid;
      t.tid = found->second.tid;
      return found->second.kind == LaneKind::derived;
    });
  }

  Trace& trace_;
  PythonFrames frames_;
  std::map<int32_t, int32_t> device_of_;  // by pid of the file
  std::vector<int32_t> hosts_;
  std::map<std::pair<int32_t, int64_t>, XlaLane> lanes_;
  std::vector<bool> is_container_;                // by event; empty: none is
  std::unordered_map<StringId, XlaArgs> parsed_;  // by OpArgs::other_args
  std::map<std::tuple<int32_t, int64_t, StringId, Category>, uint32_t> work_;
  int64_t derived_ = 0;
  bool has_tpu_ = false;
};

}  // namespace

void settle_xla(Trace& trace, PythonFrames frames) {
  const bool has_uncategorised = std::any_of(trace.events.begin(), trace.events.end(), [](auto& e) {
    return e.category == Category::other && e.args != kNone;
  });
  if (!has_uncategorised || XlaSettler(trace, frames).settle()) return;
  for (Event& e : trace.events)
    if (e.category == Category::other) e.args = kNone;
}

}  // namespace epilogue::trace
