// SPDX-License-Identifier: Apache-2.0
// The networks that a trained model may be.
#include "train/network.h"

#include <fmt/format.h>

#include <algorithm>

namespace epilogue::train {
namespace {

void require_network_sizes(const NetworkOptions& o) {
  if (std::min({o.inputs, o.hidden, o.layers, o.outputs}) < 1)
    throw Error(fmt::format(
        "[make_network] expected inputs, hidden, layers and outputs above 0, got {}, {}, {}, {}",
        o.inputs, o.hidden, o.layers, o.outputs));
  if (!(o.dropout >= 0 && o.dropout < 1))
    throw Error(fmt::format("[make_network] expected 0 <= dropout < 1, got {}", o.dropout));
}

// The width of geglu's blocks.
int64_t block_width(const NetworkOptions& o) { return std::max<int64_t>(1, o.hidden / 2); }

void add_dropout(nn::Sequential& network, double p) {
  if (p > 0) network.emplace<nn::Dropout>(p);
}

}  // namespace

std::shared_ptr<nn::Module> make_network(const NetworkOptions& options) {
  require_network_sizes(options);
  auto network = std::make_shared<nn::Sequential>();
  int64_t width = options.inputs;
  if (options.architecture == Architecture::mlp) {
    for (int64_t i = 0; i < options.layers; ++i) {
      network->emplace<nn::Linear>(width, options.hidden);
      network->emplace<nn::GELU>(Gelu::tanh);
      add_dropout(*network, options.dropout);
      width = options.hidden;
    }
  } else {
    width = block_width(options);
    network->emplace<nn::Linear>(options.inputs, width);
    for (int64_t i = 0; i < options.layers; ++i)
      network->emplace<nn::Block>(width, nn::Norm::rms,
                                  std::make_shared<nn::GatedMLP>(width, options.hidden));
    network->emplace<nn::RMSNorm>(Dims{width});
    add_dropout(*network, options.dropout);
  }
  network->emplace<nn::Linear>(width, options.outputs);
  return network;
}

double num_parameters(const NetworkOptions& options) {
  const auto linear = [](int64_t in, int64_t out) {
    return (static_cast<double>(in) + 1) * static_cast<double>(out);
  };
  const auto layers = static_cast<double>(options.layers);
  if (options.architecture == Architecture::mlp)
    return linear(options.inputs, options.hidden) +
           (layers - 1) * linear(options.hidden, options.hidden) +
           linear(options.hidden, options.outputs);
  const int64_t width = block_width(options);
  const auto w = static_cast<double>(width);
  const double block = w + 3 * w * static_cast<double>(options.hidden);
  return linear(options.inputs, width) + layers * block + w + linear(width, options.outputs);
}

}  // namespace epilogue::train
