// SPDX-License-Identifier: Apache-2.0
// One step of Adam, AdamW and SGD over lists of parameters: PyTorch's fused optimizer ops, which
// here also count their steps, take a clip coefficient and write 16-bit copies of the parameters.
#include "ops/optimizer_steps.h"

#include <cmath>

#include "ops/ops.h"
#include "ops/reference.h"

namespace epilogue {
namespace {

constexpr uint32_t bit(size_t argument) { return 1U << argument; }

void require_scalar(const Call& call, const Tensor& t, const char* what) {
  if (t.defined() && (t.numel() != 1 || t.dtype() != DType::f32))
    fail(call.op, std::string("one f32 element for ") + what, to_string(t));
}

// Lists [1, copies) are like the parameters; the copies are 16 bit.
void require_lists(const Call& call, size_t steps, size_t copies) {
  const ListCall lists(call);
  for (size_t i = 0; i < lists.size(); ++i) {
    const Tensor& param = lists.at(0, i);
    require_floating(call.op, param);
    for (size_t list = 0; list < copies; ++list) {
      if (list == steps) continue;
      require_like_first_list(call, lists, list, i);
      const bool written = (call.op.writes & bit(list)) != 0;
      if (written && lists.at(list, i).defined())
        require_writable(call.op, lists.at(list, i), lists.at(1, i));
    }
    const Tensor& copy = lists.at(copies, i);
    if (copy.defined() && (!is_low_precision(copy.dtype()) || !(copy.sizes() == param.sizes())))
      fail(call.op, "a bf16 or f16 copy of sizes " + to_string(param.sizes()), to_string(copy));
  }
  require_scalar(call, lists.single(call.op, 0), "grad_scale");
  require_scalar(call, lists.single(call.op, 1), "found_inf");
}

OutMetas infer_adam(const Call& call) {
  require_lists(call, kAdamSteps, kAdamCopies);
  const ListCall lists(call);
  const AdamAttrs attrs(call);
  for (size_t i = 0; i < lists.size(); ++i) {
    require_scalar(call, lists.at(kAdamSteps, i), "state_steps");
    if (lists.at(kAdamMaxExpAvgSqs, i).defined() != attrs.amsgrad)
      fail(call.op, attrs.amsgrad ? "max_exp_avg_sqs with amsgrad" : "none without amsgrad",
           to_string(lists.at(kAdamMaxExpAvgSqs, i)));
  }
  return infer_like_first(call);
}

// g = grad / scale * clip, negated to maximize.
// Adam:  g += wd p;  AdamW: p *= 1 - lr wd
// m += (1 - b1) (g - m);  v = b2 v + (1 - b2) g^2
// p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
template <bool kDecoupled>
void adam_reference(const Call& call) {
  if (found_inf(call)) return;
  const ListCall lists(call);
  const AdamAttrs a(call);
  const double factor = inverse_grad_scale(call) * (a.maximize ? -1 : 1);
  for (size_t i = 0; i < lists.size(); ++i) {
    const Elements param(lists.at(kAdamParams, i));
    const Elements grad(lists.at(kAdamGrads, i));
    const Elements exp_avg(lists.at(kAdamExpAvgs, i));
    const Elements exp_avg_sq(lists.at(kAdamExpAvgSqs, i));
    const Elements steps(lists.at(kAdamSteps, i));
    const Tensor& largest = lists.at(kAdamMaxExpAvgSqs, i);
    const Tensor& copy = lists.at(kAdamCopies, i);
    steps.set(0, steps.get(0) + 1);
    const double step_size = a.lr / (1 - std::pow(a.beta1, steps.get(0)));
    const double root = std::sqrt(1 - std::pow(a.beta2, steps.get(0)));
    for (int64_t j = 0; j < lists.at(0, i).numel(); ++j) {
      double p = param.get(j);
      double g = grad.get(j) * factor * a.clip_coefficient;
      if (kDecoupled) p *= 1 - a.lr * a.weight_decay;
      if (!kDecoupled && a.weight_decay != 0) g += a.weight_decay * p;
      const double m = exp_avg.get(j) + (1 - a.beta1) * (g - exp_avg.get(j));
      const double v = a.beta2 * exp_avg_sq.get(j) + (1 - a.beta2) * g * g;
      exp_avg.set(j, m);
      exp_avg_sq.set(j, v);
      double second = v;
      if (largest.defined()) {
        second = std::fmax(Elements(largest).get(j), v);
        Elements(largest).set(j, second);
      }
      p -= step_size * m / (std::sqrt(second) / root + a.eps);
      param.set(j, p);
      if (copy.defined()) Elements(copy).set(j, param.get(j));
    }
  }
}

OutMetas infer_sgd(const Call& call) {
  require_lists(call, kSgdLists, kSgdCopies);
  const ListCall lists(call);
  const SgdAttrs attrs(call);
  for (size_t i = 0; i < lists.size(); ++i)
    if (lists.at(kSgdMomentumBuffers, i).defined() != (attrs.momentum != 0))
      fail(call.op,
           attrs.momentum != 0 ? "momentum_buffers with momentum" : "none without momentum",
           to_string(lists.at(kSgdMomentumBuffers, i)));
  return infer_like_first(call);
}

// g = grad / scale * clip, negated to maximize; g += wd p
// b = first ? g : momentum b + (1 - dampening) g;  g = nesterov ? g + momentum b : b;  p -= lr g
void sgd_reference(const Call& call) {
  if (found_inf(call)) return;
  const ListCall lists(call);
  const SgdAttrs a(call);
  const double factor = inverse_grad_scale(call) * (a.maximize ? -1 : 1);
  for (size_t i = 0; i < lists.size(); ++i) {
    const Elements param(lists.at(kSgdParams, i));
    const Elements grad(lists.at(kSgdGrads, i));
    const Tensor& buffer = lists.at(kSgdMomentumBuffers, i);
    const Tensor& copy = lists.at(kSgdCopies, i);
    for (int64_t j = 0; j < lists.at(0, i).numel(); ++j) {
      const double p = param.get(j);
      double g = grad.get(j) * factor * a.clip_coefficient;
      if (a.weight_decay != 0) g += a.weight_decay * p;
      if (buffer.defined()) {
        const Elements b(buffer);
        const double next = a.is_first_step ? g : a.momentum * b.get(j) + (1 - a.dampening) * g;
        b.set(j, next);
        g = a.nesterov ? g + a.momentum * next : next;
      }
      param.set(j, p - a.lr * g);
      if (copy.defined()) Elements(copy).set(j, param.get(j));
    }
  }
}

// Counted from the formulas above, without options.
double adam_flops(const Call& call) { return 15 * ListCall(call).elements(); }
double sgd_flops(const Call& call) { return 6 * ListCall(call).elements(); }
// A device's finding is not read for this: its step counts as one that was taken.
bool is_known_to_skip(const Call& call) {
  return call.in[0].device().type == DeviceType::cpu && found_inf(call);
}
double adam_bytes(const Call& call) {
  return is_known_to_skip(call) ? 0 : list_bytes(call, bit(kAdamCopies));
}
// The first step writes the buffers without reading them.
double sgd_bytes(const Call& call) {
  const uint32_t unread = SgdAttrs(call).is_first_step ? bit(kSgdMomentumBuffers) : 0;
  return is_known_to_skip(call) ? 0 : list_bytes(call, unread | bit(kSgdCopies));
}

// Lists of two parameters: [33] elements and a small matrix.
void add_list(Sample& sample, SampleInput like, bool is_scalar = false) {
  for (const Dims& sizes : {Dims{33}, Dims{3, 5}}) {
    like.sizes = is_scalar ? Dims{} : sizes;
    sample.in.push_back(like);
  }
}

Sample adam_sample(double weight_decay, bool amsgrad, bool maximize, bool scaled,
                   std::optional<DType> copy) {
  Sample s;
  add_list(s, {});
  add_list(s, {});
  add_list(s, {});
  add_list(s, {.low = 0.5, .high = 2});
  add_list(s, {.low = 0.5, .high = 2, .undefined = !amsgrad});
  add_list(s, {.low = 4, .high = 4, .dtype = DType::f32}, true);
  add_list(s, {.dtype = copy, .undefined = !copy});
  s.in.push_back({.sizes = {}, .low = 8, .high = 8, .dtype = DType::f32, .undefined = !scaled});
  s.in.push_back({.sizes = {}, .low = 0, .high = 0, .dtype = DType::f32, .undefined = !scaled});
  s.attrs = {0.01, 0.9, 0.99, weight_decay, 1e-8, amsgrad, maximize, scaled ? 0.5 : 1.0};
  return s;
}

std::vector<Sample> adam_samples() {
  return {adam_sample(0, false, false, false, {}), adam_sample(0.1, true, false, true, {}),
          adam_sample(0.1, false, true, false, DType::bf16),
          adam_sample(0.1, true, true, true, DType::f16)};
}

Sample sgd_sample(double momentum, double dampening, bool nesterov, bool first, bool scaled,
                  std::optional<DType> copy) {
  Sample s;
  add_list(s, {});
  add_list(s, {});
  add_list(s, {.undefined = momentum == 0});
  add_list(s, {.dtype = copy, .undefined = !copy});
  s.in.push_back({.sizes = {}, .low = 8, .high = 8, .dtype = DType::f32, .undefined = !scaled});
  s.in.push_back({.sizes = {}, .low = 0, .high = 0, .dtype = DType::f32, .undefined = !scaled});
  s.attrs = {scaled ? 0.1 : 0.0, momentum, 0.1,   dampening,
             nesterov,           scaled,   first, scaled ? 0.5 : 1.0};
  return s;
}

std::vector<Sample> sgd_samples() {
  return {sgd_sample(0, 0, false, true, false, {}), sgd_sample(0.9, 0.5, false, false, true, {}),
          sgd_sample(0.9, 0, true, false, false, DType::bf16),
          sgd_sample(0.9, 0.5, false, true, true, DType::f16)};
}

constexpr std::string_view kAdamSchema =
    "(Tensor[] self, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, "
    "Tensor[]? max_exp_avg_sqs, Tensor[] state_steps, Tensor[]? copies, *, float lr, float beta1, "
    "float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, "
    "float clip_coefficient, Tensor? grad_scale=None, Tensor? found_inf=None)";
constexpr uint32_t kAdamWrites = bit(kAdamParams) | bit(kAdamExpAvgs) | bit(kAdamExpAvgSqs) |
                                 bit(kAdamMaxExpAvgSqs) | bit(kAdamSteps) | bit(kAdamCopies);

}  // namespace

constinit const OpDef kFusedAdam_{.name = "aten::_fused_adam_",
                                  .schema = kAdamSchema,
                                  .doc = "one step of Adam over lists of parameters",
                                  .kind = OpKind::inplace,
                                  .infer = infer_adam,
                                  .flops = adam_flops,
                                  .bytes = adam_bytes,
                                  .lists = kAdamLists,
                                  .singles = 2,
                                  .writes = kAdamWrites,
                                  .reference = adam_reference<false>,
                                  .samples = adam_samples};

constinit const OpDef kFusedAdamW_{.name = "aten::_fused_adamw_",
                                   .schema = kAdamSchema,
                                   .doc = "one step of AdamW over lists of parameters",
                                   .kind = OpKind::inplace,
                                   .infer = infer_adam,
                                   .flops = adam_flops,
                                   .bytes = adam_bytes,
                                   .lists = kAdamLists,
                                   .singles = 2,
                                   .writes = kAdamWrites,
                                   .reference = adam_reference<true>,
                                   .samples = adam_samples};

constinit const OpDef kFusedSgd_{
    .name = "aten::_fused_sgd_",
    .schema =
        "(Tensor[] self, Tensor[] grads, Tensor[]? momentum_buffer_list, Tensor[]? copies, *, "
        "float weight_decay, float momentum, float lr, float dampening, bool nesterov, "
        "bool maximize, bool is_first_step, float clip_coefficient, Tensor? grad_scale=None, "
        "Tensor? found_inf=None)",
    .doc = "one step of SGD over lists of parameters",
    .kind = OpKind::inplace,
    .infer = infer_sgd,
    .flops = sgd_flops,
    .bytes = sgd_bytes,
    .lists = kSgdLists,
    .singles = 2,
    .writes = bit(kSgdParams) | bit(kSgdMomentumBuffers) | bit(kSgdCopies),
    .reference = sgd_reference,
    .samples = sgd_samples};

}  // namespace epilogue
