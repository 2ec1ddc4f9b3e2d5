// SPDX-License-Identifier: Apache-2.0
// oneDNN as a peer: y = x W^T (+ bias) with its own choice of weight layout, packed once.
#pragma once

#include <cstdint>
#include <memory>

#include "epilogue/tensor.h"

namespace epilogue::bench {

class OnednnLinear {
 public:
  // x [m, k], weight [n, k], y [m, n] of one dtype (f32 or bf16); memory stays the caller's.
  // Prepacked: the weight is reordered into the layout that oneDNN asks for, outside run(). Else
  // oneDNN reads it where it lies, as eager PyTorch does.
  OnednnLinear(const Tensor& x, const Tensor& weight, const Tensor& y, bool prepacked);
  ~OnednnLinear();
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::bench
