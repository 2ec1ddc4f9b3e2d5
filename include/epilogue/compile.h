// SPDX-License-Identifier: Apache-2.0
// compile(): a function or a module as a few fused kernels.
//
//   nn::GatedMLP mlp(768, 3072);
//   Compiled fast = compile(mlp);
//   NoGrad no_grad;
//   Tensor y = fast(x);                    // the first call captures, fuses and plans
//   std::cout << fast.explain();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "epilogue/fusion_choices.h"
#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

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
  // Weights of linear layers become integers of 8 or 4 bits: less to read where few rows wait for
  // the weights; with 8-bit activations, integer products where many rows wait for the multipliers.
  // Changes results, for any number of rows: by a relative error per product of some 5e-3 (int8),
  // 1e-2 (int8 activations too) or 0.1 (int4).
  Quantisation bits = {};
  bool int8_weights = false;           // the same as bits.weights = WeightBits::int8
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
// object.
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
  // Forgets all plans. Calls that are under way end with theirs.
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

// An object whose bytes a compiled function depends on, beside tensors: compile(module) watches the
// module. A call that finds them changed makes a plan of its own. It must outlive the function.
struct WatchedObject {
  const void* object = nullptr;
  size_t bytes = 0;
};

// A compiled function. Any number of threads may call it, and its copies, at once: the plans do not
// change, and each call has memory of its own. (A call whose threads are all busy with another one
// runs on its caller alone.)
//
// The function must be pure: results depend on sizes, dtypes and values of its inputs and of the
// tensors that it holds, by way of ops alone, and on what dropout draws: each call draws anew, as
// the function itself would. It runs when it is captured, perhaps several times and on several
// threads, without kernels and on inputs whose elements mean nothing.
//
// What may change between calls, and is noticed by the next one:
// * the values of tensors that it holds, written by ops, or else with Tensor::increment_version()
//   after the write;
// * of every module that it calls, the training mode and which tensors are its parameters
//   (layer.weight = w); of a module that compile() was given, of its members, and of layers that
//   nn::Sequential was given by their own type, every other member too.
// Not noticed: what a lambda refers to that is no module and no tensor, and tensors that it refers
// to by a name that then names another tensor. Call reset() after such a change.
// Changes need the caller's own ordering: none while a call runs.
//
// With gradients on, where something requires one, the result is one node of the autograd graph and
// its backward pass is compiled too. Plans are then for one number of rows, the function has one
// result, and there are no second derivatives.
class Compiled : public CompiledBase {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  // Throws Error on an empty function, a name in `skip` that is no pass, and max_plans of 0.
  explicit Compiled(Function function, CompileOptions options = {}, WatchedObject watched = {});

  // Throws Error where the function writes in place to what it did not make, draws random numbers
  // other than dropout's or reads elements, where gradients are wanted of several results, and as
  // the function's ops do.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  // Of functions with one result: compiled(x), compiled(x, mask).
  template <class... Inputs>
  requires(std::is_convertible_v<const Inputs&, const Tensor&>&&...) Tensor operator()(
      const Tensor& first, const Inputs&... others) const {
    const std::array<Tensor, 1 + sizeof...(Inputs)> inputs = {first, others...};
    return run_one(inputs);
  }

  // The results in memory of the caller: contiguous tensors of the results' sizes and dtypes, apart
  // from the inputs and from each other. Throws Error where they are not, and where autograd would
  // record the call.
  void run_into(std::span<const Tensor> inputs, std::span<const Tensor> out) const;
  void run_into(const Tensor& input, const Tensor& out) const {
    run_into(std::span(&input, 1), std::span(&out, 1));
  }

  // Makes the plan for such inputs without running it.
  void prepare(std::span<const Tensor> inputs) const;

 private:
  class Impl;
  Impl& impl() const;
  Tensor run_one(std::span<const Tensor> inputs) const;
};

// The names of the passes that CompileOptions::skip knows, in their order.
std::vector<std::string> compile_pass_names();

namespace detail {

inline constexpr size_t kMostInputs = 8;

template <class T>
concept ForwardsFunction = std::is_convertible_v<T, Compiled::Function>;

// What a function may give: one tensor, or several in a vector, an array, a pair or a tuple.
inline std::vector<Tensor> results_of(Tensor result) { return {std::move(result)}; }
inline std::vector<Tensor> results_of(std::vector<Tensor> results) { return results; }
template <class Results>
requires(!std::is_convertible_v<Results, Tensor> &&
         !std::is_convertible_v<Results, std::vector<Tensor>>)
    std::vector<Tensor> results_of(Results results) {
  return std::apply([](auto&&... each) { return std::vector<Tensor>{std::move(each)...}; },
                    std::move(results));
}
template <class T>
concept IsResult = requires(T t) {
  results_of(std::move(t));
};

template <size_t>
using Input = const Tensor&;

// Whether layer(x, ...) or layer.forward(x, ...) takes so many tensors.
template <class Layer, size_t... I>
consteval bool is_called_with(std::index_sequence<I...>) {
  if constexpr (requires(const Layer& l, Input<I>... in) { l(in...); }) {
    return IsResult<std::invoke_result_t<const Layer&, Input<I>...>>;
  } else {
    return false;
  }
}
template <class Layer, size_t... I>
consteval bool is_forwarded(std::index_sequence<I...>) {
  return requires(const Layer& l, Input<I>... in) {
    { l.forward(in...) } -> IsResult;
  };
}
template <class Layer, size_t N>
inline constexpr bool kTakes = is_called_with<Layer>(std::make_index_sequence<N>()) ||
                               is_forwarded<Layer>(std::make_index_sequence<N>());

template <class Layer, size_t... I>
std::vector<Tensor> call_with(const Layer& layer, std::span<const Tensor> in,
                              std::index_sequence<I...> all) {
  if constexpr (is_called_with<Layer>(all)) {
    return results_of(layer(in[I]...));
  } else {
    return results_of(layer.forward(in[I]...));
  }
}

template <class Layer, size_t... N>
consteval bool takes_some(std::index_sequence<N...>) {
  return (kTakes<Layer, N + 1> || ...);
}

// layer(in[0], in[1], ...), by the number of inputs at hand.
template <class Layer, size_t N = 1>
std::vector<Tensor> call_layer(const Layer& layer, std::span<const Tensor> in,
                               std::string accepted = {}) {
  if constexpr (N > kMostInputs) {
    throw Error("[compile] expected " + accepted + " input(s), got " + std::to_string(in.size()));
  } else {
    if constexpr (kTakes<Layer, N>) {
      if (in.size() == N) return call_with(layer, in, std::make_index_sequence<N>());
      accepted += (accepted.empty() ? "" : " or ") + std::to_string(N);
    }
    return call_layer<Layer, N + 1>(layer, in, std::move(accepted));
  }
}

}  // namespace detail

// What compile() takes beside functions of spans: anything with operator() or forward() of one to
// eight tensors that gives a tensor, or several in a vector, an array, a pair or a tuple.
template <class Layer>
concept Compilable = !detail::ForwardsFunction<const Layer&> &&
                     detail::takes_some<Layer>(std::make_index_sequence<detail::kMostInputs>());

inline Compiled compile(Compiled::Function function, CompileOptions options = {}) {
  return Compiled(std::move(function), std::move(options));
}

// A module, a lambda, or anything else that maps tensors to tensors:
//   compile(mlp);
//   compile([&](const Tensor& q, const Tensor& k) { return matmul(q, transpose(k, 0, 1)); });
// What cannot be copied (modules) must outlive the result, and be no temporary.
template <Compilable Layer>
requires(!std::is_copy_constructible_v<Layer>) Compiled
    compile(const Layer&& layer, CompileOptions options = {})
= delete;
template <Compilable Layer>
Compiled compile(const Layer& layer, CompileOptions options = {}) {
  if constexpr (std::is_copy_constructible_v<Layer>) {
    return Compiled([layer](std::span<const Tensor> in) { return detail::call_layer(layer, in); },
                    std::move(options));
  } else {
    return Compiled([&layer](std::span<const Tensor> in) { return detail::call_layer(layer, in); },
                    std::move(options), {&layer, sizeof(Layer)});
  }
}

}  // namespace epilogue

#pragma GCC visibility pop
