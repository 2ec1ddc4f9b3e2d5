// SPDX-License-Identifier: Apache-2.0
// Named numbers of a trace; what they mean is said once, in the table below.
#include "epilogue/trace/explain.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "epilogue/trace/links.h"
#include "epilogue/trace/memory.h"
#include "epilogue/trace/table.h"
#include "epilogue/trace/time.h"
#include "explain/index/intervals.h"
#include "explain/timeline/work_kind.h"

namespace epilogue::trace {
namespace {

// Sums over all steps; device work belongs to the step that launched it.
struct StepSums {
  int64_t wall_ns = 0;
  int64_t kernels = 0;
  int64_t gemms = 0;
  int64_t ops = 0;
  int64_t kernel_ns = 0;  // per step the union
};

StepSums sum_steps(const Trace& trace, const Links& links) {
  StepSums sums;
  std::vector<std::vector<Interval>> kernels(links.steps.size());
  for (const uint32_t step : links.steps) sums.wall_ns += trace.events[step].dur_ns;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel || links.step[i] == kNone) continue;
    ++sums.kernels;
    if (is_gemm_name(trace.name(e))) ++sums.gemms;
    kernels[links.step[i]].push_back({e.ts_ns, e.end_ns()});
  }
  for (std::vector<Interval>& list : kernels) sums.kernel_ns += total_ns(united(std::move(list)));
  for (size_t i = 0; i < trace.events.size(); ++i)
    if (trace.events[i].category == Category::cpu_op && links.step[i] != kNone) ++sums.ops;
  return sums;
}

int64_t peak_allocated(const Trace& trace) {
  int64_t peak = 0;
  for (const MemoryEvent& m : trace.memory) peak = std::max(peak, m.total_allocated);
  return peak;
}

int64_t count_ops(const Trace& trace) {
  // Traces of 2021 record steps as ops.
  return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& e) {
    return e.category == Category::cpu_op && !trace.name(e).starts_with("ProfilerStep#");
  });
}

int64_t count_distinct_kernels(const Trace& trace, const Links& links) {
  std::vector<bool> seen(trace.strings.size());
  int64_t distinct = 0;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.category != Category::kernel || seen[e.name]) continue;
    seen[e.name] = true;
    ++distinct;
  }
  return distinct;
}

double us(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

class Quantities {
 public:
  explicit Quantities(const Trace& trace)
      : trace_(trace), links_(link(trace)), time_(timeline(trace, links_)) {}

  std::vector<Quantity> take() {
    add_counts();
    add_device_times();
    add_totals();
    add_per_step();
    add_compiled();
    return std::move(list_);
  }

 private:
  void add(const char* name, const char* doc, double value, bool is_known = true) {
    list_.push_back({name, doc, is_known ? std::optional(value) : std::nullopt});
  }
  void add(const char* name, const char* doc, int64_t value, bool is_known = true) {
    add(name, doc, static_cast<double>(value), is_known);
  }

  void add_counts() {
    add("steps", "ProfilerStep annotations", static_cast<int64_t>(links_.steps.size()));
    add("span_us", "first start to last end over ops, annotations, launches, device work",
        us(time_.span_ns()));
    add("ops", "cpu_op events", count_ops(trace_));
    add("kernels", "kernel executions", links_.kernels);
    add("distinct_kernels", "different kernel names", count_distinct_kernels(trace_, links_));
    add("launches", "calls that launch kernels or graphs",
        static_cast<int64_t>(links_.launches.size()));
    add("kernels_without_launch", "kernels whose launch is not in the trace",
        links_.kernels_without_launch);
    add("launches_without_kernel", "launches whose kernel is not in the trace",
        links_.launches_without_kernel);
    add("skipped_events", "events of the file that could not be read",
        trace_.import.skipped_events);
  }

  void add_device_times() {
    const std::vector<DeviceIdle> idle = idle_times(trace_, links_);
    const DeviceIdle main = idle.empty() ? DeviceIdle() : idle.front();
    const std::optional<double> busy_pct = time_.busy_pct();
    const bool is_known = busy_pct.has_value();
    add("gpu_busy_us", "time in which the busiest device ran kernels, copies or fills",
        time_.devices.empty() ? 0 : us(time_.devices.front().busy_ns), !time_.devices.empty());
    add("gpu_busy_pct", "gpu_busy_us over span_us", busy_pct.value_or(0), is_known);
    add("gpu_idle_pct", "100 - gpu_busy_pct", 100 - busy_pct.value_or(0), is_known);
    const auto share = [&](const char* name, const char* doc, int64_t ns) {
      add(name, doc, is_known ? us(ns) / us(time_.span_ns()) * 100 : 0, is_known);
    };
    share("idle_host_pct", "idle while the host was in ops or between them, over span_us",
          main.host_ns());
    share("idle_launch_pct", "idle inside launch calls or with launched work waiting, over span_us",
          main.of(IdleCause::launch) + main.of(IdleCause::queue));
    share("idle_sync_pct", "idle while the host waited for the device, over span_us",
          main.of(IdleCause::sync));
    share("idle_data_pct", "idle while the host was in the data loader, over span_us",
          main.of(IdleCause::data));
    const std::optional<Distribution> delay = launch_stats(trace_, links_).queue_delay;
    add("queue_delay_us", "median time from the end of a launch call to its kernel",
        delay ? us(delay->median_ns) : 0, delay.has_value());
  }

  void add_totals() {
    const KeyAverages averages = key_averages(trace_);
    add("self_cpu_total_us", "sum of self CPU time, as under the table",
        us(averages.self_cpu_time_total_ns()));
    add("self_device_total_us", "sum of device time, as under the table",
        us(averages.self_device_time_total_ns()), !time_.devices.empty());
    add("peak_memory_bytes", "most bytes allocated at once", peak_allocated(trace_),
        !trace_.memory.empty());
    const std::optional<int64_t> of_step = step_peak_bytes(trace_, links_);
    add("step_peak_bytes", "most bytes allocated within a step beyond those at its start",
        of_step.value_or(0), of_step.has_value());
  }

  void add_per_step() {
    const StepSums sums = sum_steps(trace_, links_);
    const auto steps = static_cast<double>(links_.steps.size());
    const auto per_step = [&](const char* name, const char* doc, double total) {
      add(name, doc, steps > 0 ? total / steps : 0, steps > 0);
    };
    per_step("wall_us_per_step", "duration of a ProfilerStep", us(sums.wall_ns));
    per_step("ops_per_step", "cpu_op events of a step", static_cast<double>(sums.ops));
    per_step("kernels_per_step", "kernels that a step launched", static_cast<double>(sums.kernels));
    per_step("gemm_kernels_per_step", "those that are matrix products",
             static_cast<double>(sums.gemms));
    per_step("kernel_us_per_step", "time in which a step's kernels ran", us(sums.kernel_ns));
    per_step(
        "host_us_per_step",
        "wall_us_per_step - kernel_us_per_step: host work, and waits for other kernels; 0 if the "
        "kernels of a step outlast it",
        us(std::max<int64_t>(0, sums.wall_ns - sums.kernel_ns)));
  }

  void add_compiled() {
    const CompileSummary c = compile_summary(trace_, links_);
    const bool is_known = !links_.steps.empty();
    add("compiled_regions_per_step", "regions of torch.compile that a step runs",
        c.regions_per_step.value_or(0), is_known);
    add("graph_breaks_per_step",
        "those that run within another: a frame that continues behind a graph break",
        c.graph_breaks_per_step.value_or(0), is_known);
  }

  const Trace& trace_;
  Links links_;
  Timeline time_;
  std::vector<Quantity> list_;
};

}  // namespace

std::vector<Quantity> quantities(const Trace& trace) { return Quantities(trace).take(); }

Result<Expectation> parse_expectation(std::string_view text) {
  // Longest first: "<=" must not be read as "<".
  constexpr std::array<std::string_view, 6> kOps = {"==", "!=", "<=", ">=", "<", ">"};
  const auto bad = [&] {
    return Failure{
        FailureCode::invalid_expectation,
        "expected NAME OP NUMBER with OP one of == != < <= > >=, got '" + std::string(text) + "'"};
  };
  const auto trim = [](std::string_view s) {
    const size_t begin = s.find_first_not_of(" \t");
    return begin == std::string_view::npos ? std::string_view()
                                           : s.substr(begin, s.find_last_not_of(" \t") - begin + 1);
  };
  const size_t at = text.find_first_of("=!<>");
  if (at == std::string_view::npos) return bad();
  for (const std::string_view op : kOps) {
    if (!text.substr(at).starts_with(op)) continue;
    Expectation e;
    e.text = std::string(trim(text));
    e.quantity = std::string(trim(text.substr(0, at)));
    e.op = std::string(op);
    const std::string_view number = trim(text.substr(at + op.size()));
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), e.expected);
    if (e.quantity.empty() || error != std::errc() || end != number.data() + number.size() ||
        !std::isfinite(e.expected))
      return bad();
    return e;
  }
  return bad();
}

Judgement judge(const Expectation& e, const std::vector<Quantity>& all) {
  Judgement j{e, {}, false, false};
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const Quantity& q) { return q.name == e.quantity; });
  if (it == all.end()) return j;
  j.known = true;
  j.found = it->value;
  if (!j.found) return j;
  const double a = *j.found;
  const double b = e.expected;
  j.holds = e.op == "=="   ? a == b
            : e.op == "!=" ? a != b
            : e.op == "<=" ? a <= b
            : e.op == ">=" ? a >= b
            : e.op == "<"  ? a < b
                           : a > b;
  return j;
}

}  // namespace epilogue::trace
