// SPDX-License-Identifier: Apache-2.0
// Row chains on CUDA: stage by stage, each in as few kernels as the shapes allow.
#pragma once

#include <memory>

#include "core/row_chain.h"

namespace epilogue::cuda {

// Throws Error where dtypes or shapes do not fit together.
std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec);

}  // namespace epilogue::cuda
