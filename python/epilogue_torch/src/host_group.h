// SPDX-License-Identifier: Apache-2.0
// Sums over the ranks of one host, and gathers, of rows that are computed block by block.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tensors.h"

namespace epilogue_torch {

// Writes this rank's part of rows first to last, contiguous, of the result's dtype, to `to`.
using MakeRows = std::function<void(int64_t first, int64_t last, void* to)>;

// out [..., columns], f32 or bf16: the sum over the ranks of group number `group` of what `make`
// gives on each, plus bias, plus residual; rounded once. While a block of rows is made, the one
// before waits for the other ranks. All ranks of the group call.
void sum_rows(const Torch& out, int64_t group, const std::optional<Torch>& bias,
              const std::optional<Torch>& residual, const MakeRows& make);

// The same without a residual. out may get its numbers as late as by the op host_finish, or by the
// group's next call; until then host_take gives a tensor of them plus a residual.
void sum_rows_later(const Torch& out, int64_t group, const std::optional<Torch>& bias,
                    const MakeRows& make);

// out [..., ranks * columns]: what `make` gives on each rank, side by side, in the same way.
void gather_rows(const Torch& out, int64_t group, int64_t columns, const MakeRows& make);
int64_t ranks_of(int64_t group);

}  // namespace epilogue_torch
