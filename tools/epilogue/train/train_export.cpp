// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_export.h"

#include <nlohmann/json.hpp>

#include "epilogue/io.h"
#include "epilogue/predictor.h"
#include "tools/epilogue/train/train_network.h"

namespace epilogue::tool {
namespace {

train::ModelDescription description_of(const LiveRun& run) {
  const TrainRun& r = run.run();
  const TrainData& data = run.data();
  train::ModelDescription d{.network = network_options(r, data.train.width(), data.outputs),
                            .task = data.task,
                            .table = data.meaning,
                            .pixels = {},
                            .delimiter = parse_delimiter(r.delimiter).value(),
                            .has_header = !r.no_header};
  if (!data.meaning) {
    const FashionMnistOptions images;
    d.pixels = train::PixelMeaning{.mean = images.mean, .std = images.std};
  }
  return d;
}

}  // namespace

void export_model(const LiveRun& run, const std::string& path) {
  using nlohmann::json;
  // Names that are not UTF-8 must not stop an export.
  const std::string flags =
      json(to_text(run.recorded_run())).dump(-1, ' ', false, json::error_handler_t::replace);
  if (auto s = train::save_model(path, run.network(), description_of(run), {{"run", flags}}); !s)
    throw Error("[train] " + s.failure().message);
}

}  // namespace epilogue::tool
