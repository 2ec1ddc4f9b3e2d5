// SPDX-License-Identifier: Apache-2.0
// Backward passes that go on to a tensor which no optimizer trains: an input with requires_grad.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/method.h"
#include "explain/method/roots.h"

namespace epilogue::trace {
namespace {

constexpr size_t kReadBehind = 8;  // ops of the program behind a backward pass

class InputGradients : WasteSearch {
 public:
  InputGradients(const CountedOps& all, const Places& places, const Roots& roots,
                 std::vector<Waste>& found)
      : WasteSearch(all, places, found), roots_(roots) {}

  void run() {
    if (!all_.has_backward || all_.trace.inputs.size() == 0) return;
    std::map<uint32_t, std::vector<size_t>> nodes;  // by step, in their order
    for (size_t r = 0; r < roots_.size(); ++r)
      if (is_autograd_node(roots_.name(r))) nodes[roots_.step(r)].push_back(r);
    if (nodes.size() > 1) nodes.erase(kNone);
    find_weights_of_others(nodes);
    find_trained(nodes);
    if (trained_.empty()) {
      find_unread_weights(nodes);
      return;
    }
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    Dims input;
    for (const auto& [step, its] : nodes) {
      const std::vector<size_t> tail = tail_of(its);
      if (tail.empty()) return;
      input = leaf_dims(its.back());
      for (const size_t r : tail) {
        ns += roots_.add_times(r, times);
        calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
      }
    }
    if (is_worth_it(ns)) report(ns, input, calls, times);
  }

 private:
  using Dims = std::vector<int64_t>;

  bool is_leaf(size_t root) const { return roots_.name(root).ends_with("AccumulateGrad"); }

  // The sizes of the gradient that a leaf gets; empty if they were not recorded.
  Dims leaf_dims(size_t root) const {
    Dims dims;
    for (const uint32_t at : roots_.within(root))
      for (const TensorShape& t : tensor_inputs(all_.inputs(at)))
        if (!t.dims.empty()) dims = t.dims;
    return dims;
  }

  // Sizes of all that an optimizer updates: list ops, and ops in place behind the last node.
  void find_trained(const std::map<uint32_t, std::vector<size_t>>& nodes) {
    std::unordered_set<uint32_t> seen;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const std::string_view name = roots_.name(r);
      if (name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_")) {
        if (!seen.insert(all_.inputs_id(roots_.at(r))).second) continue;  // as the step before
        for (const OpInput& in : all_.inputs(roots_.at(r)))
          for (const OpInput& t : in.list) trained_.insert(t.dims);
        continue;
      }
      const auto of = nodes.find(roots_.step(r));
      if (of == nodes.end() || r <= of->second.back() || !name.ends_with('_')) continue;
      const auto tensors = tensor_inputs(all_.inputs(roots_.at(r)));
      if (!tensors.empty() && !tensors[0].dims.empty()) trained_.insert(tensors[0].dims);
    }
  }

  // The nodes behind the last gradient of a parameter, if they lead to another tensor.
  std::vector<size_t> tail_of(const std::vector<size_t>& nodes) const {
    if (!is_leaf(nodes.back())) return {};
    const Dims input = leaf_dims(nodes.back());
    if (input.empty() || trained_.contains(input)) return {};
    size_t leaves = 0;
    size_t known = 0;
    for (const size_t r : nodes) {
      if (!is_leaf(r)) continue;
      ++leaves;
      known += trained_.contains(leaf_dims(r)) ? 1 : 0;
    }
    if (known == 0 || 2 * known < leaves) return {};
    // A gradient that is read: of an attack, a map of what matters.
    for (size_t r = nodes.back() + 1; r < roots_.size() && roots_.step(r) == roots_.step(r - 1);
         ++r) {
      const auto tensors = tensor_inputs(all_.inputs(roots_.at(r)));
      if (!is_autograd_node(roots_.name(r)) &&
          std::ranges::any_of(tensors, [&](const TensorShape& t) { return t.dims == input; }))
        return {};
    }
    std::vector<size_t> tail;
    for (size_t i = nodes.size(); i-- > 0;) {
      if (is_leaf(nodes[i]) && trained_.contains(leaf_dims(nodes[i]))) break;
      tail.push_back(nodes[i]);
    }
    return tail;
  }

  // --- Gradients of weights that no optimizer reads ------------------------------------------

  // Also one whose sizes were not recorded.
  bool has_optimizer() const {
    for (size_t s = 0; s < all_.trace.strings.size(); ++s)
      if (all_.trace.strings[static_cast<StringId>(s)].starts_with("Optimizer.step")) return true;
    for (size_t r = 0; r < roots_.size(); ++r)
      if (roots_.name(r).starts_with("aten::_foreach_") ||
          roots_.name(r).starts_with("aten::_fused_"))
        return true;
    return false;
  }

  // Sizes of the weights that layers of the forward pass read.
  std::set<Dims> weights() const {
    std::set<Dims> sizes;
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (roots_.base(r) != "linear" && !is_convolution(roots_.base(r))) continue;
      const auto in = all_.inputs(roots_.at(r));
      if (in.size() > 1 && in[1].dims.size() > 1) sizes.insert(in[1].dims);
    }
    return sizes;
  }

  // The time of the products that give gradients of a weight.
  int64_t add_weight_gradients(size_t root, const std::set<Dims>& weights, OpTimes& times,
                               std::vector<uint32_t>& calls) const {
    int64_t ns = 0;
    for (const uint32_t at : roots_.within(root)) {
      // One op for the gradients of weight and input: about half of it.
      if (all_.base(at) == "convolution_backward") {
        const auto of = all_.inputs(at);
        if (of.size() < 3 || !weights.contains(of[2].dims)) continue;
        int64_t all_ns = 0;
        for (const uint32_t within : roots_.within(root)) all_ns += all_.ns_at(within);
        ns += all_ns / 2;
        times.add(all_.name_id(at), all_ns / 2);
        calls.push_back(at);
        continue;
      }
      if (all_.base(at) != "mm") continue;
      const auto in = all_.inputs(at);
      if (in.size() < 2 || in[0].dims.size() != 2 || in[1].dims.size() != 2) continue;
      const int64_t rows = in[0].dims[0];
      const int64_t columns = in[1].dims[1];
      const bool is_weight = weights.contains({rows, columns}) || weights.contains({columns, rows});
      // A gradient of the weight sums over the rows of the batch; that of the input does not.
      if (!is_weight || weights.contains(in[0].dims) || weights.contains(in[1].dims)) continue;
      ns += all_.ns_at(at);
      times.add(all_.name_id(at), all_.ns_at(at));
      calls.push_back(at);
    }
    return ns;
  }

  // --- Gradients of weights that another optimizer trains ------------------------------------

  struct Span {
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    std::set<Dims> trained;
  };

  // The steps of optimizers, by start, with the sizes that their ops read.
  std::vector<Span> optimizer_steps() const {
    std::vector<Span> spans;
    for (const Event& e : all_.trace.events)
      if (e.category == Category::user_annotation &&
          all_.trace.name(e).starts_with("Optimizer.step"))
        spans.push_back({e.ts_ns, e.end_ns(), {}});
    std::ranges::sort(spans, {}, &Span::from_ns);
    size_t s = 0;
    for (size_t r = 0; r < roots_.size() && s < spans.size(); ++r) {
      const int64_t at_ns = all_.event(roots_.at(r)).ts_ns;
      while (s < spans.size() && spans[s].to_ns <= at_ns) ++s;
      if (s == spans.size() || at_ns < spans[s].from_ns) continue;
      for (const OpInput& in : all_.inputs(roots_.at(r))) {
        if (!in.dims.empty()) spans[s].trained.insert(in.dims);
        for (const OpInput& t : in.list) spans[s].trained.insert(t.dims);
      }
    }
    return spans;
  }

  // Several optimizers: a pass before the step of one gives gradients of weights that another one
  // trains, which sets them to zero before its own pass.
  void find_weights_of_others(const std::map<uint32_t, std::vector<size_t>>& nodes) {
    const std::vector<Span> spans = optimizer_steps();
    if (spans.size() < 2 * nodes.size() || nodes.size() < 2) return;
    const std::set<Dims> sizes = weights();
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    std::set<Dims> unread;
    size_t steps = 0;
    for (const auto& [step, its] : nodes) {
      const int64_t before = ns;
      is_behind_pass_ = false;
      for (size_t begin = 0; begin < its.size();) {
        size_t end = begin + 1;  // of the pass: the next one begins at a higher number
        int64_t lowest = roots_.sequence(its[begin]);
        for (; end < its.size(); ++end) {
          const int64_t number = roots_.sequence(its[end]);
          if (is_leaf(its[end]) || number < 0) continue;
          if (lowest >= 0 && number > lowest) break;
          lowest = number;
        }
        ns += add_others(its, begin, end, spans, sizes, unread, times, calls);
        begin = end;
      }
      steps += ns > before ? 1 : 0;
    }
    if (adds_up_ || steps != nodes.size() || unread.size() < 2 || !is_worth_it(ns)) return;
    Waste waste;
    waste.kind = WasteKind::unread_gradient;
    waste.title = fmt::format(
        "a backward pass computes gradients of weights that another optimizer trains: {} of {}, "
        "most of it in {}",
        time_text(ns), time_text(all_.wall_ns), times.list(all_.trace).front().first);
    waste.evidence = {
        fmt::format("weights of {} sizes, {} the largest, get a gradient that the optimizer behind "
                    "this pass does not read",
                    unread.size(), sizes_text(*std::ranges::max_element(unread, {}, numel_of)))};
    waste.action =
        "switch these weights' gradients off for this pass (of a GAN's discriminator in the "
        "generator's step: discriminator.requires_grad_(False) before it, True behind it), or name "
        "the parameters that are trained: loss.backward(inputs=list(generator.parameters())); "
        "gradients still flow through the layers";
    waste.ns = ns;
    waste.saving_ns = ns;
    waste.proof = WasteProof::likely;
    add(std::move(waste), calls, times);
  }

  static int64_t numel_of(const Dims& dims) { return TensorShape{dims, {}}.numel(); }

  // Of the nodes [begin, end) of a pass.
  int64_t add_others(const std::vector<size_t>& its, size_t begin, size_t end,
                     const std::vector<Span>& spans, const std::set<Dims>& sizes,
                     std::set<Dims>& unread, OpTimes& times, std::vector<uint32_t>& calls) {
    const int64_t from_ns = all_.event(roots_.at(its[end - 1])).ts_ns;
    const int64_t to_ns = end < its.size() ? all_.event(roots_.at(its[end])).ts_ns
                                           : std::numeric_limits<int64_t>::max();
    std::set<Dims> read;    // by the optimizers between this pass and the next one of the step
    std::set<Dims> others;  // by those of the run
    const uint32_t step = roots_.step(its[begin]);
    for (const Span& span : spans) {
      if (from_ns <= span.from_ns && span.from_ns < to_ns && is_in_step(span, step))
        read.insert(span.trained.begin(), span.trained.end());
      else
        others.insert(span.trained.begin(), span.trained.end());
    }
    const bool is_first = !is_behind_pass_;  // since the optimizers before it
    is_behind_pass_ = read.empty();
    if (read.empty()) return 0;
    std::set<Dims> unread_here;
    int64_t ns = 0;
    for (size_t n = begin; n < end; ++n) {
      if (!is_leaf(its[n])) continue;
      const Dims leaf = leaf_dims(its[n]);
      // Gradients of several passes are added up for this optimizer: all of them are read.
      adds_up_ = adds_up_ || (is_first && read.contains(leaf) && roots_.has(its[n], "add"));
      if (!sizes.contains(leaf) || read.contains(leaf) || !others.contains(leaf)) continue;
      unread_here.insert(leaf);
      ns += roots_.add_times(its[n], times);
      calls.insert(calls.end(), roots_.within(its[n]).begin(), roots_.within(its[n]).end());
    }
    for (size_t n = begin; n < end && !unread_here.empty(); ++n)
      ns += add_weight_gradients(its[n], unread_here, times, calls);
    unread.insert(unread_here.begin(), unread_here.end());
    return ns;
  }

  bool is_in_step(const Span& span, uint32_t step) const {
    const auto of = std::ranges::lower_bound(
        all_.ops, span.from_ns, {}, [&](uint32_t op) { return all_.trace.events[op].ts_ns; });
    return of != all_.ops.end() && all_.links.step[*of] == step;
  }

  // No optimizer runs, and the program reads the gradient of another tensor: forces, an attack.
  void find_unread_weights(const std::map<uint32_t, std::vector<size_t>>& nodes) {
    if (has_optimizer()) return;
    const std::set<Dims> sizes = weights();
    if (sizes.empty()) return;
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    std::set<Dims> unread;
    Dims read;
    for (const auto& [step, its] : nodes) {
      for (size_t n = 0; n < its.size(); ++n) {
        const size_t r = its[n];
        if (is_leaf(r)) {
          const Dims leaf = leaf_dims(r);
          if (sizes.contains(leaf)) {
            unread.insert(leaf);
            const int64_t own = roots_.add_times(r, times);
            ns += own;
            calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
          } else if (leaf.size() > 1 && is_read_behind(r, leaf)) {
            read = leaf;
          }
          continue;
        }
        ns += add_weight_gradients(r, sizes, times, calls);
      }
    }
    if (unread.size() < 2 || read.empty() || !is_worth_it(ns)) return;
    Waste waste;
    waste.kind = WasteKind::unread_gradient;
    waste.title = fmt::format(
        "backward passes compute gradients of the layers' weights, and no optimizer runs: {} of "
        "{}, most of it in {}",
        time_text(ns), time_text(all_.wall_ns), times.list(all_.trace).front().first);
    waste.evidence = {
        fmt::format("what the program reads behind them is the gradient of {}", sizes_text(read))};
    waste.action =
        "if the gradient of that tensor alone is read (forces, an attack, a map of saliency): "
        "torch.autograd.grad(energy, positions) in place of backward() (or backward(inputs=...)), "
        "or requires_grad_(False) on the model's weights; if gradients of the weights are gathered "
        "over several passes for an optimizer that was not recorded, they are needed";
    waste.ns = ns;
    waste.saving_ns = ns;
    waste.proof = WasteProof::likely;
    add(std::move(waste), calls, times);
  }

  // By an op of the program among those right behind the pass.
  bool is_read_behind(size_t r, const Dims& dims) const {
    size_t ops = 0;
    for (size_t i = r + 1; i < roots_.size() && ops < kReadBehind; ++i) {
      if (is_autograd_node(roots_.name(i))) continue;
      ++ops;
      const auto tensors = tensor_inputs(all_.inputs(roots_.at(i)));
      if (std::ranges::any_of(tensors, [&](const TensorShape& t) { return t.dims == dims; }))
        return true;
    }
    return false;
  }

  void report(int64_t ns, const Dims& input, const std::vector<uint32_t>& calls,
              const OpTimes& times) {
    const auto ops = times.list(all_.trace);
    Waste waste;
    waste.kind = WasteKind::input_gradient;
    waste.title = fmt::format(
        "the backward pass goes on to a tensor of {} that no optimizer trains: {} of {}, most of "
        "it in {}",
        sizes_text(input), time_text(ns), time_text(all_.wall_ns), ops.front().first);
    waste.evidence = {
        "no op of the optimizer has these sizes, and no later op of the step reads them",
        "the forward pass keeps what these gradients need, besides"};
    waste.place = places_.of(calls);
    waste.action =
        "if nobody reads this gradient (an input of the model with requires_grad=True): "
        "requires_grad_(False) or detach() for that tensor, and what comes before the first "
        "trained weight (features, transforms of the input) under torch.no_grad(); for an attack "
        "or a map of saliency ask for it only in the steps that need it";
    waste.ns = ns;
    waste.saving_ns = ns;
    waste.proof = WasteProof::likely;
    add(std::move(waste), calls, times);
  }

  const Roots& roots_;
  bool is_behind_pass_ = false;  // no optimizer ran since the pass before, of the same step
  bool adds_up_ = false;         // an optimizer reads gradients of a pass before that of another
  std::set<Dims> trained_;
};

}  // namespace

void find_input_gradients(const CountedOps& all, const Places& places, const Roots& roots,
                          std::vector<Waste>& found) {
  InputGradients(all, places, roots, found).run();
}

}  // namespace epilogue::trace
