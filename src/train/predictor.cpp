// SPDX-License-Identifier: Apache-2.0
#include "epilogue/predictor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/nearest.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "io/csv_state.h"
#include "io/message.h"
#include "train/feature_encoder.h"
#include "train/model_file.h"
#include "train/network.h"

namespace epilogue::train {
namespace {

// Rows that run at once: hidden values of more would not stay in a cache.
constexpr int64_t kRowsAtOnce = 1024;

void require_matrix(const char* what, const Tensor& t, int64_t columns) {
  if (!t.defined() || t.dtype() != DType::f32 || t.dim() != 2 || t.size(1) != columns)
    throw Error(fmt::format("[Predictor] expected {} f32 [n, {}], got {}", what, columns,
                            t.defined() ? to_string(t) : "an undefined tensor"));
}

// The weights, where they are those that the description speaks of.
Result<NamedTensors> weights_of(const SafetensorsFile& file, const ModelDescription& description,
                                const std::string& path) {
  double elements = 0;
  NamedTensors weights;
  for (const std::string& name : file.names()) {
    auto weight = file.tensor(name);
    if (!weight) return weight.failure();
    elements += static_cast<double>(weight.value().numel());
    weights.emplace_back(name, std::move(weight).value());
  }
  const double expected = num_parameters(description.network);
  if (elements != expected)
    return not_a_model(
        path, fmt::format("its network has {:.0f} weights, the file {:.0f}", expected, elements));
  return weights;
}

Result<std::vector<size_t>> feature_columns(const CsvTable& rows, const TableMeaning& meaning) {
  std::vector<size_t> columns;
  for (const Feature& feature : meaning.features) {
    const auto found = rows.find(feature.name);
    if (!found)
      return io::io_failure(
          rows.name(), FailureCode::table_column,
          fmt::format("expected the column '{}', which the model reads, got none of that name{}{}",
                      feature.name, did_you_mean(nearest(feature.name, rows.columns())),
                      io::delimiter_hint(rows.columns(), '\0')));
    columns.push_back(*found);
  }
  return columns;
}

}  // namespace

Result<Predictor> Predictor::open(const std::string& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return file.failure();
  auto description = description_of(file.value().metadata(), path);
  if (!description) return description.failure();
  auto weights = weights_of(file.value(), description.value(), path);
  if (!weights) return weights.failure();
  try {
    auto network = make_network(description.value().network);
    network->load_state_dict(weights.value());
    network->eval();
    return Predictor(std::move(description).value(), std::move(network), path);
  } catch (const Error& e) {
    return not_a_model(path, e.what());
  }
}

Predictor::Predictor(ModelDescription description, std::shared_ptr<const nn::Module> network,
                     std::string path)
    : description_(std::move(description)), network_(std::move(network)), path_(std::move(path)) {
  if (!description_.table) return;
  encoder_ = std::make_shared<const FeatureEncoder>(description_.table->features);
  layout_ = description_.table->layout();
}

Result<Tensor> Predictor::inputs_of(const CsvTable& rows, std::vector<int64_t>* unseen) const {
  auto stored = stored_of(rows, unseen);
  if (!stored) return stored.failure();
  return laid_out(stored.value());
}

Tensor Predictor::laid_out(const Tensor& stored) const {
  return layout_ ? layout_->inputs_of(stored) : stored;
}

Result<Tensor> Predictor::stored_of(const CsvTable& rows, std::vector<int64_t>* unseen) const {
  if (!description_.table)
    return Failure{FailureCode::model_input,
                   fmt::format("{}: {}: expected images or tensors, as the model {} learned from, "
                               "got a table",
                               rows.name(), failure_code_name(FailureCode::model_input), path_)};
  const TableMeaning& meaning = *description_.table;
  auto columns = feature_columns(rows, meaning);
  if (!columns) return columns.failure();
  const size_t width = meaning.features.size();
  if (unseen != nullptr) unseen->resize(width);
  const Tensor stored = empty({rows.rows(), static_cast<int64_t>(width)});
  auto* to = stored.data_as<float>();
  for (int64_t row = 0; row < rows.rows(); ++row, to += width)
    if (auto s = encoder_->encode(rows, row, columns.value(), to,
                                  unseen == nullptr ? nullptr : unseen->data());
        !s)
      return s.failure();
  return stored;
}

Tensor Predictor::stored_of(const Tensor& values) const {
  const std::vector<Feature>& features = description_.table->features;
  for (const Feature& f : features)
    if (f.is_text())
      throw Error(
          fmt::format("[Predictor] expected a table, as '{}', which the model reads, is "
                      "text; got numbers",
                      f.name));
  require_matrix("values", values, static_cast<int64_t>(features.size()));
  const Tensor from = contiguous(values);
  const Tensor stored = empty(from.sizes());
  const auto* in = from.data_as<float>();
  auto* to = stored.data_as<float>();
  for (size_t i = 0; i < static_cast<size_t>(from.numel()); ++i)
    to[i] = encoder_->stored(i % features.size(), in[i]);
  return stored;
}

Tensor Predictor::inputs_of(const Tensor& values) const {
  if (description_.table) return laid_out(stored_of(values));
  require_matrix("values", values, description_.network.inputs);
  const Tensor from = contiguous(values);
  const Tensor inputs = empty(from.sizes());
  const auto* in = from.data_as<float>();
  auto* to = inputs.data_as<float>();
  const PixelMeaning pixels = description_.pixels.value_or(PixelMeaning{});
  for (size_t i = 0; i < static_cast<size_t>(from.numel()); ++i)
    to[i] = scaled_pixel(in[i], static_cast<float>(pixels.mean), static_cast<float>(pixels.std));
  return inputs;
}

Predictions Predictor::predict(const Tensor& inputs) const {
  require_matrix("inputs", inputs, description_.network.inputs);
  return predict(inputs.size(0),
                 [&](int64_t begin, int64_t end) { return slice(inputs, 0, begin, end); });
}

Result<Predictions> Predictor::predict(const CsvTable& rows, std::vector<int64_t>* unseen) const {
  const auto stored = stored_of(rows, unseen);
  if (!stored) return stored.failure();
  return predict(rows.rows(), [&](int64_t begin, int64_t end) {
    return laid_out(slice(stored.value(), 0, begin, end));
  });
}

Predictions Predictor::predict(int64_t n, const InputsAt& inputs_at) const {
  const NoGrad no_grad;
  const bool classifies = description_.task == Task::classification;
  const int64_t outputs = description_.network.outputs;
  Predictions result;
  if (classifies) result.probabilities = empty({n, outputs});
  for (int64_t begin = 0; begin < n; begin += kRowsAtOnce) {
    const int64_t end = std::min(n, begin + kRowsAtOnce);
    const Tensor out = network_->forward(inputs_at(begin, end));
    if (!classifies) {
      for (const double v : out.to_vector())
        result.values.push_back(v * description_.table->target_std +
                                description_.table->target_mean);
      continue;
    }
    const Tensor p = softmax(out, -1);
    copy_(slice(result.probabilities, 0, begin, end), p);
    for (const double c : argmax(p, -1).to_vector())
      result.classes.push_back(static_cast<int64_t>(c));
  }
  return result;
}

}  // namespace epilogue::train
