// SPDX-License-Identifier: Apache-2.0
// mm, addmm and bmm on the blocked SIMD GEMM.
#include "backend/cpu/simd/gemm/gemm.h"

#include "backend/cpu/float_type.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/product_call.h"
#include "backend/cpu/simd/gemm/plan.h"
#include "epilogue/base/error.h"
#include "epilogue/mlp_gradient.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

simd::GemmOperand operand(const Tensor& m) {
  return {m.data(), float_type(m.dtype()), m.strides()[m.dim() - 2], m.strides()[m.dim() - 1]};
}

// The GEMM of out = a b; for a batch, of its first matrix.
simd::GemmCall product(const Tensor& a, const Tensor& b, const Tensor& out) {
  simd::GemmCall g;
  g.m = out.size(-2);
  g.n = out.size(-1);
  g.k = a.size(-1);
  g.a = operand(a);
  g.b = operand(b);
  g.beta = 0;
  g.c = out.data();
  g.c_type = float_type(out.dtype());
  g.c_row_stride = g.n;
  return g;
}

simd::GemmCall addmm_call(const Call& call) {
  simd::GemmCall g = product(call.in[1], call.in[2], call.out[0]);
  const Tensor& bias = call.in[0];
  g.beta = static_cast<float>(call.attr<double>(0));
  g.alpha = static_cast<float>(call.attr<double>(1));
  if (g.beta == 0) return g;
  const Dims strides = broadcast_strides(bias, call.out[0].sizes());
  g.bias = {bias.data(), float_type(bias.dtype()), strides[0], strides[1]};
  return g;
}

simd::GemmCall mm_call(const Call& call) { return product(call.in[0], call.in[1], call.out[0]); }

void run_bmm(const Call& call) {
  const Tensor& a = call.in[0];
  const Tensor& b = call.in[1];
  const Tensor& out = call.out[0];
  simd::GemmCall g = product(a, b, out);
  const auto step = [](const Tensor& t) {
    return t.strides()[0] * static_cast<int64_t>(dtype_bytes(t.dtype()));
  };
  for (int64_t i = 0; i < out.size(0); ++i) {
    g.a.data = static_cast<const std::byte*>(a.data()) + i * step(a);
    g.b.data = static_cast<const std::byte*>(b.data()) + i * step(b);
    g.c = static_cast<std::byte*>(out.data()) + i * step(out);
    simd::gemm(g);
  }
}

const char* decline_product(const Call& call) {
  return has_float_type(call.out[0].dtype()) ? nullptr : "needs f32, bf16 or f16 matrices";
}

void describe_product(const simd::GemmCall& g, KernelInfo& info) {
  const simd::GemmPlan plan = simd::plan_gemm(g);
  const simd::GemmGrid grid = simd::grid_of(g, plan);
  info.name = simd::kernel_name(g, plan);
  for (size_t i = 0; i < 3; ++i) {
    info.grid[i] = grid.grid[i];
    info.block[i] = grid.block[i];
  }
  info.threads = plan.threads();
}

const Kernel kMmKernels[] = {
    {"gemm", decline_product, [](const Call& c) { simd::gemm(mm_call(c)); },
     [](const Call& c, KernelInfo& info) { describe_product(mm_call(c), info); }}};
const Kernel kAddmmKernels[] = {
    {"gemm", decline_product, [](const Call& c) { simd::gemm(addmm_call(c)); },
     [](const Call& c, KernelInfo& info) { describe_product(addmm_call(c), info); }}};
const Kernel kBmmKernels[] = {
    {"gemm", decline_product, run_bmm, [](const Call& c, KernelInfo& info) {
       describe_product(product(c.in[0], c.in[1], c.out[0]), info);
       info.grid[2] *= c.out[0].size(0);
       info.name += "_batched";
     }}};

}  // namespace

std::span<const KernelList> gemm_lists() {
  static const KernelList kLists[] = {
      {&kMm, kMmKernels}, {&kAddmm, kAddmmKernels}, {&kBmm, kBmmKernels}};
  return kLists;
}

}  // namespace epilogue::cpu

namespace epilogue::cpu {

simd::GemmCall product_call(const Tensor& a, const Tensor& b, const Tensor& added,
                            const Tensor& out) {
  const auto fail = [](const std::string& expected, const std::string& got) {
    throw Error("[product_into] expected " + expected + ", got " + got);
  };
  for (const Tensor* t : {&a, &b, &out})
    if (!t->defined() || t->dim() != 2 || !has_float_type(t->dtype()) ||
        t->device().type != DeviceType::cpu)
      fail("matrices of f32, bf16 or f16 on the CPU", to_string(*t));
  if (a.dtype() != b.dtype() || a.dtype() != out.dtype())
    fail("one dtype", to_string(a) + ", " + to_string(b) + " -> " + to_string(out));
  if (a.size(1) != b.size(0) || out.size(0) != a.size(0) || out.size(1) != b.size(1))
    fail("[m, k] x [k, n] -> [m, n]", to_string(a) + ", " + to_string(b) + " -> " + to_string(out));
  if ((out.size(1) > 1 && out.strides()[1] != 1) || out.strides()[0] < out.size(1))
    fail("a result of contiguous rows", to_string(out));
  simd::GemmCall g = product(a, b, out);
  g.c_row_stride = out.strides()[0];
  if (added.defined()) {
    if (!has_float_type(added.dtype()) || added.device().type != DeviceType::cpu)
      fail("what is added of f32, bf16 or f16 on the CPU", to_string(added));
    for (int64_t d = 1; d <= added.dim(); ++d)
      if (d > 2 || (added.size(-d) != 1 && added.size(-d) != out.size(-d)))
        fail("what is added to broadcast to " + to_string(out), to_string(added));
    const Dims strides = broadcast_strides(added, out.sizes());
    g.beta = 1;
    g.bias = {added.data(), float_type(added.dtype()), strides[0], strides[1]};
  }
  return g;
}

}  // namespace epilogue::cpu

namespace epilogue {

void product_into(const Tensor& a, const Tensor& b, const Tensor& added, const Tensor& out) {
  simd::gemm(cpu::product_call(a, b, added, out));
}

}  // namespace epilogue
