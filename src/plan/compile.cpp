// SPDX-License-Identifier: Apache-2.0
// Compiled: which plan runs, and whether autograd gets a node of it.
#include "epilogue/compile.h"

#include "core/observer.h"
#include "epilogue/autograd.h"
#include "plan/compiled_base.h"
#include "plan/gradient_capture.h"
#include "plan/run_recorded.h"

namespace epilogue {

class Compiled::Impl final : public Plans {
 public:
  Impl(Function function, CompileOptions options)
      : Plans(std::move(options)), function_(std::move(function)) {
    if (!function_) throw Error("[compile] expected a function, got an empty one");
  }

  // The results' number is the plan's.
  plan::Entry& entry_for(std::span<const Tensor> in) {
    return cache().find_or_make(in, [&] {
      const auto capture = [this](std::span<const Tensor> inputs) {
        if (grad_enabled()) return plan::capture_function(function_, inputs);
        return plan::Captured{.graph = graph::capture(function_, inputs), .grad_mode = false};
      };
      return std::make_unique<plan::Entry>(capture, in, cache().options());
    });
  }

  void run(plan::Entry& entry, std::span<const Tensor> in, std::span<Tensor> out) {
    cache().count_call();
    if (entry.backward_plan() != nullptr) {
      out[0] = plan::run_recorded(entry, in);
    } else {
      entry.plan().run(in, out);
    }
  }

  std::vector<Tensor> run(std::span<const Tensor> in) {
    // Part of another function that is being captured: that one's graph takes the ops.
    if (thread_state().capture != nullptr) return function_(in);
    const plan::OneCall call = cache().one_call();
    plan::Entry& entry = entry_for(in);
    std::vector<Tensor> out(entry.results());
    run(entry, in, out);
    return out;
  }

  Tensor run_one(const Tensor& in) {
    if (thread_state().capture != nullptr) return function_({&in, 1}).at(0);
    const plan::OneCall call = cache().one_call();
    plan::Entry& entry = entry_for({&in, 1});
    if (entry.results() != 1)
      throw Error("[compile] expected a function with 1 result(s), got " +
                  std::to_string(entry.results()));
    Tensor out;
    run(entry, {&in, 1}, {&out, 1});
    return out;
  }

  void prepare(std::span<const Tensor> in) {
    const plan::OneCall call = cache().one_call();
    entry_for(in);
  }

 private:
  Function function_;
};

Compiled::Compiled(Function function, CompileOptions options)
    : CompiledBase(std::make_shared<Impl>(std::move(function), std::move(options)), "compile",
                   "compiled function") {}

Compiled::Impl& Compiled::impl() const { return static_cast<Impl&>(plans()); }

std::vector<Tensor> Compiled::operator()(std::span<const Tensor> inputs) {
  return impl().run(inputs);
}
Tensor Compiled::operator()(const Tensor& input) { return impl().run_one(input); }
void Compiled::prepare(std::span<const Tensor> inputs) { impl().prepare(inputs); }

std::vector<std::string> compile_pass_names() {
  std::vector<std::string> names;
  names.reserve(passes::pipeline().size());
  for (const passes::Pass& pass : passes::pipeline()) names.emplace_back(pass.name);
  return names;
}

}  // namespace epilogue
