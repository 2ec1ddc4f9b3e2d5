// SPDX-License-Identifier: Apache-2.0
#include "onednn_mlp.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace epilogue::bench {
namespace {
using dnnl::memory;
using tag = memory::format_tag;

memory::data_type type_of(const Tensor& t) {
  return t.dtype() == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// One product with a weight in the layout that oneDNN asks for.
struct Product {
  dnnl::matmul primitive;
  memory weight;
};

Product make_product(const dnnl::engine& engine, dnnl::stream& stream, int64_t m,
                     const Tensor& weight, const dnnl::post_ops& post_ops) {
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1);
  const auto type = type_of(weight);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(post_ops);
  const dnnl::matmul::desc desc(memory::desc({m, k}, type, tag::ab),
                                memory::desc({k, n}, type, tag::any),
                                memory::desc({m, n}, type, tag::ab));
  const dnnl::matmul::primitive_desc primitive(desc, attributes, engine);
  memory plain(memory::desc({k, n}, type, tag::ba), engine, weight.data());
  memory packed(primitive.weights_desc(), engine);
  dnnl::reorder(plain, packed).execute(stream, plain, packed);
  stream.wait();
  return {dnnl::matmul(primitive), packed};
}
}  // namespace

struct OnednnGatedMlp::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Product gate;
  Product up;
  Product down;
  memory x;
  memory activated;  // gelu(x gate^T)
  memory hidden;     // activated * (x up^T)
  memory y;
};

OnednnGatedMlp::OnednnGatedMlp(const Tensor& x, const GatedMlpWeights& weights, const Tensor& y)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  const int64_t m = x.size(0);
  const int64_t h = weights.gate.size(0);
  const auto type = type_of(x);
  const memory::desc hidden_desc({m, h}, type, tag::ab);
  dnnl::post_ops gelu;
  gelu.append_eltwise(1.0F, dnnl::algorithm::eltwise_gelu_tanh, 0.0F, 0.0F);
  dnnl::post_ops product;
  product.append_binary(dnnl::algorithm::binary_mul, hidden_desc);
  s.gate = make_product(s.engine, s.stream, m, weights.gate, gelu);
  s.up = make_product(s.engine, s.stream, m, weights.up, product);
  s.down = make_product(s.engine, s.stream, m, weights.down, {});
  s.x = memory(memory::desc({m, x.size(1)}, type, tag::ab), s.engine, x.data());
  s.y = memory(memory::desc({m, y.size(1)}, type, tag::ab), s.engine, y.data());
  s.activated = memory(hidden_desc, s.engine);
  s.hidden = memory(hidden_desc, s.engine);
}

OnednnGatedMlp::~OnednnGatedMlp() = default;

void OnednnGatedMlp::run() {
  State& s = *state_;
  s.gate.primitive.execute(
      s.stream,
      {{DNNL_ARG_SRC, s.x}, {DNNL_ARG_WEIGHTS, s.gate.weight}, {DNNL_ARG_DST, s.activated}});
  s.up.primitive.execute(s.stream,
                         {{DNNL_ARG_SRC, s.x},
                          {DNNL_ARG_WEIGHTS, s.up.weight},
                          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, s.activated},
                          {DNNL_ARG_DST, s.hidden}});
  s.down.primitive.execute(
      s.stream, {{DNNL_ARG_SRC, s.hidden}, {DNNL_ARG_WEIGHTS, s.down.weight}, {DNNL_ARG_DST, s.y}});
  s.stream.wait();
}

}  // namespace epilogue::bench
