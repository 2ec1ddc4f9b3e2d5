// SPDX-License-Identifier: Apache-2.0
// How a backend lists its kernels: per op in their order, best first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/op.h"

namespace epilogue {

struct KernelList {
  const OpDef* op;
  std::span<const Kernel> kernels;
};
// The lists of one source file.
using KernelLists = std::span<const KernelList> (*)();

// An op's kernels among those of all files; empty where it has none. The result lives for ever.
inline const std::span<const Kernel>& find_kernels(std::span<const KernelLists> files,
                                                   const OpDef& op) {
  static constexpr std::span<const Kernel> kNone;
  for (const KernelLists lists : files)
    for (const KernelList& list : lists())
      if (list.op == &op) return list.kernels;
  return kNone;
}

// A kernel's word as a template argument.
template <size_t kSize>
struct KernelWord {
  char text[kSize];
  consteval KernelWord(const char (&word)[kSize]) {  // NOLINT: implicit on purpose
    std::copy_n(word, kSize, text);
  }
};

// The dtypes that kernels compute in f32.
constexpr bool has_float_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
// Why kernels decline others.
inline constexpr const char* kNeedsFloatType = "needs f32, bf16 or f16 tensors";

}  // namespace epilogue
