// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/program_tile.h"

namespace epilogue::simd {

void run_step(const TileStep& step, const float* a, const float* b, float* out, size_t n,
              const PointwiseKernels& kernels) {
  switch (step.form) {
    case TileStep::Form::unary: return kernels.unary[step.op](a, out, n);
    case TileStep::Form::binary: return kernels.arithmetic[step.op](a, b, out, n, step.alpha);
    case TileStep::Form::scalar_right:
      return kernels.arithmetic_scalar_right[step.op](a, step.scalar, out, n, step.alpha);
    case TileStep::Form::scalar_left:
      return kernels.arithmetic_scalar_left[step.op](step.scalar, b, out, n, step.alpha);
    case TileStep::Form::backward: return kernels.backward[step.op](a, b, out, n);
  }
}

}  // namespace epilogue::simd
