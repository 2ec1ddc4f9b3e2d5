// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "epilogue/dtype.h"

namespace epilogue {

// PyTorch's name: "float32".
std::string_view torch_dtype_name(DType dtype);

}  // namespace epilogue
