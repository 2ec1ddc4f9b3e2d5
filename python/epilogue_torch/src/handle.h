// SPDX-License-Identifier: Apache-2.0
// A fused MLP with the weights that it was packed from, under a number that Python holds.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tensors.h"

namespace epilogue_torch {

// What epilogue::prepare takes.
struct Request {
  std::vector<Torch> weights;
  std::vector<std::optional<Torch>> biases;  // one per weight
  std::string activation;                    // a name of epilogue::nn::Activation
  std::optional<torch::headeronly::ScalarType>
      dtype;  // to compute in: the weights' own, or autocast's
  bool int8_weights = false;
  std::vector<std::optional<Torch>> norms;  // weight and bias of the norm before, of that after
  std::vector<std::string> forms;           // norm, form of its weight, post norm, its kind
  std::vector<double> eps;                  // of the norm before, of that after
  bool residual = false;
};

class Handle {
 public:
  // Throws std::runtime_error where tensors or options do not fit.
  explicit Handle(const Request& request);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // `version`: a number that differs from the last call's where the caller knows of a write. A
  // sample of the weights' contents is compared besides.
  Torch run(const Torch& x, int64_t version);
  int64_t columns() const { return n_; }
  // Weights are packed anew at the next call.
  void refresh();

 private:
  epilogue::Tensor add(const Torch& tensor, const char* what, epilogue::DType dtype);
  void require_fit(const Torch& x) const;
  void see_writes(int64_t version);
  void write_again();
  uint64_t sample() const;

  // A tensor of torch, kept alive, as the engine sees it.
  struct Source {
    Torch owner;
    epilogue::Tensor tensor;
    epilogue::Tensor used;  // the same, or converted to the dtype of the computation
  };
  std::vector<Source> sources_;
  epilogue::DType dtype_;
  int64_t k_ = 0;
  int64_t n_ = 0;
  std::optional<epilogue::FusedMlp> mlp_;
  std::mutex mutex_;  // of the two below
  int64_t version_ = -1;
  uint64_t sample_ = 0;
};

// Handles by number, from 1. find() throws std::runtime_error where there is none.
int64_t keep(std::shared_ptr<Handle> handle);
std::shared_ptr<Handle> find(int64_t number);
void release(int64_t number);
int64_t count_handles();

}  // namespace epilogue_torch
