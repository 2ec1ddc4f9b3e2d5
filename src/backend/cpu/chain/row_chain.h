// SPDX-License-Identifier: Apache-2.0
// Row chains on the CPU.
#pragma once

#include <memory>

#include "core/row_chain.h"

namespace epilogue::cpu {

// Throws Error where the stages do not fit each other or a dtype has no kernels.
std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec);

}  // namespace epilogue::cpu
