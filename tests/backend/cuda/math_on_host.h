// SPDX-License-Identifier: Apache-2.0
// The device's functions of single elements, as the host computes them.
#pragma once

#include "backend/cuda/kernels/lists.h"
#include "core/pointwise_program.h"

namespace epilogue::cuda {

float on_host(PointwiseFn fn, std::initializer_list<float> operands,
              const PointwiseParameters& parameters);
float on_host(PointwiseFn fn, std::initializer_list<float> operands);  // with the table's

// One element's step, in place; a null state is absent. `steps` counts the step that is taken.
void adam_on_host(const AdamStep& step, float inverse_scale, float steps, float grad, float& param,
                  float& exp_avg, float& exp_avg_sq, float* largest);
void sgd_on_host(const SgdStep& step, float inverse_scale, float grad, float& param, float* buffer);

}  // namespace epilogue::cuda
