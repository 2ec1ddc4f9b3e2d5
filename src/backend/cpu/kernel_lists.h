// SPDX-License-Identifier: Apache-2.0
// The CPU backend's kernels: per op an ordered list, best first. One function per source file.
#pragma once

#include <span>
#include <string_view>

#include "core/kernel_list.h"

namespace epilogue::cpu {

std::span<const KernelList> gemm_lists();           // gemm.cpp
std::span<const KernelList> pointwise_lists();      // pointwise.cpp
std::span<const KernelList> copy_lists();           // copies.cpp
std::span<const KernelList> reduction_lists();      // reductions.cpp
std::span<const KernelList> extremum_lists();       // lines/extrema.cpp
std::span<const KernelList> variance_lists();       // lines/variance.cpp
std::span<const KernelList> cumsum_lists();         // lines/cumsum.cpp
std::span<const KernelList> index_copy_lists();     // indexing/copies_by_index.cpp
std::span<const KernelList> index_sum_lists();      // indexing/sums_by_index.cpp
std::span<const KernelList> softmax_lists();        // softmax.cpp
std::span<const KernelList> norm_lists();           // norms.cpp
std::span<const KernelList> loss_lists();           // losses.cpp
std::span<const KernelList> cross_entropy_lists();  // cross_entropy.cpp
std::span<const KernelList> foreach_lists();        // foreach.cpp
std::span<const KernelList> optimizer_lists();      // optimizers.cpp
std::span<const KernelList> bernoulli_lists();      // bernoulli.cpp

// "epi_avx512_gelu_tanh_bf16": level in use, what it computes, element type.
ShortText kernel_name(std::string_view what, DType dtype);

// The kernel of an op that has one, described by its own word.
template <KernelWord kWord, const char* (*kDecline)(const Call&), void (*kRun)(const Call&),
          void (*kDescribe)(const Call&, KernelInfo&, const char*)>
inline constexpr Kernel kOnly[] = {{kWord.text, kDecline, kRun, [](const Call& c, KernelInfo& i) {
                                      kDescribe(c, i, kWord.text);
                                    }}};

}  // namespace epilogue::cpu
