// SPDX-License-Identifier: Apache-2.0
// What Inductor's kernels compute in another way than eager's ops on a CPU.
#pragma once

#include <cstdint>
#include <string_view>

namespace epilogue::trace {

// A run of an op: what it takes, and what moving its bytes takes from memory and from a cache.
struct OpRun {
  std::string_view name;  // "aten::gelu"
  int64_t element_bytes = 0;
  double ns = 0;
  double bytes_ns = 0;
  double cached_ns = 0;
};

// What computing takes of such a run in a fused kernel, beside its bytes.
double fused_arithmetic_ns(const OpRun& run);

}  // namespace epilogue::trace
