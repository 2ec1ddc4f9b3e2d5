// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/early_stop.h"

#include "nn/optim/options_text.h"

namespace epilogue::tool {
namespace {

constexpr const char* kBestEpoch = "best_epoch";
constexpr const char* kBestLoss = "best_loss";
constexpr const char* kWaited = "waited";

}  // namespace

bool EarlyStop::add(int64_t epoch, double test_loss) {
  if (patience_ == 0) return false;
  const bool is_best = test_loss < best_loss_;
  if (!is_best) {
    ++waited_;
    return false;
  }
  best_epoch_ = epoch;
  best_loss_ = test_loss;
  waited_ = 0;
  return true;
}

train::StateDict EarlyStop::state() const {
  if (best_epoch_ == 0) return {};
  return {{},
          {{kBestEpoch, optim::number_text(best_epoch_)},
           {kBestLoss, optim::number_text(best_loss_)},
           {kWaited, optim::number_text(waited_)}}};
}

void EarlyStop::load(const train::StateDict& state) {
  if (!state.metadata.contains(kBestEpoch)) return;
  best_epoch_ = optim::integer_of(state.metadata, kBestEpoch);
  best_loss_ = optim::number_of(state.metadata, kBestLoss);
  waited_ = optim::integer_of(state.metadata, kWaited);
}

}  // namespace epilogue::tool
