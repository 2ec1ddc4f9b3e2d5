// SPDX-License-Identifier: Apache-2.0
// The decoders of the families. Each returns true and fills `out` when the name is its own, else
// leaves `out` alone.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "epilogue/trace/kernel_name.h"
#include "explain/kernel_name/text.h"

namespace epilogue::trace {

// A name with its C++ form, read once for all decoders.
struct NameText {
  std::string_view text;
  CppName cpp;
};

bool decode_memory(const NameText& name, KernelName& out);     // Memcpy, Memset
bool decode_mma(const NameText& name, KernelName& out);        // cutlass 2.x, ampere_, volta_
bool decode_cutlass3(const NameText& name, KernelName& out);   // cutlass3x_, cutlass::device_kernel
bool decode_xmma(const NameText& name, KernelName& out);       // sm80_xmma_gemm_...
bool decode_nvjet(const NameText& name, KernelName& out);      // nvjet_...
bool decode_cublas(const NameText& name, KernelName& out);     // gemv, splitKreduce, magma
bool decode_tensile(const NameText& name, KernelName& out);    // Cijk_...
bool decode_ck(const NameText& name, KernelName& out);         // Composable Kernel
bool decode_miopen(const NameText& name, KernelName& out);     // igemm_, batched_transpose_
bool decode_trtllm(const NameText& name, KernelName& out);     // bmm_...
bool decode_attention(const NameText& name, KernelName& out);  // flash, efficient, cuDNN, aiter
bool decode_triton(const NameText& name, KernelName& out);     // triton_poi_fused_...
bool decode_aten(const NameText& name, KernelName& out);       // at::native::...
bool decode_cudnn(const NameText& name, KernelName& out);      // cudnn::...
bool decode_collective(const NameText& name, KernelName& out);  // NCCL, RCCL
bool decode_onednn(const NameText& name, KernelName& out);      // verbose lines, primitives
bool decode_own(const NameText& name, KernelName& out);         // epi_...
bool decode_own_cuda(const NameText& name, KernelName& out);    // epilogue::cuda::...
bool decode_listed(const NameText& name, KernelName& out);      // CUB, vLLM, ...: by name only

// Shared by decoders.
void add_field(KernelName& out, std::string_view key, std::string value, bool is_inferred,
               std::string note);
void known(KernelName& out, std::string_view key, std::string value, std::string note = {});
void inferred(KernelName& out, std::string_view key, std::string value, std::string note = {});
// Adds the field and the typed facts: sizes are M, N and, where there is a third, K.
void set_tile(KernelName& out, std::span<const int64_t> sizes, bool is_inferred = false,
              std::string note = {});
void set_cluster(KernelName& out, std::span<const int64_t> sizes);
void set_stages(KernelName& out, int64_t stages, bool is_inferred = false, std::string note = {});
// "tn" with its meaning.
void set_layout(KernelName& out, std::string_view letters);
// Adds one field "types" from the facts: "bf16 x bf16 -> bf16, f32 accumulation".
void add_types_field(KernelName& out, bool is_inferred, std::string note = {});
// "GEMM bf16 x bf16 -> bf16, tensor cores, tile 128x128x32, 5 stages, tn".
std::string summarise_gemm(const KernelName& kernel);

// The ATen ops of a fused kernel's name, "_to_copy_add_gelu" -> {"_to_copy", "add", "gelu"}. Names
// contain underscores, so this is a longest match against a dictionary; `is_certain` is false when
// a part was not in it. Triton's names are sorted, which tells "exp_log" from an op of that name.
struct FusedOps {
  std::vector<std::string> ops;
  bool is_certain = true;
};
enum class OpOrder : uint8_t { sorted, as_they_run };
FusedOps split_fused_ops(std::string_view joined, OpOrder order = OpOrder::sorted);

}  // namespace epilogue::trace
