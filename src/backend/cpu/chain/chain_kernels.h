// SPDX-License-Identifier: Apache-2.0
// The panel kernels that a row chain's stages run on, as the list of panel kernels has them.
#pragma once

#include <string>

#include "backend/cpu/chain/row_chain_stage.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/targets.h"

namespace epilogue::cpu {

struct ChainKernels {
  simd::FloatType weights;
  simd::Precision precision;
  bool widens;  // KernelTuning::widens

  // More than any kernel for few rows serves.
  static constexpr int64_t kManyRows = 1024;

  const simd::PanelKernel& of(const ChainStage& stage, int64_t rows) const {
    return simd::choose_panel_kernel({.weights = weights,
                                      .count = stage.k() * stage.n() * stage.products(),
                                      .rows = rows,
                                      .precision = precision,
                                      .widens = widens})
        .kernel();
  }

  // Of any stage: no weights of 8 bits, no kernel for few rows.
  const simd::PanelKernel& of_many_rows() const {
    return simd::choose_panel_kernel({.weights = weights, .rows = kManyRows, .widens = widens})
        .kernel();
  }

  // Rows that the level's widest kernel computes at once, whatever the chain's type: half a tile
  // less for one thread than for another costs more than the ragged end of a smaller tile.
  static int64_t row_unit() {
    return simd::choose_panel_kernel({.weights = simd::FloatType::bf16, .rows = kManyRows})
        .kernel()
        .mr;
  }

  // The instructions as they stand in a chain's name.
  std::string level_name() const {
    const simd::PanelKernel& kernel = of_many_rows();
    return kernel.has_tiles ? kernel.level : target_name(simd::active_target());
  }
};

}  // namespace epilogue::cpu
