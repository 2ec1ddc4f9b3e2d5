// SPDX-License-Identifier: Apache-2.0
// RMS norms of rows, where they lie.
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>

#include "tensors.h"

namespace epilogue_torch {

// Whether rows of that dtype can be normed with this weight: of it, contiguous, on the CPU.
bool is_norm_weight(const Torch& weight, torch::headeronly::ScalarType type);

// y = x / sqrt(mean(x^2) + eps), times the weight, of rows of as many columns as the weight, which
// lie one after the other. y may be x. form: where the weight comes in, as epilogue::NormWeight;
// throws std::runtime_error on another.
void norm_rows_into(const void* x, const Torch& weight, void* y, int64_t rows, int64_t form,
                    double eps);

}  // namespace epilogue_torch
