// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_export.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "epilogue/io.h"

namespace epilogue::tool {
namespace {

using nlohmann::json;

json table_json(const train::TableMeaning& meaning) {
  const bool classifies = meaning.task == train::Task::classification;
  json out = {{"task", classifies ? "classification" : "regression"},
              {"target", meaning.target},
              {"features", json::array()}};
  if (classifies) {
    out["classes"] = meaning.classes;
  } else {
    out["target_mean"] = meaning.target_mean;
    out["target_std"] = meaning.target_std;
  }
  for (size_t i = 0; i < meaning.features.size(); ++i)
    out["features"].push_back(
        {{"name", meaning.features[i]},
         {"mean", meaning.mean[i]},
         {"std", std::isfinite(meaning.std[i]) ? json(meaning.std[i]) : json()}});
  return out;
}

// Names that are not UTF-8 must not stop an export.
std::string text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

void export_model(const LiveRun& run, const std::string& path) {
  Metadata metadata{{"run", text(json(to_text(run.recorded_run())))}};
  if (run.data().meaning) metadata["table"] = text(table_json(*run.data().meaning));
  if (auto s = save_safetensors(path, run.network().state_dict(), metadata); !s)
    throw Error("[train] " + s.failure().message);
}

}  // namespace epilogue::tool
