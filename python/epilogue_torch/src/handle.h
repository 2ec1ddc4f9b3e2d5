// SPDX-License-Identifier: Apache-2.0
// A fused MLP, or linear layers of the same rows, with the weights that it was packed from, under a
// number that Python holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host_group.h"
#include "weights.h"

namespace epilogue_torch {

// What epilogue::prepare takes.
struct Request {
  std::vector<Torch> parameters;  // that weights, biases and norms are, or are views of
  std::vector<Torch> weights;
  std::vector<std::optional<Torch>> biases;  // one per weight
  std::string activation;  // a name of epilogue::nn::Activation; "none": linear layers side by side
  // To compute in: the weights' own, or autocast's.
  std::optional<torch::headeronly::ScalarType> dtype = {};
  std::string bits = {};  // fewer bits by their name, or empty
  // Weight and bias of the norm before, of that after.
  std::vector<std::optional<Torch>> norms = std::vector<std::optional<Torch>>(4);
  // Norm, form of its weight, post norm, its kind.
  std::vector<std::string> forms = {"none", "product", "none", "none"};
  std::vector<double> eps = {1e-5, 1e-5};  // of the norm before, of that after
  bool residual = false;
  bool borrows = false;  // the caller names the parameters at each call, and keeps their memory
  // Instead of `weights`: weights that are rounded already. `bits` is of the rows then.
  std::vector<epilogue::RoundedWeight> rounded = {};
};

// The choice of fewer bits of that name; "": all bits. Throws std::runtime_error on other names.
epilogue::Quantisation quantisation_of(const std::string& name);

class Handle {
 public:
  // Throws std::runtime_error where tensors or options do not fit.
  explicit Handle(const Request& request);

  // Nullopt if one of the request's parameters has other memory since.
  std::optional<Torch> run(const Torch& x, const std::vector<Torch>& parameters);
  // The same of linear layers: one result for each; none at all if a parameter has other memory.
  std::vector<Torch> run_linear(const Torch& x, const std::vector<Torch>& parameters,
                                const std::optional<Torch>& residual);
  // The same into memory of the caller, of which each result's is contiguous. False: a parameter
  // has other memory.
  bool run_linear_into(const epilogue::Tensor& x, const std::vector<Torch>& parameters,
                       std::span<const epilogue::Tensor> outs);
  // Of an MLP, or of one linear layer: the sum over the ranks of a host group, plus bias, plus
  // residual. Nullopt as above.
  std::optional<Torch> run_summed(const Torch& x, const std::vector<Torch>& parameters,
                                  int64_t group, const std::optional<Torch>& bias,
                                  const std::optional<Torch>& residual);
  // The same without a residual, whose last pass may come later (sum_rows_later).
  std::optional<Torch> run_summed_later(const Torch& x, const std::vector<Torch>& parameters,
                                        int64_t group, const std::optional<Torch>& bias);
  // The same: what all ranks' parts give, side by side.
  std::optional<Torch> run_gathered(const Torch& x, const std::vector<Torch>& parameters,
                                    int64_t group);
  int64_t columns() const { return widths_.back(); }
  int64_t inputs() const { return k_; }
  const std::vector<int64_t>& widths() const { return widths_; }  // of the results
  // Weights are packed anew at the next call.
  void refresh() { weights_.refresh(); }

 private:
  epilogue::Tensor rows_of(const Torch& x) const;
  Torch out_like(const Torch& x, int64_t columns) const;
  MakeRows makes_rows(const epilogue::Tensor& in) const;
  // run(out, make): joins what this rank makes of x's rows with the others'.
  template <class Run>
  std::optional<Torch> run_joined(const Torch& x, const std::vector<Torch>& parameters,
                                  int64_t columns, Run&& run);

  Weights weights_;
  epilogue::DType dtype_;
  int64_t k_ = 0;
  std::vector<int64_t> widths_;
  std::optional<epilogue::FusedMlp> mlp_;
  std::optional<epilogue::FusedLinear> linear_;
};

// Handles by number, from 1. find() throws std::runtime_error where there is none.
int64_t keep(std::shared_ptr<Handle> handle);
std::shared_ptr<Handle> find(int64_t number);
int64_t count_handles();

// The handle of weights in that memory, for calls of compiled graphs, which name tensors alone. The
// op epilogue::keep, which is Python's, makes it at the first call and lets it go with the memory.
// Of weights that were made in inference mode, and so have no version: one for this call.
// `parameters`: all tensors that are there, as Handle::run takes them.
std::shared_ptr<Handle> find_kept(const std::vector<Torch>& weights,
                                  const std::vector<std::optional<Torch>>& biases,
                                  const std::string& activation, const std::string& bits,
                                  std::vector<Torch>& parameters);

}  // namespace epilogue_torch
