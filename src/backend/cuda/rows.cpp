// SPDX-License-Identifier: Apache-2.0
// softmax, log_softmax and the norms, with their backward ops.
#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/runtime.h"
#include "epilogue/ops.h"
#include "ops/device.h"
#include "ops/norms.h"
#include "ops/ops.h"

namespace epilogue::cuda {
namespace {

const char* decline_row(const Call& call) {
  for (const std::span<const Tensor> list : {call.in, std::span<const Tensor>(call.out)})
    for (const Tensor& t : list)
      if (t.defined() && (!has_float_type(t.dtype()) || t.device().type == DeviceType::cpu))
        return kNeedsFloatType;
  return nullptr;
}

// The statistics of the forward pass, inputs [kFirst, kFirst + kCount), are f32 in the kernels.
template <size_t kFirst, size_t kCount>
const char* decline_norm_backward(const Call& call) {
  for (size_t i = kFirst; i < kFirst + kCount; ++i)
    if (call.in[i].dtype() != DType::f32) return "needs f32 statistics";
  return decline_row(call);
}

Lines lines_of(const Call& call) {
  const Dims& sizes = call.out[0].sizes();
  const int dim = named_dim(call, sizes.rank());
  Lines lines;
  lines.n = sizes.empty() ? 1 : sizes[dim];
  for (int d = dim + 1; d < sizes.rank(); ++d) lines.step *= sizes[d];
  lines.count = lines.n == 0 ? 0 : call.out[0].numel() / lines.n;
  return lines;
}

template <bool kLog>
void run_softmax(const Call& call) {
  const Tensor in = dense(call.in[0]);
  check(launch_softmax(kLog, lines_of(call), in.data(), in.dtype(), call.out[0].data(),
                       call.out[0].dtype(), Runtime::get().stream()),
        "softmax");
}

template <bool kLog>
void run_softmax_backward(const Call& call) {
  const Tensor grad = dense(call.in[0]);
  const Tensor output = dense(call.in[1]);
  check(launch_softmax_backward(kLog, lines_of(call), grad.data(), output.data(), output.dtype(),
                                call.out[0].data(), call.out[0].dtype(), Runtime::get().stream()),
        "softmax_backward");
}

// Parameters have one dtype in the kernels: f32 where the two differ.
struct Parameters {
  Tensor weight;
  Tensor bias;
  DType dtype = DType::f32;
};
Parameters parameters_of(const Tensor& weight, const Tensor& bias) {
  Parameters p{dense(weight), dense(bias)};
  if (p.weight.defined() && p.bias.defined() && p.weight.dtype() != p.bias.dtype()) {
    p.weight = to(p.weight, DType::f32);
    p.bias = to(p.bias, DType::f32);
  }
  if (p.weight.defined()) p.dtype = p.weight.dtype();
  if (p.bias.defined()) p.dtype = p.bias.dtype();
  return p;
}

void* data_of(const Tensor& t) { return t.defined() ? t.data() : nullptr; }
float* floats_of(const Tensor& t) { return static_cast<float*>(t.data()); }
void* data_if(const Tensor& t) { return t.numel() == 0 ? nullptr : t.data(); }

NormCall norm_call(const Call& call, const Tensor& x, const Parameters& p) {
  const NormRows rows = norm_rows(x, call.attr<Dims>(0));
  NormCall c;
  c.rows = rows.rows;
  c.n = rows.n;
  c.dtype = x.dtype();
  c.x = x.data();
  c.x_stride = c.n;
  c.weight = data_of(p.weight);
  c.bias = data_of(p.bias);
  c.parameter_dtype = p.dtype;
  c.y = call.out[0].data();
  return c;
}

void run_layer_norm(const Call& call) {
  const Tensor x = dense(call.in[0]);
  const Parameters p = parameters_of(call.in[1], call.in[2]);
  NormCall c = norm_call(call, x, p);
  c.subtracts_mean = true;
  c.eps = static_cast<float>(call.attr<double>(1));
  c.mean = floats_of(call.out[1]);
  c.rstd = floats_of(call.out[2]);
  check(launch_norm(c, Runtime::get().stream()), "layer_norm");
}

void run_rms_norm(const Call& call) {
  const Tensor x = dense(call.in[0]);
  const Parameters p = parameters_of(call.in[1], {});
  NormCall c = norm_call(call, x, p);
  c.eps = static_cast<float>(rms_norm_eps(call));
  c.rstd = floats_of(call.out[1]);
  check(launch_norm(c, Runtime::get().stream()), "rms_norm");
}

// Inputs that both backward ops have, wherever they stand.
void run_norm_backward(const Call& call, const Tensor& mean, const Tensor& rstd,
                       const Tensor& weight, const Tensor& dbias) {
  const Tensor dy = dense(call.in[0]);
  const Tensor x = dense(call.in[1]);
  const Tensor means = dense(mean);
  const Tensor rstds = dense(rstd);
  const Parameters p = parameters_of(weight, {});
  const NormRows rows = norm_rows(x, call.attr<Dims>(0));
  NormBackwardCall c;
  c.rows = rows.rows;
  c.n = rows.n;
  c.dtype = x.dtype();
  c.dy = dy.data();
  c.x = x.data();
  c.weight = data_of(p.weight);
  // Without a weight only a bias can want its gradient.
  c.parameter_dtype = p.weight.defined() ? p.dtype
                      : dbias.defined()  ? dbias.dtype()
                                         : call.out[1].dtype();
  c.mean = means.defined() ? floats_of(means) : nullptr;
  c.rstd = floats_of(rstds);
  c.dx = data_if(call.out[0]);
  c.dweight = data_if(call.out[1]);
  c.dbias = dbias.defined() ? data_if(dbias) : nullptr;
  check(launch_norm_backward(c, Runtime::get().stream()), "norm_backward");
}

void run_layer_norm_backward(const Call& call) {
  run_norm_backward(call, call.in[2], call.in[3], call.in[4], call.out[2]);
}
void run_rms_norm_backward(const Call& call) {
  run_norm_backward(call, {}, call.in[2], call.in[3], {});
}

// One kernel writes both gradients: they have one dtype.
const char* decline_layer_norm_backward(const Call& call) {
  if (call.out[1].numel() != 0 && call.out[2].numel() != 0 &&
      call.out[1].dtype() != call.out[2].dtype())
    return "needs weight and bias of one dtype";
  if (call.out[2].numel() != 0 && call.in[4].defined() && call.in[4].dtype() != call.out[2].dtype())
    return "needs weight and bias of one dtype";
  return decline_norm_backward<2, 2>(call);
}

}  // namespace

std::span<const KernelList> row_lists() {
  static const KernelList kLists[] = {
      {&kSoftmaxUnit, kOnly<"softmax", decline_row, run_softmax<false>>},
      {&kLogSoftmaxUnit, kOnly<"log_softmax", decline_row, run_softmax<true>>},
      {&kSoftmaxBackward, kOnly<"softmax_backward", decline_row, run_softmax_backward<false>>},
      {&kLogSoftmaxBackward,
       kOnly<"log_softmax_backward", decline_row, run_softmax_backward<true>>},
      {&kNativeLayerNorm, kOnly<"layer_norm", decline_row, run_layer_norm>},
      {&kFusedRmsNorm, kOnly<"rms_norm", decline_row, run_rms_norm>},
      {&kNativeLayerNormBackward,
       kOnly<"layer_norm_backward", decline_layer_norm_backward, run_layer_norm_backward>},
      {&kFusedRmsNormBackward,
       kOnly<"rms_norm_backward", decline_norm_backward<2, 1>, run_rms_norm_backward>}};
  return kLists;
}

}  // namespace epilogue::cuda
