// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_network.h"

#include <algorithm>

#include "tools/epilogue/memory_limit.h"

namespace epilogue::tool {
namespace {

// Of the weights and their gradients, at least, in either kind of network.
void require_network_memory(const TrainRun& run, int64_t inputs) {
  const auto hidden = static_cast<double>(*run.hidden);
  const double first = static_cast<double>(inputs) * hidden / 2;
  const double others = static_cast<double>(*run.layers - 1) * hidden * hidden;
  require_memory("--hidden, --layers", 2 * (first + others), DType::f32);
}

void add_dropout(nn::Sequential& network, double p) {
  if (p > 0) network.emplace<nn::Dropout>(p);
}

}  // namespace

std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs) {
  require_network_memory(run, inputs);
  const int64_t hidden = *run.hidden;
  auto network = std::make_shared<nn::Sequential>();
  int64_t width = inputs;
  if (run.arch == "mlp") {
    for (int64_t i = 0; i < *run.layers; ++i) {
      network->emplace<nn::Linear>(width, hidden);
      network->emplace<nn::GELU>(Gelu::tanh);
      add_dropout(*network, run.dropout);
      width = hidden;
    }
  } else {
    width = std::max<int64_t>(1, hidden / 2);
    network->emplace<nn::Linear>(inputs, width);
    for (int64_t i = 0; i < *run.layers; ++i)
      network->emplace<nn::Block>(width, nn::Norm::rms,
                                  std::make_shared<nn::GatedMLP>(width, hidden));
    network->emplace<nn::RMSNorm>(Dims{width});
    add_dropout(*network, run.dropout);
  }
  network->emplace<nn::Linear>(width, outputs);
  return network;
}

}  // namespace epilogue::tool
