// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <atomic>

#include "base/clock.h"
#include "core/backend.h"
#include "epilogue/ops.h"
#include "epilogue/profiler.h"
#include "epilogue/trace/file.h"
#include "profile/build_trace.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

namespace {

constexpr int kCalls = 400;
constexpr int kRounds = 11;

using Probe = void (*)(const Tensor&);
void run_view(const Tensor& x) { view(x, {8, 8}); }  // one op, no kernel
void run_kernel(const Tensor& x) { add(x, x); }      // one op, one kernel
void run_range(const Tensor&) { const ScopedRange range("ProfilerStep#0"); }

// The mean without the fastest and the two slowest rounds: new chunks of the buffers count, an
// interrupt does not.
double mean_ns_per_call(Probe probe, const Tensor& x) {
  std::array<double, kRounds> rounds{};
  for (double& ns : rounds) {
    const int64_t start = monotonic_ns();
    for (int i = 0; i < kCalls; ++i) probe(x);
    ns = static_cast<double>(monotonic_ns() - start) / kCalls;
  }
  std::sort(rounds.begin(), rounds.end());
  double sum = 0;
  for (int i = 1; i < kRounds - 2; ++i) sum += rounds[static_cast<size_t>(i)];
  return sum / (kRounds - 3);
}

struct Times {
  double view_ns;
  double kernel_ns;
  double range_ns;
};
Times measure() {
  const Tensor x = ones({64});
  return {mean_ns_per_call(run_view, x), mean_ns_per_call(run_kernel, x),
          mean_ns_per_call(run_range, x)};
}

// Ends the session; the time that the recorder itself took for one of a last series of views.
double own_ns_per_view(Recorder& recorder, const RecorderOptions& options) {
  const Tensor x = ones({64});
  recorder.stop();
  recorder.start(options);
  const TickAnchor begin = tick_anchor();
  set_run_observer(&recorder);
  for (int i = 0; i < kCalls * 4; ++i) run_view(x);
  set_run_observer(nullptr);
  const TickConverter clock(begin, tick_anchor());
  int64_t ticks = 0;
  for (const auto& buffer : recorder.stop()) ticks += buffer->own_ticks.load();
  return clock.duration_ns(ticks) / (kCalls * 4);
}

// The difference between the same calls with and without the recorder: what it does, and the slower
// way that run_op takes for it.
// Dispatches some ten thousand small ops with and without the recorder (5 to 20 ms), recording what
// `options` say. Must not be called while a session records.
RecorderCost measure_recorder_cost(const RecorderOptions& options) {
  ThreadState& state = thread_state();
  const ThreadState before = state;
  state.grad_enabled = false;
  state.capture = nullptr;
  measure();  // warms caches and allocators
  const Times plain = measure();
  Recorder& recorder = Recorder::instance();
  recorder.start(options);
  set_run_observer(&recorder);
  measure();  // touches the buffers' pages
  const Times recorded = measure();
  set_run_observer(nullptr);
  const double own_ns = own_ns_per_view(recorder, options);
  state.grad_enabled = before.grad_enabled;
  state.capture = before.capture;

  RecorderCost cost;
  cost.ns_per_op = std::max(recorded.view_ns - plain.view_ns, 0.0);
  cost.ns_unseen_per_op = std::max(cost.ns_per_op - own_ns, 0.0);
  cost.ns_per_kernel = std::max(recorded.kernel_ns - plain.kernel_ns - cost.ns_per_op, 0.0);
  cost.ns_per_range = std::max(recorded.range_ns - plain.range_ns, 0.0);
  return cost;
}

// One session records at a time; a second Profile throws.
std::atomic<const Profile*> recording_profile{nullptr};

RecorderOptions recorder_options(const ProfileOptions& o) {
  return {.kernels = o.kernel_activity,
          .shapes = o.record_shapes || o.with_flops,
          .memory = o.profile_memory,
          .stacks = o.with_stack};
}

}  // namespace

RecordFunction::RecordFunction(std::string_view name) : observer_(run_observer()) {
  if (observer_ != nullptr) [[unlikely]]
    static_cast<RunObserver*>(observer_)->range_begin(name, RangeKind::user, -1, 0);
}

RecordFunction::~RecordFunction() {
  if (observer_ != nullptr) [[unlikely]]
    static_cast<RunObserver*>(observer_)->range_end();
}

struct Profile::Cycle {
  Recording recording;
  trace::Trace trace;
  EventCounts counts;
};

Profile::Profile(ProfileOptions options) : options_(std::move(options)) {
  if (options_.with_flops) options_.record_shapes = true;
  action_ = options_.schedule ? options_.schedule(0) : Action::record;
}

Profile::~Profile() { abandon(); }

void Profile::abandon() {
  step_range_.reset();
  if (recording_) {
    set_run_observer(nullptr);
    set_memory_observer(nullptr);
    Recorder::instance().stop();
    try {
      stop_device();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): what led here counts
    }
  }
  cycle_.reset();
  recording_ = false;
  in_callback_ = false;
  started_ = false;
  const Profile* self = this;
  recording_profile.compare_exchange_strong(self, nullptr);
}

void Profile::run_or_abandon(const std::function<void()>& part) {
  try {
    part();
  } catch (...) {
    abandon();
    throw;
  }
}

void Profile::require_running(std::string_view call) const {
  if (in_callback_)
    throw Error(fmt::format(
        "[profile] expected {}() outside of on_trace_ready, got a call from within it", call));
  if (!started_) throw Error(fmt::format("[profile] expected start() before {}()", call));
}

void Profile::warn(const std::string& text) { warnings_.push_back(text); }

void Profile::start() {
  if (started_) throw Error("[profile] expected start() once, got a second call");
  const Profile* none = nullptr;
  if (!recording_profile.compare_exchange_strong(none, this))
    throw Error("[profile] expected no other profile to be active, got one that is running");
  started_ = true;
  run_or_abandon([&] {
    transition(Action::none, action_);
    open_step();
  });
}

void Profile::step() {
  require_running("step");
  step_range_.reset();
  const Action previous = action_;
  ++step_num_;
  run_or_abandon([&] {
    if (options_.schedule) action_ = options_.schedule(step_num_);
    transition(previous, action_);
    open_step();
  });
}

void Profile::stop() {
  require_running("stop");
  step_range_.reset();
  run_or_abandon([&] { transition(action_, std::nullopt); });
  abandon();
}

// Without a schedule there are no steps, as in PyTorch.
void Profile::open_step() {
  if (options_.schedule)
    step_range_ = std::make_unique<RecordFunction>(fmt::format("ProfilerStep#{}", step_num_));
}

// torch.profiler's table of actions; an empty `to` is the exit.
void Profile::transition(Action from, std::optional<Action> to) {
  const bool exits = !to.has_value();
  const Action next = to.value_or(Action::none);
  const bool records_next = next == Action::record || next == Action::record_and_save;
  switch (from) {
    case Action::none:
      if (exits || next == Action::none) return;
      prepare();
      if (records_next) begin_recording();
      return;
    case Action::warmup:
      if (records_next) return begin_recording();
      if (!exits && next == Action::warmup) return;
      if (!exits) warn("Incorrect schedule: WARMUP followed by NONE");
      begin_recording();
      end_recording();
      return;
    case Action::record:
      if (exits) {
        end_recording();
        return call_ready();
      }
      if (records_next) return;
      warn(next == Action::none ? "Incorrect schedule: RECORD followed by NONE"
                                : "Incorrect schedule: RECORD followed by WARMUP");
      return end_recording();
    case Action::record_and_save:
      end_recording();
      call_ready();
      if (exits || next == Action::none) return;
      prepare();
      if (records_next) begin_recording();
  }
}

void Profile::call_ready() {
  if (!options_.on_trace_ready) return;
  in_callback_ = true;
  options_.on_trace_ready(*this);
  in_callback_ = false;
}

void Profile::prepare() {
  cost_ = measure_recorder_cost(recorder_options(options_));
  cycle_ = std::make_unique<Cycle>();
}

void Profile::begin_recording() {
  // A schedule may jump from a lost recording straight into warm-up, which prepares nothing.
  if (cycle_ == nullptr) prepare();
  recording_ = true;
  Recorder& recorder = Recorder::instance();
  RecorderOptions wanted = recorder_options(options_);
  wanted.tracer = start_device();
  recorder.start(wanted);
  cycle_->recording.begin = tick_anchor();
  if (options_.profile_memory) set_memory_observer(&recorder);
  set_run_observer(&recorder);
}

// Begins to trace the device, if one is in use; by its tracer, or by marks around its kernels.
DeviceTracer* Profile::start_device() {
  Recording& recording = cycle_->recording;
  if (!cuda_is_in_use() || !options_.kernel_activity) return nullptr;
  recording.devices = cuda_devices();
  DeviceTracer* const tracer = device_tracer();
  recording.has_tracer = tracer != nullptr;
  if (tracer != nullptr) {
    tracer->start();
  } else {
    warn("device kernels are timed by events, without copies and calls: " + device_tracer_status());
    cuda_backend()->timer()->start();
  }
  return tracer;
}

void Profile::stop_device() {
  Recording& recording = cycle_->recording;
  if (recording.devices.empty()) return;
  if (recording.has_tracer) {
    recording.activities = device_tracer()->stop();
  } else {
    recording.marks = cuda_backend()->timer()->stop();
  }
}

void Profile::end_recording() {
  set_run_observer(nullptr);
  set_memory_observer(nullptr);
  stop_device();
  Recording& recording = cycle_->recording;
  recording.end = tick_anchor();
  recording.buffers = Recorder::instance().stop();
  recording_ = false;
  recording.cpu_activity = options_.cpu_activity;
  recording.options = {.record_shapes = options_.record_shapes,
                       .profile_memory = options_.profile_memory,
                       .with_stack = options_.with_stack,
                       .with_flops = options_.with_flops,
                       .with_modules = options_.with_stack};
  cycle_->counts = count_events(recording);
  cycle_->trace = build_trace(recording);
  if (!options_.kernel_activity) cycle_->trace.device_label.clear();
  auto& metadata = cycle_->trace.metadata;  // holds what the recording says of itself
  metadata.insert(metadata.end(), metadata_.begin(), metadata_.end());
  finished_ = std::move(cycle_);
  finished_->recording.buffers.clear();
  finished_->trace.metadata.emplace_back(
      "epilogue_recorder",
      fmt::format(R"({{"ns_per_op": {:.1f}, "ns_per_kernel": {:.1f}, "ns_per_range": {:.1f}, )"
                  R"("ops": {}, "kernels": {}, "ranges": {}, "overhead_us": {:.3f}}})",
                  cost_.ns_per_op, cost_.ns_per_kernel, cost_.ns_per_range, finished_->counts.ops,
                  finished_->counts.kernels, finished_->counts.ranges,
                  recorder_overhead_ns() * 1e-3));
}

double Profile::recorder_overhead_ns() const {
  if (finished_ == nullptr) return 0;
  const EventCounts& n = finished_->counts;
  return n.own_ns + cost_.ns_unseen_per_op * static_cast<double>(n.ops) +
         cost_.ns_per_range * static_cast<double>(n.ranges);
}

const trace::Trace& Profile::trace() const {
  if (finished_ == nullptr)
    throw Error("[profile] expected a finished recording cycle, got none; call stop() first");
  return finished_->trace;
}

trace::KeyAverages Profile::key_averages(bool group_by_input_shape, int group_by_stack_n) const {
  trace::KeyAveragesOptions options;
  options.group_by_input_shape = group_by_input_shape;
  options.group_by_stack_n = group_by_stack_n;
  return trace::key_averages(trace(), options);
}

Status Profile::export_chrome_trace(const std::string& path) const {
  return trace::write_chrome_trace(trace(), path);
}

void Profile::add_metadata_json(const std::string& key, const std::string& json) {
  std::erase_if(metadata_, [&](const auto& entry) { return entry.first == key; });
  metadata_.emplace_back(key, json);
}

}  // namespace epilogue::profiler
