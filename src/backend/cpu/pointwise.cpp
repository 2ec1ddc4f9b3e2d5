// SPDX-License-Identifier: Apache-2.0
// Pointwise ops: one loop (pointwise_loop.h), one tile function for each row of the table of
// functions.
#include "backend/cpu/simd/pointwise.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cpu/float_type.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/pointwise_loop.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

// Elements per thread at least: one memory pass over this many, or a tenth of it through exp, takes
// a few times as long as waking a thread.
constexpr int64_t kCheapGrain = 32768;
constexpr int64_t kCostlyGrain = 8192;
constexpr int64_t kF64Grain = 16384;

constexpr int64_t grain_of(PointwiseFn fn) {
  return pointwise_row(fn).cost == PointwiseCost::cheap ? kCheapGrain : kCostlyGrain;
}

template <PointwiseFn kFn>
void run(const Call& call) {
  const simd::FunctionTile tile = simd::pointwise_kernels()[kFn];
  const PointwiseParameters parameters = parameters_of(pointwise_row(kFn), call.attrs);
  static constexpr size_t kOperands = operand_count(kFn);
  auto run_tile = [tile, &parameters](const TileInput<float>* in, float* out, size_t n) {
    simd::TileOperand operands[kOperands];
    for (size_t k = 0; k < kOperands; ++k) {
      operands[k].data = in[k].data;
      operands[k].value = in[k].value;
    }
    tile(operands, out, n, parameters.data());
  };
  run_pointwise<float>(call, grain_of(kFn), {run_tile, kOperands > 1});
}

// add and sub carry alpha; mul and div have no attributes.
double alpha_of(const Call& call) { return call.has_attr(0) ? call.attr<double>(0) : 1; }

// f64: loops that the compiler vectorises.
template <class F>
void run_binary_f64(const Call& call, F f) {
  auto run = [f](const TileInput<double>* in, double* out, size_t n) {
    const double* a = in[0].data;
    const double* b = in[1].data;
    for (size_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  };
  run_pointwise<double>(call, kF64Grain, {run, false});
}
template <int kSign>
void run_add_f64(const Call& call) {
  const double alpha = kSign * alpha_of(call);
  run_binary_f64(call, [alpha](double a, double b) { return a + alpha * b; });
}
void run_mul_f64(const Call& call) {
  run_binary_f64(call, [](double a, double b) { return a * b; });
}
void run_div_f64(const Call& call) {
  run_binary_f64(call, [](double a, double b) { return a / b; });
}
void run_neg_f64(const Call& call) {
  auto run = [](const TileInput<double>* in, double* out, size_t n) {
    const double* x = in[0].data;
    for (size_t i = 0; i < n; ++i) out[i] = -x[i];
  };
  run_pointwise<double>(call, kF64Grain, {run, false});
}

bool is_one_number(const Tensor& t) { return t.numel() == 1; }

template <PointwiseFn kFn>
const char* decline(const Call& call) {
  constexpr const char* kReason = "needs f32, bf16 or f16 tensors";
  constexpr const PointwiseRow& kRow = pointwise_row(kFn);
  if (!has_form(kRow, call.attrs)) return kRow.form.needs;
  const DType computed =
      kRow.result == PointwiseResult::truth ? result_dtype(call.in) : call.out[0].dtype();
  if (!has_float_type(computed)) return kReason;
  for (const Tensor& t : call.in.subspan(kRow.has_condition ? 1 : 0))
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
template <PointwiseFn kFn>
ShortText what_of(const Call& call) {
  // Where an op has one form, the op's name: "threshold_backward".
  constexpr bool kHasForms =
      std::ranges::count(kPointwiseTable, pointwise_row(kFn).op, &PointwiseRow::op) > 1;
  ShortText what = kHasForms ? pointwise_fn_name(kFn) : op_base_name(kFn);
  if (is_strided(call)) what += "_strided";
  return what;
}

void describe_work(const Call& call, KernelInfo& info, int64_t grain) {
  const int64_t n = call.out[0].numel();
  info.grid = {(n + kStridedTile - 1) / kStridedTile, 1, 1};
  info.block = {kStridedTile, 1, 1};
  info.threads = parallel_pieces(n, grain);
}
template <PointwiseFn kFn>
void describe(const Call& call, KernelInfo& info) {
  info.name = kernel_name(what_of<kFn>(call).view(), call.out[0].dtype());
  describe_work(call, info, grain_of(kFn));
}
template <PointwiseFn kFn>
void describe_f64(const Call& call, KernelInfo& info) {
  info.name = "epi_baseline_";
  info.name += what_of<kFn>(call).view();
  info.name += "_f64";
  describe_work(call, info, kF64Grain);
}

template <PointwiseFn kFn>
constexpr Kernel simd_kernel() {
  if constexpr (!is_elementwise(kFn)) {
    return {};
  } else {
    return {"simd", decline<kFn>, run<kFn>, describe<kFn>};
  }
}
template <PointwiseFn kFn>
constexpr Kernel f64_kernel(void (*run_f64)(const Call&)) {
  return {"f64", decline_f64, run_f64, describe_f64<kFn>};
}

// The f64 kernel of a function, if it has one: others run the op's reference.
constexpr std::optional<Kernel> f64_kernel_of(PointwiseFn fn) {
  switch (fn) {
    case PointwiseFn::add: return f64_kernel<PointwiseFn::add>(run_add_f64<1>);
    case PointwiseFn::sub: return f64_kernel<PointwiseFn::sub>(run_add_f64<-1>);
    case PointwiseFn::mul: return f64_kernel<PointwiseFn::mul>(run_mul_f64);
    case PointwiseFn::div: return f64_kernel<PointwiseFn::div>(run_div_f64);
    case PointwiseFn::neg: return f64_kernel<PointwiseFn::neg>(run_neg_f64);
    default: return std::nullopt;
  }
}

template <size_t... kIndex>
constexpr std::array<Kernel, kPointwiseFns> simd_kernels(std::index_sequence<kIndex...>) {
  return {simd_kernel<kPointwiseTable[kIndex].fn>()...};
}

// The kernels of every op of the table: those of its forms, then f64's.
std::vector<Kernel> kernels_of(const OpDef& op) {
  static constexpr std::array<Kernel, kPointwiseFns> kSimd = simd_kernels(PointwiseFnSequence());
  std::vector<Kernel> kernels;
  for (const PointwiseRow& row : kPointwiseTable)
    if (row.op == op.name) kernels.push_back(kSimd[static_cast<size_t>(row.fn)]);
  for (const PointwiseRow& row : kPointwiseTable)
    if (const auto kernel = f64_kernel_of(row.fn); kernel && row.op == op.name)
      kernels.push_back(*kernel);
  return kernels;
}

}  // namespace

std::span<const KernelList> pointwise_lists() {
  static const PointwiseKernelLists lists(kernels_of);
  return lists.span();
}

}  // namespace epilogue::cpu
