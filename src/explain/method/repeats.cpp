// SPDX-License-Identifier: Apache-2.0
// Is it needed? Work whose result was there already: a forward pass that runs again within the
// backward pass, tensors that are made of numbers alone in every step, modules that ran twice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/method.h"

namespace epilogue::trace {
namespace {

constexpr double kRepeatShare = 0.03;  // of the run
constexpr size_t kLongestChain = 64;   // ops that make a constant
constexpr int64_t kNamedChain = 8;     // ops that suggest one where shapes were not recorded

using ByName = std::unordered_map<StringId, int64_t>;

std::vector<std::pair<std::string, int64_t>> by_time(const Trace& trace, const ByName& ns) {
  std::vector<std::pair<std::string, int64_t>> list;
  list.reserve(ns.size());
  for (const auto& [name, time] : ns) list.emplace_back(trace.strings[name], time);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return list;
}

// --- A forward pass within the backward pass ---------------------------------------------

// Ops that gradients are not made of.
bool is_forward_only(std::string_view name) {
  constexpr std::array<std::string_view, 20> kForward = {
      "linear",     "conv1d",     "conv2d",    "conv3d",      "layer_norm",
      "batch_norm", "group_norm", "rms_norm",  "gelu",        "silu",
      "relu",       "softmax",    "embedding", "log_softmax", "scaled_dot_product_attention",
      "max_pool2d", "dropout",    "lstm",      "gru",         "instance_norm"};
  return name.starts_with("aten::") && is_one(kForward, aten_base(name));
}

std::optional<RepeatedWork> recomputed_forward(const CountedOps& all, const Places& places) {
  if (!all.has_backward) return std::nullopt;
  enum State : char { kOutside, kWithin, kAgain };
  std::vector<char> state(all.trace.events.size(), kOutside);
  std::unordered_set<uint64_t> seen_forward;
  ByNameOnce<char> forward_only(all.trace);
  ByNameOnce<char> nodes(all.trace);
  const auto is_layer = [&](size_t at) {
    return forward_only.get(all.name_id(at), is_forward_only) != 0;
  };
  for (size_t at = 0; at < all.ops.size(); ++at)
    if (is_layer(at)) {
      uint32_t p = all.links.parent[all.ops[at]];
      while (p != kNone && !is_autograd_node(all.trace.name(all.trace.events[p])))
        p = all.links.parent[p];
      if (p == kNone) seen_forward.insert(all.key(at));
    }
  RepeatedWork work;
  ByName ops;
  ByName outermost;
  std::vector<uint32_t> calls;
  for (size_t at = 0; at < all.ops.size(); ++at) {
    const uint32_t op = all.ops[at];
    const uint32_t parent = all.links.parent[op];
    const char around = parent == kNone ? char{kOutside} : state[parent];
    state[op] = around;
    if (nodes.get(all.name_id(at), is_autograd_node) != 0) {
      state[op] = kWithin;
    } else if (around == kWithin && is_layer(at) && seen_forward.contains(all.key(at))) {
      state[op] = kAgain;
      ++work.count;
      outermost[all.name_id(at)] += all.event(at).dur_ns;
      calls.push_back(static_cast<uint32_t>(at));
    }
    if (state[op] != kAgain) continue;
    work.ns += all.ns_at(at);
    ops[all.name_id(at)] += all.ns_at(at);
  }
  if (work.count < 2) return std::nullopt;
  work.kind = RepeatedWork::Kind::recomputed_forward;
  work.again_ns = work.ns;
  work.per_step = work.count / static_cast<int64_t>(all.steps);
  for (auto& [name, ns] : by_time(all.trace, outermost)) work.ops.push_back(name);
  work.op_ns = by_time(all.trace, ops);
  work.place = places.of(calls);
  return work;
}

// --- Constants that every step makes anew ------------------------------------------------

bool makes_numbers(std::string_view name) {
  constexpr std::array<std::string_view, 14> kMakers = {
      "arange",        "ones",        "zeros",          "full",
      "eye",           "linspace",    "logspace",       "tril_indices",
      "triu_indices",  "hann_window", "hamming_window", "blackman_window",
      "kaiser_window", "range"};
  return name.starts_with("aten::") && is_one(kMakers, aten_base(name));
}

// Ops that may follow: the result depends on nothing but their inputs.
bool may_follow(std::string_view name) {
  const OpClass kind = op_class(name);
  if (kind == OpClass::pointwise)
    return name.find("dropout") == std::string_view::npos &&
           name.find("bernoulli") == std::string_view::npos;
  constexpr std::array<std::string_view, 10> kMore = {
      "tril", "triu", "cat", "stack", "outer", "cumsum", "repeat", "meshgrid", "flip", "roll"};
  return kind == OpClass::view || kind == OpClass::copy || kind == OpClass::fill ||
         (name.starts_with("aten::") && is_one(kMore, aten_base(name)));
}

// "[16, 512]": the number of elements.
std::optional<int64_t> sizes_product(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  int64_t n = 1;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || __builtin_mul_overflow(n, value, &n))
      return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    while (text.starts_with(',') || text.starts_with(' ')) text.remove_prefix(1);
  }
  return n;
}

class Constants {
 public:
  Constants(const CountedOps& all, const Places& places) : all_(all), places_(places) {}

  std::vector<RepeatedWork> run() {
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      if (!all_.is_root(at)) continue;
      // What other threads do stands between, and is no part of it.
      if (!chain_.empty() && all_.event(at).tid != all_.event(chain_.front()).tid) continue;
      if (!chain_.empty() && all_.links.step[all_.ops[at]] != all_.links.step[all_.ops[chain_[0]]])
        close();
      if (!add(at)) {
        close();
        add(at);
      }
    }
    close();
    std::vector<RepeatedWork> found;
    const auto steps = static_cast<int64_t>(all_.steps);
    for (auto& [signature, chains] : chains_) {
      const auto count = static_cast<int64_t>(chains.size());
      if (count < std::max<int64_t>(2, steps)) continue;
      if (auto work = describe(chains)) {
        work->per_step = std::max<int64_t>(1, count / steps);
        found.push_back(std::move(*work));
      }
    }
    return found;
  }

 private:
  using Chain = std::vector<uint32_t>;

  // Adds the op to the open chain, or begins one. False: it does neither.
  bool add(size_t at) {
    const std::string_view name = all_.name(at);
    const auto inputs = all_.inputs(at);
    if (inputs.empty() && all_.trace.inputs.size() == 0) return add_by_name(at);
    if (inputs.empty() || (chain_.empty() && !makers_.get(all_.name_id(at), makes_numbers)))
      return false;
    const std::vector<TensorShape> tensors = tensor_inputs(inputs);
    if (tensors.empty()) {
      if (!makes_numbers(name) || chain_.size() >= kLongestChain) return false;
      chain_.push_back(static_cast<uint32_t>(at));
      made(created(name, inputs));
      return true;
    }
    if (chain_.empty() || chain_.size() >= kLongestChain || !may_follow(name)) return false;
    // Every tensor that it reads is one of those made so far; two of one size are two of them.
    std::map<int64_t, int64_t> needed;
    for (const TensorShape& t : tensors)
      if (!t.dims.empty()) ++needed[t.numel()];
    for (const auto& [numel, count] : needed) {
      const auto have = live_.find(numel);
      if (have == live_.end() || have->second < count) return false;
    }
    chain_.push_back(static_cast<uint32_t>(at));
    made(result(name, inputs, tensors));
    return true;
  }

  // Without shapes the names alone tell: elementwise ops behind a table of numbers.
  bool add_by_name(size_t at) {
    const std::string_view name = all_.name(at);
    const bool begins = makes_numbers(name) && !is_fill(name);
    if (chain_.size() >= kLongestChain || (chain_.empty() ? !begins : !begins && !may_follow(name)))
      return false;
    chain_.push_back(static_cast<uint32_t>(at));
    return true;
  }
  static bool is_fill(std::string_view name) {
    return op_class(name) == OpClass::fill || aten_base(name) == "ones" ||
           aten_base(name) == "zeros" || aten_base(name) == "full";
  }

  void made(std::optional<int64_t> numel) {
    if (numel && *numel > 0) {
      ++live_[*numel];
      largest_ = std::max(largest_, *numel);
    }
  }

  static std::optional<int64_t> created(std::string_view name, std::span<const OpInput> inputs) {
    const std::string_view base = aten_base(name);
    if (base == "arange") {
      const auto first = whole_argument(inputs, 0);
      const auto second = whole_argument(inputs, 1);
      if (!first || !second) return first;
      const int64_t step = std::max<int64_t>(1, whole_argument(inputs, 2).value_or(1));
      return (*second - *first + step - 1) / step;
    }
    if (base == "linspace" || base == "logspace") return whole_argument(inputs, 2);
    if (base == "eye") {
      const auto n = whole_argument(inputs, 0);
      return n ? std::optional(*n * whole_argument(inputs, 1).value_or(*n)) : std::nullopt;
    }
    if (!inputs.empty() && !inputs[0].concrete.empty())
      if (const auto n = whole_argument(inputs, 0)) return n;
    return inputs.empty() ? std::nullopt : sizes_product(inputs[0].concrete);
  }

  static std::optional<int64_t> result(std::string_view name, std::span<const OpInput> inputs,
                                       const std::vector<TensorShape>& tensors) {
    const std::string_view base = aten_base(name);
    const int64_t numel = tensors.front().numel();
    if (base == "slice" || base == "select" || base == "narrow") {
      const auto dim = whole_argument(inputs, 1);
      const auto rank = static_cast<int64_t>(inputs[0].dims.size());
      if (!dim || rank == 0) return std::nullopt;
      const int64_t d = *dim < 0 ? *dim + rank : *dim;
      if (d < 0 || d >= rank) return std::nullopt;
      const int64_t size = std::max<int64_t>(1, inputs[0].dims[static_cast<size_t>(d)]);
      if (base == "select") return numel / size;
      if (base == "narrow") return numel / size * whole_argument(inputs, 3).value_or(size);
      const int64_t start = std::clamp<int64_t>(whole_argument(inputs, 2).value_or(0), 0, size);
      const int64_t end =
          std::min(size, whole_argument(inputs, 3).value_or(std::numeric_limits<int64_t>::max()));
      const int64_t step = std::max<int64_t>(1, whole_argument(inputs, 4).value_or(1));
      return numel / size * ((std::max(end, start) - start + step - 1) / step);
    }
    if (base == "expand" || base == "repeat")
      return inputs.size() > 1 ? sizes_product(inputs[1].concrete) : std::nullopt;
    if (base == "cat" || base == "stack") {
      int64_t sum = 0;
      for (const TensorShape& t : tensors) sum += t.numel();
      return sum;
    }
    if (base == "outer" && tensors.size() > 1) return numel * tensors[1].numel();
    if (op_class(name) == OpClass::pointwise)
      if (const auto shape = output_shape(name, inputs)) return shape->numel();
    return numel;
  }

  void close() {
    // A fill alone is memory that something will be written to.
    const auto made_of = std::count_if(chain_.begin(), chain_.end(),
                                       [&](uint32_t at) { return all_.kind(at) != OpClass::view; });
    if (made_of >= (all_.trace.inputs.size() == 0 ? kNamedChain : 2)) {
      std::vector<uint64_t> signature;
      signature.reserve(chain_.size());
      for (const uint32_t at : chain_) signature.push_back(all_.key(at));
      chains_[std::move(signature)].push_back(chain_);
      sizes_[chain_.front()] = largest_;
    }
    chain_.clear();
    live_.clear();
    largest_ = 0;
  }

  std::optional<RepeatedWork> describe(const std::vector<Chain>& chains) {
    RepeatedWork work;
    work.kind = RepeatedWork::Kind::rebuilt_constant;
    ByName ops;
    std::vector<uint32_t> calls;
    for (const Chain& chain : chains) {
      for (const uint32_t root : chain) {
        const Event& e = all_.event(root);
        calls.push_back(root);
        for (size_t at = root; at < all_.ops.size() && all_.event(at).ts_ns < e.end_ns(); ++at) {
          if (all_.event(at).tid != e.tid || all_.event(at).pid != e.pid) continue;
          work.ns += all_.ns_at(at);
          ops[all_.name_id(at)] += all_.ns_at(at);
        }
      }
    }
    if (static_cast<double>(work.ns) < kRepeatShare * static_cast<double>(all_.wall_ns))
      return std::nullopt;
    for (const uint32_t root : chains.front()) work.ops.emplace_back(all_.name(root));
    work.is_shown = all_.trace.inputs.size() != 0;
    work.what = work.is_shown ? fmt::format("{} elements", sizes_[chains.front().front()])
                              : "its size was not recorded";
    work.count = static_cast<int64_t>(chains.size());
    work.again_ns = work.ns;
    work.op_ns = by_time(all_.trace, ops);
    work.place = places_.of(calls);
    return work;
  }

  const CountedOps& all_;
  const Places& places_;
  ByNameOnce<char> makers_{all_.trace};
  Chain chain_;                      // the open one: positions of roots
  std::map<int64_t, int64_t> live_;  // numbers of elements, and how many tensors have them
  int64_t largest_ = 0;
  std::map<std::vector<uint64_t>, std::vector<Chain>> chains_;
  std::unordered_map<uint32_t, int64_t> sizes_;  // by the first of a chain
};

}  // namespace

std::vector<RepeatedWork> find_repeats(const CountedOps& all, const Places& places) {
  std::vector<RepeatedWork> found = Constants(all, places).run();
  const auto is_small = [&](const RepeatedWork& work) {
    return static_cast<double>(work.ns) < kRepeatShare * static_cast<double>(all.wall_ns);
  };
  if (auto work = recomputed_forward(all, places); work && !is_small(*work))
    found.push_back(std::move(*work));
  std::stable_sort(found.begin(), found.end(), [](const RepeatedWork& a, const RepeatedWork& b) {
    return a.again_ns > b.again_ns;
  });
  return found;
}

}  // namespace epilogue::trace
