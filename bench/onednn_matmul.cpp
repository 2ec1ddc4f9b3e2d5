// SPDX-License-Identifier: Apache-2.0
#include "bench/onednn_matmul.h"

#include "bench/onednn_product.h"

namespace epilogue::bench {

struct OnednnLinear::State {
  onednn::Runtime runtime;
  onednn::Product product;
  dnnl::memory x;
  dnnl::memory y;
};

OnednnLinear::OnednnLinear(const Tensor& x, const Tensor& weight, const Tensor& y,
                           bool prepacked) try
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.product = onednn::make_product(s.runtime, x.size(0), weight, {}, {}, prepacked);
  s.x = onednn::memory_of(x, s.runtime.engine);
  s.y = onednn::memory_of(y, s.runtime.engine);
} catch (const dnnl::error& e) {
  throw Error("[onednn] " + std::string(e.what()));
}

OnednnLinear::~OnednnLinear() = default;

void OnednnLinear::run() {
  State& s = *state_;
  s.product.primitive.execute(
      s.runtime.stream,
      {{DNNL_ARG_SRC, s.x}, {DNNL_ARG_WEIGHTS, s.product.weight}, {DNNL_ARG_DST, s.y}});
  s.runtime.stream.wait();
}

}  // namespace epilogue::bench
