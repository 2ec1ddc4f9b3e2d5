// SPDX-License-Identifier: Apache-2.0
// sum, mean and the mean squared error.
#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/tensor_walk.h"
#include "epilogue/ops.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cuda {
namespace {

const char* decline_reduction(const Call& call) {
  if (!has_float_type(call.out[0].dtype())) return kNeedsFloatType;
  for (const Tensor& t : call.in)
    if (!has_float_type(t.dtype()) || t.device().type == DeviceType::cpu) return kNeedsFloatType;
  return nullptr;
}

// The sum of `a` (squared differences to `b` where that is defined) over `dims`, times `scale`.
void sum(const Tensor& a, const Tensor& b, const Dims& sizes, const Dims& dims, double scale,
         const Tensor& out) {
  ReduceShape shape = make_reduce_shape(sizes, dims);
  ReduceOperand first = make_reduce_operand(a, sizes, dims);
  ReduceOperand second = b.defined() ? make_reduce_operand(b, sizes, dims) : ReduceOperand{};
  join_dimensions(shape, first, second);
  // Freed at once: whoever gets the memory next writes it later in the stream.
  const Tensor scratch = empty({sum_scratch_floats(shape, first)}, DType::f32, kDevice);
  check(launch_sum(shape, first, second, static_cast<float>(scale), out.data(), out.dtype(),
                   static_cast<float*>(scratch.data()), Runtime::get().stream()),
        "sum");
}

template <bool kIsMean>
void run_reduction(const Call& call) {
  const Dims& sizes = call.in[0].sizes();
  const Dims dims = normalize_dims(call.op, call.attr<Dims>(0), sizes.rank());
  int64_t n = 1;
  for (const int64_t d : dims) n *= sizes[static_cast<int>(d)];
  sum(call.in[0], {}, sizes, dims, kIsMean ? 1 / static_cast<double>(n) : 1, call.out[0]);
}

Dims all_dims(const Dims& sizes) {
  Dims dims;
  for (int d = 0; d < sizes.rank(); ++d) dims.push_back(d);
  return dims;
}

void run_mse(const Call& call) {
  const Reduction reduction = reduction_of(call, 0);
  if (reduction == Reduction::none)
    return check(
        launch_squared_difference(make_walk(call.out[0], call.in), Runtime::get().stream()),
        "mse_loss");
  const Dims sizes = broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes());
  const auto n = static_cast<double>(element_count(sizes));
  sum(call.in[0], call.in[1], sizes, all_dims(sizes), reduction == Reduction::mean ? 1 / n : 1,
      call.out[0]);
}

// 2 (self - target) * grad, over the number of elements for mean.
void run_mse_backward(const Call& call) {
  const auto n = static_cast<double>(call.out[0].numel());
  const double factor = reduction_of(call, 0) == Reduction::mean ? 2 / n : 2;
  const Tensor in[] = {call.in[1], call.in[2], call.in[0]};
  check(launch_scaled_difference(static_cast<float>(factor), make_walk(call.out[0], in),
                                 Runtime::get().stream()),
        "mse_loss_backward");
}

}  // namespace

std::span<const KernelList> reduction_lists() {
  static const KernelList kLists[] = {
      {&kSum, kOnly<"sum", decline_reduction, run_reduction<false>>},
      {&kMean, kOnly<"mean", decline_reduction, run_reduction<true>>},
      {&kMseLoss, kOnly<"mse_loss", decline_reduction, run_mse>},
      {&kMseLossBackward, kOnly<"mse_loss_backward", decline_reduction, run_mse_backward>}};
  return kLists;
}

}  // namespace epilogue::cuda
