// SPDX-License-Identifier: Apache-2.0
#include "onednn_matmul.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace epilogue::bench {
namespace {
using dnnl::memory;

memory::data_type type_of(const Tensor& t) {
  if (t.dtype() == DType::f32) return memory::data_type::f32;
  if (t.dtype() == DType::bf16) return memory::data_type::bf16;
  throw Error("[onednn] expected f32 or bf16, got " + to_string(t));
}
}  // namespace

struct OnednnLinear::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul matmul;
  memory x;
  memory weight;
  memory y;
};

OnednnLinear::OnednnLinear(const Tensor& x, const Tensor& weight, const Tensor& y, bool prepacked)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  const int64_t m = x.size(0);
  const int64_t k = x.size(1);
  const int64_t n = weight.size(0);
  const auto type = type_of(x);
  using tag = memory::format_tag;
  const memory::desc x_desc({m, k}, type, tag::ab);
  const memory::desc plain_weight({k, n}, type, tag::ba);  // [n, k] row-major, read transposed
  const memory::desc any_weight({k, n}, type, tag::any);
  const memory::desc y_desc({m, n}, type, tag::ab);
  const dnnl::matmul::desc desc(x_desc, prepacked ? any_weight : plain_weight, y_desc);
  const dnnl::matmul::primitive_desc primitive(desc, s.engine);
  s.matmul = dnnl::matmul(primitive);
  s.x = memory(x_desc, s.engine, x.data());
  s.y = memory(y_desc, s.engine, y.data());
  s.weight = memory(plain_weight, s.engine, weight.data());
  if (primitive.weights_desc() != plain_weight) {
    memory packed(primitive.weights_desc(), s.engine);
    dnnl::reorder(s.weight, packed).execute(s.stream, s.weight, packed);
    s.stream.wait();
    s.weight = packed;
  }
}

OnednnLinear::~OnednnLinear() = default;

void OnednnLinear::run() {
  State& s = *state_;
  s.matmul.execute(s.stream,
                   {{DNNL_ARG_SRC, s.x}, {DNNL_ARG_WEIGHTS, s.weight}, {DNNL_ARG_DST, s.y}});
  s.stream.wait();
}

}  // namespace epilogue::bench
