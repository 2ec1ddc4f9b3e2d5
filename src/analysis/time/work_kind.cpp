// SPDX-License-Identifier: Apache-2.0
#include "analysis/time/work_kind.h"

#include <algorithm>
#include <array>

#include "analysis/trace_metadata.h"
#include "epilogue/trace/kernel_name.h"

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

}  // namespace

WorkKind work_kind(std::string_view name) {
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
  return has_any(name, kComputeMarks) ? WorkKind::compute : WorkKind::memory;
}

WorkKinds::WorkKinds(const Trace& trace) : trace_(trace), kinds_(trace.strings.size()) {
  if (is_own_trace(trace)) peaks_ = find_device_peaks(trace, 0);
}

WorkKind WorkKinds::of(const Event& kernel) {
  std::optional<WorkKind>& kind = kinds_[kernel.name];
  if (!kind) kind = work_kind(trace_.name(kernel));
  const bool waits = *kind == WorkKind::compute && peaks_ && waits_for_memory(kernel);
  return waits ? WorkKind::memory : *kind;
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
