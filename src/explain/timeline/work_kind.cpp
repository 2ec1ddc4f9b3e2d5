// SPDX-License-Identifier: Apache-2.0
#include "explain/timeline/work_kind.h"

#include <algorithm>
#include <array>

#include "epilogue/trace/kernel_name.h"
#include "explain/index/aten_ops.h"
#include "explain/index/trace_metadata.h"

namespace epilogue::trace {
namespace {

template <size_t N>
bool has_any(std::string_view name, const std::array<std::string_view, N>& marks) {
  return std::any_of(marks.begin(), marks.end(), [&](std::string_view mark) {
    return name.find(mark) != std::string_view::npos;
  });
}

constexpr std::array<std::string_view, 7> kGemmMarks = {"gemm",  "gemv",   "Cijk_",    "nvjet",
                                                        "xmma_", "splitK", "row_chain"};
constexpr std::array<std::string_view, 11> kComputeMarks = {
    "gemm",     "Cijk_",    "nvjet", "xmma_", "bmm_", "conv2d",
    "convolve", "winograd", "fmha",  "flash", "sdpa"};
// Named like matrix products, yet every operand is used once (gemv) or is only added (splitK).
constexpr std::array<std::string_view, 3> kNotComputeMarks = {"gemv", "splitKreduce",
                                                              "splitK_reduce"};
constexpr double kTeraPerNs = 1e-3;   // operations / (TFLOP/s) in nanoseconds
constexpr double kAboveMemory = 1.2;  // times the measured bandwidth: faster comes from a cache
constexpr std::array<std::string_view, 4> kCommunicationMarks = {"nccl", "Nccl", "rccl", "hccl"};
// Ops of HLO ("all-reduce.9", "fusion.3"), and the categories of them that a TPU's trace names.
constexpr std::array<std::string_view, 5> kHloCommunicationMarks = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"};
constexpr std::array<std::string_view, 4> kHloComputeMarks = {"convolution", "dot_general", "dot.",
                                                              "gemm"};

// Words in names of products, convolutions and attention, and of their gradients.
constexpr std::array<std::string_view, 14> kComputeOps = {
    "aten::linear",   "aten::matmul", "aten::einsum", "MmBackward", "mmBackward",
    "LinearBackward", "conv",         "Conv",         "attention",  "Attention",
    "flash_attn",     "gemm",         "_rnn",         "scaled_mm"};

// Distances, interpolation, sorting, solvers and random numbers: on a CPU their bytes take next to
// none of their time.
constexpr std::array<std::string_view, 20> kHostComputeOps = {
    "aten::_cdist",      "aten::cdist",      "aten::_pdist",         "grid_sampler",
    "aten::upsample_",   "aten::_upsample_", "aten::topk",           "aten::sort",
    "aten::multinomial", "aten::bernoulli",  "aten::normal_",        "aten::uniform_",
    "aten::random_",     "aten::randperm",   "aten::linalg_",        "aten::_linalg_",
    "aten::_fft_",       "aten::kthvalue",   "aten::native_dropout", "aten::exponential_"};

// Empty: the name tells nothing.
std::optional<WorkKind> stated_kind(std::string_view name) {
  switch (decode_kernel_name(name).kind) {
    case KernelKind::gemm:
    case KernelKind::conv:
    case KernelKind::attention: return WorkKind::compute;
    case KernelKind::collective: return WorkKind::communication;
    case KernelKind::unknown: break;
    default: return WorkKind::memory;
  }
  if (has_any(name, kCommunicationMarks)) return WorkKind::communication;
  if (has_any(name, kNotComputeMarks)) return WorkKind::memory;
  if (has_any(name, kComputeMarks)) return WorkKind::compute;
  return std::nullopt;
}

// Empty: it tells nothing.
std::optional<WorkKind> hlo_kind(std::string_view text) {
  if (has_any(text, kHloCommunicationMarks)) return WorkKind::communication;
  if (text == "dot" || has_any(text, kHloComputeMarks)) return WorkKind::compute;
  return std::nullopt;
}

// The category of HLO in a kernel's args; "" if there is none.
std::string_view hlo_category(std::string_view args) {
  constexpr std::string_view kKey = "\"hlo_category\": \"";
  const size_t at = args.find(kKey);
  if (at == std::string_view::npos) return {};
  args.remove_prefix(at + kKey.size());
  return args.substr(0, args.find('"'));
}

}  // namespace

WorkKind work_kind(std::string_view name) { return stated_kind(name).value_or(WorkKind::memory); }

bool computes_on_host(std::string_view op_name) { return has_any(op_name, kHostComputeOps); }

std::optional<WorkKind> work_kind_of_op(std::string_view op_name) {
  switch (op_class(op_name)) {
    case OpClass::gemm: return WorkKind::compute;
    case OpClass::pointwise:
    case OpClass::copy:
    case OpClass::fill:
    case OpClass::rowwise:
    case OpClass::reduction: return WorkKind::memory;
    case OpClass::view:
    case OpClass::unknown: break;
  }
  if (has_any(op_name, kComputeOps)) return WorkKind::compute;
  // "dot.4": an op of HLO on a CPU.
  if (op_name.find(':') == std::string_view::npos) return hlo_kind(op_name);
  return std::nullopt;
}

WorkKinds::WorkKinds(const Trace& trace)
    : trace_(trace), kinds_(trace.strings.size()), kinds_of_ops_(trace.strings.size()) {
  if (is_own_cpu_trace(trace)) peaks_ = find_device_peaks(trace, 0);
  is_xla_ = recorder_of(trace) == Recorder::xla;
}

WorkKinds::NameKind WorkKinds::of_name(StringId name) {
  std::optional<NameKind>& known = kinds_[name];
  if (!known) {
    const std::optional<WorkKind> stated = stated_kind(trace_.strings[name]);
    known = NameKind{stated.value_or(WorkKind::memory), stated.has_value()};
  }
  return *known;
}

std::optional<WorkKind> WorkKinds::of_ops(uint32_t op, const Links& links) {
  for (; op != kNone; op = links.parent[op]) {
    auto& known = kinds_of_ops_[trace_.events[op].name];
    if (!known) known = work_kind_of_op(trace_.name(trace_.events[op]));
    if (*known) return *known;
  }
  return std::nullopt;
}

WorkKind WorkKinds::unless_slow(const Event& kernel, WorkKind kind) const {
  const bool waits = kind == WorkKind::compute && peaks_ && waits_for_memory(kernel);
  return waits ? WorkKind::memory : kind;
}

WorkKinds::NameKind WorkKinds::of_kernel(const Event& kernel) {
  const NameKind by_name = of_name(kernel.name);
  if (!is_xla_ || by_name.is_told) return by_name;
  const KernelArgs* args = trace_.kernel_args(kernel);
  const std::string_view category =
      args == nullptr ? std::string_view() : hlo_category(trace_.strings[args->other_args]);
  std::optional<WorkKind> kind = hlo_kind(category);
  if (!kind) kind = hlo_kind(trace_.name(kernel));
  return {kind.value_or(WorkKind::memory), kind.has_value() || !category.empty()};
}

WorkKind WorkKinds::of(const Event& kernel) { return unless_slow(kernel, of_kernel(kernel).kind); }

WorkKind WorkKinds::of(uint32_t kernel, const Links& links) {
  const Event& e = trace_.events[kernel];
  const NameKind name = of_kernel(e);
  return unless_slow(
      e, name.is_told ? name.kind : of_ops(links.op[kernel], links).value_or(name.kind));
}

bool WorkKinds::waits_for_memory(const Event& kernel) const {
  const KernelArgs* args = trace_.kernel_args(kernel);
  if (args == nullptr || args->flops <= 0 || args->bytes <= 0 || peaks_->memory_gb_per_s <= 0)
    return false;
  const auto bytes = static_cast<double>(args->bytes);
  const double tflops =
      peak_tflops(*peaks_, own_math_type(trace_, decode_kernel_name(trace_.name(kernel))))
          .value_or(peaks_->f32);
  const double flops_ns = static_cast<double>(args->flops) / tflops * kTeraPerNs;
  const double bytes_ns = bytes / peaks_->memory_gb_per_s;
  return bytes_ns > flops_ns && static_cast<double>(kernel.dur_ns) * kAboveMemory >= bytes_ns;
}

bool is_gemm_name(std::string_view name) { return has_any(name, kGemmMarks); }

}  // namespace epilogue::trace
