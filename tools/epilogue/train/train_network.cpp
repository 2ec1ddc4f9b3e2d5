// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_network.h"

#include "tools/epilogue/memory_limit.h"

namespace epilogue::tool {
namespace {

// Bytes of the weights and their gradients, at least, in either kind of network.
void require_network_memory(const TrainRun& run, int64_t inputs) {
  const auto hidden = static_cast<double>(*run.hidden);
  const double first = static_cast<double>(inputs) * hidden / 2;
  const double others = static_cast<double>(*run.layers - 1) * hidden * hidden;
  require_memory("--hidden, --layers", 2 * (first + others), DType::f32);
}

}  // namespace

train::NetworkOptions network_options(const TrainRun& run, int64_t inputs, int64_t outputs) {
  return {.architecture = run.arch == "mlp" ? train::Architecture::mlp : train::Architecture::geglu,
          .inputs = inputs,
          .hidden = *run.hidden,
          .layers = *run.layers,
          .outputs = outputs,
          .dropout = run.dropout};
}

std::shared_ptr<nn::Module> make_network(const TrainRun& run, int64_t inputs, int64_t outputs) {
  require_network_memory(run, inputs);
  return train::make_network(network_options(run, inputs, outputs));
}

}  // namespace epilogue::tool
