// SPDX-License-Identifier: Apache-2.0

#include "epilogue/predictor.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "base/text/nearest.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/ops.h"
#include "io/csv_state.h"
#include "io/message.h"
#include "train/feature_encoder.h"
#include "train/network.h"

namespace epilogue::train {

namespace {

using nlohmann::json;

constexpr int kModelVersion = 1;

constexpr std::pair<FeatureKind, const char*> kKinds[] = {{FeatureKind::number, "number"},
                                                          {FeatureKind::date, "date"},
                                                          {FeatureKind::category, "category"},
                                                          {FeatureKind::hashed, "hashed"}};
// A hostile file must not make tables of inputs that no memory holds.
constexpr int64_t kMostBuckets = 1 << 24;

json feature_json(const Feature& f) {
  json out = {{"name", f.name},
              {"kind", kKinds[static_cast<size_t>(f.kind)].second},
              {"missing_input", f.marks_missing}};
  if (f.kind == FeatureKind::category) {
    out["categories"] = f.categories;
  } else if (f.kind == FeatureKind::hashed) {
    out["buckets"] = f.buckets;
  } else {
    out["mean"] = f.mean;
    out["std"] = std::isfinite(f.std) ? json(f.std) : json();
  }
  return out;
}

Feature feature_of(const json& j) {
  Feature f{.name = j.at("name")};
  const std::string kind = j.value("kind", "number");
  const auto known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const auto& k) { return kind == k.second; });
  if (known == std::end(kKinds)) throw Error("the kind '" + kind + "' of a feature is not known");
  f.kind = known->first;
  f.marks_missing = j.value("missing_input", false);
  if (f.kind == FeatureKind::category) {
    j.at("categories").get_to(f.categories);
    return f;
  }
  if (f.kind == FeatureKind::hashed) {
    f.buckets = j.at("buckets");
    if (f.buckets < 1 || f.buckets > kMostBuckets)
      throw Error(fmt::format("'{}' is hashed to {} inputs", f.name, f.buckets));
    return f;
  }
  f.mean = j.at("mean");
  f.std =
      j.at("std").is_null() ? std::numeric_limits<double>::infinity() : j.at("std").get<double>();
  if (!(f.std > 0)) throw Error(fmt::format("the std of '{}' is {}", f.name, f.std));
  return f;
}

json table_json(const TableMeaning& meaning) {
  const bool classifies = meaning.task == Task::classification;
  json out = {{"task", classifies ? "classification" : "regression"},
              {"target", meaning.target},
              {"features", json::array()}};
  if (classifies) {
    out["classes"] = meaning.classes;
  } else {
    out["target_mean"] = meaning.target_mean;
    out["target_std"] = meaning.target_std;
  }
  for (const Feature& f : meaning.features) out["features"].push_back(feature_json(f));
  return out;
}

json model_json(const ModelDescription& d) {
  const NetworkOptions& n = d.network;
  const bool is_mlp = n.architecture == Architecture::mlp;
  json out = {{"version", kModelVersion},
              {"architecture", is_mlp ? "mlp" : "geglu"},
              {"activation", "gelu"},
              {"gelu", "tanh"},
              {"inputs", n.inputs},
              {"hidden", n.hidden},
              {"layers", n.layers},
              {"outputs", n.outputs},
              {"dropout", n.dropout},
              {"task", d.task == Task::classification ? "classification" : "regression"},
              {"delimiter", std::string(1, d.delimiter)},
              {"header", d.has_header}};
  if (d.task == Task::classification) out["classes"] = d.class_names();
  if (d.pixels) out["pixels"] = {{"mean", d.pixels->mean}, {"std", d.pixels->std}};
  return out;
}

// Names that are not UTF-8 must not stop an export.
std::string text_of_json(const json& value) { return json_text_of_names(value); }

Task task_of(const json& j) {
  const auto name = j.at("task").get<std::string>();
  if (name != "classification" && name != "regression")
    throw Error("the task '" + name + "' is not known");
  return name == "classification" ? Task::classification : Task::regression;
}

TableMeaning table_of(const json& j) {
  TableMeaning t = {.task = task_of(j), .target = j.at("target")};
  if (t.task == Task::classification) {
    j.at("classes").get_to(t.classes);
  } else {
    t.target_mean = j.at("target_mean");
    t.target_std = j.at("target_std");
  }
  for (const json& f : j.at("features")) t.features.push_back(feature_of(f));
  return t;
}

ModelDescription model_of(const json& j) {
  if (j.at("version") != kModelVersion)
    throw Error("its version is " + json_text(j.at("version")) + ", that known is " +
                std::to_string(kModelVersion));
  const auto architecture = j.at("architecture").get<std::string>();
  if (architecture != "mlp" && architecture != "geglu")
    throw Error("the architecture '" + architecture + "' is not known");
  ModelDescription d;
  d.network = {.architecture = architecture == "mlp" ? Architecture::mlp : Architecture::geglu,
               .inputs = j.at("inputs"),
               .hidden = j.at("hidden"),
               .layers = j.at("layers"),
               .outputs = j.at("outputs"),
               .dropout = j.at("dropout")};
  d.task = task_of(j);
  const auto delimiter = j.at("delimiter").get<std::string>();
  if (delimiter.size() != 1) throw Error("its delimiter is not one character");
  d.delimiter = delimiter[0];
  d.has_header = j.at("header");
  if (j.contains("pixels"))
    d.pixels = PixelMeaning{.mean = j["pixels"].at("mean"), .std = j["pixels"].at("std")};
  return d;
}

// Checks the parts against each other.
void require_whole(const ModelDescription& d) {
  if (d.table && (d.table->task != d.task || d.table->inputs() != d.network.inputs))
    throw Error("its table is not that of its network");
  if (d.task == Task::regression && !d.table) throw Error("a regression needs its table");
  const auto outputs = d.table && d.task == Task::classification
                           ? static_cast<int64_t>(d.table->classes.size())
                           : d.network.outputs;
  if (outputs != d.network.outputs || (d.task == Task::regression && outputs != 1))
    throw Error("its outputs are not those of its task");
}

Failure not_a_model(const std::string& path, const std::string& detail) {
  return {FailureCode::not_a_model,
          fmt::format("{}: {}: expected a model that epilogue train wrote; {}", path,
                      failure_code_name(FailureCode::not_a_model), detail)};
}

// `path` is for messages. Code: NotAModel.
Result<ModelDescription> description_of(const Metadata& metadata, const std::string& path) {
  const auto model = metadata.find("model");
  if (model == metadata.end()) return not_a_model(path, "its metadata has no \"model\"");
  try {
    ModelDescription d = model_of(parse_json_or_throw(model->second));
    if (const auto table = metadata.find("table"); table != metadata.end())
      d.table = table_of(parse_json_or_throw(table->second));
    require_whole(d);
    return d;
  } catch (const json::exception& e) {
    return not_a_model(path, std::string("its metadata reads ") + e.what());
  } catch (const Error& e) {
    return not_a_model(path, e.what());
  }
}

// Rows that run at once: hidden values of more would not stay in a cache.
constexpr int64_t kRowsAtOnce = 1024;

void require_bits(const Quantisation& bits) {
  if (bits.weights == WeightBits::same && !(bits == Quantisation{}))
    throw Error(
        "[Predictor] expected weights of int8 or int4 beside other choices of bits, got the "
        "weights' own");
  if (bits.group != 32 && bits.group != 128)
    throw Error("[Predictor] expected groups of 32 or 128, got " + std::to_string(bits.group));
}

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

Status save_model(const std::string& path, const nn::Module& network,
                  const ModelDescription& description, const Metadata& more) {
  Metadata metadata = more;
  metadata["model"] = text_of_json(model_json(description));
  if (description.table) metadata["table"] = text_of_json(table_json(*description.table));
  return save_safetensors(path, network.state_dict(), metadata);
}

std::vector<std::string> ModelDescription::class_names() const {
  if (table) return table->classes;
  std::vector<std::string> names;
  if (task == Task::classification)
    for (int64_t i = 0; i < network.outputs; ++i) names.push_back(std::to_string(i));
  return names;
}

Result<Predictor> Predictor::open(const std::string& path, const Quantisation& bits) {
  require_bits(bits);
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
    return Predictor(std::move(description).value(), std::move(network), path, bits);
  } catch (const Error& e) {
    return not_a_model(path, e.what());
  }
}

Predictor::Predictor(ModelDescription description, std::shared_ptr<const nn::Module> network,
                     std::string path, const Quantisation& bits)
    : description_(std::move(description)), network_(std::move(network)), path_(std::move(path)) {
  if (!(bits == Quantisation{})) {
    CompileOptions options;
    options.bits = bits;
    const auto compiled = std::make_shared<Compiled>(compile(*network_, options));
    rounded_ = [compiled](const Tensor& x) { return (*compiled)(x); };
  }
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
    const Tensor inputs = inputs_at(begin, end);
    const Tensor out = rounded_ ? rounded_(inputs) : network_->forward(inputs);
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
