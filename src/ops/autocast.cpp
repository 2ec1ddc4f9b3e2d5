// SPDX-License-Identifier: Apache-2.0
#include "ops/autocast.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/observer.h"
#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "ops/device.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/shape.h"

namespace epilogue {
namespace {

// Copies that optimizers keep, by weight.
struct LowPrecisionCopies {
  struct Copy {
    Tensor tensor;
    WeightState made_of;
  };
  std::mutex mutex;
  std::unordered_map<const detail::TensorImpl*, Copy> of;
};
LowPrecisionCopies& low_precision_copies() {
  static auto* copies = new LowPrecisionCopies;  // weights may outlive static objects
  return *copies;
}

// Off on this thread: the ops inside run in the dtypes that they get.
class Suspended {
 public:
  Suspended() : before_(thread_state().autocast) { thread_state().autocast = nullptr; }
  ~Suspended() { thread_state().autocast = before_; }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  AutocastState* before_;
};

AutocastState::Region region_of(std::span<const Tensor> in) {
  const Tensor* const t = placed_tensor(in);
  if (t == nullptr) return {};
  return autocast_state().regions[static_cast<size_t>(t->device().type)];
}

AutocastRule rule_of(const OpDef& op, std::span<const Tensor> in) {
  const Tensor* const t = placed_tensor(in);
  return t != nullptr ? op.autocast[static_cast<size_t>(t->device().type)] : AutocastRule::none;
}

// f64 and integers are never touched.
bool is_eligible(const Tensor& t) {
  return t.defined() && is_floating(t.dtype()) && t.dtype() != DType::f64;
}

bool is_weight(const Tensor& t) {
  const auto& autograd = t.impl()->autograd;
  return t.dtype() == DType::f32 && t.requires_grad() && (!autograd || autograd->is_leaf());
}

// An up-to-date copy, with a cast's place in the graph; undefined where there is none.
Tensor kept_copy(const Tensor& weight, DType dtype) {
  LowPrecisionCopies& copies = low_precision_copies();
  Tensor copy;
  {
    const std::lock_guard<std::mutex> lock(copies.mutex);
    const auto found = copies.of.find(weight.impl());
    if (found == copies.of.end() || found->second.tensor.dtype() != dtype ||
        !found->second.made_of.holds_for(weight))
      return {};
    copy = found->second.tensor;
  }
  Tensor cast = detail::make_view(copy, copy.sizes(), copy.strides());
  if (thread_state().grad_enabled) {
    const Attr attrs[] = {dtype};
    detail::tape_observer.load(std::memory_order_acquire)
        ->on_op(Call{kToCopy, {&weight, 1}, attrs, {&cast, 1}});
  }
  return cast;
}

Tensor cast_weight(const Tensor& weight, DType dtype) {
  // Capture wants the cast itself in its graph: what a copy holds is not part of the function, and
  // what capture makes holds no numbers.
  if (thread_state().capture != nullptr || thread_state().skip_kernels) return to(weight, dtype);
  AutocastState& state = autocast_state();
  const bool recording = thread_state().grad_enabled;
  const auto found = state.cache.find(weight.impl());
  if (found != state.cache.end() && found->second.made_of.holds_for(weight) &&
      found->second.cast.dtype() == dtype && (found->second.is_recorded || !recording))
    return found->second.cast;
  Tensor cast = kept_copy(weight, dtype);
  if (!cast.defined()) cast = to(weight, dtype);
  state.cache[weight.impl()] = {weight, WeightState(weight), cast, recording};
  return cast;
}

Tensor cast_input(const Tensor& t, DType dtype, DType region_dtype) {
  if (!is_eligible(t) || t.dtype() == dtype) return t;
  const bool cacheable = autocast_state().cache_enabled && dtype == region_dtype && is_weight(t);
  return cacheable ? cast_weight(t, dtype) : to(t, dtype);
}

// Between the region's dtype and f32 there is nothing to promote a third one to.
void require_promotable(const OpDef& op, std::span<const Tensor> in, DType low) {
  for (const Tensor& t : in)
    if (is_eligible(t) && t.dtype() != DType::f32 && t.dtype() != low)
      fail(op, "f32 or " + std::string(dtype_name(low)) + " tensors under autocast", to_string(t));
}

bool any_f32(std::span<const Tensor> in) {
  return std::any_of(in.begin(), in.end(),
                     [](const Tensor& t) { return t.defined() && t.dtype() == DType::f32; });
}

}  // namespace

AutocastState& autocast_state() {
  thread_local AutocastState state;
  return state;
}

AutocastScope::AutocastScope(DeviceType device, AutocastState::Region region, bool cache_enabled)
    : device_(device),
      before_(autocast_state().regions[static_cast<size_t>(device)]),
      cache_before_(autocast_state().cache_enabled) {
  AutocastState& state = autocast_state();
  state.regions[static_cast<size_t>(device)] = region;
  state.cache_enabled = cache_enabled;
  ++state.nesting;
  thread_state().autocast = state.is_on() ? &state : nullptr;
}

AutocastScope::~AutocastScope() {
  AutocastState& state = autocast_state();
  if (--state.nesting == 0) state.cache.clear();
  state.regions[static_cast<size_t>(device_)] = before_;
  state.cache_enabled = cache_before_;
  thread_state().autocast = state.is_on() ? &state : nullptr;
}

bool has_autocast_rule(const OpDef& op, std::span<const Tensor> in) {
  return rule_of(op, in) != AutocastRule::none && region_of(in).enabled;
}

Outputs run_autocast(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs) {
  const DType low = region_of(in).dtype;
  const AutocastRule rule = rule_of(op, in);
  const Suspended suspended;
  std::vector<Tensor> inputs(in.begin(), in.end());
  std::vector<Attr> own_attrs(attrs.begin(), attrs.end());
  if (rule == AutocastRule::f32_result) {
    const auto at = static_cast<size_t>(op.autocast_attr);
    if (own_attrs.size() <= at) own_attrs.resize(at + 1);
    if (is_eligible(in[0]) && std::holds_alternative<std::monostate>(own_attrs[at]))
      own_attrs[at] = DType::f32;
  } else {
    if (rule == AutocastRule::promote) require_promotable(op, in, low);
    const bool widen = rule == AutocastRule::f32 || (rule == AutocastRule::promote && any_f32(in));
    for (Tensor& t : inputs) t = cast_input(t, widen ? DType::f32 : low, low);
  }
  return run_op(op, inputs, own_attrs);
}

void note_low_precision_copy(const Tensor& weight, const Tensor& copy) {
  LowPrecisionCopies& copies = low_precision_copies();
  const std::lock_guard<std::mutex> lock(copies.mutex);
  copies.of.insert_or_assign(weight.impl(), LowPrecisionCopies::Copy{copy, WeightState(weight)});
}

bool has_low_precision_copy(const Tensor& weight) {
  LowPrecisionCopies& copies = low_precision_copies();
  const std::lock_guard<std::mutex> lock(copies.mutex);
  const auto found = copies.of.find(weight.impl());
  return found != copies.of.end() && found->second.made_of.holds_for(weight);
}

void forget_low_precision_copy(const Tensor& weight) {
  LowPrecisionCopies& copies = low_precision_copies();
  const std::lock_guard<std::mutex> lock(copies.mutex);
  copies.of.erase(weight.impl());
}

}  // namespace epilogue
