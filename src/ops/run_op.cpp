// SPDX-License-Identifier: Apache-2.0
#include "ops/run_op.h"

#include <algorithm>

#include "base/assert.h"
#include "base/clock.h"
#include "core/backend.h"
#include "ops/autocast.h"
#include "ops/device.h"

namespace epilogue {
namespace {

// The schema's entry for the i-th tensor of n: "Tensor? bias=None" is {"bias", true}. A list's
// name stands for its tensors.
struct Argument {
  std::string name;
  bool is_optional;
};
Argument tensor_argument(const OpDef& op, size_t i, size_t n) {
  std::string_view rest = op.schema;
  for (i = op.argument_of(i, n);; --i) {
    rest.remove_prefix(std::min(rest.find("Tensor"), rest.size()));
    if (rest.empty()) return {"?", false};
    rest.remove_prefix(std::string_view("Tensor").size());
    // Without `lists` the only list of a schema (cat) takes all that follow.
    if (i == 0 || (op.lists == 0 && rest.starts_with("[]"))) break;
  }
  const std::string_view name = rest.substr(rest.find(' ') + 1);
  return {std::string(name.substr(0, name.find_first_of(",=)"))),
          rest.starts_with("?") || rest.starts_with("[]?")};
}

// Numbers go with every device; all others must share one.
void require_one_device(const OpDef& op, std::span<const Tensor> in) {
  const Tensor* const first = placed_tensor(in);
  for (const Tensor& t : in)
    if (t.defined() && !t.impl()->is_wrapped_number && !(t.device() == first->device()))
      throw Error("[" + std::string(op.name) + "] expected tensors on one device, got " +
                  to_string(*first) + " on " + to_string(first->device()) + " and " + to_string(t) +
                  " on " + to_string(t.device()));
}

// Before anything reads the inputs: an undefined tensor has no sizes to report.
void require_usable(const OpDef& op, std::span<const Tensor> in) {
  const Tensor* first = nullptr;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].defined()) [[unlikely]] {
      const Argument argument = tensor_argument(op, i, in.size());
      if (argument.is_optional) continue;
      throw Error("[" + std::string(op.name) + "] expected a tensor for '" + argument.name +
                  "', got undefined");
    }
    if (first == nullptr) first = &in[i];
    if (!(in[i].device() == first->device())) [[unlikely]]
      require_one_device(op, in);
  }
}

bool any_requires_grad(std::span<const Tensor> in) {
  for (const Tensor& t : in)
    if (t.defined() && t.requires_grad()) return true;
  return false;
}

std::span<const Kernel> kernels_for(const OpDef& op, Device device) {
  auto& slot = op.kernel_lists[static_cast<size_t>(device.type)];
  const std::span<const Kernel>* list = slot.load(std::memory_order_acquire);
  if (list == nullptr) [[unlikely]] {
    list = &backend_of(device).kernels(op);
    slot.store(list, std::memory_order_release);
  }
  return *list;
}

Device device_of(const OpDef& op, std::span<const Tensor> in) {
  if (const Tensor* const t = placed_tensor(in); t != nullptr) return t->device();
  throw Error("[" + std::string(op.name) + "] expected at least one defined tensor, got none");
}

const Kernel* choose(const Call& call, std::span<const Kernel> kernels) {
  for (const Kernel& k : kernels)
    if (k.decline(call) == nullptr) return &k;
  return nullptr;
}

void run_kernel(const Call& call, Device device, RunObserver* listener) {
  bool empty = call.op.lists == 0;  // a list's later tensors may have elements
  for (const Tensor& t : call.out) empty = empty && t.numel() == 0;
  if (empty || thread_state().skip_kernels) return;
  const Kernel* kernel = choose(call, kernels_for(call.op, device));
  const bool on_host = device.type == DeviceType::cpu;
  auto* run = kernel != nullptr ? kernel->run : on_host ? call.op.reference : run_on_host;
  if (run == nullptr)
    throw Error("[" + std::string(call.op.name) + "] has no kernel for " + to_string(call.in[0]) +
                " on " + to_string(device));
  if (listener == nullptr) [[likely]]
    return run(call);
  DeviceTimer* const timer = on_host ? nullptr : backend_of(device).timer();
  const int64_t begin = ticks();
  const int64_t begin_mark = timer != nullptr ? timer->mark() : -1;
  run(call);
  const int64_t end_mark = timer != nullptr ? timer->mark() : -1;
  listener->kernel_ran({call, kernel, begin, ticks(), nullptr, begin_mark, end_mark});
}

void note_write(const OpDef& op, const Tensor& t) {
  if (!t.is_writable()) [[unlikely]]
    throw Error("[" + std::string(op.name) + "] expected a tensor that may be written, got " +
                to_string(t) +
                " over memory that from_blob(span<const T>) lends to be read; clone it first");
  t.impl()->storage->bump_version();
}

Outputs execute(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                RunObserver* listener) {
  if (op.kind == OpKind::view || op.kind == OpKind::composite)
    return op.compose(Call{op, in, attrs, {}});
  const Device device = device_of(op, in);
  Outputs out;
  if (op.kind == OpKind::inplace) {
    out.push_back(in[0]);
    if (op.infer != nullptr) op.infer(Call{op, in, attrs, {}});
    for (size_t i = 0; i < (op.writes == 1 ? 1 : in.size()); ++i)
      if ((op.writes >> op.argument_of(i, in.size()) & 1U) != 0 && in[i].defined())
        note_write(op, in[i]);
  } else {
    const OutMetas metas = op.infer(Call{op, in, attrs, {}});
    for (size_t i = 0; i < metas.size(); ++i)
      out.push_back(empty(metas[i].sizes, metas[i].dtype, device));
  }
  run_kernel(Call{op, in, attrs, out.span()}, device, listener);
  return out;
}

// op_begin now, op_end on every way out.
class ObservedOp {
 public:
  ObservedOp(RunObserver* listener, const OpDef& op, std::span<const Tensor> in,
             std::span<const Attr> attrs, const ThreadState& state)
      : listener_(listener) {
    if (listener_ != nullptr)
      listener_->op_begin(op, in, attrs, state.grad_enabled ? state.sequence_nr : -1);
  }
  ~ObservedOp() {
    if (listener_ != nullptr) listener_->op_end();
  }
  ObservedOp(const ObservedOp&) = delete;
  ObservedOp& operator=(const ObservedOp&) = delete;

 private:
  RunObserver* listener_;
};

// Hides the parts of an op from tape and capture: the op itself is what they record.
class HiddenParts {
 public:
  HiddenParts(ThreadState& state, bool hide) : state_(state), before_(state) {
    if (!hide) return;
    state_.grad_enabled = false;
    state_.capture = nullptr;
  }
  ~HiddenParts() {
    state_.grad_enabled = before_.grad_enabled;
    state_.capture = before_.capture;
  }
  HiddenParts(const HiddenParts&) = delete;
  HiddenParts& operator=(const HiddenParts&) = delete;

 private:
  ThreadState& state_;
  ThreadState before_;
};

Outputs execute_observed(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                         RunObserver* listener) {
  ThreadState& state = thread_state();
  const ObservedOp observed(listener, op, in, attrs, state);
  const bool is_unit = op.kind != OpKind::composite || op.vjp != nullptr;
  const bool on_tape = is_unit && state.grad_enabled && any_requires_grad(in);
  if (on_tape && op.kind == OpKind::inplace)
    throw Error("[" + std::string(op.name) +
                "] expected tensors outside the autograd graph for an in-place write, got one that "
                "requires a gradient; use no_grad or the op that returns a new tensor");
  Outputs out;
  {
    const HiddenParts hidden(state, is_unit);
    out = execute(op, in, attrs, listener);
  }
  const Call call{op, in, attrs, out.span()};
  if (on_tape) detail::tape_observer.load(std::memory_order_acquire)->on_op(call);
  if (is_unit && state.capture != nullptr) state.capture->on_op(call);
  return out;
}

}  // namespace

void run_kernel_on_host(const Call& call) { run_kernel(call, {}, nullptr); }

Outputs run_op(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs) {
  require_usable(op, in);
  const ThreadState& state = thread_state();
  if (state.autocast != nullptr && has_autocast_rule(op, in)) [[unlikely]]
    return run_autocast(op, in, attrs);
  RunObserver* const listener = run_observer();
  const bool quiet = listener == nullptr && state.capture == nullptr &&
                     !(state.grad_enabled && any_requires_grad(in));
  if (quiet) [[likely]]
    return execute(op, in, attrs, nullptr);
  return execute_observed(op, in, attrs, listener);
}

Tensor run_op(const OpDef& op, std::initializer_list<Tensor> in,
              std::initializer_list<Attr> attrs) {
  return run_op(op, std::span<const Tensor>(in.begin(), in.size()),
                std::span<const Attr>(attrs.begin(), attrs.size()))[0];
}

void run_op_into(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                 std::span<Tensor> out) {
  RunObserver* const listener = run_observer();
  const ObservedOp observed(listener, op, in, attrs, thread_state());
  run_kernel(Call{op, in, attrs, out}, device_of(op, in), listener);
}

std::string explain_kernels(const OpDef& op, std::span<const Tensor> in,
                            std::span<const Attr> attrs) {
  require_usable(op, in);
  if (op.kind == OpKind::view) return "view: launches no kernel\n";
  if (op.kind == OpKind::composite) return "composite: its parts launch kernels\n";
  const Device device = device_of(op, in);
  Outputs out;
  const OutMetas metas = op.infer(Call{op, in, attrs, {}});
  for (size_t i = 0; i < metas.size(); ++i)
    out.push_back(empty(metas[i].sizes, metas[i].dtype, device));
  const Call call{op, in, attrs, out.span()};
  std::string text;
  for (const Kernel& k : kernels_for(op, device)) {
    const char* why = k.decline(call);
    text += std::string(k.name) + ": " + (why != nullptr ? why : "chosen") + "\n";
    if (why == nullptr) return text;
  }
  return text + (device.type == DeviceType::cpu ? "reference: chosen\n" : "host: chosen\n");
}

}  // namespace epilogue
