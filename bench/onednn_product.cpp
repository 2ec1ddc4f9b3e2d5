// SPDX-License-Identifier: Apache-2.0
#include "bench/onednn_product.h"

#include <omp.h>

#include "epilogue/ops.h"
#include "epilogue/runtime.h"

namespace epilogue::bench::onednn {

using dnnl::memory;

Runtime::Runtime() { omp_set_num_threads(num_threads()); }

memory::data_type type_of(const Tensor& t) {
  if (t.dtype() == DType::f32) return memory::data_type::f32;
  if (t.dtype() == DType::bf16) return memory::data_type::bf16;
  throw Error("[onednn] expected f32 or bf16, got " + to_string(t));
}

memory::desc desc_of(const Tensor& t) {
  return {{t.size(0), t.size(1)}, type_of(t), memory::dims{t.strides()[0], t.strides()[1]}};
}

memory memory_of(const Tensor& t, const dnnl::engine& engine) {
  return memory(desc_of(t), engine, t.data());
}

Product make_product(Runtime& runtime, int64_t m, const Tensor& weight, const Tensor& bias,
                     const dnnl::post_ops& post_ops, bool prepacked) {
  using tag = memory::format_tag;
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1);
  const auto type = type_of(weight);
  const Tensor transposed = t(weight);
  const memory::desc x_desc({m, k}, type, tag::ab);
  const memory::desc y_desc({m, n}, type, tag::ab);
  const memory::desc plain_desc = desc_of(transposed);
  const memory::desc weight_desc = prepacked ? memory::desc({k, n}, type, tag::any) : plain_desc;
  const memory::desc bias_desc =
      bias.defined() ? memory::desc({1, n}, type, tag::ab) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(post_ops);
  const dnnl::matmul::desc desc = bias.defined()
                                      ? dnnl::matmul::desc(x_desc, weight_desc, bias_desc, y_desc)
                                      : dnnl::matmul::desc(x_desc, weight_desc, y_desc);
  const dnnl::matmul::primitive_desc primitive(desc, attributes, runtime.engine);
  Product product;
  product.primitive = dnnl::matmul(primitive);
  product.scratch_bytes = primitive.query_s64(dnnl::query::memory_consumption_s64);
  product.weight = memory(plain_desc, runtime.engine, weight.data());
  if (primitive.weights_desc() != plain_desc) {
    memory packed(primitive.weights_desc(), runtime.engine);
    dnnl::reorder(product.weight, packed).execute(runtime.stream, product.weight, packed);
    runtime.stream.wait();
    product.weight = packed;
  }
  if (bias.defined()) product.bias = memory(bias_desc, runtime.engine, bias.data());
  return product;
}

}  // namespace epilogue::bench::onednn
