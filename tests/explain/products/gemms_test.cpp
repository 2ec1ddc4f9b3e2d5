// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/gemms.h"

#include "explain/products/device_peaks.h"
#include "explain/products/device_samples.h"
#include "explain/products/gemm_shape.h"
#include "explain/products/gemm_trace.h"
#include "support/test.h"

namespace epilogue::trace::gemms_test {

using namespace testing;

GemmShape shape_of(std::string_view op, std::vector<OpInput> inputs) {
  const auto problem = gemm_problem(op, inputs);
  return problem ? problem->shape : GemmShape{};
}

TEST(GemmShape, ComesFromTheInputsOfEachOp) {
  EXPECT_EQ(shape_of("aten::mm", {tensor({5, 7}), tensor({7, 3})}), (GemmShape{5, 3, 7, 1}));
  EXPECT_EQ(shape_of("aten::addmm",
                     {tensor({3}), tensor({5, 7}), tensor({7, 3}), scalar("1"), scalar("1")}),
            (GemmShape{5, 3, 7, 1}));
  EXPECT_EQ(shape_of("aten::bmm", {tensor({2, 5, 7}), tensor({2, 7, 3})}), (GemmShape{5, 3, 7, 2}));
  EXPECT_EQ(shape_of("aten::baddbmm", {tensor({2, 5, 3}), tensor({2, 5, 7}), tensor({2, 7, 3})}),
            (GemmShape{5, 3, 7, 2}));
  EXPECT_EQ(shape_of("aten::linear", {tensor({4, 5, 7}), tensor({3, 7})}),
            (GemmShape{20, 3, 7, 1}));
  EXPECT_EQ(shape_of("aten::matmul", {tensor({4, 5, 7}), tensor({7, 3})}),
            (GemmShape{20, 3, 7, 1}));
  EXPECT_EQ(shape_of("aten::matmul", {tensor({4, 1, 5, 7}), tensor({6, 7, 3})}),
            (GemmShape{5, 3, 7, 24}));
  EXPECT_EQ(shape_of("aten::matmul", {tensor({7}), tensor({7, 3})}), (GemmShape{1, 3, 7, 1}));
  EXPECT_EQ(shape_of("aten::mv", {tensor({5, 7}), tensor({7})}), (GemmShape{5, 1, 7, 1}));
}

TEST(GemmShape, IsUnknownWhereInputsDoNotFit) {
  EXPECT_FALSE(gemm_problem("aten::mm", std::vector<OpInput>{tensor({5, 7}), tensor({8, 3})}));
  EXPECT_FALSE(gemm_problem("aten::mm", std::vector<OpInput>{tensor({5, 7})}));
  EXPECT_FALSE(gemm_problem("aten::mm", std::vector<OpInput>{tensor({-5, 7}), tensor({7, 3})}));
  EXPECT_FALSE(gemm_problem("aten::mm", std::vector<OpInput>{tensor({0, 7}), tensor({7, 3})}));
  EXPECT_FALSE(gemm_problem("aten::linear",
                            std::vector<OpInput>{tensor({INT64_MAX, 4, 7}), tensor({3, 7})}));
  EXPECT_FALSE(gemm_problem("aten::add", std::vector<OpInput>{tensor({5, 7}), tensor({7, 3})}));
}

TEST(Gemms, ComputesRateBytesAndRoofline) {
  GemmTrace t(a100());
  t.product("aten::mm", mm(8192, 3072, 768, kBf16), kGate, 190000);
  t.product("aten::mm", mm(8192, 3072, 768, kBf16), kGate, 210000);
  t.product("aten::mm", mm(8192, 3072, 768, kBf16), kGate, 200000);
  const GemmReport r = t.report();
  ASSERT_EQ(r.gemms.size(), 1U);
  const Gemm& g = r.gemms[0];
  EXPECT_EQ(r.kernels, 3);
  EXPECT_EQ(r.kernels_with_shape, 3);
  EXPECT_EQ(r.total_ns, 600000);
  EXPECT_EQ(g.op, "aten::mm");
  EXPECT_EQ(g.time.count, 3);
  EXPECT_EQ(g.time.median_ns, 200000);
  EXPECT_DOUBLE_EQ(*g.flops, 38654705664.0);  // 2 x 8192 x 3072 x 768
  EXPECT_NEAR(*g.tflops, 193.27, 0.01);       // / 200 us
  // (8192 x 768 + 768 x 3072 + 8192 x 3072) x 2 bytes
  EXPECT_DOUBLE_EQ(*g.bytes, 67633152.0);
  EXPECT_NEAR(*g.intensity, 571.53, 0.01);
  EXPECT_EQ(g.peak_of, "A100 SXM 80GB, NVIDIA data sheet");
  EXPECT_DOUBLE_EQ(*g.peak_tflops, 312);
  EXPECT_NEAR(*g.peak_pct, 61.95, 0.01);
  EXPECT_EQ(g.side, RooflineSide::compute);  // the ridge is at 312000 / 2039 = 153 FLOPs a byte
  EXPECT_DOUBLE_EQ(*g.attainable_tflops, 312);
  EXPECT_EQ(g.uses_tensor_cores, true);
  EXPECT_EQ(g.tensor_core_note, "");
}

TEST(Gemms, CountsTilesAndWaves) {
  GemmTrace t(a100());
  KernelArgs args;
  args.registers_per_thread = 128;
  args.shared_memory_bytes = 144 * 1024;  // one block per SM
  args.block = {256, 1, 1};
  args.grid = {12, 16, 1};
  // The library is column-major: 128 runs over N, 256 over M. 768 / 128 x 8192 / 256 = 192.
  t.product("aten::mm", mm(8192, 768, 3072, kBf16), kDown, 170000, args);
  const GemmReport r = t.report();
  ASSERT_EQ(r.gemms.size(), 1U);
  ASSERT_TRUE(r.gemms[0].tiling);
  const GemmTiling& tiling = *r.gemms[0].tiling;
  EXPECT_EQ(tiling.tiles, 192);
  EXPECT_DOUBLE_EQ(tiling.padding_pct, 0);
  EXPECT_EQ(tiling.tiles_per_wave, 108);
  EXPECT_FALSE(tiling.assumes_one_block_per_sm);
  EXPECT_NEAR(*tiling.waves, 1.7778, 1e-4);
  EXPECT_NEAR(*tiling.wave_efficiency_pct, 88.89, 0.01);
  EXPECT_NEAR(*tiling.last_wave_fill_pct, 84.0 / 108 * 100, 1e-9);
  EXPECT_EQ(r.gemms[0].grid_blocks, 192);
}

TEST(Gemms, CountsThePaddingOfRaggedTiles) {
  GemmTrace t(a100());
  // N 130 takes 2 tiles of 128, M 100 one of 128: 256 x 128 computed, 130 x 100 wanted.
  t.product("aten::mm", mm(100, 130, 64, kBf16), kGate, 5000);
  const GemmReport r = t.report();
  EXPECT_EQ(r.gemms[0].tiling->tiles, 2);
  EXPECT_NEAR(r.gemms[0].tiling->padding_pct, (1 - 13000.0 / 32768) * 100, 1e-9);
  EXPECT_TRUE(r.gemms[0].tiling->assumes_one_block_per_sm);  // no registers in this trace
}

TEST(Gemms, TakesWavesOfAPersistentKernelFromItsGrid) {
  GemmTrace t(a100());
  KernelArgs args;
  args.grid = {96, 1, 1};
  t.product("aten::mm", mm(8192, 768, 3072, kBf16), kDown, 170000, args);
  const GemmTiling tiling = *t.report().gemms[0].tiling;
  EXPECT_EQ(tiling.tiles_per_wave, 96);
  EXPECT_DOUBLE_EQ(*tiling.waves, 2);
  EXPECT_DOUBLE_EQ(*tiling.last_wave_fill_pct, 100);
}

TEST(Gemms, AddsTheReductionOfSplitKToItsProduct) {
  GemmTrace t(v100());
  KernelArgs args;
  args.grid = {8, 1, 8};
  t.begin_op("aten::mm", mm(16, 512, 512, "float"));
  t.add_kernel("volta_sgemm_64x32_sliced1x4_nn", 8000, args);
  t.add_kernel("void splitKreduce_kernel<float, float, float>(x)", 2000);
  const GemmReport r = t.report();
  ASSERT_EQ(r.gemms.size(), 1U);
  EXPECT_EQ(r.kernels, 1);
  EXPECT_EQ(r.gemms[0].reduction_ns, 2000);
  EXPECT_DOUBLE_EQ(r.gemms[0].reduction_ns_per_launch(), 2000);
  EXPECT_DOUBLE_EQ(r.gemms[0].rate_time_ns(), 10000);
  EXPECT_NEAR(*r.gemms[0].tflops, 2.0 * 16 * 512 * 512 / 10000 * 1e-3, 1e-12);
  EXPECT_EQ(r.gemms[0].tiling->tiles, 8);  // 512 / 64, 16 in one of 32
  EXPECT_EQ(r.gemms[0].tiling->split_k, 8);
  EXPECT_DOUBLE_EQ(*r.gemms[0].tiling->waves, 64.0 / 80);
}

TEST(Gemms, GivesNoRateToAnOpWithSeveralProducts) {
  GemmTrace t(a100());
  t.begin_op("aten::bmm", {tensor({2, 64, 64}, kBf16), tensor({2, 64, 64}, kBf16)});
  t.add_kernel(kGate, 5000);
  t.add_kernel(kGate, 5000);
  const GemmReport r = t.report();
  ASSERT_EQ(r.gemms.size(), 1U);
  EXPECT_EQ(r.gemms[0].time.count, 2);
  EXPECT_TRUE(r.gemms[0].shape);
  EXPECT_FALSE(r.gemms[0].flops);
  EXPECT_FALSE(r.gemms[0].tflops);
  EXPECT_FALSE(r.gemms[0].tiling);
}

TEST(Gemms, TakesShapesFromTheEnclosingOp) {
  GemmTrace t(a100());
  t.op("aten::linear", 1000, 5000);
  t.inputs({tensor({8192, 768}, kBf16), tensor({3072, 768}, kBf16)});
  t.op("mylib::fast_linear", 1500, 4000);
  t.inner = 2000;
  t.add_kernel(kGate, 200000);
  const GemmReport r = t.report();
  ASSERT_EQ(r.gemms.size(), 1U);
  EXPECT_EQ(r.gemms[0].op, "aten::linear");
  EXPECT_TRUE(r.gemms[0].is_shape_of_enclosing_op);
  EXPECT_EQ(r.gemms[0].shape, (GemmShape{8192, 3072, 768, 1}));
}

TEST(Gemms, SaysNothingOfShapesThatWereNotRecorded) {
  GemmTrace t(a100());
  t.op("aten::mm", 1000, 5000);
  t.inner = 2000;
  t.add_kernel(kGate, 200000);
  t.gpu_kernel(kDown, 300000, 400000);  // launched before the window
  const GemmReport r = t.report();
  EXPECT_EQ(r.kernels, 2);
  EXPECT_EQ(r.kernels_with_shape, 0);
  ASSERT_EQ(r.gemms.size(), 2U);
  for (const Gemm& g : r.gemms) {
    EXPECT_FALSE(g.shape);
    EXPECT_FALSE(g.tflops);
    EXPECT_EQ(g.op, "");
    EXPECT_EQ(g.a_type, "bf16");  // the name knows that much
  }
}

TEST(Gemms, LeavesOutTheProductsOfConvolutions) {
  GemmTrace t(v100());
  t.op("aten::cudnn_convolution", 1000, 5000);
  t.inner = 2000;
  t.add_kernel("volta_sgemm_128x64_nn", 1000);
  EXPECT_EQ(t.report().kernels, 0);
  EXPECT_TRUE(t.report().gemms.empty());
}

TEST(Gemms, SaysWhyTensorCoresAreNotUsed) {
  GemmTrace t(a100());
  t.product("aten::mm", mm(64, 64, 64, "float"), "ampere_sgemm_128x64_tn", 5000);
  const Gemm f32 = t.report().gemms[0];
  EXPECT_EQ(f32.uses_tensor_cores, false);
  EXPECT_EQ(f32.tensor_core_note, "f32 without TF32");
  EXPECT_HAS(f32.tensor_core_advice, "set_float32_matmul_precision");
  EXPECT_DOUBLE_EQ(*f32.peak_tflops, 19.5);
  GemmTrace old(v100());
  old.product("aten::mm", mm(64, 64, 64, "float"), "volta_sgemm_128x64_tn", 5000);
  EXPECT_HAS(old.report().gemms[0].tensor_core_note, "from compute capability 8.0");
  EXPECT_HAS(old.report().gemms[0].tensor_core_advice, "torch.autocast");
  GemmTrace vector(a100());
  vector.product("aten::mm", mm(1, 4096, 4096, kBf16),
                 "void gemv2T_kernel_val<int, int, __nv_bfloat16>(x)", 5000);
  const Gemm gemv = vector.report().gemms[0];
  EXPECT_HAS(gemv.tensor_core_note, "vector");
  EXPECT_EQ(gemv.tensor_core_advice, "") << "memory limits it anyway";
  EXPECT_FALSE(gemv.peak_tflops);  // no published rate for bf16 off the tensor cores
  EXPECT_EQ(gemv.side, RooflineSide::memory);
}

TEST(Gemms, GivesTf32TheRateOfTensorCores) {
  GemmTrace t(a100());
  t.product("aten::mm", mm(512, 512, 512, "float"),
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>(x)", 5000);
  const Gemm g = t.report().gemms[0];
  EXPECT_EQ(g.math_type, "tf32");
  EXPECT_DOUBLE_EQ(*g.peak_tflops, 156);
}

TEST(Gemms, ReadsNoBlocksFromAnAmdGrid) {
  GemmTrace t(mi300x());
  KernelArgs args;
  args.grid = {73728, 1, 1};  // threads
  args.block = {256, 1, 1};
  t.product("aten::mm", mm(141, 512, 512, kBf16), "Cijk_Alik_Bljk_BBS_BH_MT16x16x128_MI16x16x1_SN",
            5000, args);
  const Gemm g = t.report().gemms[0];
  EXPECT_FALSE(g.grid_blocks);
  EXPECT_EQ(g.tiling->tiles, 288);  // 32 x 9
  EXPECT_EQ(g.tiling->tiles_per_wave, 304);
  EXPECT_TRUE(g.tiling->assumes_one_block_per_sm);
  EXPECT_DOUBLE_EQ(*g.peak_tflops, 1307.4);
}

TEST(Gemms, ReadsAnEmptyTrace) {
  const Trace empty;
  const GemmReport r = gemm_report(empty, link(empty));
  EXPECT_TRUE(r.gemms.empty());
  EXPECT_EQ(r.total_ns, 0);
}

DeviceProperties named(std::string name, int32_t sms = 0) {
  return DeviceProperties{.name = std::move(name), .num_sms = sms};
}

TEST(DevicePeaks, AreFoundByTheWordsOfTheName) {
  EXPECT_EQ(find_device_peaks(named("NVIDIA A100-SXM4-40GB"))->device, "A100 SXM 40GB");
  EXPECT_EQ(find_device_peaks(named("NVIDIA A100 80GB PCIe"))->device, "A100 PCIe 80GB");
  EXPECT_EQ(find_device_peaks(named("NVIDIA H100 PCIe"))->device, "H100 PCIe");
  EXPECT_EQ(find_device_peaks(named("NVIDIA B300 SXM6 AC"))->device, "B300");
  EXPECT_EQ(find_device_peaks(named("Tesla T4"))->device, "T4");
  EXPECT_EQ(find_device_peaks(named("AMD Instinct MI300X VF", 304))->device, "MI300X");
}

TEST(DevicePeaks, AreNotGuessed) {
  for (const char* name :
       {"", "NVIDIA H100", "NVIDIA A100-PG509-200", "NVIDIA A10G", "NVIDIA H200 NVL",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti", "AMD Radeon Graphics"})
    EXPECT_FALSE(find_device_peaks(named(name))) << name;
  EXPECT_FALSE(find_device_peaks(named("AMD Instinct MI300X", 38)));  // a partition of one
}

TEST(DevicePeaks, KnowNoRateForATypeThatTheDeviceLacks) {
  const auto volta = find_device_peaks(v100()).value();
  EXPECT_DOUBLE_EQ(*peak_tflops(volta, "f16"), 125);
  EXPECT_FALSE(peak_tflops(volta, "bf16"));
  EXPECT_FALSE(peak_tflops(volta, "tf32"));
  EXPECT_FALSE(peak_tflops(volta, ""));
}

TEST(DevicePeaks, OfACpuComeFromItsTrace) {
  Trace t;
  t.device_label = "KERNEL";
  t.devices = {named("AMD EPYC")};
  EXPECT_FALSE(find_device_peaks(t, 0));
  t.metadata = {{"f32_peak_gflops", "250.5"}, {"memory_read_gb_per_s", "20"}};
  const auto peaks = find_device_peaks(t, 0).value();
  EXPECT_DOUBLE_EQ(*peak_tflops(peaks, "f32"), 0.2505);
  EXPECT_FALSE(peak_tflops(peaks, "bf16")) << "not measured";
  t.metadata.emplace_back("bf16_peak_gflops", "480");
  EXPECT_DOUBLE_EQ(*peak_tflops(*find_device_peaks(t, 0), "bf16"), 0.48);
  EXPECT_DOUBLE_EQ(peaks.memory_gb_per_s, 20);
}

}  // namespace epilogue::trace::gemms_test
