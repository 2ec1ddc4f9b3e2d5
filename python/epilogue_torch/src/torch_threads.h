// SPDX-License-Identifier: Apache-2.0
// The engine's work on torch's own threads: no pool of the engine's starts, no second OpenMP.
#pragma once

#include <epilogue/runtime.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>

namespace epilogue_torch {

class TorchThreads : public epilogue::Executor {
 public:
  // As many as torch.get_num_threads() says now.
  TorchThreads() : threads_(std::max(1, static_cast<int>(torch::stable::get_num_threads()))) {}
  int threads() const override { return threads_; }
  void run(int pieces, void (*piece)(void*, int), void* context) override {
    torch::stable::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) piece(context, static_cast<int>(i));
    });
  }

 private:
  int threads_;
};

}  // namespace epilogue_torch
