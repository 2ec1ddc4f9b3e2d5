// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/kernel_list.h"

#include <algorithm>

namespace epilogue::simd {

// In the order in which they are asked. Each is defined in the file of its name.
#define EPILOGUE_PANEL_KERNELS(X) \
  X(i4_dots)                      \
  X(i4)                           \
  X(w4a8_amx)                     \
  X(w4a8_dots)                    \
  X(w4a8_avx_dots)                \
  X(w4a8_pairs)                   \
  X(i4_amx)                       \
  X(i4_bf16_pairs)                \
  X(i4_f32)                       \
  X(w8a8_amx_tiled)               \
  X(w8a8_amx)                     \
  X(w8a8_dots)                    \
  X(w8a8_avx_dots)                \
  X(w8a8_pairs)                   \
  X(i8_pairs)                     \
  X(i8)                           \
  X(amx_tiled)                    \
  X(amx)                          \
  X(bf16_pairs)                   \
  X(bf16)                         \
  X(f32)

#define EPILOGUE_DECLARE(name)                     \
  const char* decline_##name(const PanelUse& use); \
  const PanelKernel& name##_kernel();
EPILOGUE_PANEL_KERNELS(EPILOGUE_DECLARE)

namespace {

#define EPILOGUE_ENTRY(name) {#name, decline_##name, name##_kernel},
constexpr PanelKernelEntry kList[kPanelKernels] = {EPILOGUE_PANEL_KERNELS(EPILOGUE_ENTRY)};

}  // namespace

static_assert(kList[kPanelKernels - 1].name != nullptr, "no more entries than there are");

std::span<const PanelKernelEntry, kPanelKernels> panel_kernels() { return kList; }

const PanelKernelEntry& choose_panel_kernel(const PanelUse& use) {
  return *std::find_if(std::begin(kList), std::end(kList) - 1,
                       [&use](const PanelKernelEntry& e) { return e.decline(use) == nullptr; });
}

}  // namespace epilogue::simd
