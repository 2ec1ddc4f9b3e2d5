// SPDX-License-Identifier: Apache-2.0
// bernoulli_ on vectors of counters: the reference's numbers.
#include "backend/cpu/simd/bernoulli.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "base/thread_pool.h"
#include "core/random.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

constexpr int64_t kWords = 4;          // numbers that one counter gives
constexpr int64_t kDrawGrain = 16384;  // elements: what a thread draws in some microseconds

bool draws_bytes(DType dtype) { return dtype == DType::u8 || dtype == DType::boolean; }

const char* decline_bernoulli(const Call& call) {
  const Tensor& out = call.out[0];
  if (!has_float_type(out.dtype()) && !draws_bytes(out.dtype()))
    return "needs f32, bf16, f16 or bytes";
  return out.is_contiguous() ? nullptr : "needs a contiguous tensor";
}

// Writes zeros and ones of the dtype over elements [first, first + n) of `out`.
void expand(const Tensor& out, int64_t first, const uint8_t* keep, int64_t n) {
  const simd::BernoulliKernels& kernels = simd::bernoulli_kernels();
  const auto count = static_cast<size_t>(n);
  switch (out.dtype()) {
    case DType::bf16:
      return kernels.expand16(keep, BFloat16(1.0F).bits, static_cast<uint16_t*>(out.data()) + first,
                              count);
    case DType::f16:
      return kernels.expand16(keep, Half(1.0F).bits, static_cast<uint16_t*>(out.data()) + first,
                              count);
    default:
      return kernels.expand32(keep, std::bit_cast<uint32_t>(1.0F),
                              static_cast<uint32_t*>(out.data()) + first, count);
  }
}

void run_bernoulli(const Call& call) {
  const Tensor& out = call.out[0];
  const int64_t n = out.numel();
  const uint32_t limit = bernoulli_limit(call.attr<double>(0));
  const RngState start = take_random_numbers(n);
  parallel_for((n + kWords - 1) / kWords, kDrawGrain / kWords, [&](int64_t begin, int64_t end) {
    alignas(64) std::array<uint8_t, kRowPiece> drawn;
    for (int64_t counter = begin; counter < end; counter += kRowPiece / kWords) {
      const int64_t first = counter * kWords;
      const int64_t count = std::min({kRowPiece, end * kWords - first, n - first});
      const bool direct = draws_bytes(out.dtype());
      uint8_t* const to = direct ? static_cast<uint8_t*>(out.data()) + first : drawn.data();
      simd::bernoulli_kernels().bernoulli(start.seed, start.offset + static_cast<uint64_t>(counter),
                                          limit, to, static_cast<size_t>(count));
      if (!direct) expand(out, first, to, count);
    }
  });
}

void describe_bernoulli(const Call& call, KernelInfo& info) {
  const Tensor& out = call.out[0];
  info.name = kernel_name("bernoulli", out.dtype());
  info.grid = {(out.numel() + kRowPiece - 1) / kRowPiece, 1, 1};
  info.block = {kRowPiece, 1, 1};
  info.threads = parallel_pieces((out.numel() + kWords - 1) / kWords, kDrawGrain / kWords);
}

constexpr Kernel kBernoulliKernels[] = {
    {"bernoulli", decline_bernoulli, run_bernoulli, describe_bernoulli}};
constexpr KernelList kBernoulliLists[] = {{&kBernoulli_, kBernoulliKernels}};

}  // namespace

std::span<const KernelList> bernoulli_lists() { return kBernoulliLists; }

}  // namespace epilogue::cpu
