// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/shared_panels.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "backend/cpu/float_type.h"
#include "core/allocator.h"

namespace epilogue::cpu {
namespace {

// Who has panels of a weight, by its address. Never destroyed: threads end after main() does.
struct Registry {
  struct Entry {
    const SharedPanels* panels;  // those that `shared` are of, also while they die
    std::weak_ptr<SharedPanels> shared;
  };
  std::mutex mutex;
  std::unordered_multimap<const void*, Entry> entries;
};

Registry& registry() {
  static Registry& the_registry = *new Registry;
  return the_registry;
}

}  // namespace

SharedPanels::SharedPanels(std::span<const Tensor> weights, const simd::PanelLayout& layout,
                           simd::Join join, const simd::Rounding& rounding,
                           std::span<const Int4Weight> int4)
    : int4_(int4.begin(), int4.end()), layout_(layout), join_(join), rounding_(rounding) {
  for (const Tensor& w : weights) weights_.emplace_back(w);
}

SharedPanels::~SharedPanels() {
  if (panels_ != nullptr) count_packed_bytes(-static_cast<int64_t>(panels_->bytes()));
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto [first, last] = all.entries.equal_range(weights_[0].data);
  const auto mine =
      std::find_if(first, last, [this](const auto& e) { return e.second.panels == this; });
  if (mine != last) all.entries.erase(mine);
}

bool SharedPanels::are_of(std::span<const Tensor> weights, const simd::PanelLayout& layout,
                          simd::Join join, const simd::Rounding& rounding) const {
  return layout.holds_weights_as(layout_) && join == join_ && rounding == rounding_ &&
         std::equal(weights.begin(), weights.end(), weights_.begin(), weights_.end(),
                    [](const Tensor& t, const KnownWeight& w) { return w.is(t) && !w.is_moved(); });
}

const simd::PackedWeights& SharedPanels::pack() {
  const std::lock_guard<std::mutex> lock(packing_);
  const uint64_t now = versions();
  if (packed_versions_.load(std::memory_order_relaxed) == now) return *panels_;
  std::vector<simd::PackedPart> parts;
  parts.reserve(weights_.size());
  for (const KnownWeight& w : weights_)  // [n, k]: B is its transpose
    parts.push_back({{w.data, float_type(w.dtype), w.strides[1], w.strides[0]}, w.sizes[1]});
  // Two weights at most.
  std::array<simd::GroupedPart, 2> grouped;
  std::array<simd::SteppedPart, 2> stepped;
  for (size_t i = 0; i < int4_.size(); ++i) {
    const Int4Weight& w = int4_[i];
    if (w.group == 0) {  // of 8 bits
      stepped[i] = {static_cast<const int8_t*>(w.steps.data()), w.scales.data_as<float>()};
      parts[i].stepped = &stepped[i];
    } else {
      grouped[i] = {w.steps.data_as<uint8_t>(), static_cast<const uint16_t*>(w.scales.data()),
                    w.zeros.defined() ? w.zeros.data_as<uint8_t>() : nullptr, w.group};
      parts[i].grouped = &grouped[i];
    }
  }
  if (panels_ != nullptr) {
    panels_->repack(parts);
  } else {
    panels_ = std::make_unique<simd::PackedWeights>(parts, weights_[0].sizes[0], layout_, join_,
                                                    rounding_);
    count_packed_bytes(static_cast<int64_t>(panels_->bytes()));
  }
  packed_versions_.store(now, std::memory_order_release);
  return *panels_;
}

std::shared_ptr<SharedPanels> share_panels(std::span<const Tensor> weights,
                                           const simd::PanelLayout& layout, simd::Join join,
                                           const simd::Rounding& rounding,
                                           std::span<const Int4Weight> int4) {
  // Let go after the lock: the last owner's end takes it.
  std::vector<std::shared_ptr<SharedPanels>> others;
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const void* const key = weights[0].data();
  const auto [first, last] = all.entries.equal_range(key);
  for (auto it = first; it != last; ++it) {
    std::shared_ptr<SharedPanels> known = it->second.shared.lock();
    if (known == nullptr) continue;  // it is about to leave the registry
    if (known->are_of(weights, layout, join, rounding)) return known;
    others.push_back(std::move(known));
  }
  std::shared_ptr<SharedPanels> made(new SharedPanels(weights, layout, join, rounding, int4));
  all.entries.emplace(key, Registry::Entry{made.get(), made});
  return made;
}

}  // namespace epilogue::cpu
