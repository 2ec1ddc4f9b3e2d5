// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by AMX's tiles.
#include <algorithm>
#include <array>
#include <utility>

#include "backend/cpu/simd/panels/amx_tiles.h"
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/pack.h"
#include "base/assert.h"
#include "base/cpu_features.h"

namespace epilogue::simd {
namespace {

#if defined(__x86_64__)

// Stores the sums of one block of rows between the products of the next.
class StoreWork final : public PanelWork {
 public:
  explicit StoreWork(const PanelStore& to) : to_(to) {}

  std::array<float*, 2> begin(int64_t row, int64_t rows) override {
    finish();
    float* const sums = areas_[area_].data();
    area_ = 1 - area_;
    ready_ = std::exchange(begun_, {row, rows, sums});
    return {sums, nullptr};
  }
  int64_t pieces() const override { return (ready_.rows + kPieceRows - 1) / kPieceRows; }
  void do_piece() override {
    const int64_t rows = std::min(kPieceRows, ready_.rows);
    store_rows(to_, ready_.sums, kTilesWidth, ready_.row, rows);
    ready_ = {ready_.row + rows, ready_.rows - rows, ready_.sums + rows * kTilesWidth};
  }
  // After the last product.
  void end() {
    finish();
    ready_ = std::exchange(begun_, {});
    finish();
  }

 private:
  static constexpr int64_t kPieceRows = 8;
  struct Rows {
    int64_t row = 0;
    int64_t rows = 0;
    const float* sums = nullptr;
  };
  void finish() {
    while (ready_.rows > 0) do_piece();
  }

  const PanelStore& to_;
  alignas(64) std::array<std::array<float, kBlockRows * kTilesWidth>, 2> areas_;
  size_t area_ = 0;
  Rows begun_;  // what the tiles work on
  Rows ready_;  // the block before it, as far as it is left
};

template <bool kTiled>
void one_part(const PanelArgs& args) {
  if (args.store == nullptr) return TileProduct<AmxUnit, kTiled>(args, 1).run();
  StoreWork work(*args.store);
  PanelArgs stored = args;
  stored.work = &work;
  TileProduct<AmxUnit, kTiled>(stored, 1).run();
  work.end();
}
void amx_one(const PanelArgs& args) {
  args.m < kLeastTileRows ? bf16_pairs_one(args) : one_part<false>(args);
}
void amx_two(const PanelArgs& args) {
  if (args.m < kLeastTileRows) return bf16_pairs_two(args);
  TileProduct<AmxUnit>(args, 2).run();
}

#else

void amx_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void amx_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

#endif

}  // namespace

#if defined(__x86_64__)
void amx_tiled_one(const PanelArgs& args) {
  args.m < kLeastTileRows ? bf16_tile_pairs_one(args) : one_part<true>(args);
}
#else
void amx_tiled_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
#endif

const char* decline_amx(const PanelUse& use) {
  if (use.weights != FloatType::bf16 || use.widens) return "needs bf16 rows and weights";
  // Few rows are left to the dot products.
  const CpuFeatures features = active_features();
  if (!features.has(CpuFeature::amx_bf16) || !features.has(CpuFeature::avx512_bf16))
    return "needs AMX and AVX512-BF16";
  return pack_kernels().width == kTilesWidth ? nullptr : "needs panels of AVX-512";
}

const PanelKernel& amx_kernel() {
  static const PanelKernel kernel = {
      .level = "amx",
      .layout = bf16_pairs_layout(kTileK),
      .mr = 2 * kTileRows,
      .lanes = 16,
      .one = amx_one,
      .two = amx_two,
      .stores = true,
      .has_tiles = true,
      .overlap_rows = kLeastTileRows,
  };
  return kernel;
}

}  // namespace epilogue::simd
