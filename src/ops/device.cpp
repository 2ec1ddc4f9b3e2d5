// SPDX-License-Identifier: Apache-2.0
#include "ops/device.h"

#include "core/backend.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

constexpr Device kHost{};

Tensor copy_to(const Tensor& from, Device device) {
  const Tensor source = dense(from);
  const Tensor copy = empty(source.sizes(), source.dtype(), device);
  if (copy.numel() == 0) return copy;
  if (device.type == DeviceType::cpu) {
    device_backend(source.device())
        .memory()
        ->copy_to_host(copy.data(), source.data(), copy.bytes());
  } else if (source.device().type == DeviceType::cpu) {
    device_backend(device).memory()->copy_from_host(copy.data(), source.data(), copy.bytes());
  } else {
    throw Error("[to] expected the host on one side, got " + to_string(source.device()) + " and " +
                to_string(device));
  }
  return copy;
}

}  // namespace

Tensor Tensor::to(Device device) const {
  if (!defined() || device == this->device()) return *this;
  ThreadState& state = thread_state();
  if (state.capture != nullptr)
    throw Error("[to] expected a function that stays on one device while it is being compiled");
  if (state.grad_enabled && requires_grad())
    throw Error("[to] expected no_grad or a tensor without requires_grad, got " + to_string(*this) +
                " on the way to " + to_string(device));
  const ScopedRange range("aten::to", RangeKind::function);
  return copy_to(*this, device);
}

namespace {

// The values of `from`, a contiguous tensor of the host, into `to` of a device.
void write_back(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  if (to.is_contiguous()) {
    device_backend(to.device()).memory()->copy_from_host(to.data(), from.data(), to.bytes());
  } else {
    run_op(kCopy_, args(to, copy_to(from, to.device())));
  }
}

}  // namespace

Tensor dense(const Tensor& t) { return !t.defined() || t.is_contiguous() ? t : clone(t); }

void run_on_host(const Call& call) {
  std::vector<Tensor> in;
  for (const Tensor& t : call.in)
    in.push_back(t.defined() && !(t.device() == kHost) ? copy_to(t, kHost) : t);
  std::vector<Tensor> out;
  const bool in_place = call.op.kind == OpKind::inplace;
  for (const Tensor& t : call.out)
    out.push_back(in_place ? in[0] : empty(t.sizes(), t.dtype(), kHost));
  run_kernel_on_host(Call{call.op, in, call.attrs, out});
  if (!in_place) {
    for (size_t i = 0; i < out.size(); ++i) write_back(call.out[i], out[i]);
    return;
  }
  for (size_t i = 0; i < in.size(); ++i)
    if ((call.op.writes >> call.op.argument_of(i, in.size()) & 1U) != 0 && in[i].defined())
      write_back(call.in[i], in[i]);
}

}  // namespace epilogue
