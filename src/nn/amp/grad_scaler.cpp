// SPDX-License-Identifier: Apache-2.0
// torch.amp.GradScaler's algorithm. Every optimizer here unscales in its own kernel, so step()
// takes torch's path for fused optimizers.
#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "epilogue/amp.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "nn/optim/options_text.h"
#include "ops/ops.h"
#include "ops/run_op.h"

namespace epilogue::amp {
namespace {

using optim::Optimizer;

void require(bool holds, const char* expected, double got) {
  optim::require_option(holds, "GradScaler", expected, got);
}

// The scale is an f32: what rounds to 0 or infinity there would scale nothing ever after.
void require_scale(double scale) {
  const auto rounded = static_cast<float>(scale);
  require(rounded > 0 && std::isfinite(rounded), "a scale above 0 that f32 holds", scale);
}

void require_options(const GradScalerOptions& o) {
  require_scale(o.init_scale);
  require(o.growth_factor > 1, "a growth_factor above 1", o.growth_factor);
  require(o.backoff_factor > 0 && o.backoff_factor < 1, "a backoff_factor in (0, 1)",
          o.backoff_factor);
  require(o.growth_interval >= 1, "a growth_interval of 1 or more",
          static_cast<double>(o.growth_interval));
}

// Gradients by dtype: an op on a list takes one.
std::vector<std::vector<Tensor>> gradients_of(const Optimizer& optimizer) {
  std::vector<std::vector<Tensor>> lists(std::size(kDTypes));
  for (const Tensor& p : optimizer.parameters()) {
    const Tensor grad = p.grad();
    if (!grad.defined()) continue;
    if (grad.dtype() == DType::f16)
      throw Error("[unscale_] expected f32 gradients (of f32 parameters), got " + to_string(grad) +
                  ": Attempting to unscale FP16 gradients.");
    lists[static_cast<size_t>(grad.dtype())].push_back(grad.detach());
  }
  std::erase_if(lists, [](const auto& list) { return list.empty(); });
  return lists;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options) {
  require_options(options_);
  scale_ = full({}, options_.init_scale);
}

Tensor GradScaler::scale(const Tensor& output) const {
  if (!options_.enabled) return output;
  // update() makes a new tensor: what the graph saved here does not change.
  return mul(output, scale_.to(output.device()));
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs) const {
  std::vector<Tensor> scaled;
  scaled.reserve(outputs.size());
  for (const Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::check(Optimizer& optimizer, PerOptimizer& record, double inverse_scale) {
  const NoGrad no_grad;
  const std::vector<std::vector<Tensor>> lists = gradients_of(optimizer);
  if (lists.empty()) return;
  const Device device = lists.front().front().device();
  record.found_inf = zeros({}, DType::f32, device);
  const Tensor inverse = full({}, inverse_scale, DType::f32, device);
  for (std::vector<Tensor> in : lists) {
    in.push_back(record.found_inf);
    in.push_back(inverse);
    run_op(kAmpNonFiniteCheckAndUnscale_, in);
  }
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  PerOptimizer& record = records_[&optimizer];
  if (record.stage == Stage::unscaled)
    throw Error(
        "[unscale_] expected one call per update(), got: unscale_() has already been called on "
        "this optimizer since the last update().");
  if (record.stage == Stage::stepped)
    throw Error(
        "[unscale_] expected a call before step(), got: unscale_() is being called after step().");
  check(optimizer, record, 1 / scale_.item());
  record.stage = Stage::unscaled;
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  PerOptimizer& record = records_[&optimizer];
  if (record.stage == Stage::stepped)
    throw Error(
        "[step] expected one call per update(), got: step() has already been called since the "
        "last update().");
  const bool is_unscaled = record.stage == Stage::unscaled;
  if (!is_unscaled) check(optimizer, record, 1);
  if (!record.found_inf.defined())
    throw Error(
        "[step] expected parameters with gradients, got: No inf checks were recorded for this "
        "optimizer.");
  optimizer.step({.grad_scale = is_unscaled ? Tensor() : scale_.to(record.found_inf.device()),
                  .found_inf = record.found_inf});
  record.stage = Stage::stepped;
  return record.found_inf.item() == 0;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    require_scale(*new_scale);
    scale_ = full({}, *new_scale);
  } else {
    bool checked = false;
    bool found = false;
    for (const auto& [optimizer, record] : records_) {
      checked = checked || record.found_inf.defined();
      found = found || (record.found_inf.defined() && record.found_inf.item() != 0);
    }
    if (!checked)
      throw Error(
          "[update] expected unscale_() or step() before, got: No inf checks were recorded prior "
          "to update.");
    if (found) {
      const auto less = static_cast<float>(scale_.item() * options_.backoff_factor);
      if (less > 0) scale_ = full({}, static_cast<double>(less));
      growth_tracker_ = 0;
    } else if (++growth_tracker_ == options_.growth_interval) {
      const auto grown = static_cast<float>(scale_.item() * options_.growth_factor);
      if (std::isfinite(grown)) scale_ = full({}, static_cast<double>(grown));
      growth_tracker_ = 0;
    }
  }
  records_.clear();
}

double GradScaler::get_scale() const { return options_.enabled ? scale_.item() : 1; }

optim::StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  optim::StateDict dict;
  dict.metadata = {{"scale", optim::number_text(scale_.item())},
                   {"growth_factor", optim::number_text(options_.growth_factor)},
                   {"backoff_factor", optim::number_text(options_.backoff_factor)},
                   {"growth_interval", optim::number_text(options_.growth_interval)},
                   {"_growth_tracker", optim::number_text(growth_tracker_)}};
  return dict;
}

void GradScaler::load_state_dict(const optim::StateDict& state) {
  if (!options_.enabled) return;
  const GradScalerOptions loaded = {
      .init_scale = optim::number_of(state.metadata, "scale"),
      .growth_factor = optim::number_of(state.metadata, "growth_factor"),
      .backoff_factor = optim::number_of(state.metadata, "backoff_factor"),
      .growth_interval = optim::integer_of(state.metadata, "growth_interval")};
  const int64_t tracker = optim::integer_of(state.metadata, "_growth_tracker");
  require_options(loaded);
  require(tracker >= 0 && tracker < loaded.growth_interval,
          "a _growth_tracker from 0 to below growth_interval", static_cast<double>(tracker));
  options_ = loaded;
  scale_ = full({}, loaded.init_scale);
  growth_tracker_ = tracker;
}

}  // namespace epilogue::amp
