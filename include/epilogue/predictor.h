// SPDX-License-Identifier: Apache-2.0
// Trained models as files of their own: what `epilogue train` exports and `epilogue predict`
// applies.
//
//   const auto model = train::Predictor::open("runs/iris/model.safetensors").value();
//   const CsvTable rows = CsvTable::read("new.csv").value();
//   const train::Predictions p = model.predict(rows).value();
//   std::cout << model.description().table->classes[p.classes[0]] << "\n";
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/csv.h"
#include "epilogue/data.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/io.h"
#include "epilogue/nn.h"

#pragma GCC visibility push(default)

namespace epilogue::train {

class FeatureEncoder;

enum class Architecture : uint8_t {
  mlp,   // `layers` times (linear to `hidden`, tanh-GELU, dropout), and a linear to the outputs
  geglu  // a linear to hidden / 2, `layers` times x + GatedMLP(RMSNorm(x)) of that hidden width,
         // RMSNorm, dropout, and a linear to the outputs
};

struct NetworkOptions {
  Architecture architecture = Architecture::mlp;
  int64_t inputs = 0;
  int64_t hidden = 0;
  int64_t layers = 1;
  int64_t outputs = 0;
  double dropout = 0;  // while training
};

// Throws Error on sizes below 1 and on dropout outside [0, 1).
std::shared_ptr<nn::Module> make_network(const NetworkOptions& options);

// Arguments of scaled_pixel().
struct PixelMeaning {
  double mean = 0;
  double std = 1;
};

// The contents of a model's file beside its weights: enough to apply it.
struct ModelDescription {
  NetworkOptions network;
  Task task = Task::classification;
  std::optional<TableMeaning> table;   // of a model of tables
  std::optional<PixelMeaning> pixels;  // of a model of images
  // How the table was written that it learned from.
  char delimiter = ',';
  bool has_header = true;

  // The classes by number: those of the table, else "0", "1", ...
  std::vector<std::string> class_names() const;
};

// Writes weights and description as safetensors; `more` is further metadata. The metadata's keys
// "model" and "table" are JSON objects (docs/training.md). Codes: those of save_safetensors().
Status save_model(const std::string& path, const nn::Module& network,
                  const ModelDescription& description, const Metadata& more = {});

struct Predictions {
  Tensor probabilities;          // of classification: f32 [n, classes]
  std::vector<int64_t> classes;  // the most likely of each row; the first where several are
  std::vector<double> values;    // of regression, in the target's own units
};

// A trained model. Safe to use from several threads.
class Predictor {
 public:
  // Codes: those of SafetensorsFile, and NotAModel (no description, or one that is not of these
  // weights).
  // `bits`: the network's weights (and rows) rounded, which changes results. Throws Error where
  // these do not fit each other.
  static Result<Predictor> open(const std::string& path, const Quantisation& bits = {});

  const ModelDescription& description() const { return description_; }

  // The network's inputs for rows of a table, found by the names of the features; other
  // columns do not matter. A missing value is as in training; a category that no training row had
  // has 0 in all its inputs, and is added to `unseen`, which has a count per feature. f32 [rows,
  // inputs]. Codes: ModelInput (the model is not of tables), TableColumn, CsvNumber, CsvDate.
  Result<Tensor> inputs_of(const CsvTable& rows, std::vector<int64_t>* unseen = nullptr) const;
  // The same in two steps: one value per feature, f32 [rows, features], and what becomes of them.
  Result<Tensor> stored_of(const CsvTable& rows, std::vector<int64_t>* unseen = nullptr) const;
  Tensor laid_out(const Tensor& stored) const;
  // The same for values: f32 [n, features in their order], where NaN is a missing value and a date
  // is its days since 1970-01-01; or pixels 0 to 255 of images, [n, pixels]. Throws Error on
  // another shape or dtype, and where a feature is text.
  Tensor inputs_of(const Tensor& values) const;

  // `inputs`: f32 [n, inputs]. Throws Error on another shape or dtype.
  Predictions predict(const Tensor& inputs) const;
  // For a table, whose inputs are made some rows at a time. See inputs_of().
  Result<Predictions> predict(const CsvTable& rows, std::vector<int64_t>* unseen = nullptr) const;

 private:
  Predictor(ModelDescription description, std::shared_ptr<const nn::Module> network,
            std::string path, const Quantisation& bits);
  Tensor stored_of(const Tensor& values) const;

  // Inputs of rows [begin, end).
  using InputsAt = std::function<Tensor(int64_t begin, int64_t end)>;
  Predictions predict(int64_t n, const InputsAt& inputs_at) const;

  ModelDescription description_;
  std::shared_ptr<const FeatureEncoder> encoder_;  // of a model of tables
  std::shared_ptr<const InputLayout> layout_;      // null: inputs are what is stored
  std::shared_ptr<const nn::Module> network_;
  // The compiled network where it has fewer bits, which any thread may call. Else empty.
  std::function<Tensor(const Tensor&)> rounded_;
  std::string path_;
};

}  // namespace epilogue::train

#pragma GCC visibility pop
