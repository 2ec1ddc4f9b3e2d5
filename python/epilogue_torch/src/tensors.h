// SPDX-License-Identifier: Apache-2.0
// Tensors of torch as tensors of the engine: the same memory, no copy.
#pragma once

#include <epilogue/epilogue.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>

namespace epilogue_torch {

using Torch = torch::stable::Tensor;

// A tensor as it lies in memory. Asked for once: each question of torch's C functions is code and
// data that the weights of a model pushed out of the caches since the last call.
struct Layout {
  explicit Layout(const Torch& tensor);

  const void* data = nullptr;
  int32_t dtype = 0;               // torch's number of it
  std::span<const int64_t> sizes;  // torch's memory, as the next
  std::span<const int64_t> strides;
};

// Bytes of an element of f32, f16 and bf16; 0: another dtype.
int64_t element_bytes(torch::headeronly::ScalarType type);

// "Float[4, 8]": what messages say of a tensor.
std::string describe(const Torch& tensor);

// Throws where None was given, which the dispatcher lets through as a tensor.
void require_defined(const Torch& tensor, const char* what);

// A view of the tensor's memory, which the caller keeps alive. Throws std::runtime_error, naming
// `what`, where the tensor is not on the CPU or of a dtype that the engine does not multiply.
epilogue::Tensor view_of(const Torch& tensor, const char* what);

// The same of a mask, which may be of booleans (Bool) too.
epilogue::Tensor mask_of(const Torch& tensor, const char* what);

// Tensors of a rounded weight, and memory for one: with bytes (Byte) beside the dtypes of weights.
// Contiguous; the engine's tensor keeps the memory alive.
epilogue::Tensor part_of(const Torch& tensor, const char* what);

// What an op of torch's dispatcher says, for which the stable ABI has no function.
template <class Result, class... Args>
Result ask(const char* op, const Args&... args) {
  StableIValue stack[] = {torch::stable::detail::from(args)...};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION));
  return torch::stable::detail::to<Result>(stack[0]);
}

// Fresh memory of torch's: [sizes], contiguous, of `like`'s dtype.
Torch empty_like_rows(const Torch& like, const epilogue::Dims& sizes);

}  // namespace epilogue_torch
