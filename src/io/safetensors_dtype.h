// SPDX-License-Identifier: Apache-2.0
// The format's element types and the engine's.
#pragma once

#include <optional>
#include <string_view>

#include "epilogue/io.h"

namespace epilogue::io {

std::optional<SafetensorsDtype> parse_safetensors_dtype(std::string_view name);
// Nothing where the engine has no such type.
std::optional<DType> engine_dtype(SafetensorsDtype dtype);
SafetensorsDtype format_dtype(DType dtype);

}  // namespace epilogue::io
