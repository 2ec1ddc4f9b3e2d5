// SPDX-License-Identifier: Apache-2.0
// Attention by AMX's tiles.
#include "backend/cpu/simd/panels/amx_unit.h"
#include "backend/cpu/simd/panels/attention_tiles.h"
#include "base/cpu_features.h"

namespace epilogue::simd {

#if defined(__x86_64__)

AttentionFunction tile_attention() {
  const CpuFeatures features = active_features();
  if (!features.has(CpuFeature::amx_bf16) || !features.has(CpuFeature::avx512_bf16)) return nullptr;
  return [](const AttentionArgs& args, float* memory) {
    AttentionLoops<AmxUnit>(args, attention_lines(), memory).run();
  };
}

#else

AttentionFunction tile_attention() { return nullptr; }

#endif

}  // namespace epilogue::simd
