// SPDX-License-Identifier: Apache-2.0
// mm, addmm and bmm on cuBLASLt.
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/products/gemm.h"
#include "epilogue/ops.h"
#include "ops/ops.h"

namespace epilogue::cuda {
namespace {

const char* decline_product(const Call& call) {
  if (!has_float_type(call.out[0].dtype())) return "needs f32, bf16 or f16 matrices";
  for (const Tensor& t : call.in)
    if (t.device().type == DeviceType::cpu) return "needs matrices of the device";
  const Tensor& first = call.in[call.in.size() - 2];
  return first.size(-1) == 0 ? "has nothing to sum" : nullptr;
}

GemmMatrix matrix(const Tensor& t) {
  const int rank = t.dim();
  return {t.data(), t.strides()[rank - 2], t.strides()[rank - 1], rank == 3 ? t.strides()[0] : 0};
}

// The operands live as long as this: strided ones are copies.
struct Product {
  Tensor a;
  Tensor b;
  GemmCall call;
};
Product product(const Tensor& a, const Tensor& b, const Tensor& out) {
  Product p{a, b, {}};
  p.call.m = out.size(-2);
  p.call.n = out.size(-1);
  p.call.k = a.size(-1);
  p.call.dtype = out.dtype();
  p.call.c = out.data();
  p.call.c_row_stride = p.call.n;
  if (out.dim() == 3) {
    p.call.batch = out.size(0);
    p.call.c_batch_stride = p.call.m * p.call.n;
  }
  p.call.a = matrix(a);
  p.call.b = matrix(b);
  if (!gemm_layout(p.call)) {
    p.a = clone(a);
    p.b = clone(b);
    p.call.a = matrix(p.a);
    p.call.b = matrix(p.b);
  }
  return p;
}

void run_product(const Call& call) { gemm(product(call.in[0], call.in[1], call.out[0]).call); }

// Whether cuBLASLt's bias epilogue adds it: one number per column, unscaled.
bool is_bias_row(const Call& call) {
  const Tensor& bias = call.in[0];
  const Tensor& out = call.out[0];
  return call.attr<double>(0) == 1 && bias.dim() == 1 && bias.size(0) == out.size(1) &&
         bias.is_contiguous();
}

void run_addmm(const Call& call) {
  Product p = product(call.in[1], call.in[2], call.out[0]);
  p.call.alpha = static_cast<float>(call.attr<double>(1));
  if (is_bias_row(call)) {
    p.call.bias = call.in[0].data();
  } else if (call.attr<double>(0) != 0) {
    copy_(call.out[0], call.in[0]);
    p.call.beta = static_cast<float>(call.attr<double>(0));
  }
  gemm(p.call);
}

template <bool kBatched>
void describe_product(const Call& call, KernelInfo& info) {
  info.name = kernel_name(kBatched ? "gemm_batched" : "gemm", call.out[0].dtype());
}

const Kernel kMmKernels[] = {{"cublaslt", decline_product, run_product, describe_product<false>}};
const Kernel kAddmmKernels[] = {{"cublaslt", decline_product, run_addmm, describe_product<false>}};
const Kernel kBmmKernels[] = {{"cublaslt", decline_product, run_product, describe_product<true>}};

}  // namespace

std::span<const KernelList> gemm_lists() {
  static const KernelList kLists[] = {
      {&kMm, kMmKernels}, {&kAddmm, kAddmmKernels}, {&kBmm, kBmmKernels}};
  return kLists;
}

}  // namespace epilogue::cuda
