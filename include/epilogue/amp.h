// SPDX-License-Identifier: Apache-2.0
// Automatic mixed precision: torch.amp's autocast and GradScaler.
//
//   amp::GradScaler scaler;                      // f16 only: bf16 has f32's range
//   {
//     const amp::Autocast autocast({.dtype = DType::f16});
//     loss = mse_loss(model(x), y);              // linears in f16, the loss in f32
//   }
//   scaler.scale(loss).backward();               // f32 gradients of f32 weights
//   scaler.step(optimizer);                      // skipped where a gradient is inf or NaN
//   scaler.update();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/optim.h"
#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue::amp {

struct AutocastOptions {
  DeviceType device = DeviceType::cpu;
  std::optional<DType> dtype = {};  // bf16 or f16; empty: bf16 on the CPU, f16 on CUDA
  bool enabled = true;              // false: switches an outer region off for a scope
  bool cache_enabled = true;        // cast a weight once per region
};

// While it lives, ops of this thread run in the dtype that PyTorch's lists give them: matrix
// products in `dtype`, losses in f32, the rest in what they get. Only f32, bf16 and f16 inputs of
// that device are cast, and gradients flow through the casts. Regions nest; casts of weights are
// kept until the outermost one ends. Construct and destroy in scope order on one thread; run
// backward() and the optimizer outside. Throws Error on other dtypes.
class Autocast {
 public:
  explicit Autocast(AutocastOptions options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether ops on that device are cast on this thread, and to what.
bool is_autocast_enabled(DeviceType device = DeviceType::cpu);
DType autocast_dtype(DeviceType device = DeviceType::cpu);

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  bool enabled = true;  // false: scale() is the identity, step() just steps
};

// Multiplies losses so that small f16 gradients do not vanish, undoes it in the optimizer's kernel,
// skips steps with infinite or NaN gradients and adapts the scale. Gradients of one optimizer are
// on one device; step() waits for it. Not thread-safe.
class GradScaler {
 public:
  // Throws Error unless init_scale is above 0 and finite as an f32, growth_factor > 1,
  // 0 < backoff_factor < 1 and growth_interval >= 1.
  explicit GradScaler(GradScalerOptions options = {});

  Tensor scale(const Tensor& output) const;
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs) const;

  // Divides the optimizer's gradients by the scale, in place, and notes whether one is not finite:
  // before clipping. Throws Error when it did so since the last update(), after step(), and on f16
  // gradients.
  void unscale_(optim::Optimizer& optimizer);
  // Steps unless a gradient is not finite; says whether it did. Without unscale_() before, the
  // optimizer's kernel unscales on the fly and .grad() stays scaled. Throws Error when called twice
  // since the last update(), and when no parameter has a gradient.
  bool step(optim::Optimizer& optimizer);
  // Once per iteration, after step() of every optimizer: times backoff_factor if any found a
  // non-finite gradient, times growth_factor after growth_interval steps without. Or sets the
  // scale, which must be what the constructor takes. Throws Error when nothing was unscaled or
  // stepped since the last call.
  void update(std::optional<double> new_scale = {});

  double get_scale() const;  // 1 where disabled
  bool is_enabled() const { return options_.enabled; }
  int64_t growth_tracker() const { return growth_tracker_; }

  // Metadata "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker";
  // empty where disabled.
  optim::StateDict state_dict() const;
  // Throws Error, changing nothing, where an entry is missing, not a number or what the constructor
  // refuses. Does nothing where disabled.
  void load_state_dict(const optim::StateDict& state);

 private:
  enum class Stage : uint8_t { ready, unscaled, stepped };
  struct PerOptimizer {
    Stage stage = Stage::ready;
    Tensor found_inf;  // undefined: nothing was checked
  };
  void check(optim::Optimizer& optimizer, PerOptimizer& record, double inverse_scale);

  GradScalerOptions options_;
  Tensor scale_;  // 0-dim f32, on the host
  int64_t growth_tracker_ = 0;
  std::map<optim::Optimizer*, PerOptimizer> records_;
};

}  // namespace epilogue::amp

#pragma GCC visibility pop
