// SPDX-License-Identifier: Apache-2.0
#include "train/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

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
std::string text_of_json(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Task task_of(const json& j) {
  const auto name = j.at("task").get<std::string>();
  if (name != "classification" && name != "regression")
    throw Error("the task '" + name + "' is not known");
  return name == "classification" ? Task::classification : Task::regression;
}

TableMeaning table_of(const json& j) {
  TableMeaning t;
  t.task = task_of(j);
  t.target = j.at("target");
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
    throw Error("its version is " + j.at("version").dump() + ", that known is " +
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

}  // namespace

std::vector<std::string> ModelDescription::class_names() const {
  if (table) return table->classes;
  std::vector<std::string> names;
  if (task == Task::classification)
    for (int64_t i = 0; i < network.outputs; ++i) names.push_back(std::to_string(i));
  return names;
}

Failure not_a_model(const std::string& path, const std::string& detail) {
  return {FailureCode::not_a_model,
          fmt::format("{}: {}: expected a model that epilogue train wrote; {}", path,
                      failure_code_name(FailureCode::not_a_model), detail)};
}

Status save_model(const std::string& path, const nn::Module& network,
                  const ModelDescription& description, const Metadata& more) {
  Metadata metadata = more;
  metadata["model"] = text_of_json(model_json(description));
  if (description.table) metadata["table"] = text_of_json(table_json(*description.table));
  return save_safetensors(path, network.state_dict(), metadata);
}

Result<ModelDescription> description_of(const Metadata& metadata, const std::string& path) {
  const auto model = metadata.find("model");
  if (model == metadata.end()) return not_a_model(path, "its metadata has no \"model\"");
  try {
    ModelDescription d = model_of(json::parse(model->second));
    if (const auto table = metadata.find("table"); table != metadata.end())
      d.table = table_of(json::parse(table->second));
    require_whole(d);
    return d;
  } catch (const json::exception& e) {
    return not_a_model(path, std::string("its metadata reads ") + e.what());
  } catch (const Error& e) {
    return not_a_model(path, e.what());
  }
}

}  // namespace epilogue::train
