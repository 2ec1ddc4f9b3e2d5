// SPDX-License-Identifier: Apache-2.0
// oneDNN's best gated MLP as a peer: three matmuls with prepacked weights, the activation and the
// product with the up projection as post-ops of the gate's and up's matmuls.
#pragma once

#include <memory>

#include "epilogue/tensor.h"

namespace epilogue::bench {

struct GatedMlpWeights {
  Tensor gate;  // [h, k]
  Tensor up;    // [h, k]
  Tensor down;  // [n, h]
};

class OnednnGatedMlp {
 public:
  // y = (gelu_tanh(x gate^T) * (x up^T)) down^T, of one dtype (f32 or bf16); memory stays the
  // caller's.
  OnednnGatedMlp(const Tensor& x, const GatedMlpWeights& weights, const Tensor& y);
  ~OnednnGatedMlp();
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::bench
