// SPDX-License-Identifier: Apache-2.0
// Names of AMD's libraries, from real traces.
#include "explain/kernel_name/kernel_name_testing.h"

namespace epilogue::trace::kernel_name_amd_test {
namespace {

using testing::field;
using testing::kind;

TEST(KernelNameTensile, ReadsAHipblasltKernel) {
  const KernelName k = decode_kernel_name(
      "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_AG0_AFEM1_"
      "GRVWA8_GSUAMBSK_GLS0_ISA942_IU1_K1_PGR2_PLR1_SK0_SKFTR0_WS64_WG64_4_1");
  EXPECT_EQ(k.family, "Tensile");
  EXPECT_EQ(kind(k), "gemm");
  EXPECT_EQ(field(k, "layout"), "tn");
  EXPECT_EQ(field(k, "types"), "~bf16 x bf16 -> bf16, f32 accumulation");
  EXPECT_EQ(field(k, "tile"), "256x192x64");
  EXPECT_EQ(field(k, "instruction"), "16x16x1");
  EXPECT_EQ(field(k, "arch"), "gfx942");
  EXPECT_EQ(field(k, "prefetch_global"), "2");
  EXPECT_EQ(field(k, "stream_k"), "0");
  EXPECT_EQ(field(k, "bias"), "~supported");
  EXPECT_EQ(field(k, "tensor_cores"), "yes");
  EXPECT_EQ(k.gemm->tile_k, 64);
  EXPECT_FALSE(k.gemm->splits_k);
}

TEST(KernelNameTensile, ReadsTypesThatAreSpelledApart) {
  const KernelName k =
      decode_kernel_name("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN");
  EXPECT_EQ(k.gemm->a_type, "bf16");
  EXPECT_EQ(k.gemm->c_type, "bf16");
  EXPECT_EQ(k.gemm->accumulator, "f32");
}

TEST(KernelNameTensile, ReadsTheOldFormWithoutMatrixInstruction) {
  const KernelName k = decode_kernel_name("Cijk_Ailk_Bjlk_SB_MT128x64x16_SE_GSU4_K1");
  EXPECT_EQ(field(k, "layout"), "nt");
  EXPECT_EQ(k.gemm->a_type, "f32");
  EXPECT_EQ(field(k, "tensor_cores"), "~no");
  EXPECT_EQ(k.gemm->splits_k, true);
}

TEST(KernelNameCk, ReadsAMangledConvolution) {
  const KernelName k = decode_kernel_name(
      "_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_"
      "cshuffleINS_34GridwiseGemmMultipleD_xdl_cshuffleItttftNS_5TupleIJEEEtNS0_12element_"
      "wise11Pass"
      "ThroughES8_S8_Li1ELi256ELi128ELi256ELi32ELi8ELi8ELi32ELi32ELi2ELi4ENS_8SequenceIJLi4ELi64ELi"
      "1EEEE");
  EXPECT_EQ(k.family, "Composable Kernel");
  EXPECT_EQ(kind(k), "conv");
  EXPECT_EQ(field(k, "function"), "kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle");
  EXPECT_EQ(field(k, "direction"), "fprop");
  EXPECT_EQ(field(k, "block_size"), "256");
  EXPECT_EQ(field(k, "tile"), "~128x256x32");
  EXPECT_EQ(field(k, "instruction"), "~32x32");
  EXPECT_EQ(field(k, "tensor_cores"), "yes");
  EXPECT_FALSE(k.gemm->is_column_major);
}

TEST(KernelNameCk, FindsTheWorkOfATileKernelInItsArguments) {
  const KernelName k = decode_kernel_name(
      "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_"
      "4FooEEEEEEvT0_");
  EXPECT_EQ(kind(k), "norm");
  EXPECT_EQ(field(k, "operation"), "~RMS norm");
}

TEST(KernelNameCk, ClaimsNothingOfAnotherMangledName) {
  EXPECT_FALSE(decode_kernel_name("_ZN3foo3barEv").is_known());
  EXPECT_FALSE(decode_kernel_name("_Z").is_known());
  EXPECT_FALSE(decode_kernel_name("_ZN99999999999999999999ck").is_known());
  EXPECT_FALSE(decode_kernel_name("_ZN2c").is_known());
}

TEST(KernelNameMiopen, ReadsAnImplicitGemm) {
  const KernelName k = decode_kernel_name(
      "igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16_wt32x32x8_ws2x1_wr2x2_ta1x4x1x4_1x4x1x64_"
      "tb1x4x"
      "1x2_1x4x1x64_gkgs");
  EXPECT_EQ(kind(k), "conv");
  EXPECT_EQ(field(k, "direction"), "wgrad");
  EXPECT_EQ(field(k, "image_layout"), "nhwc");
  EXPECT_EQ(field(k, "tile"), "256x128x16");
  EXPECT_EQ(field(k, "instruction"), "~32x32x8");
  EXPECT_EQ(field(k, "split_k"), "~yes");
}

TEST(KernelNameMiopen, ReadsATranspose) {
  const KernelName k = decode_kernel_name("batched_transpose_16x64_pack_1x4_ediv_1x2_half");
  EXPECT_EQ(kind(k), "copy");
  EXPECT_EQ(field(k, "tile"), "16x64");
}

}  // namespace
}  // namespace epilogue::trace::kernel_name_amd_test
