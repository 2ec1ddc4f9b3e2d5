// SPDX-License-Identifier: Apache-2.0
// Shapes of an op's inputs as PyTorch's table of key averages prints them.
#pragma once

#include <span>
#include <string>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Python's str() of the shapes: "[[128, 64], []]". Tensor lists show as [], as in PyTorch.
inline std::string python_shapes(std::span<const OpInput> inputs) {
  std::string text = "[";
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += i == 0 ? "[" : ", [";
    const std::vector<int64_t>& dims = inputs[i].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d > 0) text += ", ";
      text += std::to_string(dims[d]);
    }
    text += "]";
  }
  return text + "]";
}

}  // namespace epilogue::trace
