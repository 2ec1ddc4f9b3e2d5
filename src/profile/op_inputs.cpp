// SPDX-License-Identifier: Apache-2.0
#include "profile/op_inputs.h"

#include <fmt/format.h>

namespace epilogue::profiler {
namespace {

trace::OpInput tensor_input(const InputShape& shape) {
  trace::OpInput input;
  if (!shape.defined) return input;
  input.dims.assign(shape.sizes.begin(), shape.sizes.end());
  input.strides.assign(shape.strides.begin(), shape.strides.end());
  input.type = dtype_trace_name(shape.dtype);
  return input;
}

trace::OpInput attr_input(const Attr& attr) {
  trace::OpInput input;
  if (const auto* b = std::get_if<bool>(&attr)) {
    input.concrete = *b ? "True" : "False";
  } else if (const auto* i = std::get_if<int64_t>(&attr)) {
    input.concrete = std::to_string(*i);
  } else if (const auto* d = std::get_if<double>(&attr)) {
    input.concrete = *d == static_cast<double>(static_cast<int64_t>(*d))
                         ? fmt::format("{:.0f}.", *d)
                         : fmt::format("{}", *d);
  } else if (const auto* dtype = std::get_if<DType>(&attr)) {
    input.concrete = dtype_name(*dtype);
  } else if (const auto* dims = std::get_if<Dims>(&attr)) {
    input.concrete = to_string(*dims);
    input.type = "ScalarList";
    return input;
  } else {
    return input;
  }
  input.type = "Scalar";
  return input;
}

}  // namespace

std::vector<ArgKind> schema_args(std::string_view schema) {
  std::vector<ArgKind> kinds;
  if (schema.size() < 2) return kinds;
  std::string_view rest = schema.substr(1, schema.find_last_of(')') - 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view arg = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    while (arg.starts_with(' ')) arg.remove_prefix(1);
    if (arg == "*" || arg.empty()) continue;
    const std::string_view type = arg.substr(0, arg.find(' '));
    kinds.push_back(type.starts_with("Tensor[]") ? ArgKind::tensor_list
                    : type.starts_with("Tensor") ? ArgKind::tensor
                                                 : ArgKind::other);
  }
  return kinds;
}

std::vector<trace::OpInput> trace_inputs(const OpDef& op, const OpInputs& inputs) {
  // Without `lists` a schema has one list at most (cat's), and it takes all tensors.
  const size_t all = inputs.tensors.size();
  const size_t list_length = op.lists == 0 ? all : (all - op.singles) / op.lists;
  std::vector<trace::OpInput> result;
  size_t tensor = 0;
  size_t attr = 0;
  for (const ArgKind kind : schema_args(op.schema)) {
    if (kind == ArgKind::tensor && tensor < inputs.tensors.size()) {
      result.push_back(tensor_input(inputs.tensors[tensor++]));
    } else if (kind == ArgKind::tensor_list) {
      trace::OpInput list = {.is_list = true, .type = "TensorList"};
      for (size_t i = 0; i < list_length && tensor < all; ++i, ++tensor)
        if (inputs.tensors[tensor].defined)  // else the list is absent
          list.list.push_back(tensor_input(inputs.tensors[tensor]));
      result.push_back(std::move(list));
    } else if (kind == ArgKind::other && attr < inputs.attrs.size()) {
      result.push_back(attr_input(inputs.attrs[attr++]));
    } else {
      result.emplace_back();  // an argument left at its default
    }
  }
  return result;
}

}  // namespace epilogue::profiler
