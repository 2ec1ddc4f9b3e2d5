// SPDX-License-Identifier: Apache-2.0
// Products with weights that are laid out once: panels of columns, and the micro-kernels over them.
//
// A panel holds `width` columns of B, [k][width], so that a micro-kernel streams it. With two parts
// (the gate and up projections of an MLP) each panel has half of its columns from either: one pass
// over A then yields both, side by side, for the epilogue that joins them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/panels/operand.h"
#include "base/large_memory.h"

namespace epilogue::simd {

// What panels store. It decides the type of A's rows and which micro-kernel runs.
enum class PanelType : uint8_t {
  f32,       // A is f32
  bf16,      // widened as it is read; A is f32. Half the bytes: for few rows. Two vectors' columns
             // lie pair by pair
  i8,        // times a scale per column, widened as it is read; A is f32
  i8_pairs,  // the same as [k / 2][width][2] for integer dot products; A is 16-bit integers
  bf16_pairs,  // [k / 2][width][2] for the dot-product and tile instructions; A is bf16
};
inline constexpr size_t kPanelTypes = 5;

// How exactly panels hold weights.
enum class Precision : uint8_t {
  same,  // as they are
  i8,    // rounded to 8-bit integers times a scale per column: the largest magnitude / 127
};

// The panels to use for so many weights of this type and about so many rows of A, at the level in
// use.
PanelType choose_panel_type(FloatType weights, int64_t count, int64_t rows, Precision precision);

// Columns of panels of pairs.
inline constexpr int64_t kPairsWidth = 64;
// How much of k i8_pairs may sum in one go: integers do not overflow.
inline constexpr int64_t kI8SumDepth = 512;

constexpr bool is_pairs(PanelType type) {
  return type == PanelType::bf16_pairs || type == PanelType::i8_pairs;
}
constexpr bool is_i8(PanelType type) {
  return type == PanelType::i8 || type == PanelType::i8_pairs;
}

// The element type that A's rows must have; for i8_pairs, what they are made from (rows_to_i16()).
constexpr FloatType rows_type(PanelType type) {
  return type == PanelType::bf16_pairs ? FloatType::bf16 : FloatType::f32;
}

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

// A product of a block of rows with one panel: sums[i][j] = a[i][:] . b[:][j], f32.
struct PanelArgs {
  int64_t m = 0;            // rows, any number
  int64_t k = 0;            // of this chunk; for pairs a multiple of padded_depth(1, ...)
  const void* a = nullptr;  // rows_type() (i8_pairs: int16_t), k contiguous
  int64_t a_stride = 0;     // between rows, in elements
  const void* panel = nullptr;
  const float* scales = nullptr;      // i8, i8_pairs: one per column of the panel
  const float* row_scales = nullptr;  // i8_pairs: one per row of A
  const void* next = nullptr;         // what comes after this panel, as large; fetched meanwhile
  float* sums[2] = {};                // one array [m][width], or two of [m][width / 2]
  // Add to what is there, a later chunk of k: the chunk is summed by itself first, so that long
  // sums do not lose what short ones keep.
  bool accumulate = false;
  // Of one row: k that one sum takes in before it is added to others, within the kernel; 0: all.
  // Kernels of pairs need none.
  int64_t depth = 0;
  // One part, and a kernel of PackedKernels::stores: the sums (added to what is there, if
  // `accumulate`) are finished and stored there instead. Null: they are stored in `sums`.
  const PanelStore* store = nullptr;
  // From PackedKernels::overlap_rows rows on: done between the products, pieces left over from one
  // block of rows before the next. The sums (added to what `sums` has, if `accumulate`) go where it
  // says.
  PanelWork* work = nullptr;
};
using PanelKernel = void (*)(const PanelArgs& args);

// What panels look like at the level in use.
struct PackedLayout {
  int64_t width = 0;    // columns of a panel
  int64_t pairs_k = 2;  // bf16_pairs: k is padded with zeros to a multiple of it
  bool operator==(const PackedLayout&) const = default;
};

struct PackedKernels {
  const char* target;  // Highway's name of the instruction set
  int64_t mr;          // rows that a micro-kernel computes at once
  int64_t lanes;       // of a vector of f32
  PackedLayout layout;
  // By PanelType; null where the level in use cannot run it. One part, two parts.
  PanelKernel one[kPanelTypes];
  PanelKernel two[kPanelTypes];
  bool stores[kPanelTypes];  // whether those of one part know PanelArgs::store
  // From how many rows on those of bf16_pairs know PanelArgs::work; 0: they do not, for their
  // products and the work would share the vector units.
  int64_t overlap_rows = 0;
};
PackedKernels packed_kernels();

// Panels for rows of k elements hold so many.
int64_t padded_depth(int64_t k, PanelType type, const PackedLayout& layout);

// How several matrices share panels.
enum class Join : uint8_t {
  columns,  // each panel has the same columns of either: two products of the same rows
  depth,    // one above the other: one product of rows that are as long as both
};

// B [k, n] of one part.
struct PackedPart {
  GemmOperand b;
  int64_t k = 0;
};

// One matrix, or two with as many columns, as panels.
class PackedWeights {
 public:
  // `parts` (one or two, any strides; of one depth where columns are joined) are read now and not
  // kept. `layout` has the width of the level in use. Panels that are not of 8-bit integers hold
  // the values that Precision::i8 rounds to. Packs on parallel_for's threads.
  PackedWeights(std::span<const PackedPart> parts, int64_t n, PanelType type,
                const PackedLayout& layout, Join join = Join::columns,
                Precision precision = Precision::same);

  // The same for parts of the same sizes and strides whose values changed, in the memory at hand:
  // new memory would cost as much as the copy. Not while a product reads the panels.
  void repack(std::span<const PackedPart> parts);

  int64_t k() const { return k_; }  // of a row of A
  int64_t n() const { return n_; }  // columns of each part
  int products() const { return products_; }
  PanelType type() const { return type_; }
  int64_t panels() const { return panels_; }
  // Columns of each product that a panel covers; the last one's may reach beyond n (zeros).
  int64_t columns_per_panel() const { return width_ / products_; }
  // From row `k` on (a multiple of the layout's pairs_k for bf16_pairs).
  const void* panel(int64_t index, int64_t k) const;
  // Of the columns of a panel; null but for i8 and i8_pairs.
  const float* scales(int64_t index) const;
  size_t bytes() const { return bytes_; }

 private:
  void copy_parts(std::span<const PackedPart> parts, int64_t index, int64_t rows, float* out) const;
  void pack_panel(std::span<const PackedPart> parts, int64_t index);

  int64_t k_;
  int64_t n_;
  int products_;
  PanelType type_;
  Precision precision_;
  int64_t width_;
  int64_t panels_;
  int64_t padded_k_;
  size_t bytes_;
  LargeMemory memory_;
  std::vector<float> scales_;  // [panels][width]
};

}  // namespace epilogue::simd
