// SPDX-License-Identifier: Apache-2.0
// The machine as the passes see it. Constants, so that the same graph gives the same plan on every
// machine and in every run.
#pragma once

#include <cstdint>

namespace epilogue::passes {

// What a block's hidden activations may take. Beyond a core's L2 they go through L3, once each way,
// which costs less than half a percent of the products; beyond a core's share of L3 they would go to
// memory as often as a kernel's result does.
inline constexpr int64_t kHiddenBlockBytes = int64_t{8} << 20;

}  // namespace epilogue::passes
