// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kFewFlopsPerByte = 50;

constexpr double kPoorWavePct = 75;  // below it, over a quarter of the device idles in whole waves

Finding wave_finding(const Gemm& g) {
  Finding f;
  f.severity = Severity::warning;
  f.title = product_text(g) + " ends in a half-empty wave";
  f.kernels = {g.kernel};
  f.evidence.push_back(gemm_line(g));
  f.evidence.push_back(fmt::format(
      "{} tiles in waves of {}: {:.2f} waves take the time of {}; the last is {:.0f} % full",
      g.tiling->tiles, *g.tiling->tiles_per_wave, *g.tiling->waves,
      static_cast<int64_t>(*g.tiling->waves) + 1, g.tiling->last_wave_fill_pct.value_or(0)));
  advise(f,
         "choose M or N (batch, sequence length, padding of the vocabulary) so that the tiles fill "
         "whole waves; torch.compile(mode=\"max-autotune\") tries other tiles and split-K");
  return f;
}

// Memory limits it: fuller waves would wait for the same bytes. Below so many FLOPs for each byte
// it does on any device with matrix units, whose rates are not needed then.
bool is_bound_by_memory(const Gemm& g) {
  if (g.side) return *g.side == RooflineSide::memory;
  return g.uses_tensor_cores.value_or(false) && g.intensity && *g.intensity < kFewFlopsPerByte;
}

void find_wave_quantisation(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {
    if (shown == kGemmsShown || to_us(g.time.total_ns) < kMinShare * wall_us(e)) return;
    if (g.uses_tensor_cores == false && !g.tensor_core_note.empty()) continue;
    if (!g.tiling || !g.tiling->wave_efficiency_pct) continue;
    if (*g.tiling->wave_efficiency_pct >= kPoorWavePct || *g.tiling->waves <= 1) continue;
    if (is_bound_by_memory(g)) continue;
    out.push_back(wave_finding(g));
    ++shown;
  }
}

}  // namespace

constinit const ExplanationRule kWaveQuantisationRule = {
    .id = "wave-quantisation",
    .says = "which matrix products end in a wave that is mostly empty",
    .said_if =
        [] {
          return fmt::format(
              "whole waves are filled below {} %, it takes {}, and memory does not limit the "
              "product (its roofline; without rates, {} FLOPs or more for each byte); the longest "
              "{}",
              kPoorWavePct, share_of_span(kMinShare), kFewFlopsPerByte, kGemmsShown);
        },
    .find = find_wave_quantisation};

}  // namespace epilogue::trace
