// SPDX-License-Identifier: Apache-2.0
// Passes of training: backward passes that go through one graph again, many small ones in a step,
// gradients of slices, graphs that no pass reads, and work before and behind that no gradient
// needs.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/units.h"
#include "epilogue/trace/host.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/method.h"
#include "explain/method/roots.h"

namespace epilogue::trace {
namespace {

// A node may run as often where gradients of gradients are taken.
constexpr int64_t kManyPasses = 8;
constexpr int64_t kSmallNodeOpNs = 5'000;  // about what calling an op takes
constexpr double kSmallOpsShare = 0.3;     // of the run, in calls and small ops
constexpr double kFewSmallOps = 0.15;      // the same, if there are kMicroBatches passes
constexpr int64_t kMicroBatches = 16;      // in a step
constexpr int64_t kNodeNs = 2'000;         // what recording an op for a gradient takes
constexpr double kUntrainedShare = 0.1;    // of the run
constexpr int64_t kHoldingNodes = 64;      // of a graph that holds memory
constexpr int64_t kHeldTimes = 8;          // the largest tensor
constexpr int64_t kHeldBytes = 32 << 20;
constexpr int64_t kIdleGradients = 8;       // gradients in a step
constexpr double kPenaltyShare = 0.15;      // of the run
constexpr size_t kNormWithin = 12;          // outermost ops behind a pass
constexpr double kUnreadGraphShare = 0.02;  // of the run

class Passes : WasteSearch {
 public:
  Passes(const CountedOps& all, const Places& places, const Roots& roots, std::vector<Waste>& found)
      : WasteSearch(all, places, found), roots_(roots) {}

  void run() {
    if (!all_.has_backward) {
      find_unread_graph();
      return;
    }
    if (!find_repeated_backward()) find_small_passes();
    find_cut_gradients();
    find_idle_gradients();
    find_gradient_penalty();
    find_untrained_forward();
    find_work_beside_training();
  }

 private:
  // --- Backward passes through the same graph --------------------------------------------

  // Whether a node's ops are recorded for a gradient of the gradient (create_graph=True).
  bool keeps_graph(size_t root) const {
    return std::any_of(roots_.within(root).begin(), roots_.within(root).end(), [&](uint32_t at) {
      const OpArgs* args = all_.trace.op_args(all_.event(at));
      return args != nullptr && args->sequence_number >= 0 && all_.name(at).starts_with("aten::");
    });
  }

  // The most passes of a step that keep a graph and begin at one node.
  int64_t passes_of_one_output() const {
    using Begin = std::tuple<uint32_t, int64_t, StringId>;
    std::map<Begin, int64_t> begins;
    Begin begin;
    bool keeps = false;
    int64_t before = -1;
    int64_t most = 0;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const int64_t sequence = roots_.sequence(r);
      if (sequence < 0 || !is_autograd_node(roots_.name(r))) continue;
      // Within a pass the numbers fall.
      if (before < 0 || sequence > before) {
        if (keeps) most = std::max(most, ++begins[begin]);
        begin = {roots_.step(r), sequence, all_.name_id(roots_.at(r))};
        keeps = false;
      }
      keeps = keeps || keeps_graph(r);
      before = sequence;
    }
    return keeps ? std::max(most, ++begins[begin]) : most;
  }

  // The nodes that differentiate these nodes (create_graph=True): what they take.
  int64_t gradients_of(const std::vector<size_t>& nodes, Waste& waste, std::vector<uint32_t>& calls,
                       OpTimes& times) const {
    std::unordered_set<int64_t> numbers;
    for (const size_t r : nodes)
      for (const uint32_t at : roots_.within(r)) {
        const OpArgs* args = all_.trace.op_args(all_.event(at));
        if (args != nullptr && args->sequence_number >= 0 && all_.name(at).starts_with("aten::"))
          numbers.insert(args->sequence_number);
      }
    for (const size_t r : nodes) numbers.erase(roots_.sequence(r));
    int64_t ns = 0;
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (!is_autograd_node(roots_.name(r)) || !numbers.contains(roots_.sequence(r))) continue;
      ns += roots_.add_times(r, times);
      calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
    }
    waste.ns += ns;
    return ns;
  }

  // A step of an optimizer begins between the two nodes.
  bool is_optimizer_between(size_t first, size_t last) {
    if (optimizers_.empty())
      for (const Event& e : all_.trace.events)
        if (e.category == Category::user_annotation &&
            all_.trace.name(e).starts_with("Optimizer.step"))
          optimizers_.push_back(e.ts_ns);
    const int64_t from = all_.event(roots_.at(first)).ts_ns;
    const int64_t to = all_.event(roots_.at(last)).ts_ns;
    return std::ranges::any_of(optimizers_, [&](int64_t ns) { return from < ns && ns < to; });
  }

  // A product with a square matrix of as many rows as there are passes, right behind the last of
  // them; kNone if there is none.
  size_t product_behind(const std::vector<size_t>& nodes, int64_t passes) const {
    constexpr size_t kProductBehind = 24;
    if (nodes.empty() || passes < kManyPasses) return kNone;
    const size_t last = *std::ranges::max_element(nodes);
    for (size_t r = last + 1; r < std::min(roots_.size(), last + 1 + kProductBehind); ++r) {
      if (is_autograd_node(roots_.name(r)) || !is_multiplication(roots_.name(r))) continue;
      for (const TensorShape& t : tensor_inputs(all_.inputs(roots_.at(r)))) {
        const size_t rank = t.dims.size();
        if (rank < 2 || t.dims[rank - 1] != t.dims[rank - 2]) continue;
        if (t.dims.back() == passes || t.dims.back() == passes - 1) return r;
      }
    }
    return kNone;
  }

  bool find_repeated_backward() {
    struct Repeated {
      int64_t count = 0;
      int64_t plain = 0;  // without a graph of its own
      int64_t ns = 0;
      std::vector<size_t> roots;
    };
    // By step, thread, number and name: an op's nodes may share its number.
    using Key = std::tuple<uint32_t, int64_t, int64_t, StringId>;
    std::vector<std::pair<Key, size_t>> keyed;
    for (size_t r = 0; r < roots_.size(); ++r)
      if (roots_.sequence(r) >= 0 && is_autograd_node(roots_.name(r)))
        keyed.push_back({{roots_.step(r), all_.trace.op_args(all_.event(roots_.at(r)))->fwd_tid,
                          roots_.sequence(r), all_.name_id(roots_.at(r))},
                         r});
    std::sort(keyed.begin(), keyed.end());
    std::vector<std::pair<Key, Repeated>> nodes;
    for (size_t i = 1; i < keyed.size(); ++i) {
      if (keyed[i].first != keyed[i - 1].first) continue;
      if (nodes.empty() || nodes.back().first != keyed[i].first)
        nodes.push_back({keyed[i].first, {1, 0, 0, {keyed[i - 1].second}}});
      ++nodes.back().second.count;
      nodes.back().second.roots.push_back(keyed[i].second);
    }
    // Passes that begin at the same node: one call could take all that they are asked for.
    const int64_t calls_of_one = passes_of_one_output();
    OpTimes times;
    Waste waste;
    int64_t again_ns = 0;
    int64_t most = 0;
    int64_t most_plain = 0;
    int64_t ops = 0;
    std::vector<uint32_t> calls;
    std::map<int64_t, int64_t> ns_by_count;
    std::unordered_map<StringId, int64_t> by_name;
    bool is_stepped = false;  // an optimizer steps between two of the passes
    for (auto& [key, node] : nodes) {
      OpTimes own;
      for (const size_t r : node.roots) {
        node.ns += roots_.add_times(r, own);
        node.plain += keeps_graph(r) ? 0 : 1;
        ops += static_cast<int64_t>(roots_.within(r).size());
        calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
      }
      most = std::max(most, node.count);
      most_plain = std::max(most_plain, node.plain);
      is_stepped = is_stepped || is_optimizer_between(node.roots.front(), node.roots.back());
      const int64_t again = node.ns / node.count * (node.count - 1);
      waste.ns += node.ns;
      again_ns += again;
      ns_by_count[node.count] += node.ns;
      by_name[std::get<3>(key)] += node.ns;
      for (const size_t r : node.roots)
        for (const uint32_t at : roots_.within(r))
          times.add(all_.name_id(at), all_.ns_at(at) / node.count * (node.count - 1));
    }
    const bool is_of_one = calls_of_one >= 2 && most < kManyPasses && most_plain < 2;
    const int64_t nodes_ns = waste.ns;  // of the passes, without what differentiates them
    std::vector<size_t> repeated;
    for (const auto& [key, node] : nodes)
      repeated.insert(repeated.end(), node.roots.begin(), node.roots.end());
    if (most >= kManyPasses && most_plain < most) {
      // Each of the passes was recorded for a gradient, which goes through it again.
      const size_t before = calls.size();
      again_ns += gradients_of(repeated, waste, calls, times) / most * (most - 1);
      ops += std::ssize(calls) - static_cast<int64_t>(before);
    }
    if (is_of_one) {
      const int64_t kept = std::min(most, calls_of_one);
      again_ns = waste.ns / most * (kept - 1);
      again_ns += gradients_of(repeated, waste, calls, times) / kept * (kept - 1);
    }
    if (again_ns == 0 || !is_worth_it(again_ns) ||
        (most < kManyPasses && most_plain < 2 && !is_of_one))
      return false;
    const auto longest =
        std::max_element(by_name.begin(), by_name.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::string_view name = node_name(all_.trace.strings[longest->first]);
    // Each pass over all of it, or each over what the passes before had and a little more.
    int64_t often_ns = 0;  // of nodes that run as often as any, or nearly
    for (const auto& [count, ns] : ns_by_count) often_ns += 10 * count >= 9 * most ? ns : 0;
    const bool is_whole = 2 * often_ns >= nodes_ns;
    waste.kind = WasteKind::repeated_backward;
    waste.title = fmt::format(
        "backward passes go through the same graph again, up to {} times in a step: {} of {}", most,
        time_text(again_ns), time_text(all_.wall_ns));
    waste.evidence.push_back(fmt::format(
        "{} of one forward op runs up to {} times: {}", name, most,
        is_whole ? "a pass for each output (a Jacobian, or autograd.grad in a loop), or "
                   "backward(retain_graph=True) again"
                 : "each pass repeats those before it (retain_graph=True, and a state "
                   "that is not detached)"));
    waste.action =
        is_whole
            ? "take all outputs in one pass: sum those that do not depend on each other (the "
              "samples of a batch) and call autograd.grad once; torch.func.vmap(jacrev(f)) or "
              "jacobian(vectorize=True), is_grads_batched=True; where a trace alone is read (a "
              "divergence, a Laplacian) one product with a random vector estimates it "
              "(Hutchinson), or forward mode (torch.func.jvp) gives it; of several losses add them "
              "and call backward once"
            : "add the losses and call backward once, or detach() the state between the chunks "
              "of a sequence (truncated backpropagation)";
    if (const size_t reader = is_whole ? product_behind(repeated, most) : kNone; reader != kNone) {
      waste.evidence.push_back(
          fmt::format("{} multiplies the matrix of all passes next", roots_.name(reader)));
      waste.action =
          "the product with a vector needs no matrix: of a Hessian one more backward pass, "
          "g = torch.autograd.grad(f(x), x, create_graph=True)[0]; hv = torch.autograd.grad(g @ v, "
          "x)[0] (torch.autograd.functional.hvp, torch.func.jvp(torch.func.grad(f), ...)); of a "
          "Jacobian torch.func.jvp or vjp; a linear system with it by conjugate gradients on such "
          "products; where the matrix itself is read, " +
          waste.action;
    }
    if (is_of_one) {
      waste.evidence = {fmt::format(
          "{} of one forward op runs up to {} times, and {} passes with create_graph=True begin at "
          "the same output: autograd.grad is called for each input apart",
          name, most, calls_of_one)};
      waste.action =
          "call autograd.grad once with a list of all inputs (ux, uy = torch.autograd.grad(u, (x, "
          "y), torch.ones_like(u), create_graph=True)), or for one tensor that holds them as "
          "columns; of several grad_outputs is_grads_batched=True";
    } else if (is_stepped) {
      waste.evidence = {
          fmt::format("{} of one forward op runs up to {} times (retain_graph=True)", name, most),
          "an optimizer steps between the passes: the losses train different parameters"};
      waste.action =
          "if the first loss is not to train what both passes go through (a GAN's discriminator on "
          "made images, a critic), detach() its input or make it under no_grad(): its backward "
          "pass then ends there, and needs no retain_graph=True; else add the losses and call "
          "backward once";
    } else if (is_whole && most < kManyPasses) {
      waste.action +=
          "; if one of the losses is not to train that part (a discriminator, a critic, a target), "
          "detach() its input";
    }
    waste.saving_ns = again_ns;
    waste.proof = most >= kManyPasses ? WasteProof::shown : WasteProof::likely;
    waste.op_calls = ops;
    add(std::move(waste), calls, times);
    return true;
  }

  // --- Gradients of slices ---------------------------------------------------------------

  void find_cut_gradients() {
    std::map<StringId, std::vector<size_t>> by_name;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const std::string_view name = roots_.name(r);
      if (is_autograd_node(name) &&
          (name.ends_with("CopySlices") || name.find("SelectBackward") != std::string_view::npos ||
           name.find("SliceBackward") != std::string_view::npos))
        by_name[all_.name_id(roots_.at(r))].push_back(r);
    }
    for (const auto& [name, nodes] : by_name) {
      const auto per_step = static_cast<int64_t>(nodes.size() / all_.steps);
      if (per_step < kManyPasses) continue;
      OpTimes times;
      std::vector<uint32_t> calls;
      Waste waste;
      for (const size_t r : nodes) {
        waste.ns += roots_.add_times(r, times);
        waste.op_calls += static_cast<int64_t>(roots_.within(r).size());
        calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
      }
      const int64_t saving = waste.ns / per_step * (per_step - 1);
      if (!is_worth_it(saving)) continue;
      const std::string_view node = node_name(all_.trace.strings[name]);
      waste.kind = WasteKind::cut_gradients;
      waste.title = fmt::format(
          "the gradient of each slice {} a tensor of full size: {} runs {} times in a step, {} "
          "of {}",
          node.ends_with("CopySlices") ? "copies" : "fills", node, per_step, time_text(waste.ns),
          time_text(all_.wall_ns));
      const bool is_write = node.ends_with("CopySlices");
      waste.evidence.emplace_back(
          is_write
              ? "out[:, i] = y in a loop: the node of each write copies the whole gradient"
              : "x[:, i] in a loop: each gradient is zeros of x's size with one slice written, "
                "and these are added up");
      waste.action =
          is_write
              ? "collect the parts in a list and join them once (torch.stack or torch.cat): one "
                "gradient for all parts; no writes into a tensor that gradients go through"
              : "compute on the whole tensor without a loop (all classes or steps at once: one_hot "
                "or scatter and one sum, vectorised); where the slices are needed one by one, "
                "x.unbind(dim) or split() has one gradient for all of them; if each step needs the "
                "one before, the library's op for the whole recursion (F.ctc_loss, nn.LSTM, "
                "nn.GRU, cumsum)";
      if (const std::string packed = packed_action(); !packed.empty() && !is_write)
        waste.action = packed;
      waste.saving_ns = saving;
      add(std::move(waste), calls, times);
    }
  }

  // Recurrent layers slice a packed sequence for each step. "" if nothing is packed.
  std::string packed_action() const {
    for (size_t r = 0; r + 1 < roots_.size(); ++r) {
      if (roots_.base(r) != "_pack_padded_sequence") continue;
      const auto padded = tensor_inputs(all_.inputs(roots_.at(r)));
      std::string action =
          "the sequences are packed (pack_padded_sequence), and a recurrent layer slices them for "
          "each step: give it the padded tensor, with sequences of like length in one batch";
      if (padded.empty() || padded.front().dims.size() != 3) return action;
      const auto& dims = padded.front().dims;
      for (size_t next = r + 1; next < roots_.size(); ++next) {
        const std::string_view base = roots_.base(next);
        if (base != "gru" && base != "lstm" && base != "rnn_tanh" && base != "rnn_relu") continue;
        const auto rows = tensor_inputs(all_.inputs(roots_.at(next)));
        if (!rows.empty() && rows.front().dims == std::vector<int64_t>{dims[0] * dims[1], dims[2]})
          action = fmt::format(
              "all sequences of the packed batch have one length ({} x {} rows hold no padding): "
              "leave pack_padded_sequence out, and give the recurrent layer the padded tensor",
              dims[0], dims[1]);
        return action;
      }
      return action;
    }
    return {};
  }

  // --- Many small passes -----------------------------------------------------------------

  // Passes of the same nodes, one for each sample or each small part of a batch.
  void find_small_passes() {
    if (all_.is_device || all_.links.steps.empty()) return;
    struct Pass {
      uint32_t step = kNone;
      size_t nodes = 0;
      StringId first = 0;
    };
    std::vector<Pass> passes;
    int64_t highest = -1;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const int64_t sequence = roots_.sequence(r);
      if (sequence < 0 || !is_autograd_node(roots_.name(r))) continue;
      if (passes.empty() || sequence > highest) {
        passes.push_back({roots_.step(r), 0, all_.name_id(roots_.at(r))});
        highest = sequence;
      }
      ++passes.back().nodes;
    }
    size_t same = 0;
    for (const Pass& pass : passes)
      same += pass.first == passes.front().first && pass.nodes == passes.front().nodes ? 1 : 0;
    const auto per_step = static_cast<int64_t>(passes.size() / all_.steps);
    if (per_step < kManyPasses || 10 * same < 9 * passes.size()) return;
    int64_t small = 0;
    int64_t ops = 0;
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      small += std::min(all_.ns_at(at), kSmallNodeOpNs);
      ++ops;
    }
    const double share = per_step < kMicroBatches ? kSmallOpsShare : kFewSmallOps;
    if (static_cast<double>(small) < share * static_cast<double>(all_.wall_ns)) return;
    Waste waste;
    waste.kind = WasteKind::small_passes;
    waste.title = fmt::format(
        "a step runs {} backward passes of the same {} nodes: {} of {} are calls and small ops",
        per_step, passes.front().nodes, time_text(small), time_text(all_.wall_ns));
    waste.evidence.emplace_back(
        "each pass has a forward pass of its own: a loop over samples, or micro-batches that are "
        "too small");
    waste.action =
        "run the samples as one batch and call backward once on the sum of their losses; of "
        "micro-batches whose gradients are accumulated take few large ones, as many rows as memory "
        "holds (the gradient is the same); if the gradient of each sample is read, "
        "torch.func.vmap(grad(loss)) over the batch";
    waste.ns = small;
    waste.saving_ns = small / per_step * (per_step - 1);
    waste.op_calls = ops / per_step * (per_step - 1);
    waste.proof = WasteProof::likely;
    std::vector<uint32_t> calls;
    for (size_t r = 0; r < roots_.size(); ++r)
      if (!is_autograd_node(roots_.name(r))) calls.push_back(roots_.at(r));
    add(std::move(waste), calls, {});
  }

  // --- Gradients that are zeros ----------------------------------------------------------

  // zero_grad(set_to_none=False) keeps gradients of parameters that no pass reaches, and the
  // optimizer goes through all of them.
  void find_idle_gradients() {
    if (all_.is_device) return;
    std::vector<std::pair<int64_t, int64_t>> zeroing;
    std::vector<std::pair<int64_t, int64_t>> updates;
    for (const Event& e : all_.trace.events) {
      if (e.category != Category::user_annotation) continue;
      if (all_.trace.name(e).starts_with("Optimizer.zero_grad"))
        zeroing.emplace_back(e.ts_ns, e.end_ns());
      if (all_.trace.name(e).starts_with("Optimizer.step"))
        updates.emplace_back(e.ts_ns, e.end_ns());
    }
    if (zeroing.empty() || updates.empty()) return;
    std::sort(zeroing.begin(), zeroing.end());
    std::sort(updates.begin(), updates.end());
    const auto is_within = [](const auto& ranges, int64_t ns) {
      const auto after =
          std::ranges::upper_bound(ranges, ns, {}, [](const auto& range) { return range.first; });
      return after != ranges.begin() && ns < std::prev(after)->second;
    };
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t zeroed = 0;
    int64_t reached = 0;
    int64_t zero_ns = 0;
    int64_t update_ns = 0;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const Event& e = all_.event(roots_.at(r));
      if (is_autograd_node(roots_.name(r))) {
        reached += roots_.name(r).find("AccumulateGrad") != std::string_view::npos ? 1 : 0;
        continue;
      }
      const bool zeroes = is_within(zeroing, e.ts_ns);
      if (!zeroes && !is_within(updates, e.ts_ns)) continue;
      (zeroes ? zero_ns : update_ns) += roots_.add_times(r, times);
      calls.push_back(roots_.at(r));
      if (!zeroes) continue;
      // _foreach_zero_ calls zero_ for each tensor, and that fill_.
      const auto named = [&](std::string_view base) {
        return std::ranges::count_if(roots_.within(r),
                                     [&](uint32_t at) { return all_.name(at) == base; });
      };
      zeroed += std::max(named("aten::zero_"), named("aten::fill_"));
    }
    const auto zeroings = static_cast<int64_t>(zeroing.size());
    if (zeroed < kIdleGradients * zeroings || 2 * reached > zeroed) return;
    const double idle = 1 - static_cast<double>(reached) / static_cast<double>(zeroed);
    const auto saving = static_cast<int64_t>(idle * static_cast<double>(zero_ns + update_ns));
    if (!is_worth_it(saving)) return;
    Waste waste;
    waste.kind = WasteKind::idle_gradients;
    waste.title = fmt::format(
        "the optimizer updates {} parameters, and the backward pass gives {} of them a gradient: "
        "{} of {} are for zeros",
        zeroed / zeroings, reached / zeroings, time_text(saving), time_text(all_.wall_ns));
    waste.evidence.push_back(
        fmt::format("zero_grad writes zeros in {}; the optimizer takes {}, and AccumulateGrad runs "
                    "{} times in a step",
                    time_text(zero_ns), time_text(update_ns), reached / zeroings));
    waste.action =
        "zero_grad(set_to_none=True): the optimizer skips parameters without a gradient (moments "
        "of Adam then stay as they are); or an optimizer of its own for each part that trains "
        "alone";
    waste.ns = zero_ns + update_ns;
    waste.saving_ns = saving;
    waste.proof = WasteProof::likely;
    add(std::move(waste), calls, times);
  }

  // --- Penalties of gradients ------------------------------------------------------------

  // A pass with create_graph whose gradient's norm is taken, in every step: training goes on
  // without it in most steps.
  void find_gradient_penalty() {
    if (all_.is_device || all_.links.steps.empty()) return;
    std::vector<size_t> keeping;
    std::unordered_set<uint32_t> steps;
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (!is_autograd_node(roots_.name(r)) || roots_.sequence(r) < 0 || !keeps_graph(r)) continue;
      if (takes_norm_after(r)) steps.insert(roots_.step(r));
      keeping.push_back(r);
    }
    steps.erase(kNone);
    if (steps.size() < all_.links.steps.size() || steps.size() < 2) return;
    Waste waste;
    waste.kind = WasteKind::gradient_penalty;
    OpTimes times;
    std::vector<uint32_t> calls;
    for (const size_t r : keeping) {
      waste.ns += roots_.add_times(r, times);
      calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
    }
    gradients_of(keeping, waste, calls, times);
    if (static_cast<double>(waste.ns) < kPenaltyShare * static_cast<double>(all_.wall_ns)) return;
    waste.title = fmt::format(
        "each step differentiates the norm of a gradient (autograd.grad with create_graph=True, "
        "double backward): {} of {}",
        time_text(waste.ns), time_text(all_.wall_ns));
    waste.evidence.push_back(
        fmt::format("{} nodes of passes that keep a graph, and the nodes that differentiate them",
                    keeping.size()));
    waste.action =
        "if it is a penalty (R1, WGAN-GP): take it lazily, every 16th step with 16 times the "
        "weight, or of a part of the batch; if it is the loss itself (forces, a differential "
        "equation), it is the program's work";
    waste.proof = WasteProof::question;
    add(std::move(waste), calls, times);
  }

  // A norm is taken of what the pass that ends with this node gave.
  bool takes_norm_after(size_t root) const {
    bool has_square = false;
    for (size_t r = root + 1; r < std::min(roots_.size(), root + 1 + kNormWithin); ++r) {
      if (roots_.name(r).find("AccumulateGrad") != std::string_view::npos) continue;
      if (is_autograd_node(roots_.name(r))) return false;
      const std::string_view base = aten_base(roots_.name(r));
      if (base == "linalg_vector_norm" || base == "norm") return true;
      if (has_square && base == "sum") return true;
      has_square = has_square || base == "square" || base == "pow";
    }
    return false;
  }

  // --- Graphs that no pass reads ---------------------------------------------------------

  // Without no_grad() each op of inference makes a node of a graph.
  void find_unread_graph() {
    std::unordered_set<int64_t> numbers;
    std::vector<uint32_t> calls;
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      const OpArgs* args = all_.trace.op_args(all_.event(at));
      if (args == nullptr || args->sequence_number < 0) continue;
      if (numbers.insert(args->sequence_number).second) calls.push_back(static_cast<uint32_t>(at));
    }
    const auto nodes = static_cast<int64_t>(numbers.size());
    if (nodes < 2 || all_.is_device) return;
    const Held held = nodes >= kHoldingNodes ? held_memory() : Held{};
    const bool holds = held.most >= kHeldTimes * held.largest && held.most >= kHeldBytes;
    const bool is_costly = static_cast<double>(nodes * kNodeNs) >=
                           kUnreadGraphShare * static_cast<double>(all_.wall_ns);
    if (!holds && !is_costly) return;
    Waste waste;
    waste.kind = WasteKind::unread_graph;
    waste.title = fmt::format(
        "{} nodes of a graph are recorded for gradients, and no backward pass reads them", nodes);
    waste.evidence.push_back(
        fmt::format("about {} at {} each, and every result is kept alive; nn.Transformer's and "
                    "nn.MultiheadAttention's fast paths need no_grad, too",
                    time_text(nodes * kNodeNs), time_text(kNodeNs)));
    waste.action =
        "run inference under torch.inference_mode() (or torch.no_grad()); if the backward pass is "
        "outside of the recording, this is no loss";
    waste.ns = nodes * kNodeNs;
    // No result's memory is used again: each op writes into new pages.
    if (holds) {
      waste.evidence.push_back(
          fmt::format("what is live at once grows to {}, {} times the largest tensor: the graph "
                      "holds what each op read",
                      format_bytes(held.most), held.most / std::max<int64_t>(1, held.largest)));
      int64_t op_ns = 0;
      for (const uint32_t at : calls) op_ns += all_.event(at).dur_ns;
      waste.ns = std::max(waste.ns, std::min(op_ns, all_.wall_ns));
    }
    waste.proof = WasteProof::question;
    add(std::move(waste), calls, {});
  }

  struct Held {
    int64_t most = 0;  // bytes that were allocated in the recording and live at once
    int64_t largest = 0;
  };
  Held held_memory() const {
    std::vector<std::pair<int64_t, int64_t>> changes;  // when, bytes
    for (const MemoryEvent& m : all_.trace.memory)
      if (m.device_type == DeviceType::cpu && !m.out_of_memory)
        changes.emplace_back(m.ts_ns, m.bytes);
    std::stable_sort(changes.begin(), changes.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Held held;
    int64_t live = 0;
    for (const auto& [ns, bytes] : changes) {
      live += bytes;
      held.most = std::max(held.most, live);
      held.largest = std::max(held.largest, bytes);
    }
    return held;
  }

  // --- Work beside training --------------------------------------------------------------

  // Ops after the last node of each step and outside of the optimizer.
  void find_work_beside_training() {
    if (!all_.has_backward || all_.links.steps.empty()) return;
    std::vector<std::pair<int64_t, int64_t>> steps;  // of optimizers
    for (const Event& e : all_.trace.events)
      if (e.category == Category::user_annotation && all_.trace.name(e).starts_with("Optimizer."))
        steps.emplace_back(e.ts_ns, e.end_ns());
    if (steps.empty()) return;  // one by hand, which is no work beside
    std::sort(steps.begin(), steps.end());
    std::map<uint32_t, size_t> last_node;  // of each step
    for (size_t r = 0; r < roots_.size(); ++r)
      if (is_autograd_node(roots_.name(r))) last_node[roots_.step(r)] = r;
    last_node.erase(kNone);
    if (last_node.size() < 2) return;
    // Ops of the forward pass, those that read parameters.
    std::unordered_set<uint64_t> forward;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const OpKnowledge* known = op_knowledge(roots_.name(r));
      if (roots_.sequence(r) >= 0 && known != nullptr && known->has_weights)
        forward.insert(all_.key(roots_.at(r)));
    }
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    int64_t again_ns = 0;  // of ops that the forward pass has, too
    for (size_t r = 0; r < roots_.size(); ++r) {
      const auto node = last_node.find(roots_.step(r));
      if (node == last_node.end() || r <= node->second) continue;
      const int64_t ts_ns = all_.event(roots_.at(r)).ts_ns;
      const auto next = std::upper_bound(steps.begin(), steps.end(),
                                         std::pair(ts_ns, std::numeric_limits<int64_t>::max()));
      if (next != steps.begin() && std::prev(next)->second > ts_ns) continue;
      // A compiled region may be the optimizer.
      if (roots_.name(r).starts_with("Torch-Compiled Region")) continue;
      // What clips gradients belongs to training.
      if (roots_.name(r).find("_norm") != std::string_view::npos) continue;
      const int64_t own = roots_.add_times(r, times);
      ns += own;
      if (forward.contains(all_.key(roots_.at(r)))) again_ns += own;
      calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
    }
    if (static_cast<double>(ns) < kUntrainedShare * static_cast<double>(all_.wall_ns)) return;
    Waste waste;
    waste.kind = WasteKind::beside_training;
    const auto ops = times.list(all_.trace);
    waste.title = fmt::format(
        "work that is no part of training comes after the backward pass of each step: {} of {}, "
        "most of it in {}",
        time_text(ns), time_text(all_.wall_ns), ops.front().first);
    waste.action =
        "metrics, logs, averages of weights (EMA) and validation: do them every N steps, or on "
        "fewer rows, under no_grad; loops over parameters by torch._foreach calls "
        "(torch.optim.swa_utils.AveragedModel); copies of the state in the background";
    add_remedy(op_knowledge(ops.front().first), waste.action);
    if (2 * again_ns > ns) {
      waste.title = fmt::format(
          "the model runs again after the backward pass of each step: {} of {}, most of it in {}",
          time_text(ns), time_text(all_.wall_ns), ops.front().first);
      waste.evidence.push_back(
          fmt::format("{} of it in ops that the forward pass runs too", time_text(again_ns)));
      waste.action =
          "take metrics (accuracy, top-k) from the outputs that the loss has read "
          "(outputs.detach()) instead of calling the model again; validate once an epoch or every "
          "few hundred steps (every N steps), under no_grad and in eval mode";
    }
    waste.ns = ns;
    waste.proof = WasteProof::question;
    add(std::move(waste), calls, times);
  }

  // What the row of the op that takes most says, if programs are not about it as a rule.
  static void add_remedy(const OpKnowledge* longest, std::string& action) {
    if (longest != nullptr && longest->role != OpRole::main && !longest->remedy.empty())
      action += fmt::format("; what takes most could be less: {}", longest->remedy);
  }

  // --- A forward pass that gradients do not reach --------------------------------------

  void find_untrained_forward() {
    if (!all_.has_backward || all_.links.steps.empty()) return;
    std::map<uint32_t, size_t> first_node;  // of each step
    for (size_t r = roots_.size(); r-- > 0;)
      if (is_autograd_node(roots_.name(r))) first_node[roots_.step(r)] = r;
    first_node.erase(kNone);
    if (first_node.size() < 2) return;
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    size_t reached = 0;
    for (size_t r = 0; r + 1 < roots_.size(); ++r) {
      const auto node = first_node.find(roots_.step(r));
      if (node == first_node.end() || r >= node->second) continue;
      // The number of an op that makes no node is that of the next one, too.
      const int64_t number = roots_.sequence(r);
      size_t next = r + 1;
      while (next < node->second && roots_.sequence(next) < 0) ++next;
      if (number >= 0 && roots_.sequence(next) > number) {
        ++reached;
        continue;
      }
      if (next == node->second && number >= 0) continue;  // the loss
      // Whole numbers have no gradients: what the op is says more, also of one that programs are
      // rarely about.
      const auto tensors = tensor_inputs(all_.inputs(roots_.at(r)));
      if (!tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [](const TensorShape& t) {
            return t.type.find("int") != std::string_view::npos || t.type == "bool";
          }))
        continue;
      const OpKnowledge* known = op_knowledge(roots_.name(r));
      if (known != nullptr && known->role == OpRole::aside) continue;
      ns += roots_.add_times(r, times);
      calls.insert(calls.end(), roots_.within(r).begin(), roots_.within(r).end());
    }
    if (reached == 0 ||
        static_cast<double>(ns) < kUntrainedShare * static_cast<double>(all_.wall_ns))
      return;
    Waste waste = {.kind = WasteKind::untrained_forward, .place = places_.of(calls)};
    if (waste.place.annotation.starts_with("Optimizer.")) return;
    const auto ops = times.list(all_.trace);
    waste.title = fmt::format(
        "work that gradients do not reach comes before the backward pass of each step: {} of {}, "
        "most of it in {}",
        time_text(ns), time_text(all_.wall_ns), ops.front().first);
    waste.action =
        "if its inputs come again (a frozen model, features of a data set, a fixed graph or "
        "prompt), compute it once and keep the results; if it goes over a table of which the batch "
        "reads few rows, look these up first; if it is a teacher or an older copy of the model, "
        "run it on what the loss reads alone; else prepare it in the data loader's workers";
    const OpKnowledge* longest = op_knowledge(ops.front().first);
    if (longest != nullptr && longest->fuses == OpFuses::draws)
      waste.action =
          "if a loop draws them, draw all random numbers in one call; noise that is added step by "
          "step has a closed form, one draw with the summed variance (of a diffusion model "
          "alphas_cumprod: x_t = sqrt(alpha_bar) x_0 + sqrt(1 - alpha_bar) noise); else draw them "
          "in the data loader's workers";
    else if (longest != nullptr && longest->cost == OpCost::solve)
      waste.action =
          "if the matrices belong to the data (graphs, grids, kernels) and not to the weights, "
          "compute this once when the data are prepared (pre_transform, the Dataset) and keep it; "
          "else in the data loader's workers, with all matrices in one call";
    else
      add_remedy(longest, waste.action);
    waste.ns = ns;
    waste.proof = WasteProof::question;
    add(std::move(waste), calls, times);
  }

  const Roots& roots_;
  std::vector<int64_t> optimizers_;  // starts of their steps
};

}  // namespace

void find_wastes_of_passes(const CountedOps& all, const Places& places, const Roots& roots,
                           std::vector<Waste>& found) {
  Passes(all, places, roots, found).run();
}

}  // namespace epilogue::trace
