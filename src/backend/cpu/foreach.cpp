// SPDX-License-Identifier: Apache-2.0
// CPU kernels of the ops over lists of gradients.
#include <atomic>
#include <cmath>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/list_tiles.h"
#include "backend/cpu/simd/gradients.h"
#include "backend/cpu/simd/pointwise.h"
#include "core/element.h"
#include "ops/ops.h"

namespace epilogue::cpu {

void describe_lists(const Call& call, KernelInfo& info, const char* what) {
  const ListTiles tiles((ListCall(call)));
  info.name = kernel_name(what, call.in[0].dtype());
  info.grid = {std::max<int64_t>(1, tiles.count()), 1, 1};
  info.block = {kRowPiece, 1, 1};
  info.threads = tiles.threads();
}

namespace {

// One tile as f32, in place or in a buffer of this thread.
class TileValues {
 public:
  TileValues(const Tensor& t, const ListTile& tile)
      : type_(float_type(t.dtype())),
        n_(static_cast<size_t>(tile.size)),
        data_(address_of(t, tile.begin)),
        values_(type_ == simd::FloatType::f32 ? static_cast<float*>(data_)
                                              : scratch(Slot::a, tile.size)) {
    if (type_ != simd::FloatType::f32) simd::to_f32(type_, data_, values_, n_);
  }
  float* values() const { return values_; }
  size_t size() const { return n_; }
  void write_back() const {
    if (type_ != simd::FloatType::f32) simd::from_f32(type_, values_, data_, n_);
  }

 private:
  simd::FloatType type_;
  size_t n_;
  void* data_;
  float* values_;
};

const char* decline_norm(const Call& call) {
  const auto order = call.attr<double>(0);
  if (order != 1 && order != 2 && !std::isinf(order)) return "needs order 1, 2 or infinity";
  return decline_lists(call);
}

// Each tile's share is kept, so that the sum does not depend on the number of threads.
void run_norm(const Call& call) {
  const ListCall lists(call);
  const ListTiles tiles(lists);
  const auto order = call.attr<double>(0);
  const auto& kernels = simd::gradient_kernels();
  std::vector<double> shares(static_cast<size_t>(tiles.count()));
  parallel_for(tiles.count(), ListTiles::grain(), [&](int64_t first, int64_t last) {
    auto next = static_cast<size_t>(first);
    tiles.for_each(first, last, [&](const ListTile& tile) {
      const TileValues x(lists.at(0, tile.tensor), tile);
      shares[next++] = std::isinf(order) ? kernels.max_magnitude(x.values(), x.size())
                       : order == 1      ? kernels.sum_magnitudes(x.values(), x.size())
                                         : kernels.sum_squares(x.values(), x.size());
    });
  });
  std::vector<double> norms(lists.size(), 0);
  size_t next = 0;
  tiles.for_each(0, tiles.count(), [&](const ListTile& tile) {
    double& norm = norms[tile.tensor];
    const double share = shares[next++];
    if (!std::isinf(order)) {
      norm += share;
    } else if (std::isnan(share) || share > norm) {  // a NaN stays: nothing is above it
      norm = share;
    }
  });
  for (size_t i = 0; i < norms.size(); ++i)
    store_element(call.out[0].dtype(), call.out[0].data(), static_cast<int64_t>(i),
                  order == 2 ? std::sqrt(norms[i]) : norms[i]);
}

// values = f(values) for every tile.
template <class F>
void map_tiles(const Call& call, F&& f) {
  const ListCall lists(call);
  ListTiles(lists).parallel_for_each([&](const ListTile& tile) {
    const TileValues x(lists.at(0, tile.tensor), tile);
    f(x.values(), x.size());
    x.write_back();
  });
}

void run_mul(const Call& call) {
  const auto factor = static_cast<float>(call.attr<double>(0));
  const auto scale = simd::pointwise_kernels().scale;
  map_tiles(call, [&](float* x, size_t n) { scale(x, factor, x, n); });
}

template <bool kMin>
void run_clamp(const Call& call) {
  const auto bound = static_cast<float>(call.attr<double>(0));
  const float low = kMin ? bound : -HUGE_VALF;
  const float high = kMin ? HUGE_VALF : bound;
  const auto clamp = simd::gradient_kernels().clamp;
  map_tiles(call, [&](float* x, size_t n) { clamp(x, low, high, x, n); });
}

void run_check(const Call& call) {
  const ListCall lists(call);
  const Tensor& inverse = lists.single(call.op, 1);
  const auto factor = static_cast<float>(load_element(inverse.dtype(), inverse.data(), 0));
  const auto& kernels = simd::gradient_kernels();
  std::atomic<bool> all_finite = true;
  ListTiles(lists).parallel_for_each([&](const ListTile& tile) {
    const TileValues x(lists.at(0, tile.tensor), tile);
    const bool finite = factor == 1
                            ? kernels.all_finite(x.values(), x.size())
                            : kernels.scale_and_check(x.values(), factor, x.values(), x.size());
    if (factor != 1) x.write_back();
    if (!finite) all_finite.store(false, std::memory_order_relaxed);
  });
  const Tensor& found = lists.single(call.op, 0);
  if (!all_finite) store_element(found.dtype(), found.data(), 0, 1);
}

constexpr KernelList kForeachLists[] = {
    {&kForeachNorm, kOnly<"foreach_norm", decline_norm, run_norm, describe_lists>},
    {&kForeachMul_, kOnly<"foreach_mul", decline_lists, run_mul, describe_lists>},
    {&kForeachClampMin_,
     kOnly<"foreach_clamp_min", decline_lists, run_clamp<true>, describe_lists>},
    {&kForeachClampMax_,
     kOnly<"foreach_clamp_max", decline_lists, run_clamp<false>, describe_lists>},
    {&kAmpNonFiniteCheckAndUnscale_,
     kOnly<"non_finite_check_and_unscale", decline_lists, run_check, describe_lists>}};

}  // namespace

std::span<const KernelList> foreach_lists() { return kForeachLists; }

}  // namespace epilogue::cpu
