// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kAlignment = 8;

constexpr int64_t kLeastAlignedSize = 64;

constexpr double kPoorPeakPct = 30;

constexpr double kMisalignedShare = 0.02;  // of the wall time

int64_t padded(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Tensor cores read 16 bytes at once: 8 elements of 16 bits.
bool is_misaligned(const Gemm& g) {
  if (!g.shape || !g.peak_pct || *g.peak_pct >= kPoorPeakPct) return false;
  if (g.a_type != "bf16" && g.a_type != "f16") return false;
  const GemmShape& s = *g.shape;
  if (std::min({s.m, s.n, s.k}) < kLeastAlignedSize) return false;  // its size is the cause
  return s.n % kAlignment != 0 || s.k % kAlignment != 0;
}

void find_misaligned_products(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {
    if (shown == kGemmsShown || to_us(g.time.total_ns) < kMisalignedShare * wall_us(e)) return;
    if (!is_misaligned(g)) continue;
    const bool is_n = g.shape->n % kAlignment != 0;
    const int64_t size = is_n ? g.shape->n : g.shape->k;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("{} runs at {:.0f} % of the peak: {} of {} is no multiple of {}",
                          product_text(g), *g.peak_pct, is_n ? "N" : "K", size, kAlignment);
    f.evidence.push_back(gemm_line(g));
    f.kernels = {g.kernel};
    advise(f, fmt::format("pad {} to {}: tensor cores read {} elements at once", is_n ? "N" : "K",
                          padded(size), kAlignment));
    f.cost_us = to_us(g.time.total_ns);
    out.push_back(std::move(f));
    ++shown;
  }
}

}  // namespace

constinit const ExplanationRule kMisalignedProductRule = {
    .id = "misaligned-product",
    .says = "which products in 16 bits are slow because of their N or K",
    .said_if =
        [] {
          return fmt::format(
              "M, N and K are {} or more, N or K is no multiple of {}, the rate is below {} % of "
              "the peak, and it takes {}; the longest {}",
              kLeastAlignedSize, kAlignment, kPoorPeakPct, share_of_span(kMisalignedShare),
              kGemmsShown);
        },
    .find = find_misaligned_products};

}  // namespace epilogue::trace
