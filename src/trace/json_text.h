// SPDX-License-Identifier: Apache-2.0
// Appends JSON to a string: the writer's alphabet. Hand-written because a trace is hundreds of
// megabytes of numbers; everything else in the project uses nlohmann_json.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// A quoted JSON string. Quotes, backslashes and control characters are escaped; bytes that are not
// UTF-8 become U+FFFD, one each.
void append_json_string(std::string& out, std::string_view text);
void append_int(std::string& out, int64_t value);
// Nanoseconds as microseconds with exactly three decimals; negative ones as 0.000.
void append_us(std::string& out, int64_t ns);
// A finite number in the shortest form that reads back the same; others as 0.
void append_double(std::string& out, double value);

// "Input Dims": ..., "Input Strides": ..., "Input type": ..., "Concrete Inputs": ...
void append_inputs_json(std::string& out, std::span<const OpInput> inputs);

}  // namespace epilogue::trace
