// SPDX-License-Identifier: Apache-2.0
// Rooflines of this project's CPU kernels, which state their work, on a machine that was measured.
#include "epilogue/trace/gemms.h"
#include "epilogue/trace/time.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::own_kernels_test {

using testing::TraceBuilder;

// A kernel of our own CPU device, of one op without shapes.
TraceBuilder own_kernel(const char* kernel, int64_t us, int64_t flops, int64_t bytes) {
  TraceBuilder b;
  b.trace.device_label = "KERNEL";
  b.trace.devices.emplace_back().name = "AMD EPYC";
  b.op("epilogue::row_chain", 0, us * 1000);
  b.kernel(kernel, 0, us * 1000, 1);
  b.trace.kernels.back().flops = flops;
  b.trace.kernels.back().bytes = bytes;
  b.trace.metadata = {{"f32_peak_gflops", "200"},
                      {"bf16_peak_gflops", "400"},
                      {"memory_read_gb_per_s", "20"},
                      {"isa_used", "\"avx512_bf16\""}};
  return b;
}

constexpr const char* kChain = "epi_avx512_row_chain_mm_gelu_mm_mul_mm_bf16";

TEST(Gemms, AFusedKernelIsPlacedByTheWorkThatItStates) {
  // 30 GFLOP in 100 ms: 300 GFLOP/s, 75 % of what bf16 products reach; 30 MB: 1000 FLOPs per byte.
  const TraceBuilder b = own_kernel(kChain, 100'000, 30'000'000'000, 30'000'000);
  const GemmReport report = gemm_report(b.trace, link(b.trace));
  ASSERT_EQ(report.gemms.size(), 1U);
  const Gemm& g = report.gemms[0];
  EXPECT_FALSE(g.shape);
  EXPECT_EQ(g.math_type, "bf16");
  EXPECT_DOUBLE_EQ(*g.tflops, 0.3);
  EXPECT_DOUBLE_EQ(*g.peak_pct, 75);
  EXPECT_DOUBLE_EQ(*g.intensity, 1000);
  EXPECT_EQ(g.side, RooflineSide::compute);
  EXPECT_EQ(judge_time(b.trace, link(b.trace)).whole.bound, Bound::compute);
}

TEST(Gemms, AFusedKernelOfFewRowsIsBoundByMemory) {
  // 2 MFLOP on 2 MB of weights in 125 us: 16 GB/s of 20.
  const TraceBuilder b = own_kernel(kChain, 125, 2'000'000, 2'000'000);
  const Gemm g = gemm_report(b.trace, link(b.trace)).gemms.at(0);
  EXPECT_EQ(g.side, RooflineSide::memory);
  EXPECT_DOUBLE_EQ(*g.attainable_pct, 80);
  EXPECT_EQ(judge_time(b.trace, link(b.trace)).whole.bound, Bound::memory);
  // Four times as fast: the bytes come from a cache, not from memory.
  const TraceBuilder cached = own_kernel(kChain, 31, 2'000'000, 2'000'000);
  EXPECT_EQ(judge_time(cached.trace, link(cached.trace)).whole.bound, Bound::compute);
}

TEST(Gemms, SixteenBitProductsThatAreWidenedAreHeldAgainstF32) {
  TraceBuilder b = own_kernel("epi_avx512_gemm_bf16_12x32_tn", 100'000, 10'000'000'000, 30'000'000);
  EXPECT_EQ(gemm_report(b.trace, link(b.trace)).gemms.at(0).math_type, "f32");
  EXPECT_DOUBLE_EQ(*gemm_report(b.trace, link(b.trace)).gemms.at(0).peak_pct, 50);
  TraceBuilder narrow = own_kernel(kChain, 100'000, 10'000'000'000, 30'000'000);
  narrow.trace.metadata.back().second = "\"avx2\"";
  EXPECT_EQ(gemm_report(narrow.trace, link(narrow.trace)).gemms.at(0).math_type, "f32");
  narrow.trace.metadata.clear();
  EXPECT_EQ(gemm_report(narrow.trace, link(narrow.trace)).gemms.at(0).math_type, "");
}

}  // namespace epilogue::trace::own_kernels_test
