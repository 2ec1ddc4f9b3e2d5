// SPDX-License-Identifier: Apache-2.0
// What a panel kernel is: a product of rows of A with one panel of columns of B.
//
// With two parts (the gate and up projections of an MLP) each panel has half of its columns from
// either: one pass over A then yields both, side by side, for the epilogue that joins them.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/panels/layout.h"
#include "backend/cpu/simd/panels/tile_blocks.h"
#include "backend/cpu/simd/panels/write_back.h"

namespace epilogue::simd {

// Where a kernel finishes its sums itself, while they are in registers: out = sums, + bias, relu of
// that. Where k is small, a program over sums in memory would take a fifth of the time.
struct PanelStore {
  void* out = nullptr;              // of row 0 and the panel's first column
  int64_t stride = 0;               // between rows, in elements
  FloatType type = FloatType::f32;  // or bf16: rounded as round_to_bf16_rows() does, or better
  int64_t columns = 0;              // that are stored
  const float* bias = nullptr;      // one per column of the panel
  bool relu = false;
};

// Work on vectors that a kernel does in pieces between its tile products: the tile unit goes on
// meanwhile, so that it costs no time of its own.
class PanelWork {
 public:
  static constexpr int64_t kBlockRows = 32;

  virtual ~PanelWork() = default;
  // The kernel goes on to rows [row, row + rows) of its panel, at most kBlockRows, in order; all
  // sums before these are stored. Where these go: as PanelArgs::sums, of these rows alone.
  virtual std::array<float*, 2> begin(int64_t row, int64_t rows) = 0;
  // How many pieces there are to do now, and one of them.
  virtual int64_t pieces() const = 0;
  virtual void do_piece() = 0;
};

// A panel of so few bytes stays in L1 between the tiles that read it: what would be fetched is
// there.
inline constexpr int64_t kPanelInL1 = 16 << 10;

// A product of a block of rows with one panel: sums[i][j] = a[i][:] . b[:][j], f32.
struct PanelArgs {
  int64_t m = 0;            // rows, any number
  int64_t k = 0;            // of this chunk, a multiple of the layout's k_unit
  const void* a = nullptr;  // as PanelLayout::rows and quantise_rows say
  int64_t a_stride = 0;     // between rows, in elements
  const void* panel = nullptr;
  // Of panels of tiles: from a block of 32 columns to the next. 0: the panel has no more than k.
  int64_t block_bytes = 0;
  const float* scales = nullptr;      // where the layout has them: one per column of the panel
  const float* row_scales = nullptr;  // of quantised rows: one per row
  // Of quantised rows, where the layout asks for them (running_sums()): of row 0 before k = 0.
  const int32_t* row_sums = nullptr;
  int64_t row_sums_stride = 0;
  const GroupFormat* groups = nullptr;  // of panels that have them
  const void* next = nullptr;           // what comes after this panel, as large; fetched meanwhile
  float* sums[2] = {};                  // one array [m][width] and null, or two of [m][width / 2]
  // Add to what is there, a later chunk of k: the chunk is summed by itself first, so that long
  // sums do not lose what short ones keep.
  bool accumulate = false;
  // k that one sum takes in before it is added to others, within the kernel; 0: all. Kernels of f32
  // rows without a most_k alone know it.
  int64_t depth = 0;
  // Those sums are added to two totals in turn, which are added up at the end: half as many
  // additions one by one. Kernels of f32 weights alone know it, for 2 to kMostFewRows rows.
  bool two_totals = false;
  // One part, and a kernel that `stores`: the sums (added to what is there, if `accumulate`) are
  // finished and stored there instead. Null: they are stored in `sums`.
  const PanelStore* store = nullptr;
  // From PanelKernel::overlap_rows rows on: done between the products, pieces left over from one
  // block of rows before the next. The sums (added to what `sums` has, if `accumulate`) go where it
  // says.
  PanelWork* work = nullptr;
};
// PanelArgs::block_bytes, or what 0 means.
inline int64_t tile_block_bytes(const PanelArgs& args, int64_t weight_bytes) {
  return args.block_bytes > 0 ? args.block_bytes : args.k * kTileBlock * weight_bytes;
}
using PanelFunction = void (*)(const PanelArgs& args);

// Operands of one call: B where it lies, or as panels that were packed a moment ago into a cache of
// this core. Nothing of it is fetched ahead, and results are written from registers where that can
// be.
struct BlockArgs {
  int64_t m;
  int64_t n;  // at most a panel's width where b is a panel, else a multiple of it
  int64_t k;
  const float* a;  // rows, k contiguous
  int64_t a_stride;
  const float* b;    // rows, n contiguous; whole vectors are read
  int64_t b_stride;  // of a panel: its width
  WriteBack out;
};
using BlockFunction = void (*)(const BlockArgs& args);

// Rows of f32 in strips: `mr` of them, column by column. A tile of the product reads one run of
// memory, where rows in their places are `mr` runs whose lines compete for the same sets of L1 when
// they are a multiple of 4 KiB apart.
struct StripFunctions {
  // m rows of k elements, `stride` apart, into ceil(m / mr) strips of mr * k floats, one after the
  // other. What the last one has beyond m is never read.
  void (*pack)(const float* rows, int64_t stride, int64_t m, int64_t k, float* strips) = nullptr;
  // As PanelKernel::one and `two`, to the bit. PanelArgs::a is the first strip, `a_stride` how many
  // rows there is room for.
  PanelFunction product = nullptr;
  // It reads strips of PanelArgs::depth columns: those of all rows, then those of the next columns.
  // Else strips of all columns.
  bool by_sums = false;
};

struct PanelKernel {
  // Its instructions as they stand in kernel names; null: those of the target (targets.h).
  const char* level = nullptr;
  PanelLayout layout;
  int64_t mr = 0;               // rows that it computes at once
  int64_t lanes = 0;            // of a vector of f32
  PanelFunction one = nullptr;  // one part
  PanelFunction two = nullptr;  // two parts
  // One part of f32; null: eager products write the sums of `one` themselves.
  BlockFunction block = nullptr;
  // Null where rows in their places are as fast.
  StripFunctions strips = {};
  // Of layouts with tiles: the product of tiled rows, as fast as it gets.
  TileFunction tiles = nullptr;
  bool stores = false;  // whether `one` knows PanelArgs::store
  // Its products run on a tile unit, beside the vector units.
  bool has_tiles = false;
  // From how many rows on it knows PanelArgs::work; 0: it does not, for its products and the work
  // would share the vector units.
  int64_t overlap_rows = 0;
};

// About how many products of f32 a library adds up in one sum before it begins the next, with
// vectors of so many lanes on this CPU: shorter sums round less, and ours must not lose more. MKL's
// are shorter where it has no kernels of 512 bits of its own (measured: Zen 4).
int64_t f32_sum_depth(int64_t lanes);

}  // namespace epilogue::simd
