// SPDX-License-Identifier: Apache-2.0
// Rooflines of ops that are no matrix products: convolutions, attention, norms, softmax,
// elementwise ops and reductions.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "epilogue/trace/gemms.h"
#include "explain/kernel_name/text.h"
#include "explain/products/device_peaks.h"
#include "explain/products/op_problem.h"

namespace epilogue::trace {
namespace {

constexpr int kMostParentsOfKernel = 64;
constexpr double kPercent = 100;

std::string dims_text(const OpInput& input, bool with_strides) {
  std::string text = fmt::format("[{}]", fmt::join(input.dims, ", "));
  if (with_strides) text += fmt::format("@{}", fmt::join(input.strides, ","));
  return text;
}

// "[16, 559, 1024] bf16, [1024] bf16": the tensors, without numbers and lists.
std::string tensors_text(std::span<const OpInput> inputs, bool with_strides) {
  std::string text;
  for (const OpInput& input : inputs) {
    const std::string_view type = element_type(input.type);
    if (input.is_list || type.empty() || (input.dims.empty() && !input.concrete.empty())) continue;
    text += (text.empty() ? "" : ", ") + dims_text(input, with_strides) + " " + std::string(type);
  }
  return text;
}

// One run of an op: what it computes, and its kernels.
struct OpRun {
  OpProblem problem;
  int64_t ns = 0;
  int64_t kernels = 0;
  int32_t device = 0;
  uint32_t longest = kNone;  // of its kernels
};

struct RooflineGroup {
  OpRoofline roofline;
  std::vector<int64_t> times_ns;
  uint32_t kernel = kNone;  // the longest of its first run
};

class RooflineCollector {
 public:
  RooflineCollector(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

  std::vector<OpRoofline> run() {
    for (const uint32_t i : links_.device_work) add_work(i);
    for (const uint32_t op : order_) add_run(op, runs_[op]);
    std::vector<OpRoofline> list;
    list.reserve(groups_.size());
    for (auto& [key, group] : groups_) list.push_back(finish(group));
    std::stable_sort(list.begin(), list.end(), [](const OpRoofline& a, const OpRoofline& b) {
      return a.time.total_ns > b.time.total_ns;
    });
    return list;
  }

 private:
  std::optional<OpProblem> problem_of(uint32_t op) const {
    const Event& e = trace_.events[op];
    const OpArgs* args = trace_.op_args(e);
    if (e.category != Category::cpu_op || args == nullptr || args->inputs == kNone)
      return std::nullopt;
    return op_problem(trace_.name(e), trace_.inputs[args->inputs]);
  }

  // The innermost op that is of one of the kinds. One that only calls another does not own what
  // that launches, but for kinds that are made of inner ops.
  std::optional<std::pair<uint32_t, OpProblem>> find_owner(uint32_t work) const {
    uint32_t op = links_.op[work];
    for (int depth = 0; op != kNone && depth < kMostParentsOfKernel; ++depth) {
      if (const auto problem = problem_of(op)) {
        if (depth > 0 && !owns_inner_kernels(problem->kind)) return {};
        return std::pair(op, *problem);
      }
      op = links_.parent[op];
    }
    return {};
  }

  void add_work(uint32_t i) {
    const Event& e = trace_.events[i];
    // Copies may cross a bus: memory's bandwidth is not their limit.
    if (e.category == Category::gpu_memcpy) return;
    const auto owner = find_owner(i);
    if (!owner) return;
    const auto [it, is_new] = runs_.try_emplace(owner->first);
    OpRun& run = it->second;
    if (is_new) {
      order_.push_back(owner->first);
      run.problem = owner->second;
    }
    const KernelArgs* args = trace_.kernel_args(e);
    run.device = args == nullptr ? e.pid : args->device;
    run.ns += e.dur_ns;
    ++run.kernels;
    if (run.longest == kNone || trace_.events[run.longest].dur_ns < e.dur_ns) run.longest = i;
  }

  void add_run(uint32_t op, const OpRun& run) {
    const Event& e = trace_.events[op];
    const auto inputs = trace_.inputs[trace_.op_args(e)->inputs];
    const OpProblem& problem = run.problem;
    const Key key{e.name, run.device, problem.flops.value_or(-1), tensors_text(inputs, true)};
    RooflineGroup& group = groups_[key];
    if (group.kernel == kNone) {
      group.kernel = run.longest;
      OpRoofline& r = group.roofline;
      r.kind = problem.kind;
      r.op = std::string(trace_.name(e));
      r.shapes = tensors_text(inputs, false);
      r.device = run.device;
      r.flops = problem.flops;
      r.bytes = problem.bytes;
      const auto typed = std::find_if(inputs.begin(), inputs.end(), [](const OpInput& input) {
        return !element_type(input.type).empty() && !input.is_list;
      });
      if (typed != inputs.end()) r.type = std::string(element_type(typed->type));
    }
    group.roofline.kernels += run.kernels;
    group.times_ns.push_back(run.ns);
  }

  OpRoofline finish(RooflineGroup& group) {
    OpRoofline& r = group.roofline;
    r.time = distribution(std::move(group.times_ns)).value_or(Distribution());
    r.kernel = std::string(trace_.name(trace_.events[group.kernel]));
    if (r.flops && *r.flops > 0 && r.bytes > 0) r.intensity = *r.flops / r.bytes;
    if (r.time.median_ns > 0) {
      const auto ns = static_cast<double>(r.time.median_ns);
      if (r.flops) r.tflops = *r.flops / ns * 1e-3;
      r.gb_per_s = r.bytes / ns;
    }
    if (const auto peaks = find_device_peaks(trace_, r.device)) add_peaks(r, *peaks);
    return std::move(r);
  }

  // f32 may run as TF32: the kernel's name says it, or nothing is known of the ceiling.
  std::optional<double> ceiling_of(const OpRoofline& r, const DevicePeaks& peaks) const {
    const bool is_product =
        r.kind == RooflineKind::convolution || r.kind == RooflineKind::attention;
    if (!is_product) return peaks.f32 > 0 ? std::optional(peaks.f32) : std::nullopt;
    std::string type = r.type;
    if (type == "f32") {
      const KernelName name = decode_kernel_name(r.kernel);
      type = name.gemm ? name.gemm->math_type : std::string();
    }
    return peak_tflops(peaks, type);
  }

  void add_peaks(OpRoofline& r, const DevicePeaks& peaks) const {
    r.peak_of = std::string(peaks.device) + ", " + std::string(peaks.source);
    r.peak_tflops = ceiling_of(r, peaks);
    if (peaks.memory_gb_per_s > 0) r.peak_gb_per_s = peaks.memory_gb_per_s;
    if (!r.gb_per_s || !r.peak_gb_per_s) return;
    const bool computes_little = !r.flops || *r.flops == 0;
    if (!computes_little && !r.peak_tflops) return;
    const double memory_ns = r.bytes / *r.peak_gb_per_s;
    const double compute_ns = computes_little ? 0 : *r.flops / *r.peak_tflops * 1e-3;
    r.side = compute_ns > memory_ns ? RooflineSide::compute : RooflineSide::memory;
    r.attainable_pct =
        std::max(compute_ns, memory_ns) / static_cast<double>(r.time.median_ns) * kPercent;
  }

  using Key = std::tuple<StringId, int32_t, double, std::string>;
  const Trace& trace_;
  const Links& links_;
  std::unordered_map<uint32_t, OpRun> runs_;  // by op
  std::vector<uint32_t> order_;
  std::map<Key, RooflineGroup> groups_;
};

}  // namespace

std::vector<OpRoofline> op_rooflines(const Trace& trace, const Links& links) {
  return RooflineCollector(trace, links).run();
}

}  // namespace epilogue::trace
