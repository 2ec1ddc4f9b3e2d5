// SPDX-License-Identifier: Apache-2.0
// Shared by the oneDNN peers: descriptions of tensors, and one product with its post-ops.
// Include where oneDNN is there only.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "epilogue/tensor.h"

namespace epilogue::bench::onednn {

// f32 or bf16; throws Error on other dtypes.
dnnl::memory::data_type type_of(const Tensor& t);
// A rank-2 tensor with its strides.
dnnl::memory::desc desc_of(const Tensor& t);
// The tensor's memory itself, not a copy.
dnnl::memory memory_of(const Tensor& t, const dnnl::engine& engine);

// With as many threads as epilogue has. OpenMP's number is of the thread that calls.
struct Runtime {
  Runtime();
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

struct Product {
  dnnl::matmul primitive;
  dnnl::memory weight;
  dnnl::memory bias;
  int64_t scratch_bytes = 0;  // that oneDNN allocates for it
};

// y [m, n] = x [m, k] weight^T + bias, then post_ops. x and y are row-major; weight [n, k] has any
// strides; bias [n] may be undefined. Prepacked: the weight is reordered now into the layout that
// oneDNN asks for. Else oneDNN reads it where it lies. Throws dnnl::error where it has no such
// product.
Product make_product(Runtime& runtime, int64_t m, const Tensor& weight, const Tensor& bias,
                     const dnnl::post_ops& post_ops, bool prepacked);

}  // namespace epilogue::bench::onednn
