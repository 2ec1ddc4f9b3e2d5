// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "epilogue/dtype.h"

namespace epilogue {

// What PyTorch calls it: "float32".
std::string_view torch_dtype_name(DType dtype);

}  // namespace epilogue
