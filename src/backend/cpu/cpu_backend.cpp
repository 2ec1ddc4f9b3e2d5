// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/kernel_lists.h"
#include "base/cpu_features.h"
#include "core/attention.h"
#include "core/backend.h"
#include "core/experts.h"

namespace epilogue {
namespace cpu {

// Each is defined in the file of its name.
std::unique_ptr<FusedKernel> make_attention(const FusedSpec& spec);
std::unique_ptr<FusedKernel> make_experts(const FusedSpec& spec);
std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program);

ShortText kernel_name(std::string_view what, DType dtype) {
  ShortText name = "epi_";
  // Kernels that do not use the 16-bit dot products run as their AVX-512 copies there.
  const CpuFeatures features = active_features();
  const Isa isa = features.has(CpuFeature::avx512) ? Isa::avx512
                  : features.has(CpuFeature::avx2) ? Isa::avx2
                                                   : Isa::baseline;
  name += isa_name(isa);
  name += "_";
  name += what;
  name += "_";
  return name += dtype_name(dtype);
}

namespace {

constexpr FusedKernelMaker kFusedKernels[] = {
    {&kAttention, make_attention},
    {&kExperts, make_experts},
};

bool has_bf16_tiles() { return ChainKernels{simd::FloatType::bf16, {}}.of_many_rows().has_tiles; }

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  Capabilities capabilities() const override {
    return {.chains_store_values = true,
            .programs_read_masks = true,
            .programs_repeat_rows = true,
            .programs_reduce = true,
            .overlaps_bf16_programs = has_bf16_tiles(),
            .ends_with_call = true,
            .fused_kernels = kFusedKernels};
  }

  const std::span<const Kernel>& kernels(const OpDef& op) const override {
    static constexpr KernelLists kAll[] = {
        gemm_lists,     pointwise_lists, copy_lists,       reduction_lists,
        softmax_lists,  norm_lists,      loss_lists,       cross_entropy_lists,
        foreach_lists,  optimizer_lists, bernoulli_lists,  extremum_lists,
        variance_lists, cumsum_lists,    index_copy_lists, index_sum_lists};
    return find_kernels(kAll, op);
  }

  std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) const override {
    return cpu::make_row_chain(spec);
  }
  std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) const override {
    return cpu::make_program(program);
  }
};

}  // namespace
}  // namespace cpu

Backend& cpu_backend() {
  static cpu::CpuBackend backend;
  return backend;
}

}  // namespace epilogue
