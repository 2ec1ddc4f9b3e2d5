// SPDX-License-Identifier: Apache-2.0
// The data of `epilogue train`: Fashion-MNIST, or a table.
#pragma once

#include <optional>
#include <string>

#include "epilogue/data.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {

struct TrainData {
  train::Examples train;
  train::Examples test;
  train::Task task = train::Task::classification;
  int64_t outputs = 0;                         // classes, or 1
  std::optional<train::TableMeaning> meaning;  // of tables
  train::TableNotes notes;

  // "60,000 training and 10,000 test examples of 784 values, 10 classes".
  std::string description() const;
};

// Throws Error with the message of files that cannot be used.
TrainData load_train_data(const TrainRun& run);

}  // namespace epilogue::tool
