// SPDX-License-Identifier: Apache-2.0
// PyTorch as a peer, eager and compiled, in a Python process of its own (torch_peer.py says how the
// two talk).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/harness.h"
#include "bench/model.h"
#include "epilogue/base/result.h"

namespace epilogue::bench {

// Not thread-safe.
class TorchPeer {
 public:
  // `python`: a command or a path. Codes: PeerStart, PeerDied, PeerTimeout, and PeerError with
  // Python's words (PyTorch is not installed, say).
  static Result<TorchPeer> start(const std::string& python, int threads);
  TorchPeer(TorchPeer&&) noexcept;
  TorchPeer& operator=(TorchPeer&&) = delete;
  ~TorchPeer();

  const std::string& version() const;

  // Hands weights and input over, bit by bit. x: [*, k], as the model's first layer gets it. The
  // model of "matmul-add" has one stage with an addend. `target`: what prepare_step() trains
  // towards, else undefined. Codes as above, and those of files.
  Status load(const std::string& kind, const Model& model, const Tensor& x,
              const Tensor& target = {});

  struct Prepared {
    Tensor result;
    std::optional<int64_t> peak_intermediate_bytes;  // empty where PyTorch's profiler cannot tell
  };
  // mode: "eager" or "compile" (max-autotune, frozen weights; takes from seconds to minutes).
  Result<Prepared> prepare(const std::string& mode);

  struct PreparedStep {
    // Gradients of the first step, in the order: norm, then each stage's weight, bias, up, up_bias,
    // as far as the model has them.
    std::vector<Tensor> gradients;
    std::optional<int64_t> peak_intermediate_bytes;  // of a later step
  };
  // Instead of prepare(): runs are training steps: forward, mse_loss against `target`, backward,
  // AdamW (torch's fused one), gradients dropped. After load().
  Result<PreparedStep> prepare_step(const std::string& mode, double lr);

  // As Contender::run, after prepare(mode) or prepare_step(mode). Throws Error where the process
  // died.
  std::vector<double> run(const std::string& mode, const Block& block);

 private:
  struct State;
  explicit TorchPeer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::bench
