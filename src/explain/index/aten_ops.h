// SPDX-License-Identifier: Apache-2.0
// Facts about PyTorch's ops by their names: how outputs follow from inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

enum class OpClass : uint8_t {
  unknown,    // nothing is assumed of it
  view,       // moves no data itself: t, view, expand, ...; to and clone, which call copy_
  pointwise,  // one output element from the same element of every input, broadcast
  copy,       // pointwise too: copy_, which casts and makes contiguous
  fill,       // writes, reads nothing
  rowwise,    // each row of the output from the same row of the input: softmax, layer_norm
  reduction,  // fewer elements than its input: sum, mean, amax
  gemm,       // mm, addmm, bmm, baddbmm
};

// By full name ("aten::mul"); in-place and _out forms count as their ops.
OpClass op_class(std::string_view name);

// "aten::add_": it writes into its first input.
inline bool is_in_place(std::string_view name) { return name.ends_with('_'); }

// True where data go element by element: pointwise, copies and fills.
bool is_elementwise(OpClass op);

// Inputs that an op reads at most; what comes behind is where an _out form writes. Of pointwise ops
// in the table of pointwise functions; of others as many as there are.
size_t most_operands(std::string_view name);

// True where an element costs far more arithmetic than bytes: gelu, tanh, exp, ... and their
// derivatives.
bool is_transcendental(std::string_view name);

// "gloo:all_reduce": a range in which threads of a CPU's process group carry out a collective.
bool is_cpu_collective(std::string_view name);

// Bytes of one element of a dtype as record_shapes writes it ("float", "c10::BFloat16"); nothing
// for what is no tensor or not known.
std::optional<int64_t> element_bytes(std::string_view type);

// Sizes and dtype of a tensor.
struct TensorShape {
  std::vector<int64_t> dims;
  std::string_view type;
  // Elements of `dims` for each one in memory: above 1 in a tensor that was expanded.
  int64_t repeats = 1;

  int64_t numel() const;
  // In memory. Nothing where the dtype is unknown.
  std::optional<int64_t> bytes() const;
  bool operator==(const TensorShape&) const = default;
};

// A tensor among the arguments is sparse: it has sizes and no strides, which the others have.
bool has_sparse(std::span<const OpInput> inputs);

// Images whose channels lie side by side.
bool is_channels_last(const OpInput& tensor);

// The tensors among the arguments, lists flattened. The type of a list's element is "" where the
// trace does not tell it, and that of a sparse tensor, whose bytes no trace tells.
std::vector<TensorShape> tensor_inputs(std::span<const OpInput> inputs);

// Sizes that the tensors have together; nothing if they do not broadcast.
std::optional<std::vector<int64_t>> broadcast_dims(std::span<const TensorShape> inputs);

// The main output's shape, as far as it follows from the inputs; nothing for reductions, unknown
// ops, and inputs that do not fit. The views refer to the inputs.
std::optional<TensorShape> output_shape(std::string_view name, std::span<const OpInput> inputs);

// A reduction's output if it reduces the rows and is asked for no dtype: a guess that a consumer
// has to confirm. Nothing for a number.
std::optional<TensorShape> reduced_rows(std::string_view name, const TensorShape& input);

}  // namespace epilogue::trace
