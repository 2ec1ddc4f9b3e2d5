// SPDX-License-Identifier: Apache-2.0
#include "epilogue/predictor.h"

#include <fmt/format.h>

#include <algorithm>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"
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
  for (const std::string& name : meaning.features) {
    const auto found = rows.find(name);
    if (!found)
      return Failure{
          FailureCode::table_column,
          fmt::format("{}: {}: expected the column '{}', which the model reads, got none "
                      "of that name",
                      rows.name(), failure_code_name(FailureCode::table_column), name)};
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

Result<Tensor> Predictor::inputs_of(const CsvTable& rows) const {
  if (!description_.table)
    return Failure{FailureCode::model_input,
                   fmt::format("{}: {}: expected images or tensors, as the model {} learned from, "
                               "got a table",
                               rows.name(), failure_code_name(FailureCode::model_input), path_)};
  const TableMeaning& meaning = *description_.table;
  auto columns = feature_columns(rows, meaning);
  if (!columns) return columns.failure();
  const size_t width = meaning.features.size();
  const Tensor inputs = empty({rows.rows(), static_cast<int64_t>(width)});
  auto* to = inputs.data_as<float>();
  for (int64_t row = 0; row < rows.rows(); ++row)
    for (size_t f = 0; f < width; ++f) {
      auto number = rows.number(row, columns.value()[f]);
      if (!number) return number.failure();
      *to++ = standardised_feature(meaning, f, number.value());
    }
  return inputs;
}

Tensor Predictor::inputs_of(const Tensor& values) const {
  require_matrix("values", values, description_.network.inputs);
  const Tensor from = contiguous(values);
  const Tensor inputs = empty(from.sizes());
  const auto* in = from.data_as<float>();
  auto* to = inputs.data_as<float>();
  const auto width = static_cast<size_t>(description_.network.inputs);
  const PixelMeaning pixels = description_.pixels.value_or(PixelMeaning{});
  for (size_t i = 0; i < static_cast<size_t>(from.numel()); ++i)
    to[i] =
        description_.table
            ? standardised_feature(*description_.table, i % width, static_cast<double>(in[i]))
            : scaled_pixel(in[i], static_cast<float>(pixels.mean), static_cast<float>(pixels.std));
  return inputs;
}

Predictions Predictor::predict(const Tensor& inputs) const {
  require_matrix("inputs", inputs, description_.network.inputs);
  const NoGrad no_grad;
  const int64_t n = inputs.size(0);
  const bool classifies = description_.task == Task::classification;
  const int64_t outputs = description_.network.outputs;
  Predictions result;
  if (classifies) result.probabilities = empty({n, outputs});
  for (int64_t begin = 0; begin < n; begin += kRowsAtOnce) {
    const int64_t end = std::min(n, begin + kRowsAtOnce);
    const Tensor out = network_->forward(slice(inputs, 0, begin, end));
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
