// SPDX-License-Identifier: Apache-2.0
// The device's pointwise functions, as the host computes them.
#pragma once

#include "core/pointwise_program.h"

namespace epilogue::cuda {

float on_host(PointwiseFn fn, float a, float b, float alpha);

}  // namespace epilogue::cuda
