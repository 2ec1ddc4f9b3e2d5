// SPDX-License-Identifier: Apache-2.0
// The machine as the passes see it. Constants, so that the same graph gives the same plan on every
// machine and in every run.
#pragma once

#include <cstdint>

namespace epilogue::passes {

// Rows that a row chain runs at a time (backend/cpu/row_chain.cpp).
inline constexpr int64_t kBlockRows = 48;
// What a block's hidden activations may take of a core's L2 (2 MiB on servers since 2023, 1 MiB
// before): beyond it they go to memory anyway, and two chains are as good as one.
inline constexpr int64_t kHiddenBlockBytes = 3 << 19;

}  // namespace epilogue::passes
