// SPDX-License-Identifier: Apache-2.0
// Fewer bits in row chains: what weights are rounded to, and rows as integers.
#pragma once

#include <span>
#include <string>

#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/simd/panels/layout.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/rounded_weight.h"

namespace epilogue::cpu {

// Throws Error where there is no kernel for it.
simd::Rounding rounding_of(const Quantisation& bits);
// One format for all weights that are rounded already. Throws Error where they have none.
// Those of 8 bits have group 0, steps u8 [n, k] and scales f32 [n], as an Int8Weight.
simd::Rounding rounding_of(std::span<const Int4Weight> weights);

// As epilogue::round_weight().
RoundedWeight rounded_for_kernels(const Tensor& weight, const Quantisation& bits);

// As it stands in kernel names: "_i8", "_w8a8", "_i4g128", or nothing.
std::string bits_name(const simd::Rounding& rounding, bool has_integer_rows);

}  // namespace epilogue::cpu
