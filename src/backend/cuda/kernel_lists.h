// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's kernels: per op an ordered list, best first. One function per source file.
#pragma once

#include <span>
#include <string_view>

#include "core/kernel_list.h"

namespace epilogue::cuda {

std::span<const KernelList> gemm_lists();           // products.cpp
std::span<const KernelList> pointwise_lists();      // pointwise.cpp
std::span<const KernelList> copy_lists();           // copies.cpp
std::span<const KernelList> reduction_lists();      // reductions.cpp
std::span<const KernelList> row_lists();            // rows.cpp
std::span<const KernelList> loss_lists();           // losses.cpp
std::span<const KernelList> cross_entropy_lists();  // cross_entropy.cpp
std::span<const KernelList> gradient_lists();       // gradients.cpp
std::span<const KernelList> optimizer_lists();      // optimizers.cpp

// "epi_cuda_gelu_tanh_bf16": how a kernel is called where no tracer of the device names it.
ShortText kernel_name(std::string_view what, DType dtype);

// The kernel of an op that has one. Its name ends with the dtype of the result, or of input kInput.
template <KernelWord kWord, const char* (*kDecline)(const Call&), void (*kRun)(const Call&),
          int kInput = -1>
inline constexpr Kernel kOnly[] = {
    {"cuda", kDecline, kRun, [](const Call& call, KernelInfo& info) {
       info.name = kernel_name(kWord.text, (kInput < 0 ? call.out[0] : call.in[kInput]).dtype());
     }}};

}  // namespace epilogue::cuda
