// SPDX-License-Identifier: Apache-2.0
// compile(): a function or a module as a few fused kernels.
//
//   nn::GatedMLP mlp(768, 3072);
//   Compiled fast = compile(mlp);
//   NoGrad no_grad;
//   Tensor y = fast(x);                    // the first call captures, fuses and plans
//   std::cout << fast.explain();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "epilogue/fusion_choices.h"
#include "epilogue/tensor.h"

namespace epilogue {

// How a plan is chosen among those that a call may have (row chains, products apart, products as
// eager runs them, how threads share the work, ...). model: by what is known of the machine, among
// plans that give the same bits; the machine's figures are what `epilogue info --measure` kept,
// else constants. measure: the fastest of all, timed on the inputs of the first call with their
// sizes, which takes some hundred milliseconds; kept in a file by machine and function, so that
// later processes need not measure. Plans then are for one number of rows. Another plan may give
// other last bits: choice() names the one that ran, and CompileOptions::choice asks for it by name.
// Calls that draw random numbers or that autograd records get the model's plan.
enum class Tune : uint8_t { model, measure };

struct CompileOptions {
  // One plan serves every number of rows (leading sizes), where the function does the same ops for
  // each. Checked by capturing it with one row more at first, and once for each new number of rows:
  // the first call with it takes some 100 us longer.
  bool dynamic_rows = true;
  // Weights are frozen: W2 (W1 x) may become (W2 W1) x. A written weight makes a new plan.
  bool collapse_linears = false;
  // Weights of linear layers become 8-bit integers with one scale per output channel: up to twice
  // as fast as bf16 where one to four rows wait for the weights. Changes results, for any number of
  // rows: a relative error of some 5e-3 per product.
  bool int8_weights = false;
  std::vector<std::string> skip = {};  // passes to leave out, by name
  size_t max_plans = 16;               // 1 or more; the least recently used goes
  Saved saved = Saved::automatic;
  Packed packed = Packed::automatic;
  Tune tune = Tune::model;
  // A plan by its name, as choice() gave it: for the bits of an earlier run. Empty: chosen. Throws
  // Error at the first call where there is none of that name.
  std::string choice = {};
};

struct CompileStats {
  int64_t calls = 0;
  int64_t misses = 0;  // calls that found no plan and made one
  int64_t plans = 0;   // kept now
  double compile_ms = 0;
  // Of the plan that ran last:
  int64_t kernels = 0;             // per call
  int64_t intermediate_bytes = 0;  // memory that it holds between its kernels
  int64_t scratch_bytes = 0;       // that its kernels work in; kept by the threads that run them
  int64_t eager_kernels = 0;       // of the ops that it stands for
  double moved_bytes = 0;          // by its kernels, each operand once
  double eager_moved_bytes = 0;    // by those ops one by one
};

// One thing that a pass did, or decided against (then `reason` says why).
struct FusionNote {
  std::string pass;
  std::string what;
  std::string reason;
  double bytes_saved = 0;
  int launches_saved = 0;
};

// One of the plans that a call may have.
struct PlanCandidate {
  std::string name;
  std::string what;
  std::optional<double> median_us;  // where Tune::measure timed it, now or in an earlier process
  bool is_chosen = false;
};

enum class CompiledDump : uint8_t { graph, plan, dot };

// What compiled functions and compiled steps have in common. Copies share plans and count as one
// object, of which one call runs at a time: another one meanwhile throws Error.
class CompiledBase {
 public:
  // What the plan that ran (or was made) last does, and why. Empty before the first.
  std::string explain() const;
  std::vector<FusionNote> notes() const;
  // graph: as captured. plan: as it runs. dot: that, for Graphviz.
  std::string dump(CompiledDump what) const;
  // The plan that ran last by its name: the model's first, or what Tune::measure found fastest.
  // Empty before the first call.
  std::string choice() const;
  // That plan among all, the model's own first. Of those that are the same plan for a call one is
  // timed. Empty before the first call.
  std::vector<PlanCandidate> candidates() const;
  // The graph's text after each pass: {name, text}.
  std::vector<std::pair<std::string, std::string>> dump_passes() const;
  CompileStats stats() const;
  // Forgets all plans.
  void reset();

 protected:
  class Plans;  // the plans, and the function that they are of
  // `name` of the object, for messages: "compiled function".
  CompiledBase(std::shared_ptr<Plans> plans, const char* op, const char* name)
      : plans_(std::move(plans)), op_(op), name_(name) {}
  // Throws Error where the object was moved from.
  Plans& plans() const;

 private:
  std::shared_ptr<Plans> plans_;
  const char* op_;
  const char* name_;
};

// A compiled function. Give each thread its own compile().
//
// The function must be pure: results depend on sizes, dtypes and values of its inputs and of the
// tensors that it holds, by way of ops alone, and on what dropout draws: each call draws anew, as
// the function itself would. It runs when it is captured, perhaps several times, without kernels
// and on inputs whose elements mean nothing. Tensors that it holds may be written between calls, by
// ops, or else with Tensor::increment_version() after the write; replacing one by another
// (layer.weight = w) or a change of training mode needs reset().
//
// With gradients on, where something requires one, the result is one node of the autograd graph and
// its backward pass is compiled too. Plans are then for one number of rows, the function has one
// result, and there are no second derivatives.
class Compiled : public CompiledBase {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  // Throws Error on an empty function, a name in `skip` that is no pass, and max_plans of 0.
  explicit Compiled(Function function, CompileOptions options = {});

  // Throws Error where the function writes in place to what it did not make, draws random numbers
  // other than dropout's or reads elements, where gradients are wanted of several results, and as
  // the function's ops do.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs);
  // Of functions with one input and one result.
  Tensor operator()(const Tensor& input);

  // Makes the plan for such inputs without running it.
  void prepare(std::span<const Tensor> inputs);

 private:
  class Impl;
  Impl& impl() const;
};

// The names of the passes that CompileOptions::skip knows, in their order.
std::vector<std::string> compile_pass_names();

inline Compiled compile(Compiled::Function function, CompileOptions options = {}) {
  return Compiled(std::move(function), std::move(options));
}

// A module, or anything else that maps one tensor to one. What cannot be copied (modules) must
// outlive the result, and be no temporary.
template <class Layer>
requires std::is_invocable_r_v<Tensor, const Layer&, const Tensor&> &&
    (!std::is_copy_constructible_v<Layer>)Compiled
    compile(const Layer&& layer, CompileOptions options = {}) = delete;
template <class Layer>
requires std::is_invocable_r_v<Tensor, const Layer&, const Tensor&> Compiled
compile(const Layer& layer, CompileOptions options = {}) {
  const auto call = [](const Layer& l, std::span<const Tensor> in) {
    if (in.size() != 1)
      throw Error("[compile] expected one input, got " + std::to_string(in.size()));
    return std::vector<Tensor>{l(in[0])};
  };
  if constexpr (std::is_copy_constructible_v<Layer>) {
    return Compiled([layer, call](std::span<const Tensor> in) { return call(layer, in); },
                    std::move(options));
  } else {
    return Compiled([&layer, call](std::span<const Tensor> in) { return call(layer, in); },
                    std::move(options));
  }
}

}  // namespace epilogue
