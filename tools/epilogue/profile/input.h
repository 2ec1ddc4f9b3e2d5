// SPDX-License-Identifier: Apache-2.0
// Real input for workloads: random numbers, Fashion-MNIST images, a tensor of a file.
#pragma once

#include <cstdint>
#include <string>

#include "epilogue/tensor.h"

namespace epilogue::tool {

inline constexpr int64_t kFashionMnistPixels = 784;

// [rows, width] rounded to dtype. "random": N(0, 1). "fashion-mnist": the first `rows` test images
// (repeated from the start when there are fewer), normalised, cut or zero-padded to `width`. Throws
// Error where the data set is missing.
Tensor input_rows(const std::string& source, int64_t rows, int64_t width, DType dtype);

// The tensor "input" of a safetensors file, or its only one; rank 2 or more.
Tensor input_from_file(const std::string& path, DType dtype);

bool is_input_file(const std::string& source);

}  // namespace epilogue::tool
