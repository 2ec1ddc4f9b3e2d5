// SPDX-License-Identifier: Apache-2.0
// Filling tensors with random numbers; the public factories and the random ops stand on these.
#pragma once

#include "epilogue/tensor.h"

namespace epilogue {

// Overwrite a contiguous floating tensor. Every element is a pure function of the seed, the
// generator's offset and its index, so the number of threads does not matter.
void fill_uniform(const Tensor& out, double low, double high);
void fill_normal(const Tensor& out, double mean, double stddev);
// 1 with probability p, else 0; any dtype.
void fill_bernoulli(const Tensor& out, double p);

}  // namespace epilogue
