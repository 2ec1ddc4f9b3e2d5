// SPDX-License-Identifier: Apache-2.0
// Autocast: the dtype policy that run_op applies to an op's inputs before its shape rule. PyTorch's
// torch.amp.autocast; which op has which rule is said in the op's OpDef.
#pragma once

#include <array>
#include <span>
#include <unordered_map>

#include "core/op.h"

namespace epilogue {

// A weight's contents: the same again while storage and version are. Keeps the storage.
struct WeightState {
  detail::Ref<detail::Storage> storage;
  uint32_t version = 0;

  WeightState() = default;
  explicit WeightState(const Tensor& weight)
      : storage(weight.impl()->storage), version(weight.version()) {}
  bool holds_for(const Tensor& weight) const {
    return storage.get() == weight.impl()->storage.get() && version == weight.version();
  }
};

// One thread's regions. thread_state().autocast points here while a device type is enabled.
struct AutocastState {
  struct Region {
    bool enabled = false;
    DType dtype = DType::bf16;
    bool operator==(const Region& other) const {
      return enabled == other.enabled && (!enabled || dtype == other.dtype);
    }
  };
  // A weight and its cast: made once per region, however often the weight is used.
  struct CachedCast {
    Tensor weight;  // keeps its address from being another's
    WeightState made_of;
    Tensor cast;
    bool is_recorded = false;  // gradients were on: the tape knows the cast
  };

  std::array<Region, 2> regions;  // by DeviceType
  bool cache_enabled = true;
  int nesting = 0;
  std::unordered_map<const detail::TensorImpl*, CachedCast> cache;

  bool is_on() const { return regions[0].enabled || regions[1].enabled; }
};

// This thread's state, whether on or off.
AutocastState& autocast_state();

// Switches one device type on or off on this thread for a scope; cached casts go with the outermost
// one. The public form is amp::Autocast (epilogue/amp.h).
class AutocastScope {
 public:
  AutocastScope(DeviceType device, AutocastState::Region region, bool cache_enabled);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  DeviceType device_;
  AutocastState::Region before_;
  bool cache_before_;
};

// Whether the region of the inputs' device has a rule for this op. Called while a region is open.
bool has_autocast_rule(const OpDef& op, std::span<const Tensor> in);
// run_op with the inputs cast as the rule says, autocast off inside. Ops that are cast are one
// unit: their parts see what they were given.
Outputs run_autocast(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs);

// A copy of an f32 weight in 16 bits that somebody else keeps up to date (an optimizer, in the pass
// that writes the weight). While the weight's version is the noted one, autocast takes the copy
// instead of casting. Thread-safe; `weight` must stay alive until forget_low_precision_copy().
void note_low_precision_copy(const Tensor& weight, const Tensor& copy);
void forget_low_precision_copy(const Tensor& weight);
// Whether there is one, of the weight as it is now.
bool has_low_precision_copy(const Tensor& weight);

}  // namespace epilogue
