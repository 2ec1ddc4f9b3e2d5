// SPDX-License-Identifier: Apache-2.0
// The profiler: torch.profiler's contract for native code.
//
//   profiler::Profile prof({.schedule = profiler::schedule({.wait = 1, .warmup = 1, .active = 3}),
//                           .on_trace_ready = [](profiler::Profile& p) { ... }});
//   prof.start();
//   for (...) { { profiler::RecordFunction range("forward"); model(x); } prof.step(); }
//   prof.stop();
//
// Ops of every thread are recorded, each into a buffer of its own thread, without locks. A CPU is
// profiled here as a device whose launches are synchronous: every kernel execution is an event.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"

#pragma GCC visibility push(default)

namespace epilogue {
class ScopedRange;
}

namespace epilogue::profiler {

// torch.profiler.record_function: a labelled range on this thread, from construction to
// destruction. One predictable branch when nothing records.
class RecordFunction {
 public:
  explicit RecordFunction(std::string_view name);
  ~RecordFunction();
  RecordFunction(const RecordFunction&) = delete;
  RecordFunction& operator=(const RecordFunction&) = delete;

 private:
  void* observer_;
};
using record_function = RecordFunction;

enum class Action { none = 0, warmup = 1, record = 2, record_and_save = 3 };
using Schedule = std::function<Action(int64_t step)>;

struct ScheduleOptions {
  int64_t wait = 0;
  int64_t warmup = 0;
  int64_t active = 1;
  int64_t repeat = 0;  // 0: for ever
  int64_t skip_first = 0;
  int64_t skip_first_wait = 0;  // not 0: the first cycle has no wait stage
};
// torch.profiler.schedule. Throws Error on negative numbers or active < 1.
Schedule schedule(ScheduleOptions options);

class Profile;
class DeviceTracer;

struct ProfileOptions {
  bool cpu_activity = true;     // ops, ranges, launches
  bool kernel_activity = true;  // kernel executions on the device lane
  Schedule schedule = {};       // empty: every step is recorded, without ProfilerStep ranges
  std::function<void(Profile&)> on_trace_ready = {};
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_flops = false;  // implies record_shapes, as in PyTorch
  bool with_stack = false;  // C++ call stacks of ops, and module ranges
};

// The cost of one recorded event to the profiled program, measured at start on this machine.
struct RecorderCost {
  double ns_per_op = 0;      // op_begin + op_end
  double ns_per_kernel = 0;  // launch and kernel, one execution
  double ns_per_range = 0;
  double ns_unseen_per_op = 0;  // the part of ns_per_op outside the recorder: run_op's slower way
};

// One profiling session; at most one records at a time in a process. start, step and stop must be
// called on one thread, and not by on_trace_ready, which may read the profile. An exception of
// on_trace_ready or of the schedule comes out of the call that ran it and stops the profile, as if
// stop() had been called; a finished cycle can still be read.
class Profile {
 public:
  explicit Profile(ProfileOptions options = {});
  // Stops without calling on_trace_ready when still running (an exception is passing).
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Throws Error when started twice or while another Profile records.
  void start();
  // Ends a step. on_trace_ready runs in here after the last active step of a cycle. Throw Error
  // where the profile does not run.
  void step();
  void stop();

  int64_t step_num() const { return step_num_; }
  Action current_action() const { return action_; }

  // The last finished cycle. Throw Error before there is one.
  const trace::Trace& trace() const;
  trace::KeyAverages key_averages(bool group_by_input_shape = false,
                                  int group_by_stack_n = 0) const;
  // Writes a Chrome trace, and missing folders; gzip when the path ends in ".gz".
  Status export_chrome_trace(const std::string& path) const;

  // An entry of the trace's top-level object; `json` is raw JSON (other text is written as a
  // string). Call before the cycle ends.
  void add_metadata_json(const std::string& key, const std::string& json);

  // Warnings so far, e.g. of a schedule that loses a trace; the library never prints.
  const std::vector<std::string>& warnings() const { return warnings_; }
  RecorderCost recorder_cost() const { return cost_; }
  // The wall time that recording added to the last cycle: the recorder times itself while it notes
  // ops and kernels; the rest comes from recorder_cost().
  double recorder_overhead_ns() const;

 private:
  struct Cycle;
  void transition(Action from, std::optional<Action> to);
  void prepare();
  void begin_recording();
  void end_recording();
  DeviceTracer* start_device();
  void stop_device();
  void open_step();
  void call_ready();
  void require_running(std::string_view call) const;
  // Ends without a callback; undoes whatever was begun.
  void abandon();
  void run_or_abandon(const std::function<void()>& part);
  void warn(const std::string& text);

  ProfileOptions options_;
  int64_t step_num_ = 0;
  Action action_ = Action::none;
  bool started_ = false;
  bool recording_ = false;
  bool in_callback_ = false;
  RecorderCost cost_;
  std::vector<std::string> warnings_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::unique_ptr<RecordFunction> step_range_;
  std::unique_ptr<Cycle> cycle_;     // being recorded
  std::unique_ptr<Cycle> finished_;  // the last one
};

}  // namespace epilogue::profiler

#pragma GCC visibility pop
