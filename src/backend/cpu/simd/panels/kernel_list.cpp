// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/kernel_list.h"

#include <algorithm>

namespace epilogue::simd {

// Each pair is defined in the file of its name.
const char* decline_i4_dots(const PanelUse& use);
const PanelKernel& i4_dots_kernel();
const char* decline_i4(const PanelUse& use);
const PanelKernel& i4_kernel();
const char* decline_w4a8_amx(const PanelUse& use);
const PanelKernel& w4a8_amx_kernel();
const char* decline_w4a8_dots(const PanelUse& use);
const PanelKernel& w4a8_dots_kernel();
const char* decline_w4a8_avx_dots(const PanelUse& use);
const PanelKernel& w4a8_avx_dots_kernel();
const char* decline_w4a8_pairs(const PanelUse& use);
const PanelKernel& w4a8_pairs_kernel();
const char* decline_i4_amx(const PanelUse& use);
const PanelKernel& i4_amx_kernel();
const char* decline_i4_bf16_pairs(const PanelUse& use);
const PanelKernel& i4_bf16_pairs_kernel();
const char* decline_i4_f32(const PanelUse& use);
const PanelKernel& i4_f32_kernel();
const char* decline_w8a8_amx_tiled(const PanelUse& use);
const PanelKernel& w8a8_amx_tiled_kernel();
const char* decline_w8a8_amx(const PanelUse& use);
const PanelKernel& w8a8_amx_kernel();
const char* decline_w8a8_dots(const PanelUse& use);
const PanelKernel& w8a8_dots_kernel();
const char* decline_w8a8_avx_dots(const PanelUse& use);
const PanelKernel& w8a8_avx_dots_kernel();
const char* decline_w8a8_pairs(const PanelUse& use);
const PanelKernel& w8a8_pairs_kernel();
const char* decline_i8_pairs(const PanelUse& use);
const PanelKernel& i8_pairs_kernel();
const char* decline_i8(const PanelUse& use);
const PanelKernel& i8_kernel();
const char* decline_amx_tiled(const PanelUse& use);
const PanelKernel& amx_tiled_kernel();
const char* decline_amx(const PanelUse& use);
const PanelKernel& amx_kernel();
const char* decline_bf16_pairs(const PanelUse& use);
const PanelKernel& bf16_pairs_kernel();
const char* decline_bf16(const PanelUse& use);
const PanelKernel& bf16_kernel();
const char* decline_f32(const PanelUse& use);
const PanelKernel& f32_kernel();

namespace {

constexpr PanelKernelEntry kList[kPanelKernels] = {
    {"i4_dots", decline_i4_dots, i4_dots_kernel},
    {"i4", decline_i4, i4_kernel},
    {"w4a8_amx", decline_w4a8_amx, w4a8_amx_kernel},
    {"w4a8_dots", decline_w4a8_dots, w4a8_dots_kernel},
    {"w4a8_avx_dots", decline_w4a8_avx_dots, w4a8_avx_dots_kernel},
    {"w4a8_pairs", decline_w4a8_pairs, w4a8_pairs_kernel},
    {"i4_amx", decline_i4_amx, i4_amx_kernel},
    {"i4_bf16_pairs", decline_i4_bf16_pairs, i4_bf16_pairs_kernel},
    {"i4_f32", decline_i4_f32, i4_f32_kernel},
    {"w8a8_amx_tiled", decline_w8a8_amx_tiled, w8a8_amx_tiled_kernel},
    {"w8a8_amx", decline_w8a8_amx, w8a8_amx_kernel},
    {"w8a8_dots", decline_w8a8_dots, w8a8_dots_kernel},
    {"w8a8_avx_dots", decline_w8a8_avx_dots, w8a8_avx_dots_kernel},
    {"w8a8_pairs", decline_w8a8_pairs, w8a8_pairs_kernel},
    {"i8_pairs", decline_i8_pairs, i8_pairs_kernel},
    {"i8", decline_i8, i8_kernel},
    {"amx_tiled", decline_amx_tiled, amx_tiled_kernel},
    {"amx", decline_amx, amx_kernel},
    {"bf16_pairs", decline_bf16_pairs, bf16_pairs_kernel},
    {"bf16", decline_bf16, bf16_kernel},
    {"f32", decline_f32, f32_kernel},
};

}  // namespace

static_assert(kList[kPanelKernels - 1].name != nullptr, "no more entries than there are");

std::span<const PanelKernelEntry, kPanelKernels> panel_kernels() { return kList; }

const PanelKernelEntry& choose_panel_kernel(const PanelUse& use) {
  return *std::find_if(std::begin(kList), std::end(kList) - 1,
                       [&use](const PanelKernelEntry& e) { return e.decline(use) == nullptr; });
}

}  // namespace epilogue::simd
