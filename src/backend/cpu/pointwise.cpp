// SPDX-License-Identifier: Apache-2.0
// Pointwise ops: one loop (pointwise_loop.h), one tile function per op, and the table that joins
// them.
#include "backend/cpu/simd/pointwise.h"

#include "backend/cpu/float_type.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/pointwise_loop.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

using simd::ArithmeticOp;
using simd::BackwardOp;
using simd::UnaryOp;

// Elements per thread at least: one memory pass over this many, or a tenth of it through exp, takes
// a few times as long as waking a thread.
constexpr int64_t kCheapGrain = 32768;
constexpr int64_t kExpGrain = 8192;
constexpr int64_t kF64Grain = 16384;

constexpr int64_t grain_of(UnaryOp op) {
  return op == UnaryOp::neg || op == UnaryOp::relu ? kCheapGrain : kExpGrain;
}
constexpr int64_t grain_of(BackwardOp op) {
  const bool cheap = op == BackwardOp::relu || op == BackwardOp::sigmoid || op == BackwardOp::tanh;
  return cheap ? kCheapGrain : kExpGrain;
}

void run_unary(const Call& call, UnaryOp op) {
  const simd::UnaryTile tile = simd::pointwise_kernels()[op];
  auto run = [tile](TileInput<float> x, TileInput<float>, float* out, size_t n) {
    tile(x.data, out, n);
  };
  run_pointwise<float>(call, grain_of(op), {run, false});
}

void run_backward(const Call& call, BackwardOp op) {
  const simd::BackwardTile tile = simd::pointwise_kernels()[op];
  auto run = [tile](TileInput<float> dy, TileInput<float> saved, float* out, size_t n) {
    tile(dy.data, saved.data, out, n);
  };
  run_pointwise<float>(call, grain_of(op), {run, false});
}

// add and sub carry alpha; mul and div have no attributes.
double alpha_of(const Call& call) { return call.has_attr(0) ? call.attr<double>(0) : 1; }

void run_arithmetic(const Call& call, ArithmeticOp op) {
  const simd::PointwiseKernels& kernels = simd::pointwise_kernels();
  const auto alpha = static_cast<float>(alpha_of(call));
  const auto i = static_cast<size_t>(op);
  auto run = [&, alpha, i](TileInput<float> a, TileInput<float> b, float* out, size_t n) {
    if (a.data == nullptr && b.data == nullptr) {
      kernels.fill(a.value, out, n);
      a.data = out;
    }
    if (b.data == nullptr)
      return kernels.arithmetic_scalar_right[i](a.data, b.value, out, n, alpha);
    if (a.data == nullptr) return kernels.arithmetic_scalar_left[i](a.value, b.data, out, n, alpha);
    kernels.arithmetic[i](a.data, b.data, out, n, alpha);
  };
  run_pointwise<float>(call, kCheapGrain, {run, true});
}

// f64: loops that the compiler vectorises.
template <class F>
void run_binary_f64(const Call& call, F f) {
  auto run = [f](TileInput<double> a, TileInput<double> b, double* out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = f(a.data[i], b.data[i]);
  };
  run_pointwise<double>(call, kF64Grain, {run, false});
}
void run_arithmetic_f64(const Call& call, ArithmeticOp op) {
  const double alpha = op == ArithmeticOp::sub ? -alpha_of(call) : alpha_of(call);
  switch (op) {
    case ArithmeticOp::add:
    case ArithmeticOp::sub:
      return run_binary_f64(call, [alpha](double a, double b) { return a + alpha * b; });
    case ArithmeticOp::mul: return run_binary_f64(call, [](double a, double b) { return a * b; });
    case ArithmeticOp::div: return run_binary_f64(call, [](double a, double b) { return a / b; });
  }
}
void run_neg_f64(const Call& call) {
  auto run = [](TileInput<double> x, TileInput<double>, double* out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = -x.data[i];
  };
  run_pointwise<double>(call, kF64Grain, {run, false});
}

bool is_one_number(const Tensor& t) { return t.numel() == 1; }

const char* decline_f32(const Call& call) {
  constexpr const char* kReason = "needs f32, bf16 or f16 tensors";
  if (!has_float_type(call.out[0].dtype())) return kReason;
  for (const Tensor& t : call.in)
    if (!has_float_type(t.dtype()) && !is_one_number(t)) return kReason;
  return nullptr;
}
const char* decline_f64(const Call& call) {
  constexpr const char* kReason = "needs f64 tensors";
  if (call.out[0].dtype() != DType::f64) return kReason;
  for (const Tensor& t : call.in)
    if (t.dtype() != DType::f64 && !is_one_number(t)) return kReason;
  return nullptr;
}
const char* decline_threshold(const Call& call) {
  if (call.attr<double>(0) != 0) return "needs threshold 0";
  return decline_f32(call);
}

// Whether some operand is gathered element by element. Most calls are told by a look at the flags.
bool is_strided(const Call& call) {
  bool all_contiguous = call.out[0].is_contiguous();
  for (const Tensor& t : call.in) all_contiguous = all_contiguous && t.is_contiguous();
  if (all_contiguous) return false;
  const StridedWalk walk = make_walk(call.out[0], call.in);
  for (size_t k = 0; k <= call.in.size(); ++k)
    if (walk.operands[k].access == Access::rows) return true;
  return false;
}

// "gelu_tanh", "gelu_tanh_backward", "add", "add_strided".
ShortText what_of(const Call& call) {
  std::string_view op = call.op.name.substr(sizeof "aten::" - 1);
  if (op.ends_with('_')) op.remove_suffix(1);
  ShortText what;
  if (&call.op == &kGelu || &call.op == &kGeluBackward) {
    what = call.attr<int64_t>(0) == 1 ? "gelu_tanh" : "gelu_erf";
    op.remove_prefix(sizeof "gelu" - 1);
  }
  what += op;
  if (is_strided(call)) what += "_strided";
  return what;
}

template <int64_t kGrain>
void describe(const Call& call, KernelInfo& info) {
  const Tensor& out = call.out[0];
  if (out.dtype() == DType::f64) {
    info.name = "epi_baseline_";
    info.name += what_of(call).view();
    info.name += "_f64";
  } else {
    info.name = kernel_name(what_of(call).view(), out.dtype());
  }
  info.grid = {(out.numel() + kStridedTile - 1) / kStridedTile, 1, 1};
  info.block = {kStridedTile, 1, 1};
  info.threads = parallel_pieces(out.numel(), kGrain);
}

template <UnaryOp kOp>
constexpr Kernel kUnaryKernel{"simd", decline_f32, [](const Call& c) { run_unary(c, kOp); },
                              describe<grain_of(kOp)>};
template <BackwardOp kOp>
constexpr Kernel kBackwardKernel{"simd", kOp == BackwardOp::relu ? decline_threshold : decline_f32,
                                 [](const Call& c) { run_backward(c, kOp); },
                                 describe<grain_of(kOp)>};

template <UnaryOp kOp>
const Kernel kUnary[] = {kUnaryKernel<kOp>};
template <BackwardOp kOp>
const Kernel kBackward[] = {kBackwardKernel<kOp>};
template <ArithmeticOp kOp>
const Kernel kArithmetic[] = {
    {"simd", decline_f32, [](const Call& c) { run_arithmetic(c, kOp); }, describe<kCheapGrain>},
    {"f64", decline_f64, [](const Call& c) { run_arithmetic_f64(c, kOp); }, describe<kF64Grain>}};
const Kernel kNegKernels[] = {kUnaryKernel<UnaryOp::neg>,
                              {"f64", decline_f64, run_neg_f64, describe<kF64Grain>}};

// Attribute 0 of gelu and its backward chooses the form.
const Kernel kGeluKernels[] = {{"simd", decline_f32,
                                [](const Call& c) {
                                  run_unary(c, c.attr<int64_t>(0) == 1 ? UnaryOp::gelu_tanh
                                                                       : UnaryOp::gelu_erf);
                                },
                                describe<kExpGrain>}};
const Kernel kGeluBackwardKernels[] = {
    {"simd", decline_f32,
     [](const Call& c) {
       run_backward(c, c.attr<int64_t>(0) == 1 ? BackwardOp::gelu_tanh : BackwardOp::gelu_erf);
     },
     describe<kExpGrain>}};

}  // namespace

std::span<const KernelList> pointwise_lists() {
  static const KernelList kLists[] = {
      {&kAdd, kArithmetic<ArithmeticOp::add>},
      {&kSub, kArithmetic<ArithmeticOp::sub>},
      {&kMul, kArithmetic<ArithmeticOp::mul>},
      {&kDiv, kArithmetic<ArithmeticOp::div>},
      {&kAdd_, kArithmetic<ArithmeticOp::add>},
      {&kMul_, kArithmetic<ArithmeticOp::mul>},
      {&kDiv_, kArithmetic<ArithmeticOp::div>},
      {&kNeg, kNegKernels},
      {&kExp, kUnary<UnaryOp::exp>},
      {&kRelu, kUnary<UnaryOp::relu>},
      {&kSigmoid, kUnary<UnaryOp::sigmoid>},
      {&kTanh, kUnary<UnaryOp::tanh>},
      {&kSilu, kUnary<UnaryOp::silu>},
      {&kGelu, kGeluKernels},
      {&kThresholdBackward, kBackward<BackwardOp::relu>},
      {&kSigmoidBackward, kBackward<BackwardOp::sigmoid>},
      {&kTanhBackward, kBackward<BackwardOp::tanh>},
      {&kSiluBackward, kBackward<BackwardOp::silu>},
      {&kGeluBackward, kGeluBackwardKernels},
  };
  return kLists;
}

}  // namespace epilogue::cpu
