// SPDX-License-Identifier: Apache-2.0
// What tests of kernels outside the ops share.
#pragma once

#include "core/program_kernel.h"
#include "epilogue/tensor.h"

namespace epilogue::testing {

// A tensor of one or two dimensions as programs and chains read it.
inline MatrixView matrix(const Tensor& t) {
  return {t.data(), t.dtype(), t.dim() == 2 ? t.strides()[0] : 0, t.strides()[t.dim() - 1]};
}

}  // namespace epilogue::testing
