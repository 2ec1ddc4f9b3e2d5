// SPDX-License-Identifier: Apache-2.0
// Copies between tensors of any strides and dtypes, threaded.
#pragma once

#include "epilogue/tensor.h"

namespace epilogue::cpu {

// How a copy runs. flat: both sides lie in one order. rows: row by row. transposed: in square
// blocks, because one side's columns are the other side's rows.
enum class CopyPath : uint8_t { flat, rows, transposed };

// to[i] = from[i], converted as cast_element does; `from` is read as if broadcast.
void copy_tensor(const Tensor& to, const Tensor& from);
CopyPath copy_path(const Tensor& to, const Tensor& from);

// Every element = value, converted.
void fill_tensor(const Tensor& to, double value);

// Elements that a thread gets at least.
inline constexpr int64_t kCopyGrain = 32768;

}  // namespace epilogue::cpu
