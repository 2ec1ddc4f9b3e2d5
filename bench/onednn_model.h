// SPDX-License-Identifier: Apache-2.0
// oneDNN's best for a model, as a peer: matmuls with prepacked weights; bias, activation, the
// product with the up projection, and what is added are post-ops. A norm is a pass before them (by
// epilogue's own op: oneDNN has no RMS norm).
#pragma once

#include <memory>

#include "bench/model.h"

namespace epilogue::bench {

class OnednnModel {
 public:
  // x [m, k] row-major, f32 or bf16; memory and model stay the caller's. Throws Error where oneDNN
  // was not built in, or cannot.
  OnednnModel(const Model& model, const Tensor& x);
  ~OnednnModel();

  void run();
  // Ends its threads, which would spin for milliseconds after a call; the next call makes new ones.
  static void end_threads();
  // The result of run(): [m, n].
  const Tensor& result() const;
  // Tensors between the products, and what oneDNN allocates for itself.
  int64_t intermediate_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::bench
