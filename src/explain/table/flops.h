// SPDX-License-Identifier: Apache-2.0
// torch.profiler's FLOP counts, from an op's name and the shapes of its inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// PyTorch counts mm, addmm, bmm, baddbmm, conv2d, mul and add, and so does this; every other op
// (and an argument list that does not fit) is 0. A multiply-add is two. Overflow wraps, as in
// PyTorch.
uint64_t torch_flops(std::string_view op, std::span<const OpInput> inputs);

}  // namespace epilogue::trace
