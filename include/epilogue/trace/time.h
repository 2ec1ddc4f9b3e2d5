// SPDX-License-Identifier: Apache-2.0
// Where the time goes: on the device, while the device idles, on the host, by step, op and module.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Timeline -----------------------------------------------------------------------------------
// How long the trace is and how long each device and stream worked.

struct StreamUse {
  int64_t stream = 0;
  int64_t events = 0;   // kernels, copies and fills
  int64_t busy_ns = 0;  // the union of them: kernels of one stream may overlap
};

struct DeviceUse {
  int32_t device = 0;
  int64_t kernels = 0;
  int64_t copies = 0;     // copies and fills
  int64_t busy_ns = 0;    // union over all streams
  int64_t kernel_ns = 0;  // union of the kernels alone
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  std::vector<StreamUse> streams;  // by number
};

struct Timeline {
  // From the first start to the last end over ops, annotations, runtime and driver calls and device
  // work. Python frames, overhead events and the profiler's own span do not count, nor do kernels
  // that the driver wrote without a time (start and duration 0). Of a selection: its window, as far
  // as the whole trace reaches; busy times are those within. Empty: there is no such event.
  std::optional<int64_t> start_ns;
  std::optional<int64_t> end_ns;
  std::vector<DeviceUse> devices;  // the busiest first; empty if nothing ran

  int64_t span_ns() const { return start_ns ? *end_ns - *start_ns : 0; }
  // Of the busiest device. Empty if no device worked or the span has no length.
  std::optional<double> busy_pct() const;
};

Timeline timeline(const Trace& trace, const Links& links);

// True for what counts as the span: see Timeline::start_ns.
bool counts_for_span(const Event& event);

// --- Steps --------------------------------------------------------------------------------------
// The parts of a run that are judged one by one: its steps, else what is most like steps.

enum class RegionKind : uint8_t {
  step,        // a ProfilerStep#N annotation
  annotation,  // an outermost annotation of the thread that launches most, without steps
  window,      // all of the trace, without annotations too
};

// Ops, calls and device work belong to the region in which they start, on any thread of its
// process; device work to the one that launched it, whenever it ran.
struct Region {
  std::string name;
  RegionKind kind = RegionKind::window;
  uint32_t event = kNone;  // the annotation; kNone for the window
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t ops = 0;
  int64_t launches = 0;  // kernel and graph launches
  int64_t kernels = 0;
  int64_t copies = 0;            // copies and fills
  int64_t launched_work_ns = 0;  // union of the device work that it launched, on any device
  int64_t device_busy_ns = 0;  // of the busiest device between its start and end, whoever launched
  int64_t cpu_op_ns = 0;       // time in which at least one thread was in an op
  // The window that the verdict is of: start and end, unless most of what an annotation launched
  // ran outside of them (the host was ahead). Then it is the device's: from the end of what was
  // launched before to the end of what the region launched.
  int64_t device_start_ns = 0;
  int64_t device_end_ns = 0;
  int64_t window_busy_ns = 0;  // of the busiest device in its window

  int64_t wall_ns() const { return end_ns - start_ns; }
  int64_t device_idle_ns() const { return wall_ns() - device_busy_ns; }
};

// One per ProfilerStep, by start; empty if the trace has none.
std::vector<Region> steps(const Trace& trace, const Links& links);

// The steps, else the outermost annotations, else the whole window. Empty for an empty trace.
std::vector<Region> regions(const Trace& trace, const Links& links);

// --- Idle time ----------------------------------------------------------------------------------
// Why a device did nothing: each of its idle moments has one cause.

// In order of precedence: if two apply, the first one counts.
enum class IdleCause : uint8_t {
  queue,             // work had been launched and waited: launch gap
  launch,            // the host was inside a call that starts work
  sync,              // the host waited: cudaDeviceSynchronize, a blocking copy, ...
  data,              // the host was in a data loader's annotation
  host_in_ops,       // the host was in an op or in another runtime call
  host_between_ops,  // the host ran what is not traced between its ops: Python, mostly
  other,             // before the first or after the last event of the host
};
inline constexpr int kIdleCauses = static_cast<int>(IdleCause::other) + 1;
std::string_view idle_cause_name(IdleCause cause);  // "queue", "launch", "host_in_ops"

struct DeviceIdle {
  int32_t device = 0;
  int64_t idle_ns = 0;                             // span less busy; the causes add up to it
  std::array<int64_t, kIdleCauses> cause_ns = {};  // by IdleCause

  int64_t of(IdleCause cause) const { return cause_ns[static_cast<size_t>(cause)]; }
  int64_t host_ns() const { return of(IdleCause::host_in_ops) + of(IdleCause::host_between_ops); }
};

// Per device that worked, the busiest first, over the span of the trace (of a selection: its
// window, with the causes that the whole trace gives it). Empty without device work. Host threads
// that start device work decide; a wait on another thread (a data loader's, a watchdog's) is not
// the device's.
std::vector<DeviceIdle> idle_times(const Trace& trace, const Links& links);

// True for calls in which the host waits for the device: "cudaStreamSynchronize", ...
bool is_sync_call_name(std::string_view name);
// True for an annotation of a data loader, by its name. In traces of 2021 annotations are ops.
bool is_data_loading(const Trace& trace, const Event& event);
// True if `work` is a copy whose `call` returned only after it had ended: the host waited,
// whatever the call's name. A graph launch only happens to be that slow.
bool is_blocking_copy(const Trace& trace, const Event& work, const Event& call);

// --- Launches -----------------------------------------------------------------------------------
// What it costs to start work on the device.

struct CallStats {
  std::string name;
  bool starts_work = false;  // a launch, or a call that some device work is the result of
  Distribution time;         // inside the call
};

// A call that takes most of the time of its kind.
struct SlowCall {
  std::string name;
  int64_t dur_ns = 0;
  bool is_first = false;  // of the trace's launches of the kernel that it starts
};

struct LaunchStats {
  std::vector<CallStats> calls;  // all runtime and driver calls, the costliest first
  // Of these, what starts work and does not wait for it: without waits and blocking copies, also
  // if others of the same name are launches. The costliest first.
  std::vector<CallStats> launching_calls;
  // The one launching call that takes over half of the time of all of them, if there are others.
  std::optional<SlowCall> outlier;
  int64_t launches = 0;  // kernel and graph launches
  int64_t graph_launches = 0;
  int64_t graph_kernels = 0;  // kernels that those started
  // From the end of the launch call to the start of its (first) kernel; negative if the kernel
  // started before the call returned. Empty if no kernel has a launch, and for a device that
  // runs its work inside the call (our CPU device).
  std::optional<Distribution> queue_delay;
  int64_t kernels_with_launch = 0;           // of single launches, not graphs
  int64_t kernels_shorter_than_launch = 0;   // of these: they take less time than their call
  int64_t kernels_before_launch = 0;         // started before their call did: clocks disagree
  std::optional<double> kernels_per_launch;  // of launches that have kernels
  std::optional<double> launches_per_step;   // launches inside steps over steps
};

LaunchStats launch_stats(const Trace& trace, const Links& links);

// True if each launch call contains its kernel: our CPU device.
bool is_synchronous_device(const Trace& trace);

// --- Verdict ------------------------------------------------------------------------------------
// What limits a run: for the whole trace and for each step or region.

enum class Bound : uint8_t {
  overhead,    // the device idles while the host is in ops or Python
  launch,      // it idles while the host is inside launch calls, or less in the queue
  memory,      // it works, mostly on what moves bytes
  compute,     // it works, mostly on matrix products, convolutions, attention
  sync,        // it idles while the host waits for it, or waits for other ranks
  data,        // it idles while the host is in the data loader
  cpu_only,    // nothing was started on a device
  no_kernels,  // work was started, but the trace has no kernels
  unknown,     // it idles mostly while the trace says nothing of the host
  queue,       // it idles mostly between work that was launched and had not started
};
// "overhead-bound", "cpu-only". kUnknown is called overhead-bound too, by the device's idleness;
// its evidence says that the cause is unknown.
std::string_view bound_name(Bound bound);

// The parts into which the wall time of a device divides.
enum class TimePart : uint8_t {
  compute,
  memory,
  communication,
  overhead,  // idle, host in ops or between them, less the profiler's part
  profiler,  // idle, and the host would not have been so slow without the profiler: estimated
  launch,
  queue,
  sync,
  data,
  other,
};
inline constexpr int kTimeParts = static_cast<int>(TimePart::other) + 1;
std::string_view time_part_name(TimePart part);  // "compute", "overhead"

// A device that works at least this share of the wall time is what limits the run; below it the
// largest cause of idleness is. The profiler's part of the wall time is taken out; collectives that
// no other kernel hides are waiting, not work. See Verdict::judged_pct.
inline constexpr double kDeviceBoundPct = 50;
// Of what the device works, compute must be at least this share for "compute-bound".
inline constexpr double kComputeBoundPct = 50;

// Time the profiler adds to each op on the host. An estimate of 4 us was measured for traces with
// shapes, stacks or memory (pytorch/pytorch#82793: 17.8 ms unprofiled, 30.5 ms profiled).
inline constexpr double kProfilerNsPerOp = 4000;
// If none of these was recorded: our estimate, for two clock reads and one record.
inline constexpr double kPlainProfilerNsPerOp = 1000;
// The same of PyTorch 2.4 and later, whose traces have a base time: measured with PyTorch 2.15 on a
// Xeon of 2024 over views and small ops, without the profiler and with it.
inline constexpr double kRecentProfilerNsPerOp = 600;
inline constexpr double kRecentPlainProfilerNsPerOp = 350;

struct ProfilerCost {
  double ns_per_op = kPlainProfilerNsPerOp;
  bool is_measured = false;  // by the recorder itself: our own traces say so in their metadata
  bool is_inflated = false;  // shapes, stacks or memory were recorded
  int64_t total_ns = 0;      // over all ops, never more than an op's own time
};

struct Verdict {
  Bound bound = Bound::cpu_only;
  // Percent of the wall time, by TimePart; they add up to 100. Empty if no device time is known
  // (cpu-only, no-kernels, a region without length).
  std::vector<double> part_pct;
  // What kDeviceBoundPct is held against: compute and memory work over the wall time less the
  // profiler's part, in percent. Empty if part_pct is.
  std::optional<double> judged_pct;
  std::vector<std::string> evidence;  // sentences

  double pct(TimePart part) const {
    return part_pct.empty() ? 0 : part_pct[static_cast<size_t>(part)];
  }
};

struct RegionVerdict {
  Region region;
  Verdict verdict;
};

struct Verdicts {
  Verdict whole;
  std::vector<RegionVerdict> regions;  // as regions()
  ProfilerCost profiler;
};

// Judges by the device that worked most.
Verdicts judge_time(const Trace& trace, const Links& links);

ProfilerCost profiler_cost(const Trace& trace, const Links& links);

// --- Hot spots ----------------------------------------------------------------------------------
// Where the host waits for the device or for data, and what is copied.

// Calls in which the host waits, by name and place.
struct SyncSpot {
  std::string call;   // "cudaStreamSynchronize"; "cudaMemcpyAsync" if it returned after the copy
  std::string where;  // the outermost op around it, else the innermost annotation, else ""
  bool is_implied = false;  // inside an op (.item(), nonzero, to): nobody asked for it by name
  Distribution time;        // inside the call
};

// Copies and fills of the device, by name and place.
struct CopySpot {
  std::string name;              // "Memcpy HtoD (Pageable -> Device)"
  std::string where;             // as above
  bool is_pageable = false;      // from or to memory that is not pinned: slower, and it blocks
  Distribution time;             // on the device
  std::optional<int64_t> bytes;  // in all; empty if the trace does not say
  std::optional<double> bandwidth_gb_s;  // of these bytes over their time
};

// A data loader's annotations of one name, whether or not the device waited for them.
struct LoaderSpot {
  std::string name;  // "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
  Distribution time;
};

struct HotSpots {
  std::vector<SyncSpot> syncs;      // by total time
  std::vector<CopySpot> copies;     // by total time
  std::vector<LoaderSpot> loaders;  // by total time
};

HotSpots hot_spots(const Trace& trace, const Links& links);

// --- Dispatch chains ----------------------------------------------------------------------------
// What an op goes through before a kernel runs: linear -> t, addmm.

// Outermost ops whose trees of ops are the same, name by name.
struct DispatchChain {
  std::string text;  // "aten::linear(aten::t(aten::transpose(aten::as_strided)), aten::addmm)"
  std::string op;    // the outermost
  int64_t count = 0;
  int64_t ops = 0;      // of one chain
  int64_t kernels = 0;  // over all, as the times
  int64_t cpu_ns = 0;
  int64_t device_ns = 0;      // the sum of the device work that it launched
  int64_t no_launch_ops = 0;  // of one chain: ops that start no device work, nor do those they call
  int64_t no_launch_ns = 0;   // what these cost the host themselves, over all
};

// An op that starts no device work (views, mostly), by name.
struct NoLaunchOp {
  std::string name;
  int64_t count = 0;
  int64_t self_ns = 0;      // of all
  int64_t max_self_ns = 0;  // of the longest
};

struct DispatchChains {
  std::vector<DispatchChain> chains;  // by CPU time, the costliest first
  std::vector<NoLaunchOp> no_launch;  // by self time; empty if no op launches: a CPU trace
};

DispatchChains dispatch_chains(const Trace& trace, const Links& links);

// Longer chains end in "...": a compiled region or a backward pass may hold thousands of ops.
inline constexpr int kMaxChainOps = 24;

// --- Modules ------------------------------------------------------------------------------------
// Time by nn.Module, if Python frames were recorded and read (ReadOptions::python_functions).

struct ModuleTime {
  std::string path;  // "BertModel_0/BertEncoder_0/Linear_3"
  std::string name;  // its last part
  int depth = 0;     // 0: no module around it
  int64_t count = 0;
  int64_t cpu_ns = 0;
  int64_t self_cpu_ns = 0;  // not in modules below
  int64_t kernels = 0;      // launched inside, also by modules below
  int64_t device_ns = 0;    // the sum of that device work
  int64_t self_device_ns = 0;
};

// Parents before children, else in order of first appearance. Empty without module frames.
std::vector<ModuleTime> module_times(const Trace& trace, const Links& links);

// --- Compiled regions ---------------------------------------------------------------------------
// What torch.compile made of a run: its regions, graphs, cache lookups and Triton kernels.

struct CompiledRange {
  std::string name;  // "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph <hash> ##"
  int64_t count = 0;
  int64_t cpu_ns = 0;
  int64_t kernels = 0;    // launched inside
  int64_t device_ns = 0;  // the sum of the device work launched inside
};

struct TritonKernel {
  std::string name;
  std::vector<std::string> fused_ops;  // "gelu", "mul"; empty: not one of Inductor's
  // What Inductor recorded with the op that launches it; "" or empty if it did not.
  std::string file;  // its Python source: "/tmp/torchinductor_me/mw/cmwj....py"
  std::string hash;
  std::string config;  // "XBLOCK=2,R0_BLOCK=2048"
  std::optional<int64_t> warps;
  std::optional<int64_t> stages;
  int64_t count = 0;
  int64_t device_ns = 0;
};

struct CompileSummary {
  std::vector<CompiledRange> regions;  // by CPU time
  std::vector<CompiledRange> graphs;   // by CPU time
  CompiledRange cache_lookups;         // "TorchDynamo Cache Lookup"
  int64_t compilations = 0;            // of frames, during the recording
  int64_t compile_ns = 0;              // what these took
  std::vector<TritonKernel> triton;    // by device time
  // Runs of regions over steps; empty without steps or regions. A region that is called several
  // times counts as often.
  std::optional<double> regions_per_step;
  // Different frames that the regions of a step are of ("0/0" is frame 0), the mean over steps. A
  // function without graph breaks is one; what comes behind a break is another. Empty if
  // regions_per_step is, and if a region does not name its frame (PyTorch before 2.2).
  std::optional<double> frames_per_step;

  bool is_compiled() const {
    return !regions.empty() || !graphs.empty() || !triton.empty() || cache_lookups.count > 0;
  }
};

// True for the range in which torch.compile compiles a frame.
bool is_compilation(std::string_view name);

CompileSummary compile_summary(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
