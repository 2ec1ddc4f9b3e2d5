// SPDX-License-Identifier: Apache-2.0
// The recorded arguments of an op, from the JSON texts that describe them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Raw JSON arrays, one element per argument; "" where the trace has none.
struct InputTexts {
  std::string_view dims;      // [[128, 64], [], [[2], [3]]]: a tensor, a scalar, a tensor list
  std::string_view strides;   // as dims
  std::string_view types;     // ["float", "Scalar", "TensorList"]
  std::string_view concrete;  // ["", "1", ""]
};

// Nothing when a text is not of that form.
std::optional<std::vector<OpInput>> parse_inputs(const InputTexts& texts);

}  // namespace epilogue::trace
