// SPDX-License-Identifier: Apache-2.0
// Products with weights that are laid out once: panels of columns, and the micro-kernels over them.
//
// A panel holds `width` columns of B, [k][width], so that a micro-kernel streams it. With two parts
// (the gate and up projections of an MLP) each panel has half of its columns from either: one pass
// over A then yields both, side by side, for the epilogue that joins them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/gemm.h"

namespace epilogue::simd {

// What panels store. It decides the type of A's rows and which micro-kernel runs.
enum class PanelType : uint8_t {
  f32,         // A is f32
  bf16,        // widened as it is read; A is f32. Half the bytes: for few rows
  bf16_pairs,  // [k / 2][width][2] for the dot-product instructions; A is bf16
};
inline constexpr size_t kPanelTypes = 3;

// The panels to use for weights of this type and about so many rows of A, at the level in use.
PanelType choose_panel_type(FloatType weights, int64_t rows);

// The element type that A's rows must have.
constexpr FloatType rows_type(PanelType type) {
  return type == PanelType::bf16_pairs ? FloatType::bf16 : FloatType::f32;
}

// A product of a block of rows with one panel: sums[i][j] = a[i][:] . b[:][j], f32.
struct PanelArgs {
  int64_t m = 0;            // rows, any number
  int64_t k = 0;            // of this chunk; even for bf16_pairs
  const void* a = nullptr;  // rows_type(), k contiguous
  int64_t a_stride = 0;     // between rows, in elements
  const void* panel = nullptr;
  float* sums[2] = {};  // one array [m][width], or two of [m][width / 2]
  // Add to what is there, a later chunk of k: the chunk is summed by itself first, so that long
  // sums do not lose what short ones keep.
  bool accumulate = false;
};
using PanelKernel = void (*)(const PanelArgs& args);

struct PackedKernels {
  const char* target;  // Highway's name of the instruction set
  int64_t mr;          // rows that a micro-kernel computes at once
  int64_t width;       // columns of a panel
  // By PanelType; null where the level in use cannot run it. One part, two parts.
  PanelKernel one[kPanelTypes];
  PanelKernel two[kPanelTypes];
};
PackedKernels packed_kernels();

// One matrix B [k, n], or two of the same size, as panels.
class PackedWeights {
 public:
  // `parts` (one or two, any strides) are read now and not kept. Packs on parallel_for's threads.
  PackedWeights(std::span<const GemmOperand> parts, int64_t k, int64_t n, PanelType type);

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }  // columns of each part
  int parts() const { return parts_; }
  PanelType type() const { return type_; }
  int64_t panels() const { return panels_; }
  // Columns of each part that a panel covers; the last one's may reach beyond n (zeros).
  int64_t columns_per_panel() const { return width_ / parts_; }
  // From row `k` on (even for bf16_pairs).
  const void* panel(int64_t index, int64_t k) const;
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  void pack_panel(std::span<const GemmOperand> parts, int64_t index);

  int64_t k_;
  int64_t n_;
  int parts_;
  PanelType type_;
  int64_t width_;
  int64_t panels_;
  int64_t padded_k_;  // even
  size_t bytes_;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace epilogue::simd
