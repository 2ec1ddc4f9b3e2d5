// SPDX-License-Identifier: Apache-2.0
// The gradients of a micro-batch, eager or compiled. All else of a step is the same for both.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "epilogue/compile_step.h"
#include "epilogue/train.h"

namespace epilogue::train {

// The result of a micro-batch.
struct MicroResult {
  double loss = 0;                 // mean over its examples; if read
  Tensor unread_loss;              // if not
  std::optional<int64_t> correct;  // right answers; empty where they are not known
};

class Gradients {
 public:
  // The network must outlive it.
  Gradients(nn::Module& network, const TrainerOptions& options);

  using Update = std::function<void(const MicroResult& result)>;

  // Adds the gradients of `weight` times the mean loss of these examples to the parameters' .grad.
  // Then runs `update`, if there is one. A compiled step's gradients then lie in its plan's memory,
  // and are gone afterwards.
  MicroResult add(const Examples& part, double weight, const Update& update);

  const std::string& plan() const { return plan_; }

 private:
  MicroResult add_eager(const Examples& part, double weight) const;
  MicroResult add_compiled(const Examples& part, double weight, const Update& update);
  // Whether steps count right answers.
  bool counts() const { return options_.reads_loss && options_.loss == Loss::cross_entropy; }
  CompiledStep& compiled(std::span<const Tensor> inputs);

  nn::Module& network_;
  TrainerOptions options_;
  std::string plan_;
  std::optional<CompiledStep> step_;
};

}  // namespace epilogue::train
