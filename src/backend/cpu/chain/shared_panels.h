// SPDX-License-Identifier: Apache-2.0
// Packed weights of a process: one set of panels for each weight, layout and rounding, whoever
// computes with it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/cpu/simd/panels/packed_weights.h"
#include "core/known_weight.h"
#include "epilogue/int4_weight.h"
#include "epilogue/tensor.h"

namespace epilogue::cpu {

// Lives as long as somebody holds it, and holds the weights that it is of. Thread-safe.
class SharedPanels {
 public:
  ~SharedPanels();
  SharedPanels(const SharedPanels&) = delete;
  SharedPanels& operator=(const SharedPanels&) = delete;

  // The panels of the weights as they are now. Packs them at the first call, and in place where a
  // weight was written since: whoever writes a weight while a product of it runs reads nonsense
  // with or without panels.
  const simd::PackedWeights& current() {
    if (packed_versions_.load(std::memory_order_acquire) == versions()) [[likely]]
      return *panels_;
    return pack();
  }

  const simd::PanelLayout& layout() const { return layout_; }

 private:
  friend std::shared_ptr<SharedPanels> share_panels(std::span<const Tensor> weights,
                                                    const simd::PanelLayout& layout,
                                                    simd::Join join, const simd::Rounding& rounding,
                                                    std::span<const Int4Weight> int4);
  SharedPanels(std::span<const Tensor> weights, const simd::PanelLayout& layout, simd::Join join,
               const simd::Rounding& rounding, std::span<const Int4Weight> int4);

  bool are_of(std::span<const Tensor> weights, const simd::PanelLayout& layout, simd::Join join,
              const simd::Rounding& rounding) const;
  const simd::PackedWeights& pack();
  // Of one or two weights.
  uint64_t versions() const {
    const uint64_t second = weights_.size() > 1 ? weights_[1].tensor.version() : 0;
    return second << 32 | weights_[0].tensor.version();
  }

  std::vector<KnownWeight> weights_;
  std::vector<Int4Weight> int4_;
  const simd::PanelLayout layout_;
  const simd::Join join_;
  const simd::Rounding rounding_;
  std::mutex packing_;
  std::unique_ptr<simd::PackedWeights> panels_;
  std::atomic<uint64_t> packed_versions_{~uint64_t{0}};
};

// One or two weights [n, k], any strides; `int4`: what is packed instead, or empty. Two calls with
// views of the same memory, of the same sizes and strides, get the same panels. Thread-safe.
std::shared_ptr<SharedPanels> share_panels(std::span<const Tensor> weights,
                                           const simd::PanelLayout& layout, simd::Join join,
                                           const simd::Rounding& rounding,
                                           std::span<const Int4Weight> int4 = {});

}  // namespace epilogue::cpu
