// SPDX-License-Identifier: Apache-2.0
// The panel kernels in order, best first: the first that does not decline serves a product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/simd/panels/kernel.h"

namespace epilogue::simd {

// What is to be multiplied.
struct PanelUse {
  FloatType weights = FloatType::f32;
  int64_t rows = 0;  // of A, about
  Precision precision = Precision::same;
  int64_t group = GroupFormat{}.size;  // of Precision::i4
  bool integer_rows = false;           // rows become 8-bit integers too, one scale per row
  bool widens = false;                 // the products of bf16 weights take rows of f32
  bool packs_once = false;  // for one product: what fewer bytes save later does not count
};

struct PanelKernelEntry {
  const char* name;
  // Why it does not serve this use, or not on this machine at the level in use; null: it does.
  const char* (*decline)(const PanelUse& use);
  // At the level in use.
  const PanelKernel& (*kernel)();
};
inline constexpr size_t kPanelKernels = 21;
std::span<const PanelKernelEntry, kPanelKernels> panel_kernels();

// The last entry declines nothing.
const PanelKernelEntry& choose_panel_kernel(const PanelUse& use);

}  // namespace epilogue::simd
