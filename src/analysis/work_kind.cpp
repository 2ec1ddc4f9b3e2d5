// SPDX-License-Identifier: Apache-2.0
#include "analysis/work_kind.h"

#include <algorithm>
#include <array>

#include "epilogue/trace/kernel_name.h"

namespace epilogue::trace {
namespace {

template <size_t N>
bool has_any(std::string_view name, const std::array<std::string_view, N>& marks) {
  return std::any_of(marks.begin(), marks.end(), [&](std::string_view mark) {
    return name.find(mark) != std::string_view::npos;
  });
}

constexpr std::array<std::string_view, 6> kGemmMarks = {"gemm",  "gemv",  "Cijk_",
                                                        "nvjet", "xmma_", "splitK"};
constexpr std::array<std::string_view, 11> kComputeMarks = {
    "gemm",     "Cijk_",    "nvjet", "xmma_", "bmm_", "conv2d",
    "convolve", "winograd", "fmha",  "flash", "sdpa"};
// Named like matrix products, yet every operand is used once (gemv) or is only added (splitK).
constexpr std::array<std::string_view, 3> kNotComputeMarks = {"gemv", "splitKreduce",
                                                              "splitK_reduce"};
constexpr std::array<std::string_view, 4> kCommunicationMarks = {"nccl", "Nccl", "rccl", "hccl"};

}  // namespace

WorkKind work_kind(std::string_view name) {
  switch (decode_kernel_name(name).kind) {
    case KernelKind::kGemm:
    case KernelKind::kConv:
    case KernelKind::kAttention: return WorkKind::kCompute;
    case KernelKind::kCollective: return WorkKind::kCommunication;
    case KernelKind::kUnknown: break;
    default: return WorkKind::kMemory;
  }
  if (has_any(name, kCommunicationMarks)) return WorkKind::kCommunication;
  if (has_any(name, kNotComputeMarks)) return WorkKind::kMemory;
  return has_any(name, kComputeMarks) ? WorkKind::kCompute : WorkKind::kMemory;
}

WorkKind WorkKinds::of(const Event& kernel) {
  std::optional<WorkKind>& kind = kinds_[kernel.name];
  if (!kind) kind = work_kind(trace_.name(kernel));
  return *kind;
}

bool is_gemm_name(std::string_view name) { return has_any(name, kGemmMarks); }

}  // namespace epilogue::trace
