// SPDX-License-Identifier: Apache-2.0
// The input of `epilogue predict`: a table, IDX images or a safetensors file, some rows at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/predictor.h"

namespace epilogue::tool {

struct PredictionInputOptions {
  std::optional<char> delimiter;   // of a table; empty: as the model's own was
  std::optional<bool> has_header;  // likewise
};

class PredictionInput {
 public:
  virtual ~PredictionInput() = default;
  // The network's inputs f32 [rows, inputs] of the next rows, at most so many; empty at the end.
  virtual std::optional<Tensor> next(int64_t max_rows) = 0;
  virtual int64_t total() const = 0;  // bytes or rows, for the progress bar
  virtual int64_t done() const = 0;
  // Values so far that no training row had, by feature; empty where no feature is text.
  virtual std::vector<int64_t> unseen() const { return {}; }
};

// By what the file holds: IDX by its magic number (plain or gzip), safetensors by its ending, else
// a table. Throws Error, as next() does, with the message of a file that the model cannot use.
std::unique_ptr<PredictionInput> open_prediction_input(const train::Predictor& model,
                                                       const std::string& path,
                                                       const PredictionInputOptions& options);

}  // namespace epilogue::tool
