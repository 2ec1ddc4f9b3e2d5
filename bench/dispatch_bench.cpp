// SPDX-License-Identifier: Apache-2.0
// The cost of dispatching an eager op over its kernel, with no observer.
//
// "dispatched" is the public call: shape rule, allocation, kernel choice, kernel. "kernel" is the
// same kernel run on results that exist already. Their difference is the dispatch.
#include <fmt/format.h>

#include <functional>
#include <memory>

#include "bench/harness.h"
#include "core/backend.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/run_op.h"

namespace epilogue::bench {
namespace {

constexpr double kBudgetNs = 150;

// The kernel that run_op would choose, on arguments and a result that it keeps.
class KernelAlone {
 public:
  KernelAlone(const OpDef& op, std::vector<Tensor> in, std::vector<Attr> attrs)
      : op_(op), in_(std::move(in)), attrs_(std::move(attrs)) {
    out_ = run_op(op_, in_, attrs_);
    const Call c = call();
    for (const Kernel& k : cpu_backend().kernels(op_))
      if (k.decline(c) == nullptr) {
        kernel_ = &k;
        break;
      }
    if (kernel_ == nullptr) throw Error("[bench] expected a kernel for " + std::string(op.name));
  }
  void run() { kernel_->run(call()); }

 private:
  Call call() { return {op_, in_, attrs_, out_.span()}; }
  const OpDef& op_;
  std::vector<Tensor> in_;
  std::vector<Attr> attrs_;
  Outputs out_;
  const Kernel* kernel_ = nullptr;
};

struct Case {
  std::string name;
  std::function<void()> dispatched;
  std::shared_ptr<KernelAlone> kernel;
};

std::vector<Case> cases() {
  const Tensor a = rand({8, 8});
  const Tensor b = rand({8, 8});
  const Tensor row = rand({8});
  auto alone = [](const OpDef& op, std::vector<Tensor> in, std::vector<Attr> attrs = {}) {
    return std::make_shared<KernelAlone>(op, std::move(in), std::move(attrs));
  };
  return {
      {"aten::add", [=] { add(a, b); }, alone(kAdd, {a, b}, {1.0})},
      {"aten::mul", [=] { mul(a, b); }, alone(kMul, {a, b})},
      {"aten::relu", [=] { relu(a); }, alone(kRelu, {a})},
      {"aten::gelu", [=] { gelu(a, Gelu::tanh); }, alone(kGelu, {a}, {int64_t{1}})},
      {"aten::mm", [=] { mm(a, b); }, alone(kMm, {a, b})},
      {"aten::addmm", [=] { addmm(row, a, b); }, alone(kAddmm, {row, a, b}, {1.0, 1.0})},
      {"aten::sum", [=] { sum(a, {1}); }, alone(kSum, {a}, {Dims{1}, false, std::monostate{}})},
      {"aten::as_strided (view)",
       [=] {
         as_strided(a, {8, 8}, {1, 8});
       },
       nullptr},
  };
}

int run() {
  const NoGrad no_grad;
  fmt::print("dispatch overhead of eager ops on 8 x 8 f32 tensors: {}\n", machine_line());
  fmt::print("noise probe: {:.2f}x; no observer; minimum (median +- MAD) in ns\n\n", noise_probe());
  fmt::print("{:<26}{:>24}{:>24}{:>12}\n", "op", "dispatched", "kernel alone", "overhead");
  bool within = true;
  for (const Case& c : cases()) {
    std::vector<Contender> contenders = {{"dispatched", c.dispatched}};
    if (c.kernel) contenders.push_back({"kernel", [k = c.kernel] { k->run(); }});
    const auto t = interleave(contenders, plan_for(contenders, 0.5, 20));
    const auto cell = [](const Timing& x) {
      return fmt::format("{:.0f} ({:.0f} +- {:.0f})", x.min_ns, x.median_ns, x.mad_ns);
    };
    const double overhead = t[0].min_ns - (c.kernel ? t[1].min_ns : 0);
    within = within && overhead <= kBudgetNs;
    fmt::print("{:<26}{:>24}{:>24}{:>9.0f} ns\n", c.name, cell(t[0]), c.kernel ? cell(t[1]) : "-",
               overhead);
  }
  fmt::print("\nbudget: {:.0f} ns over the kernel: {}\n", kBudgetNs, within ? "kept" : "EXCEEDED");
  return within ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main() { return epilogue::bench::run(); }
