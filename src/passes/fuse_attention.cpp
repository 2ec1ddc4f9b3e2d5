// SPDX-License-Identifier: Apache-2.0
//   q ──────────┐
//   k -> k^T ── product -> mul c -> add mask -> softmax ─┐
//   v ──────────────────────────────────────────────── product    becomes    attention(q, k, v,
//   mask)
// The scores are made a block at a time and stay in the cache. Scale and mask may be missing; views
// and casts may stand anywhere; copies that only lay q, k, v or the result out anew go too.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/attention.h"
#include "core/element.h"
#include "core/kernel_list.h"
#include "core/tensor_impl.h"
#include "graph/fused_node.h"
#include "graph/print.h"
#include "ops/ops.h"
#include "passes/fuse_nodes.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {

// Products, scale, mask and softmax become one kernel that holds no scores.
void fuse_attention(graph::Graph& graph, PassContext& context);

namespace {

using graph::FusedNode;
using graph::Graph;
using graph::Node;
using graph::NodeRules;
using graph::OpCall;
using graph::OperandView;
using graph::Uses;
using graph::Value;

// The node. Where its operands lie differs from their values where views and copies were skipped.
class Attention final : public FusedNode {
 public:
  Attention(AttentionSpec spec, std::vector<OperandView> operands, OperandView result)
      : spec_(spec), operands_(std::move(operands)), result_(result) {}

  const OpDef& op() const override { return kAttention; }
  std::string label() const override { return "attention"; }
  std::string text() const override {
    std::string text =
        "attention(" + graph::value_list(reads()) + "): " + std::to_string(spec_.batch) + " x [" +
        std::to_string(spec_.queries) + ", " + std::to_string(spec_.keys) + "] scores";
    if (spec_.scale != 1)
      text += (spec_.divides ? " / " : " * ") + graph::number_text(double{spec_.scale});
    return text + (spec_.has_mask ? ", masked" : "");
  }

  std::vector<int> reads() const override {
    std::vector<int> list;
    for (const OperandView& operand : operands_) list.push_back(operand.value);
    return list;
  }
  std::shared_ptr<const FusedNode> reading(int from, int to) const override {
    auto copy = std::make_shared<Attention>(*this);
    for (OperandView& operand : copy->operands_)
      if (operand.value == from) operand.value = to;
    return copy;
  }

  void verify(const NodeRules& rules) const override {
    rules.require(operands_.size() == (spec_.has_mask ? 4U : 3U), "q, k, v and a mask if any");
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Value& value = rules.graph.value(operands_[i].value);
      const bool is_mask = i == 3;
      rules.require(is_mask ? has_float_type(value.dtype) : value.dtype == spec_.dtype,
                    "q, k and v of " + std::string(dtype_name(spec_.dtype)));
      rules.require(is_mask || element_count(value.sizes) > 0, "elements");
    }
    const Value& made = rules.graph.value(rules.node.outputs[0]);
    rules.require(rules.node.outputs == std::vector<int>{result_.value} &&
                      made.dtype == spec_.dtype &&
                      element_count(made.sizes) == spec_.batch * spec_.queries * spec_.values,
                  "one result of the queries' rows");
  }

  Dims elements(const Graph& /*graph*/, const Node& /*node*/) const override {
    return {spec_.batch * spec_.queries, spec_.values};
  }
  std::vector<OperandView> views(const Graph& /*graph*/, const Node& /*node*/) const override {
    std::vector<OperandView> list = operands_;
    list.push_back(result_);
    return list;
  }
  std::unique_ptr<FusedKernel> make_kernel(const Graph& graph, const Node& /*node*/,
                                           const graph::KernelOptions& /*options*/) const override {
    return graph.capabilities.maker_of(kAttention)->make(spec_);
  }

 private:
  AttentionSpec spec_;
  std::vector<OperandView> operands_;  // q, k, v, mask
  OperandView result_;
};

// Memory of a value seen in other sizes and strides, from its first element on.
struct Layout {
  int value = graph::kNoValue;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  size_t rank() const { return sizes.size(); }
};

Layout layout_of(const Graph& graph, int v) {
  const Value& value = graph.value(v);
  return {
      v, {value.sizes.begin(), value.sizes.end()}, {value.strides.begin(), value.strides.end()}};
}

// Ops that give the same elements in other sizes or strides, from the same first one on.
bool is_view_from_start(const Node& node) {
  const OpCall* const call = node.call();
  return call != nullptr &&
         (call->op == &kT || call->op == &kTranspose || call->op == &kPermute ||
          call->op == &kView || call->op == &kUnsafeView || call->op == &kExpand ||
          call->op == &kSqueeze || call->op == &kUnsqueeze);
}

bool is_copy(const Node& node) { return node.call() != nullptr && node.call()->op == &kClone; }

// Where elements of memory with `from`'s layout are in memory with `to`'s, which has the same sizes
// as `from`: a dimension may become several, the outermost first. nullopt where strides do not say.
std::optional<Layout> moved(const Layout& seen, const Value& from, const Value& to, int to_value) {
  Layout result{to_value, {}, {}};
  for (size_t d = 0; d < seen.rank(); ++d) {
    int64_t n = seen.sizes[d];
    int64_t stride = seen.strides[d];
    if (n == 1 || stride == 0) {
      result.sizes.push_back(n);
      result.strides.push_back(0);
      continue;
    }
    const size_t first = result.rank();
    while (n > 1) {
      const auto holds = [&](int j) {
        return from.sizes[j] > 1 && from.strides[j] > 0 && stride % from.strides[j] == 0 &&
               stride < from.strides[j] * from.sizes[j];
      };
      int j = 0;
      while (j < from.sizes.rank() && !holds(j)) ++j;
      if (j == from.sizes.rank()) return std::nullopt;
      const int64_t step = stride / from.strides[j];
      const int64_t count = std::min(n, from.sizes[j] / step);
      if (from.sizes[j] % step != 0 || n % count != 0) return std::nullopt;
      result.sizes.insert(result.sizes.begin() + static_cast<ptrdiff_t>(first), count);
      result.strides.insert(result.strides.begin() + static_cast<ptrdiff_t>(first),
                            step * to.strides[j]);
      n /= count;
      stride *= count;
    }
  }
  return result;
}

// A batch of matrices [rows, columns] as a kernel gets it; nullopt where it does not lie so.
std::optional<MatrixView> matrices(const Graph& graph, const Layout& layout, int64_t rows,
                                   int64_t columns) {
  const size_t rank = layout.rank();
  if (rank < 2 || layout.sizes[rank - 1] != columns || layout.sizes[rank - 2] != rows)
    return std::nullopt;
  Value seen;
  // Dimensions of one element say nothing.
  for (size_t d = 0; d < rank; ++d) {
    if (d + 2 < rank && layout.sizes[d] == 1) continue;
    if (seen.sizes.rank() == kMaxRank) return std::nullopt;
    seen.sizes.push_back(layout.sizes[d]);
    seen.strides.push_back(layout.strides[d]);
  }
  const auto found = graph::row_layout(seen, seen.sizes, true);
  if (!found) return std::nullopt;
  return MatrixView{nullptr, graph.value(layout.value).dtype, found->row_stride,
                    layout.strides[rank - 1], found->levels};
}

// An operand and the view of it; `transposed`: its layout's last two dimensions change places.
std::optional<OperandView> operand_of(const Graph& graph, const Uses& uses, int value,
                                      bool transposed, int64_t rows, int64_t columns) {
  Layout seen = layout_of(graph, value);
  if (transposed && seen.rank() >= 2) {
    std::swap(seen.sizes[seen.rank() - 1], seen.sizes[seen.rank() - 2]);
    std::swap(seen.strides[seen.rank() - 1], seen.strides[seen.rank() - 2]);
  }
  std::optional<OperandView> best;
  // Back through views and copies, as far as a layout says where the elements lie.
  for (;;) {
    if (const auto view = matrices(graph, seen, rows, columns)) best = {seen.value, *view};
    const int producer = uses.producer(seen.value);
    if (producer < 0) return best;
    const Node& maker = graph.nodes[static_cast<size_t>(producer)];
    if (!is_view_from_start(maker) && !is_copy(maker)) return best;
    const int source = maker.call()->inputs[0];
    if (is_view_from_start(maker)) {
      seen.value = source;
      continue;
    }
    const auto before = moved(seen, graph.value(seen.value), graph.value(source), source);
    if (!before) return best;
    seen = *before;
  }
}

bool is_product(const Node& node) {
  return node.call() != nullptr && (node.call()->op == &kMm || node.call()->op == &kBmm);
}

// A softmax of scores along their last dimension, and what stands around it.
struct Match {
  size_t scores = 0;  // the product q k^T
  size_t softmax = 0;
  size_t product = 0;  // with v
  Members members;     // all that goes
  float scale = 1;
  bool divides = false;
  int mask = graph::kNoValue;
  Dims mask_sizes;  // that it broadcasts to
  int result = graph::kNoValue;
  Layout result_layout;
};

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), uses_(graph) {}

  // True where the softmax at `index` is of a product's scores. `reason` says why it is no pattern
  // then; empty where it is.
  bool match(size_t index, Match& m, std::string& reason) const {
    const Node& softmax = graph_.nodes[index];
    const Value& made = graph_.value(softmax.outputs[0]);
    const auto dim = std::get<int64_t>(softmax.call()->attrs[0]);
    m.softmax = index;
    m.members = {index};
    if (!find_scores(softmax.call()->inputs[0], m, reason)) return false;
    if (reason.empty() && dim != -1 && dim != made.sizes.rank() - 1)
      reason = "the softmax is not along the keys";
    if (reason.empty()) find_product(softmax.outputs[0], m, reason);
    if (reason.empty()) find_result(m);
    return true;
  }

  const Uses& uses() const { return uses_; }

 private:
  // Elements in the same order, rows of the same length: views of that kind, and casts.
  bool keeps_rows(const Node& node) const {
    const OpCall* const call = node.call();
    if (call == nullptr || (!is_view_from_start(node) && call->op != &kToCopy)) return false;
    const Value& from = graph_.value(call->inputs[0]);
    const Value& to = graph_.value(node.outputs[0]);
    const auto is_dense = [](const Value& v) {
      return v.sizes.rank() > 0 && detail::strides_are_contiguous(v.sizes, v.strides) &&
             has_float_type(v.dtype);
    };
    return is_dense(from) && is_dense(to) && element_count(from.sizes) == element_count(to.sizes) &&
           from.sizes[from.sizes.rank() - 1] == to.sizes[to.sizes.rank() - 1];
  }

  // Back from what the softmax reads to the product.
  bool find_scores(int v, Match& m, std::string& reason) const {
    bool has_scale = false;
    for (;;) {
      const int producer = uses_.producer(v);
      if (producer < 0) return false;
      const auto index = static_cast<size_t>(producer);
      const Node& node = graph_.nodes[index];
      if (!uses_.is_single(v) && reason.empty()) reason = "others read the scores too";
      m.members.push_back(index);
      if (is_product(node)) {
        m.scores = index;
        return true;
      }
      const OpCall* const call = node.call();
      if (call == nullptr) return false;
      if (keeps_rows(node)) {
        v = call->inputs[0];
      } else if (call->op == &kAdd && !has_scale && m.mask == graph::kNoValue) {
        const std::optional<int> scores = add_mask(node, m);
        if (!scores) return false;
        v = *scores;
      } else if ((call->op == &kMul || call->op == &kDiv) && !has_scale) {
        const std::optional<int> scores = add_scale(*call, m);
        if (!scores) return false;
        has_scale = true;
        v = *scores;
      } else {
        return false;
      }
    }
  }

  // The scores of scores + mask: of the two the one that leads to a product.
  std::optional<int> add_mask(const Node& node, Match& m) const {
    const OpCall& call = *node.call();
    const auto* const alpha = std::get_if<double>(&call.attrs[0]);
    if (alpha != nullptr && *alpha != 1) return std::nullopt;
    const Dims& sizes = graph_.value(node.outputs[0]).sizes;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const int scores = call.inputs[i];
      if (!(graph_.value(scores).sizes == sizes) || !comes_from_product(scores)) continue;
      m.mask = call.inputs[1 - i];
      m.mask_sizes = sizes;
      return scores;
    }
    return std::nullopt;
  }

  bool comes_from_product(int v) const {
    for (;;) {
      const int producer = uses_.producer(v);
      if (producer < 0) return false;
      const Node& node = graph_.nodes[static_cast<size_t>(producer)];
      if (is_product(node)) return true;
      const OpCall* const call = node.call();
      if (call == nullptr) return false;
      Match ignored;
      const bool is_scale = call->op == &kMul || call->op == &kDiv;
      const std::optional<int> before = is_scale           ? add_scale(*call, ignored)
                                        : keeps_rows(node) ? std::optional(call->inputs[0])
                                                           : std::nullopt;
      if (!before) return false;
      v = *before;
    }
  }

  // The scores of scores * number or scores / number.
  std::optional<int> add_scale(const OpCall& call, Match& m) const {
    const bool divides = call.op == &kDiv;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const Value& number = graph_.value(call.inputs[1 - i]);
      if (number.kind != graph::ValueKind::constant || number.tensor.numel() != 1) continue;
      if (divides && i == 1) continue;  // a number over the scores
      m.divides = divides;
      m.scale = static_cast<float>(load_element(number.dtype, number.tensor.data(), 0));
      return call.inputs[i];
    }
    return std::nullopt;
  }

  // The only node that reads v; null where there are others, or v is a result.
  const Node* only_reader_of(int v, size_t& index) const {
    if (!uses_.is_single(v)) return nullptr;
    for (index = 0; index < graph_.nodes.size(); ++index)
      if (std::ranges::count(graph::reads(graph_.nodes[index]), v) != 0)
        return &graph_.nodes[index];
    return nullptr;
  }

  std::string reason_against_readers(int v, const Match& m) const {
    const bool is_saved = std::ranges::any_of(graph_.nodes, [&](const Node& node) {
      return node.is_backward && !graph_.nodes[m.softmax].is_backward &&
             std::ranges::count(graph::reads(node), v) != 0;
    });
    return is_saved ? "the backward pass reads the probabilities"
                    : "others read the probabilities too";
  }

  // On from the probabilities to their product with v.
  void find_product(int v, Match& m, std::string& reason) const {
    for (;;) {
      size_t index = 0;
      const Node* const reader = only_reader_of(v, index);
      if (reader == nullptr) {
        reason = reason_against_readers(v, m);
        return;
      }
      if (is_product(*reader) && reader->call()->inputs[0] == v) {
        m.members.push_back(index);
        m.product = index;
        return;
      }
      if (!keeps_rows(*reader)) {
        reason = is_dropout(*reader, v)
                     ? "dropout stands between the softmax and the product with v"
                     : label(graph_, *reader) + " reads the probabilities, which is no product";
        return;
      }
      m.members.push_back(index);
      v = reader->outputs[0];
    }
  }

  // Whether it multiplies by what was drawn.
  bool is_dropout(const Node& node, int v) const {
    if (node.call() == nullptr || node.call()->op != &kMul) return false;
    for (int other : node.call()->inputs) {
      if (other == v) continue;
      for (;;) {
        const int producer = uses_.producer(other);
        if (producer < 0) break;
        const Node& maker = graph_.nodes[static_cast<size_t>(producer)];
        if (graph::is_draw(maker)) return true;
        if (maker.call() == nullptr || maker.call()->inputs.empty() ||
            maker.call()->inputs[0] == graph::kNoValue)
          break;
        other = maker.call()->inputs[0];
      }
    }
    return false;
  }

  // What the product makes, or a copy of it in another layout.
  void find_result(Match& m) const {
    const int made = graph_.nodes[m.product].outputs[0];
    m.result = made;
    m.result_layout = layout_of(graph_, made);
    Members views;
    for (int v = made;;) {
      size_t index = 0;
      const Node* const reader = only_reader_of(v, index);
      if (reader == nullptr || !(is_view_from_start(*reader) || is_copy(*reader))) return;
      views.push_back(index);
      const int next = reader->outputs[0];
      if (is_copy(*reader)) {
        const auto layout =
            moved(layout_of(graph_, made), graph_.value(v), graph_.value(next), next);
        const size_t rank = layout ? layout->rank() : 0;
        const Dims& sizes = graph_.value(made).sizes;
        if (rank < 2 || layout->strides[rank - 1] != 1 ||
            !matrices(graph_, *layout, sizes[sizes.rank() - 2], sizes[sizes.rank() - 1]))
          return;
        m.members.insert(m.members.end(), views.begin(), views.end());
        m.result = next;
        m.result_layout = *layout;
        return;
      }
      v = next;
    }
  }

  const Graph& graph_;
  Uses uses_;
};

// Packing keys and values costs about as much for each element as a pass over a score: the plan
// without this pass writes the scores, reads, writes and reads them. Up to so many queries its
// products read keys and values where they lie.
constexpr int64_t kScorePasses = 4;
constexpr int64_t kQueriesInPlace = 8;

std::string reason_against_size(const AttentionSpec& spec) {
  const int64_t least =
      std::max((spec.depth + spec.values + kScorePasses - 1) / kScorePasses, kQueriesInPlace + 1);
  if (spec.queries >= least) return "";
  return "it packs keys and values, which pays from " + std::to_string(least) + " queries on";
}

// The node's spec and views; a reason where there is none.
std::string describe(const Graph& graph, const Matcher& matcher, const Match& m,
                     AttentionSpec& spec, std::vector<OperandView>& operands, OperandView& result) {
  const OpCall& scores = *graph.nodes[m.scores].call();
  const OpCall& product = *graph.nodes[m.product].call();
  const Value& q = graph.value(scores.inputs[0]);
  const Value& kt = graph.value(scores.inputs[1]);
  const Value& v = graph.value(product.inputs[1]);
  const Value& made = graph.value(graph.nodes[m.product].outputs[0]);
  const auto size = [](const Value& x, int from_last) {
    return x.sizes[x.sizes.rank() - from_last];
  };
  spec.dtype = made.dtype;
  spec.queries = size(q, 2);
  spec.depth = size(q, 1);
  spec.keys = size(kt, 1);
  spec.values = size(v, 1);
  spec.batch = q.sizes.rank() == 3 ? q.sizes[0] : 1;
  spec.scale = m.scale;
  spec.divides = m.divides;
  spec.has_mask = m.mask != graph::kNoValue;
  if (!has_float_type(spec.dtype) || q.dtype != spec.dtype || v.dtype != spec.dtype)
    return "its tensors are not all f32, bf16 or f16";
  if (size(made, 2) != spec.queries ||
      element_count(made.sizes) != spec.batch * spec.queries * spec.values)
    return "its two products have other batches";
  if (spec.batch * spec.queries * spec.keys * spec.depth * spec.values == 0)
    return "it has no elements";
  if (std::string reason = reason_against_size(spec); !reason.empty()) return reason;
  const Uses& uses = matcher.uses();
  const auto add = [&](int value, bool transposed, int64_t rows, int64_t columns) {
    const auto operand = operand_of(graph, uses, value, transposed, rows, columns);
    if (operand) operands.push_back(*operand);
    return operand.has_value();
  };
  if (!add(scores.inputs[0], false, spec.queries, spec.depth) ||
      !add(scores.inputs[1], true, spec.keys, spec.depth) ||
      !add(product.inputs[1], false, spec.keys, spec.values))
    return "an operand does not lie in rows";
  if (spec.has_mask) {
    const Value& mask = graph.value(m.mask);
    const auto layout = graph::row_layout(mask, m.mask_sizes, true);
    if (!has_float_type(mask.dtype)) return "the mask is not f32, bf16 or f16";
    if (!layout) return "the mask does not lie in rows";
    operands.push_back(
        {m.mask, {nullptr, mask.dtype, layout->row_stride, layout->col_stride, layout->levels}});
  }
  const auto view = matrices(graph, m.result_layout, spec.queries, spec.values);
  if (!view) return "the result does not lie in rows";
  result = {m.result, *view};
  return "";
}

// What lies between the members, written and read once.
double bytes_between(const Graph& graph, const Members& members, int result) {
  double bytes = 0;
  for (const size_t i : members)
    for (const int v : graph.nodes[i].outputs)
      if (v != result && !graph.nodes[i].replaces.empty())
        bytes += 2 * graph::value_bytes(graph.value(v));
  return bytes;
}

int kernels_of(const Graph& graph, const Members& members) {
  return static_cast<int>(
      std::ranges::count_if(members, [&](size_t i) { return !graph.nodes[i].replaces.empty(); }));
}

// Copies that nobody reads any more: the kernel reads what they were made of.
void add_unread(const Graph& graph, const std::vector<OperandView>& operands, Members& members) {
  const auto is_member = [&](size_t i) { return std::ranges::count(members, i) != 0; };
  std::vector<bool> is_read(graph.values.size(), false);
  for (const int v : graph.outputs) is_read[static_cast<size_t>(v)] = true;
  for (const OperandView& operand : operands) is_read[static_cast<size_t>(operand.value)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (is_member(i)) continue;
    const Node& node = graph.nodes[i];
    const bool goes = (is_view_from_start(node) || is_copy(node)) &&
                      !is_read[static_cast<size_t>(node.outputs[0])] &&
                      std::ranges::any_of(graph.nodes, [&](const Node& reader) {
                        return std::ranges::count(graph::reads(reader), node.outputs[0]) != 0;
                      });
    if (goes) {
      members.push_back(i);
    } else {
      for (const int v : graph::reads(node)) is_read[static_cast<size_t>(v)] = true;
    }
  }
}

// True where the softmax at `index` became part of an attention.
bool try_fuse_attention(Graph& graph, size_t index, PassContext& context) {
  const OpCall* const call = graph.nodes[index].call();
  if (call == nullptr || call->op != &kSoftmaxUnit) return false;
  const Matcher matcher(graph);
  Match m;
  std::string reason;
  if (!matcher.match(index, m, reason)) return false;
  const std::string what = label(graph, graph.nodes[m.scores]) + " and " +
                           label(graph, graph.nodes[m.softmax]) + " as attention";
  AttentionSpec spec;
  std::vector<OperandView> operands;
  OperandView result;
  if (reason.empty()) reason = describe(graph, matcher, m, spec, operands, result);
  if (reason.empty() && context.options().packed == Packed::never) reason = "not asked for";
  if (reason.empty() && graph.capabilities.maker_of(kAttention) == nullptr)
    reason = "there is no such kernel on " + to_string(graph.device);
  if (reason.empty()) add_unread(graph, operands, m.members);
  if (reason.empty() && !may_be_one(graph, m.members))
    reason = "an op between them reads the result of one and makes an operand of the other";
  if (!reason.empty()) {
    context.declined(what, reason);
    return false;
  }
  context.did(what + ", whose scores stay in the cache",
              bytes_between(graph, m.members, result.value), kernels_of(graph, m.members) - 1);
  Node fused;
  fused.outputs = {result.value};
  fused.what = std::make_shared<Attention>(spec, std::move(operands), result);
  replace_nodes(graph, m.members, std::move(fused));
  return true;
}

}  // namespace

void fuse_attention(Graph& graph, PassContext& context) {
  for (size_t i = 0; i < graph.nodes.size();) {
    const bool done = try_fuse_attention(graph, i, context);
    // Other nodes stand where these were: notes of what was declined are those of the last round.
    if (done) context.forget_declined();
    i = done ? 0 : i + 1;
  }
}

}  // namespace epilogue::passes
