// SPDX-License-Identifier: Apache-2.0
// Named numbers of a trace; what they mean is said once, in the table below.
#include "epilogue/trace/quantities.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>

#include "epilogue/trace/key_averages.h"

namespace epilogue::trace {
namespace {

struct Interval {
  int64_t begin_ns;
  int64_t end_ns;
};

// Time covered by at least one interval.
int64_t union_ns(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  int64_t covered = 0;
  int64_t reached = INT64_MIN;
  for (const Interval& i : intervals) {
    const int64_t begin = std::max(i.begin_ns, reached);
    if (i.end_ns > begin) covered += i.end_ns - begin;
    reached = std::max(reached, i.end_ns);
  }
  return covered;
}

bool is_gemm_name(std::string_view name) {
  constexpr std::array<std::string_view, 6> kMarks = {"gemm",  "gemv",  "Cijk_",
                                                      "nvjet", "xmma_", "splitK"};
  return std::any_of(kMarks.begin(), kMarks.end(), [&](std::string_view mark) {
    return name.find(mark) != std::string_view::npos;
  });
}

// What one pass over the events collects.
struct Facts {
  std::vector<const Event*> steps;
  std::unordered_map<int64_t, const Event*> launch_of;  // by correlation
  std::vector<const Event*> kernels;
  std::vector<Interval> device;
  std::vector<const Event*> ops;
  int64_t launches = 0;
  int64_t span_begin_ns = INT64_MAX;
  int64_t span_end_ns = INT64_MIN;

  explicit Facts(const Trace& trace) {
    for (const Event& e : trace.events) {
      const bool outside_span =
          e.category == Category::kPythonFunction || e.category == Category::kOverhead ||
          e.category == Category::kOther || e.category == Category::kCpuKernelShare;
      if (!outside_span) {
        span_begin_ns = std::min(span_begin_ns, e.ts_ns);
        span_end_ns = std::max(span_end_ns, e.end_ns());
      }
      if (e.category == Category::kKernel) kernels.push_back(&e);
      if (e.category == Category::kKernel || e.category == Category::kGpuMemcpy ||
          e.category == Category::kGpuMemset)
        device.push_back({e.ts_ns, e.end_ns()});
      if (e.category == Category::kCpuOp) ops.push_back(&e);
      if (is_launch_category(e.category) && e.correlation != 0) {
        launch_of.emplace(e.correlation, &e);
        if (trace.name(e).find("Launch") != std::string_view::npos) ++launches;
      }
      if (e.category == Category::kUserAnnotation && trace.name(e).starts_with("ProfilerStep#"))
        steps.push_back(&e);
    }
  }

  const Event* launch(const Event& kernel) const {
    const auto it = kernel.correlation == 0 ? launch_of.end() : launch_of.find(kernel.correlation);
    return it == launch_of.end() ? nullptr : it->second;
  }
  static bool inside(const Event& inner, const Event& outer) {
    return inner.tid == outer.tid && inner.ts_ns >= outer.ts_ns && inner.end_ns() <= outer.end_ns();
  }
};

// Sums over all steps; a kernel belongs to the step that launched it.
struct StepSums {
  int64_t wall_ns = 0;
  int64_t kernels = 0;
  int64_t gemms = 0;
  int64_t ops = 0;
  int64_t busy_ns = 0;
};

StepSums sum_steps(const Trace& trace, const Facts& facts) {
  StepSums sums;
  for (const Event* step : facts.steps) {
    sums.wall_ns += step->dur_ns;
    std::vector<Interval> busy;
    for (const Event* kernel : facts.kernels) {
      const Event* launch = facts.launch(*kernel);
      if (launch == nullptr || !Facts::inside(*launch, *step)) continue;
      ++sums.kernels;
      if (is_gemm_name(trace.name(*kernel))) ++sums.gemms;
      busy.push_back({kernel->ts_ns, kernel->end_ns()});
    }
    sums.busy_ns += union_ns(std::move(busy));
    for (const Event* op : facts.ops)
      if (Facts::inside(*op, *step)) ++sums.ops;
  }
  return sums;
}

int64_t peak_allocated(const Trace& trace) {
  int64_t peak = 0;
  for (const MemoryEvent& m : trace.memory) peak = std::max(peak, m.total_allocated);
  return peak;
}

}  // namespace

std::vector<Quantity> quantities(const Trace& trace) {
  const Facts facts(trace);
  const StepSums sums = sum_steps(trace, facts);
  const KeyAverages averages = key_averages(trace);
  std::set<StringId> distinct;
  std::set<int64_t> launched;
  int64_t without_launch = 0;
  for (const Event* k : facts.kernels) {
    distinct.insert(k->name);
    launched.insert(k->correlation);
    if (facts.launch(*k) == nullptr) ++without_launch;
  }
  int64_t without_kernel = 0;
  for (const auto& [correlation, launch] : facts.launch_of)
    if (trace.name(*launch).find("Launch") != std::string_view::npos &&
        !launched.contains(correlation))
      ++without_kernel;

  const auto steps = static_cast<double>(facts.steps.size());
  const double span_us = facts.span_end_ns > facts.span_begin_ns
                             ? static_cast<double>(facts.span_end_ns - facts.span_begin_ns) * 1e-3
                             : 0;
  const double busy_us = static_cast<double>(union_ns(facts.device)) * 1e-3;
  std::vector<Quantity> list;
  const auto add = [&](const char* name, const char* doc, double value, bool known = true) {
    list.push_back({name, doc, known ? std::optional<double>(value) : std::nullopt});
  };
  const auto per_step = [&](const char* name, const char* doc, double total) {
    add(name, doc, steps > 0 ? total / steps : 0, steps > 0);
  };
  const bool has_device = !facts.device.empty();
  const auto ns_to_us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  add("steps", "ProfilerStep annotations", steps);
  add("span_us", "first start to last end over ops, annotations, launches, device work", span_us);
  add("ops", "cpu_op events", static_cast<double>(facts.ops.size()));
  add("kernels", "kernel executions", static_cast<double>(facts.kernels.size()));
  add("distinct_kernels", "different kernel names", static_cast<double>(distinct.size()));
  add("launches", "calls that launch kernels", static_cast<double>(facts.launches));
  add("kernels_without_launch", "kernels whose launch is not in the trace",
      static_cast<double>(without_launch));
  add("launches_without_kernel", "launches whose kernel is not in the trace",
      static_cast<double>(without_kernel));
  add("gpu_busy_us", "time in which the device ran kernels, copies or fills", busy_us, has_device);
  add("gpu_busy_pct", "gpu_busy_us over span_us", span_us > 0 ? busy_us / span_us * 100 : 0,
      has_device && span_us > 0);
  add("gpu_idle_pct", "100 - gpu_busy_pct", span_us > 0 ? 100 - busy_us / span_us * 100 : 0,
      has_device && span_us > 0);
  add("self_cpu_total_us", "sum of self CPU time, as under the table",
      ns_to_us(averages.self_cpu_time_total_ns()));
  add("self_device_total_us", "sum of device time, as under the table",
      ns_to_us(averages.self_device_time_total_ns()), has_device);
  add("peak_memory_bytes", "most bytes allocated at once",
      static_cast<double>(peak_allocated(trace)), !trace.memory.empty());
  per_step("wall_us_per_step", "duration of a ProfilerStep", ns_to_us(sums.wall_ns));
  per_step("ops_per_step", "cpu_op events of a step", static_cast<double>(sums.ops));
  per_step("kernels_per_step", "kernels that a step launched", static_cast<double>(sums.kernels));
  per_step("gemm_kernels_per_step", "those that are matrix products",
           static_cast<double>(sums.gemms));
  per_step("kernel_us_per_step", "time in which a step's kernels ran", ns_to_us(sums.busy_ns));
  per_step("host_us_per_step", "wall_us_per_step - kernel_us_per_step: dispatch and ranges",
           ns_to_us(sums.wall_ns - sums.busy_ns));
  return list;
}

Result<Expectation> parse_expectation(std::string_view text) {
  // Longest first: "<=" must not be read as "<".
  constexpr std::array<std::string_view, 6> kOps = {"==", "!=", "<=", ">=", "<", ">"};
  const auto bad = [&] {
    return Failure{
        "InvalidExpectation",
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
