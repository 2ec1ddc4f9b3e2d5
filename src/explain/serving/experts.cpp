// SPDX-License-Identifier: Apache-2.0
// Tokens of each expert, from a loop over experts or from a call with a list of them.
//
// A router's top-k of [T, E] says that T tokens go to k of E experts each. A product of one expert
// has as many rows as it has tokens, so that the rows of all experts add up to T * k. What does not
// add up is not taken for experts. Grouped products with offsets in a tensor tell nothing: shapes
// have no offsets.
#include "explain/serving/experts.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace epilogue::trace {
namespace {

// Products of one expert that have the same sizes: gate, up and one more.
constexpr size_t kMostOfOneShape = 3;

struct Router {
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t per_token = 0;

  int64_t rows() const { return tokens * per_token; }
};

bool is_matrix(const OpInput& input) {
  return input.dims.size() == 2 && input.dims[0] >= 0 && input.dims[1] > 0;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Of aten::topk(scores, k, ...), and of ops that write weights and experts [T, k] for logits [T,
// E].
std::optional<Router> router_of(std::string_view name, std::span<const OpInput> inputs) {
  Router router;
  if (name == "aten::topk") {
    if (inputs.size() < 2 || !is_matrix(inputs[0])) return std::nullopt;
    router = {inputs[0].dims[0], inputs[0].dims[1], whole_number(inputs[1].concrete).value_or(0)};
  } else if (name.find("topk_softmax") != std::string_view::npos ||
             name.find("topk_sigmoid") != std::string_view::npos) {
    for (const OpInput& input : inputs) {
      if (!is_matrix(input)) continue;
      if (router.tokens != 0 && router.tokens != input.dims[0]) return std::nullopt;
      router.tokens = input.dims[0];
      router.experts = std::max(router.experts, input.dims[1]);
      router.per_token =
          router.per_token == 0 ? input.dims[1] : std::min(router.per_token, input.dims[1]);
    }
  }
  const bool tells = router.tokens > 1 && router.per_token > 0 && router.per_token < router.experts;
  return tells ? std::optional(router) : std::nullopt;
}

// Rows, inner size, columns.
struct ExpertProduct {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  uint32_t event = 0;
};

std::optional<ExpertProduct> expert_product_of(std::string_view name,
                                               std::span<const OpInput> inputs, uint32_t event) {
  size_t first = 0;
  if (name == "aten::addmm")
    first = 1;
  else if (name != "aten::mm" && name != "aten::_scaled_mm")
    return std::nullopt;
  if (inputs.size() < first + 2) return std::nullopt;
  const OpInput& a = inputs[first];
  const OpInput& b = inputs[first + 1];
  if (!is_matrix(a) || !is_matrix(b) || a.dims[1] != b.dims[0]) return std::nullopt;
  return ExpertProduct{a.dims[0], a.dims[1], b.dims[1], event};
}

// Rows of each expert of a call that takes a list of their inputs and one of their weights.
std::vector<int64_t> rows_of_lists(std::span<const OpInput> inputs) {
  const std::vector<OpInput>* rows = nullptr;
  const std::vector<OpInput>* weights = nullptr;
  for (const OpInput& input : inputs) {
    if (!input.is_list || input.list.size() < 2 || !std::ranges::all_of(input.list, is_matrix))
      continue;
    const auto same = [&](const OpInput& m) { return m.dims == input.list.front().dims; };
    if (rows == nullptr)
      rows = &input.list;
    else if (weights == nullptr && std::ranges::all_of(input.list, same))
      weights = &input.list;
  }
  if (rows == nullptr || weights == nullptr || rows->size() != weights->size()) return {};
  const int64_t inner = rows->front().dims[1];
  const std::vector<int64_t>& weight = weights->front().dims;
  if (weight[0] != inner && weight[1] != inner) return {};
  std::vector<int64_t> result;
  for (const OpInput& m : *rows) {
    if (m.dims[1] != inner) return {};
    result.push_back(m.dims[0]);
  }
  return result;
}

// The products of one shape in their order, those without rows left out, as experts: groups of
// `each` products with the same rows, which add up to the router's. Empty if they do not.
std::vector<std::span<const ExpertProduct>> groups_of(std::span<const ExpertProduct> list,
                                                      size_t each, const Router& router) {
  std::vector<std::span<const ExpertProduct>> groups;
  int64_t rows = 0;
  bool has_part = false;  // an expert that not every token takes
  for (size_t i = 0; i + each <= list.size(); i += each) {
    const std::span<const ExpertProduct> group = list.subspan(i, each);
    const int64_t m = group.front().m;
    if (m > router.tokens ||
        std::ranges::any_of(group, [&](const ExpertProduct& p) { return p.m != m; }))
      return {};
    groups.push_back(group);
    rows += m;
    has_part |= m < router.tokens;
    if (rows >= router.rows()) break;
  }
  const bool fits = rows == router.rows() && std::ssize(groups) <= router.experts && has_part;
  return fits ? groups : std::vector<std::span<const ExpertProduct>>();
}

struct ExpertGroups {
  std::vector<std::span<const ExpertProduct>> groups;
  bool is_whole = false;  // all products of the list are the experts'
};

// The whole list where it adds up, else the only part of it that does: layers may have products of
// the same sizes beside the experts'.
ExpertGroups experts_in(std::span<const ExpertProduct> list, const Router& router) {
  for (size_t each = 1; each <= kMostOfOneShape; ++each) {
    auto groups = groups_of(list, each, router);
    if (!groups.empty() && groups.size() * each == list.size()) return {std::move(groups), true};
  }
  ExpertGroups found;
  for (size_t each = 1; each <= kMostOfOneShape; ++each)
    for (size_t first = 0; first < list.size(); ++first) {
      auto groups = groups_of(list.subspan(first), each, router);
      if (groups.empty()) continue;
      if (!found.groups.empty()) return {};
      found.groups = std::move(groups);
    }
  return found;
}

// What one layer's shapes tell.
struct Layer {
  Router router;
  std::vector<int64_t> rows;  // of each expert that has any
  std::optional<int64_t> largest_ns;
  int64_t device_ns = 0;

  double max_over_mean() const {
    const auto most = static_cast<double>(*std::ranges::max_element(rows));
    return most * static_cast<double>(router.experts) / static_cast<double>(router.rows());
  }
};

class ImbalanceFinder {
 public:
  ImbalanceFinder(const Trace& trace, const Links& links, const std::vector<ServingStep>& steps)
      : trace_(trace), links_(links), steps_(steps) {}

  std::vector<ExpertImbalance> find() {
    collect();
    add_device_time();
    for (const auto& [lane, items] : lanes_) walk(items);
    return result();
  }

 private:
  // Of one thread: what routes or computes, by start.
  struct Item {
    uint32_t event = 0;
    std::optional<Router> router = {};
    std::optional<ExpertProduct> product = {};
    std::vector<int64_t> list = {};
  };
  using Key = std::tuple<ServingPhase, std::string_view, int64_t, int64_t>;

  void collect() {
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const Event& e = trace_.events[i];
      if (e.category != Category::cpu_op) continue;
      const OpArgs* args = trace_.op_args(e);
      if (args == nullptr || args->inputs >= trace_.inputs.size()) continue;
      const std::string_view name = trace_.name(e);
      const std::span<const OpInput> inputs = trace_.inputs[args->inputs];
      Item item{.event = i, .router = router_of(name, inputs)};
      if (!item.router) item.product = expert_product_of(name, inputs, i);
      if (!item.router && !item.product && name.find("group") != std::string_view::npos)
        item.list = rows_of_lists(inputs);
      if (!item.router && !item.product && item.list.empty()) continue;
      if (!item.router) device_ns_.emplace(i, 0);
      lanes_[{e.pid, e.tid}].push_back(std::move(item));
    }
    for (auto& [lane, items] : lanes_)
      std::ranges::stable_sort(items, {},
                               [&](const Item& item) { return trace_.events[item.event].ts_ns; });
  }

  // Of the work that a product's op, or one within it, launched.
  void add_device_time() {
    for (const uint32_t i : links_.device_work)
      for (uint32_t op = links_.op[i]; op != kNone; op = links_.parent[op])
        if (const auto found = device_ns_.find(op); found != device_ns_.end()) {
          found->second += trace_.events[i].dur_ns;
          break;
        }
  }

  // The step that an event is of; null before the first one.
  const ServingStep* step_of(uint32_t event) const {
    const auto after =
        std::ranges::upper_bound(steps_, trace_.events[event].ts_ns, {}, &ServingStep::start_ns);
    return after == steps_.begin() ? nullptr : &*std::prev(after);
  }

  void walk(const std::vector<Item>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (!items[i].router) continue;
      const ServingStep* const step = step_of(items[i].event);
      size_t end = i + 1;
      while (end < items.size() && !items[end].router && step_of(items[end].event) == step) ++end;
      if (step != nullptr)
        add_layer(*step, *items[i].router, std::span(items).subspan(i + 1, end - i - 1));
    }
  }

  void add_layer(const ServingStep& step, const Router& router, std::span<const Item> items) {
    for (const Item& item : items)
      if (!item.list.empty()) {
        add_list(step, router, item);
        return;
      }
    std::map<std::pair<int64_t, int64_t>, std::vector<ExpertProduct>> by_shape;
    for (const Item& item : items)
      if (item.product && item.product->m > 0)
        by_shape[{item.product->k, item.product->n}].push_back(*item.product);
    Layer layer{.router = router};
    std::vector<int64_t> ns;  // of each expert
    std::string_view op;
    int agreeing = 0;
    for (const auto& [shape, list] : by_shape) {
      const auto [experts, is_whole] = experts_in(list, router);
      if (experts.empty()) continue;
      // A part that adds up may do so by chance: products of another size have to say the same.
      agreeing += is_whole ? 2 : 1;
      std::vector<int64_t> rows;
      rows.reserve(experts.size());
      for (const auto& group : experts) rows.push_back(group.front().m);
      if (layer.rows.empty()) {
        layer.rows = std::move(rows);
        ns.assign(layer.rows.size(), 0);
        op = trace_.name(trace_.events[experts.front().front().event]);
      } else if (layer.rows != rows) {
        return;  // two readings: nothing is told
      }
      for (size_t i = 0; i < experts.size(); ++i)
        for (const ExpertProduct& product : experts[i]) ns[i] += device_ns_.at(product.event);
    }
    if (agreeing < 2) return;
    const auto largest =
        static_cast<size_t>(std::ranges::max_element(layer.rows) - layer.rows.begin());
    layer.largest_ns = ns[largest];
    for (const int64_t of_one : ns) layer.device_ns += of_one;
    layers_[{step.label.phase, op, router.experts, router.per_token}].push_back(std::move(layer));
  }

  // One kernel, or one call, has all experts: the time of one of them is not told.
  void add_list(const ServingStep& step, const Router& router, const Item& item) {
    int64_t rows = 0;
    for (const int64_t m : item.list) rows += m;
    if (rows != router.rows() || std::ssize(item.list) > router.experts) return;
    layers_[{step.label.phase, trace_.name(trace_.events[item.event]), router.experts,
             router.per_token}]
        .push_back({.router = router, .rows = item.list, .device_ns = device_ns_.at(item.event)});
  }

  static double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  std::vector<ExpertImbalance> result() const {
    std::vector<ExpertImbalance> list;
    for (const auto& [key, layers] : layers_) {
      ExpertImbalance x{.phase = std::get<0>(key),
                        .op = std::string(std::get<1>(key)),
                        .layers = std::ssize(layers),
                        .experts = std::get<2>(key),
                        .per_token = std::get<3>(key)};
      std::vector<double> tokens;
      std::vector<double> ratios;
      for (const Layer& layer : layers) {
        tokens.push_back(static_cast<double>(layer.router.tokens));
        ratios.push_back(layer.max_over_mean());
        x.device_ns += layer.device_ns;
        if (layer.largest_ns) x.largest_ns = x.largest_ns.value_or(0) + *layer.largest_ns;
      }
      x.worst_max_over_mean = *std::ranges::max_element(ratios);
      x.tokens = median(std::move(tokens));
      x.max_over_mean = median(std::move(ratios));
      list.push_back(std::move(x));
    }
    return list;
  }

  const Trace& trace_;
  const Links& links_;
  const std::vector<ServingStep>& steps_;
  std::map<std::pair<int32_t, int64_t>, std::vector<Item>> lanes_;  // by process and thread
  std::unordered_map<uint32_t, int64_t> device_ns_;                 // by event of a product
  std::map<Key, std::vector<Layer>> layers_;
};

}  // namespace

std::vector<ExpertImbalance> expert_imbalance(const Trace& trace, const Links& links,
                                              const std::vector<ServingStep>& steps) {
  return ImbalanceFinder(trace, links, steps).find();
}

}  // namespace epilogue::trace
