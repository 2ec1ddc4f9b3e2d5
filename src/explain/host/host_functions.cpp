// SPDX-License-Identifier: Apache-2.0
#include "explain/host/host_functions.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>

#include "explain/index/aten_ops.h"
#include "trace/nesting.h"

namespace epilogue::trace {
namespace {

// Built-in functions, and comprehensions, which are part of the function that they stand in.
bool is_builtin(std::string_view name) {
  return name.starts_with("<built-in") || name.ends_with("comp>") || name.ends_with("<genexpr>");
}

// The profiler's own frames are none of the program's.
bool is_profiler(std::string_view name) {
  return name.find("torch/profiler/") != std::string_view::npos ||
         name.find("torch/autograd/profiler") != std::string_view::npos;
}

// The frames of a thread, as events or beside them: callers before what they call.
std::vector<PythonFrame> frames_of(const Trace& trace, int32_t pid, int64_t tid) {
  std::vector<PythonFrame> frames;
  // Frames of threads that began before the profiler may lack their thread.
  const auto is_ours = [&](const auto& frame) {
    return (frame.pid == pid && frame.tid == tid) || (frame.pid == 0 && frame.tid == 0);
  };
  for (const Event& e : trace.events)
    if (e.category == Category::python_function && is_ours(e))
      frames.push_back({e.ts_ns, e.dur_ns, e.tid, e.pid, e.name});
  for (const PythonFrame& frame : trace.frames)
    if (is_ours(frame)) frames.push_back(frame);
  std::sort(frames.begin(), frames.end(), [](const PythonFrame& a, const PythonFrame& b) {
    return a.ts_ns != b.ts_ns ? a.ts_ns < b.ts_ns : a.dur_ns > b.dur_ns;
  });
  return frames;
}

// Ranges that PyTorch makes: of the profiler, the optimizer, loaders, compiled code, collectives.
bool is_pytorch_range(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kPrefixes = {
      "ProfilerStep#", "Optimizer.", "enumerate(DataLoader)",  "Torch-Compiled Region", "## Call ",
      "nccl:",         "c10d::",     "DistributedDataParallel"};
  return is_cpu_collective(name) ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// By span: its time within `moments` less that of the spans in it.
std::vector<int64_t> self_times_of(const std::vector<LaneSpan>& spans,
                                   const std::vector<uint32_t>& parents,
                                   const IntervalSet& moments) {
  const Coverage within(moments);
  std::vector<int64_t> self_ns(spans.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    const int64_t ns = within.within_ns({spans[i].start_ns, spans[i].end_ns});
    self_ns[i] += ns;
    if (parents[i] != kNone) self_ns[parents[i]] -= ns;
  }
  return self_ns;
}

template <class Timed>
void by_self_time(std::vector<Timed>& list) {
  std::sort(list.begin(), list.end(), [](const Timed& a, const Timed& b) {
    return a.self_ns != b.self_ns ? a.self_ns > b.self_ns : a.name < b.name;
  });
}

}  // namespace

std::vector<HostRange> ranges_within(const Trace& trace, int32_t pid, int64_t tid,
                                     const IntervalSet& moments) {
  std::vector<uint32_t> events;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category == Category::user_annotation && e.pid == pid && e.tid == tid &&
        !is_pytorch_range(trace.name(e)))
      events.push_back(i);
  }
  std::sort(events.begin(), events.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
    return x.ts_ns != y.ts_ns ? x.ts_ns < y.ts_ns : x.dur_ns > y.dur_ns;
  });
  std::vector<LaneSpan> spans;
  spans.reserve(events.size());
  for (const uint32_t i : events)
    spans.push_back({0, 0, trace.events[i].ts_ns, trace.events[i].end_ns()});
  const std::vector<int64_t> self_ns = self_times_of(spans, nest(spans), moments);
  std::map<StringId, HostRange> by_name;
  for (size_t i = 0; i < events.size(); ++i) {
    if (self_ns[i] <= 0) continue;
    HostRange& range = by_name[trace.events[events[i]].name];
    range.name = std::string(trace.name(trace.events[events[i]]));
    range.self_ns += self_ns[i];
    ++range.count;
  }
  std::vector<HostRange> list;
  list.reserve(by_name.size());
  for (auto& [name, range] : by_name) list.push_back(std::move(range));
  by_self_time(list);
  return list;
}

std::vector<HostFunction> functions_within(const Trace& trace, int32_t pid, int64_t tid,
                                           const IntervalSet& moments) {
  const std::vector<PythonFrame> frames = frames_of(trace, pid, tid);
  std::vector<LaneSpan> spans;
  spans.reserve(frames.size());
  for (const PythonFrame& frame : frames) spans.push_back({0, 0, frame.ts_ns, frame.end_ns()});
  const std::vector<uint32_t> parents = nest(spans);
  const std::vector<int64_t> self_ns = self_times_of(spans, parents, moments);
  std::unordered_map<StringId, HostFunction> by_name;
  for (size_t f = 0; f < frames.size(); ++f) {
    if (self_ns[f] <= 0) continue;
    auto of = static_cast<uint32_t>(f);
    while (parents[of] != kNone && is_builtin(trace.strings[frames[of].name]) &&
           remedy_of_function(trace.strings[frames[of].name]).empty())
      of = parents[of];
    const std::string_view name = trace.strings[frames[of].name];
    if (is_profiler(name)) continue;
    HostFunction& function = by_name[frames[of].name];
    function.name = std::string(name);
    function.self_ns += self_ns[f];
    if (of == f) ++function.count;
  }
  std::vector<HostFunction> list;
  list.reserve(by_name.size());
  for (auto& [name, function] : by_name) list.push_back(std::move(function));
  by_self_time(list);
  return list;
}

namespace {

struct FunctionRemedy {
  std::string_view part;  // of the function's file or name
  std::string_view remedy;
};
constexpr std::string_view kSave =
    "save every N steps, or copy the state and write it in the background "
    "(torch.distributed.checkpoint.async_save)";
constexpr std::string_view kLog = "log every N steps, outside of the step";
constexpr std::string_view kObjects =
    "send tensors, not objects: all_gather, all_reduce or broadcast of stacked tensors pickles "
    "nothing";
constexpr std::string_view kCollect =
    "no garbage collection in the step: gc.freeze() after the start, gc.collect() every N steps";
constexpr std::string_view kDecode = "do it in the data loader's workers (num_workers)";
constexpr std::string_view kDraw =
    "draw all numbers of the batch in one call (torch.randint, torch.rand), and draw those again "
    "that a mask refuses";
constexpr std::string_view kRead =
    "read only the part that is used (seek, frame_offset and num_frames, a memory map), in the "
    "data loader's workers; what is read again can stay in memory";
constexpr FunctionRemedy kRemedies[] = {
    {"wave.py", kRead},
    {"soundfile", kRead},
    {"h5py", kRead},
    {"numpy/lib/_npyio", kRead},
    {"numpy/lib/npyio", kRead},
    {"readframes", kRead},
    {"built-in method read of", kRead},
    {"built-in method randint of", kDraw},
    {"built-in method choice of", kDraw},
    {"numpy.random", kDraw},
    {"deepcopy", "copy what is needed alone, and not in every step"},
    {"re/__init__.py", kDecode},
    {"html/", kDecode},
    {"xml/", kDecode},
    {"hashlib", kDecode},
    {"datetime", kDecode},
    {"_legacy_load", kObjects},
    {"_reduce_ex_internal", kObjects},
    {"_weights_only_unpickler", "load weights once, when the program starts, and keep the model"},
    {"torch/serialization.py", kSave},
    {"checkpoint", kSave},
    {"_tensor_str.py", kLog},
    {"logging/", kLog},
    {"tensorboard", kLog},
    {"json/", "write it every N steps, outside of the step"},
    {"numpy/",
     "do it in PyTorch on the whole batch (vectorised), or once, in the data loader's workers"},
    {"PIL/", kDecode},
    {"cv2", kDecode},
    {"tokeniz", kDecode},
    {"pandas/", kDecode},
    {"copy.py", "copy what is needed alone, and not in every step"},
    {"_object_list", kObjects},
    {"gather_object", kObjects},
    {"_object_to_tensor", kObjects},
    {"_tensor_to_object", kObjects},
    {"pickle", kObjects},
    {"anomaly_mode", "turn anomaly detection off (torch.autograd.set_detect_anomaly(False))"},
    {"traceback.py", "no tracebacks in the step; torch.autograd.set_detect_anomaly(False)"},
    {"built-in function collect>", kCollect},
    {"built-in function sleep>", "wait for an event, not for a time"},
    {": state_dict",
     "call state_dict() once, not in a loop over its keys: each call builds the whole "
     "dictionary; averages of weights by torch._foreach_lerp_ on lists of the parameters"},
    {"empty_cache", "the allocator reuses its memory: no empty_cache() in the step"},
    {"subprocess", "start no process in the step"},
    {"wandb", kLog},
    {"mlflow", kLog},
    {"tqdm", "refresh the progress bar less often (mininterval, miniters)"},
    {"built-in function print", kLog},
    {"matplotlib", kLog},
    {"sklearn/",
     "compute metrics every N steps, on collected tensors (torchmetrics), or in another process"},
    {"scipy/", "do it in PyTorch on the whole batch, or once, in the data loader's workers"},
    {"networkx", "build the graph once, outside of the step, and keep its edges as tensors"},
    {"_utils/collate.py", kDecode},
    {"torchvision/transforms", kDecode},
    {"torchaudio/", kDecode},
    {"zipfile", kDecode},
    {"gzip", kDecode},
    {"csv", kDecode},
    {"io.open", kDecode},
    {"torch/random.py", ""},
    {"random.py", kDraw},
};

}  // namespace

std::string_view remedy_of_function(std::string_view name) {
  for (const FunctionRemedy& row : kRemedies)
    if (name.find(row.part) != std::string_view::npos) return row.remedy;
  return {};
}

}  // namespace epilogue::trace
