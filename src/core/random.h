// SPDX-License-Identifier: Apache-2.0
// Filling tensors with random numbers; the public factories and the random ops stand on these.
#pragma once

#include "epilogue/tensor.h"

namespace epilogue {

// Overwrite a contiguous floating tensor. Every element is a pure function of the seed, the
// generator's offset and its index, so the number of threads does not matter.
void fill_uniform(const Tensor& out, double low, double high);
void fill_normal(const Tensor& out, double mean, double stddev);
// 1 with probability p, else 0; any dtype. Element i is 1 where the upper 24 bits of word i % 4 of
// Philox4x32-10 (base/philox.h), with the seed as its key and counter offset + i / 4, are below
// bernoulli_limit(p).
void fill_bernoulli(const Tensor& out, double p);

// The state before; the generator has given n numbers when it returns. For kernels that draw.
RngState take_random_numbers(int64_t n);
// p in units of 2^-24, rounded up: at most 2^24.
uint32_t bernoulli_limit(double p);

}  // namespace epilogue
