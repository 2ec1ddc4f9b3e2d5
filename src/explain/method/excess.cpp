// SPDX-License-Identifier: Apache-2.0
// Work that another order or another form of the same ops would not do: products, resampling and
// means in the dearer order, matrices that are made of vectors, norms that a weight could hold,
// experts that compute all rows, padding.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr double kFewerFlops = 2;      // times as few in the other order
constexpr size_t kChainLookAhead = 6;  // ops between two products
constexpr size_t kMatrixLookAhead = 12;
constexpr int64_t kWideToOne = 8;  // columns of a matrix for each one that it is multiplied by
constexpr size_t kExpertOps = 24;  // of one expert
constexpr size_t kModuleRuns = 3;  // in a step
constexpr int64_t kMostExperts = 256;
constexpr size_t kMostBatches = 32;   // of different sizes
constexpr double kPaddedShare = 0.6;  // of a batch that is data: more is no question

int64_t numel_of(const std::vector<int64_t>& dims) { return TensorShape{dims, {}}.numel(); }

bool holds_size(const std::vector<int64_t>& dims, int64_t size) {
  return std::find(dims.begin(), dims.end(), size) != dims.end();
}

struct Product {
  double batch = 1;
  double m = 0;
  double k = 0;
  double n = 0;
  std::vector<int64_t> left, right, result;
  bool is_linear = false;
  double flops() const { return batch * m * k * n; }
};

class Excess : AskedSearch {
 public:
  Excess(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found), roots_(asked.roots()) {}

  void run() {
    find_repeated_modules();
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    find_dearer_orders();
    find_built_matrices();
    find_all_experts();
    find_padding();
  }

 private:
  std::string_view base(size_t i) const { return asked_.base(i); }
  std::span<const OpInput> inputs(size_t i) const { return asked_.inputs(i); }
  int64_t take(size_t i, OpTimes& times, std::vector<uint32_t>& calls) const {
    return asked_.take(i, times, calls);
  }
  bool is_same_root(size_t i, size_t j) const { return asked_.is_same_root(i, j); }

  std::optional<Product> product_of(size_t i) const {
    const std::string_view of = base(i);
    if (of != "mm" && of != "bmm" && of != "matmul" && of != "linear") return std::nullopt;
    if (has_sparse(inputs(i))) return std::nullopt;
    const auto tensors = tensor_inputs(inputs(i));
    if (tensors.size() < 2 || tensors[0].dims.size() < 2 || tensors[1].dims.size() < 2)
      return std::nullopt;
    Product p = {.left = tensors[0].dims, .right = tensors[1].dims, .is_linear = of == "linear"};
    p.result = p.left;
    p.k = static_cast<double>(p.left.back());
    const int64_t columns = p.is_linear ? p.right[0] : p.right.back();
    p.n = static_cast<double>(columns);
    p.result.back() = columns;
    p.m = static_cast<double>(numel_of(p.left)) / std::max(1.0, p.k);
    if (!p.is_linear && p.right.size() > 2) {
      if (p.right.size() != p.left.size() ||
          !std::equal(p.left.begin(), p.left.end() - 2, p.right.begin()))
        return std::nullopt;
      const auto rows = static_cast<double>(p.left[p.left.size() - 2]);
      p.batch = p.m / std::max(1.0, rows);
      p.m = rows;
    }
    return p;
  }

  // --- Modules that run again ------------------------------------------------------------

  struct ModuleCall {
    StringId name = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };

  // Calls of modules on the main thread within steps, by start; those within a call that is listed
  // are left out.
  std::vector<ModuleCall> module_calls() const {
    std::vector<ModuleCall> calls;
    const Event& first = all_.event(asked_.at(0));
    const auto add_call = [&](const auto& e) {
      if (!all_.trace.strings[e.name].starts_with("nn.Module: ")) return;
      if (e.tid != first.tid && e.tid != 0) return;
      const auto& steps = all_.links.steps;
      const auto next =
          std::upper_bound(steps.begin(), steps.end(), e.ts_ns,
                           [&](int64_t ts, uint32_t s) { return ts < all_.trace.events[s].ts_ns; });
      if (next == steps.begin() || e.end_ns() > all_.trace.events[*std::prev(next)].end_ns())
        return;
      calls.push_back({e.name, e.ts_ns, e.end_ns()});
    };
    for (const Event& e : all_.trace.events)
      if (e.category == Category::python_function) add_call(e);
    for (const PythonFrame& frame : all_.trace.frames) add_call(frame);
    std::sort(calls.begin(), calls.end(), [](const ModuleCall& a, const ModuleCall& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
    });
    std::vector<ModuleCall> top;
    for (const ModuleCall& call : calls)
      if (top.empty() || call.start_ns >= top.back().end_ns) top.push_back(call);
    return top;
  }

  // In a loop of several modules, one that is not the last may read the same each time: a prompt,
  // a condition.
  void find_repeated_modules() {
    if (all_.has_backward || all_.is_device || all_.links.steps.empty() || asked_.empty()) return;
    const std::vector<ModuleCall> calls = module_calls();
    std::map<StringId, std::vector<const ModuleCall*>> by_name;
    for (const ModuleCall& call : calls) by_name[call.name].push_back(&call);
    const size_t steps = all_.steps;
    for (const auto& entry : by_name) {
      const StringId name = entry.first;
      const std::vector<const ModuleCall*>& runs = entry.second;
      const size_t per_step = runs.size() / steps;
      if (per_step < kModuleRuns || runs.size() % steps != 0) continue;
      // Another module follows each call, and runs as often.
      const auto next = std::find_if(calls.begin(), calls.end(), [&](const ModuleCall& call) {
        return call.name != name && call.start_ns >= runs.front()->end_ns;
      });
      if (next == calls.end() || runs.size() < 2 || next->start_ns > runs[1]->start_ns ||
          by_name[next->name].size() != runs.size())
        continue;
      // The first of an iteration: what runs last gives what the next iteration reads.
      if (calls.front().name != name) continue;
      add_repeated_module(runs, by_name[next->name], per_step);
    }
  }

  void add_repeated_module(const std::vector<const ModuleCall*>& runs,
                           const std::vector<const ModuleCall*>& others, size_t per_step) {
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    std::vector<StringId> first_ops;
    for (const ModuleCall* run : runs) {
      std::vector<StringId> ops;
      auto at =
          std::lower_bound(asked_.list().begin(), asked_.list().end(), run->start_ns,
                           [&](uint32_t op, int64_t ts) { return all_.event(op).ts_ns < ts; });
      for (; at != asked_.list().end() && all_.event(*at).ts_ns < run->end_ns; ++at)
        ops.push_back(all_.name_id(*at));
      if (run == runs.front()) first_ops = ops;
      if (ops.empty() || ops != first_ops) return;
      const auto first = std::lower_bound(
          all_.ops.begin(), all_.ops.end(), run->start_ns,
          [&](uint32_t op, int64_t ts) { return all_.trace.events[op].ts_ns < ts; });
      for (size_t op = static_cast<size_t>(first - all_.ops.begin()); op < all_.ops.size(); ++op) {
        const Event& e = all_.event(op);
        if (e.ts_ns >= run->end_ns) break;
        ns += all_.ns_at(op);
        times.add(e.name, all_.ns_at(op));
        calls.push_back(static_cast<uint32_t>(op));
      }
    }
    // What Python spends in them counts, too.
    const auto time_of = [](const std::vector<const ModuleCall*>& of) {
      int64_t wall_ns = 0;
      for (const ModuleCall* run : of) wall_ns += run->end_ns - run->start_ns;
      return wall_ns;
    };
    const auto name_of = [&](const std::vector<const ModuleCall*>& of) {
      std::string_view module = all_.trace.strings[of.front()->name];
      module.remove_prefix(std::string_view("nn.Module: ").size());
      return module;
    };
    if (!is_worth_it(ns)) return;
    Waste waste;
    waste.kind = WasteKind::repeated_module;
    waste.title = fmt::format(
        "a loop runs {} ({}) and then {} ({}) {} times in a step, each time with the same ops, of "
        "{}: does each iteration need both?",
        name_of(runs), time_text(time_of(runs)), name_of(others), time_text(time_of(others)),
        per_step, time_text(all_.wall_ns));
    waste.evidence.emplace_back(
        "no trace tells which of them reads the same each time, or gives what no iteration reads");
    waste.action = fmt::format(
        "if {} reads the same each time (a prompt, a condition, features), call it once before the "
        "loop (encode once) and reuse its result; if nothing in the loop reads what {} gives (a "
        "preview, a decoded image, a metric), call it once behind the loop, or every N iterations",
        name_of(runs), name_of(others));
    waste.ns = time_of(runs) + time_of(others);
    waste.proof = WasteProof::question;
    add(std::move(waste), calls, times);
  }

  // --- The dearer order ------------------------------------------------------------------

  using Orders = std::map<std::tuple<uint64_t, uint64_t, int>, DearerOrder>;

  void find_dearer_orders() {
    Orders orders;
    for (size_t i = 0; i + 1 < asked_.size(); ++i) {
      if (base(i).starts_with("upsample_")) {
        add_resampled(i, orders);
      } else if (const auto first = product_of(i)) {
        add_mean(i, *first, orders);
        add_chain(i, *first, orders);
      } else if (base(i) == "batch_norm") {
        add_norm(i, orders);
      }
    }
    for (const auto& [key, order] : orders) report(order);
  }

  // Interpolation, then a convolution of one pixel to fewer channels: the two commute.
  void add_resampled(size_t i, Orders& orders) {
    const auto small = tensor_inputs(inputs(i));
    size_t next = i + 1;
    while (next < asked_.size() && next < i + kChainLookAhead && asked_.kind(next) == OpClass::view)
      ++next;
    if (small.empty() || small[0].dims.size() < 3 || next >= asked_.size()) return;
    const std::string_view of = base(next);
    if (!is_convolution(of)) return;
    const auto large = tensor_inputs(inputs(next));
    if (large.size() < 2 || large[1].dims.size() < 3 || large[0].dims.size() < 3) return;
    const std::vector<int64_t>& weight = large[1].dims;
    const int64_t channels = small[0].dims[1];
    const int64_t taps = numel_of(weight) / std::max<int64_t>(1, weight[0] * weight[1]);
    if (taps != 1 || weight[1] != channels || weight[0] >= channels ||
        large[0].dims[1] != channels || large[0].numel() <= small[0].numel())
      return;
    DearerOrder& order = orders[{asked_.key(i), asked_.key(next), 0}];
    const int64_t resampling = take(i, order.times, order.calls);
    const int64_t product = take(next, order.times, order.calls);
    const double fewer = static_cast<double>(weight[0]) / static_cast<double>(channels);
    const double smaller =
        static_cast<double>(small[0].numel()) / static_cast<double>(large[0].numel());
    order.ns += resampling + product;
    order.saving += static_cast<double>(resampling) * (1 - fewer) +
                    static_cast<double>(product) * (1 - smaller);
    order.title = fmt::format("{} enlarges {} channels, which a 1 x 1 convolution then maps to {}",
                              asked_.name(i), channels, weight[0]);
    order.evidence =
        fmt::format("on {}, then {}: the two commute, since each pixel is mapped alone",
                    sizes_text(small[0].dims), sizes_text(large[0].dims));
    order.action =
        "swap the two: apply the 1 x 1 convolution first, at the lower resolution, and interpolate "
        "its result, which has fewer channels";
  }

  // A linear of all rows, then their mean: the mean of the rows could go first.
  void add_mean(size_t i, const Product& product, Orders& orders) {
    if (!product.is_linear || product.result.size() < 3 || i + 1 >= asked_.size()) return;
    const size_t next = i + 1;
    const auto in = inputs(next);
    if (base(next) != "mean" || !is_same_root(i, next) || in.size() < 2 ||
        in[0].dims != product.result)
      return;
    const std::vector<int64_t> over = numbers_of(in[1].concrete);
    const auto rank = static_cast<int64_t>(product.result.size());
    if (over.size() != 1) return;
    const int64_t dim = over[0] < 0 ? over[0] + rank : over[0];
    if (dim < 0 || dim + 1 >= rank || product.result[static_cast<size_t>(dim)] < 2) return;
    const int64_t rows = product.result[static_cast<size_t>(dim)];
    DearerOrder& order = orders[{asked_.key(i), asked_.key(next), 3}];
    const int64_t ns = take(i, order.times, order.calls);
    order.ns += ns;
    order.saving += static_cast<double>(ns) * (1 - 1 / static_cast<double>(rows));
    order.title = fmt::format("{} computes {} rows of which only the mean is taken next",
                              asked_.name(i), rows);
    order.evidence = shapes_text(inputs(i)) + ", then a mean over " + sizes_text(product.result);
    order.action =
        "swap the two: take the mean of the rows first (pool, then project): a linear layer of the "
        "mean is the mean of the linear layer";
  }

  // In inference the factors of a batch norm could be in the weights before it.
  void add_norm(size_t i, Orders& orders) {
    if (all_.has_backward || i == 0) return;
    const std::string_view before = base(i - 1);
    if (!is_convolution(before) && before != "linear") return;
    const auto in = inputs(i);
    if (in.size() < 6 || in[5].concrete != "False") return;  // training
    DearerOrder& order = orders[{0, 0, 4}];
    const int64_t ns = take(i, order.times, order.calls);
    order.ns += ns;
    order.saving += static_cast<double>(ns);
    order.title = fmt::format("batch norms of inference run behind {} as ops of their own",
                              all_.name(asked_.at(i - 1)));
    order.evidence = fmt::format("{} calls, {}", order.calls.size(), shapes_text(in));
    order.action =
        "fold them into the weights before them: torch.nn.utils.fuse_conv_bn_eval(conv, bn) (or "
        "fuse_linear_bn_eval, torch.ao.quantization.fuse_modules; torch.compile with freezing does "
        "it too)";
  }

  // (A B) C, where A (B C) is cheaper.
  void add_chain(size_t i, const Product& first, Orders& orders) {
    // What it reads looks like its result: the next product may read the same as it does.
    if (first.left == first.result || (!first.is_linear && first.right == first.result)) return;
    for (size_t j = i + 1; j < std::min(asked_.size(), i + 1 + kChainLookAhead); ++j) {
      if (!is_same_root(i, j)) return;
      const OpClass kind = asked_.kind(j);
      if (kind == OpClass::view) continue;
      const auto second = product_of(j);
      if (!second) {
        if (is_scaling(j, first.result)) continue;
        return;
      }
      const bool is_left = second->left == first.result;
      const bool is_right = !second->is_linear && second->right == first.result;
      if (is_left == is_right) return;
      if (second->is_linear && first.is_linear && all_.has_backward) return;
      // A product of a batch is one with a batch; a shared right operand has none.
      if (first.batch != second->batch && !second->is_linear) return;
      const double now = first.flops() + second->flops();
      const double b = first.batch;
      const double then =
          is_left ? b * first.k * first.n * second->n + b * first.m * first.k * second->n
                  : b * second->m * first.m * first.k + b * second->m * first.k * first.n;
      if (then <= 0 || now < kFewerFlops * then || is_read_again(i, j, first.result)) return;
      DearerOrder& order = orders[{asked_.key(i), asked_.key(j), is_left ? 1 : 2}];
      const int64_t ns = take(i, order.times, order.calls) + take(j, order.times, order.calls);
      order.ns += ns;
      order.saving += static_cast<double>(ns) * (1 - then / now);
      order.title = fmt::format(
          "a chain of products is taken in the dearer order: {} computes {}, "
          "which {} multiplies next",
          asked_.name(i), sizes_text(first.result), asked_.name(j));
      order.evidence =
          fmt::format("{}, then {}: {:.1f} times the multiplications of the other order",
                      shapes_text(inputs(i)), shapes_text(inputs(j)), now / then);
      order.action = is_left
                         ? "multiply from the right: A @ (B @ C) in place of (A @ B) @ C; "
                           "torch.linalg.multi_dot orders a chain by its sizes (linear attention "
                           "without a softmax: q @ (k.T @ v))"
                         : "multiply from the left: (A @ B) @ C in place of A @ (B @ C); "
                           "torch.linalg.multi_dot orders a chain by its sizes";
      return;
    }
  }

  // mul or div of the tensor by a number.
  bool is_scaling(size_t i, const std::vector<int64_t>& dims) const {
    if (base(i) != "mul" && base(i) != "div") return false;
    size_t large = 0;
    for (const TensorShape& t : tensor_inputs(inputs(i))) {
      if (t.numel() <= 1) continue;
      if (t.dims != dims) return false;
      ++large;
    }
    return large == 1;
  }

  bool is_read_again(size_t made, size_t after, const std::vector<int64_t>& dims) const {
    for (size_t i = after + 1; i < std::min(asked_.size(), after + 1 + kMatrixLookAhead); ++i) {
      if (roots_.of(asked_.at(i)) == kNone ||
          is_autograd_node(roots_.name(roots_.of(asked_.at(i)))) !=
              is_autograd_node(roots_.name(roots_.of(asked_.at(after)))))
        return false;
      if (asked_.key(i) == asked_.key(made)) return false;  // the next one's
      for (const TensorShape& t : tensor_inputs(inputs(i)))
        if (t.dims == dims) return true;
    }
    return false;
  }

  // --- Matrices made of vectors ----------------------------------------------------------

  // Sizes of a matrix that is made of vectors: a diagonal one, or all products of two vectors.
  std::vector<int64_t> made_matrix(size_t i) const {
    const std::string_view of = base(i);
    if (!of.starts_with("diag")) return {};
    const auto tensors = tensor_inputs(inputs(i));
    if (tensors.empty() || tensors[0].dims.empty()) return {};
    std::vector<int64_t> dims = tensors[0].dims;
    if (of == "diag_embed" || ((of == "diag" || of == "diagflat") && dims.size() == 1)) {
      dims.push_back(dims.back());
      return dims;
    }
    return {};
  }

  void find_built_matrices() {
    struct Built {
      std::vector<uint32_t> calls;
      OpTimes times;
      int64_t ns = 0;
      int64_t count = 0;
      std::vector<int64_t> dims;
      size_t maker = 0;
      size_t product = 0;
      bool is_diagonal = true;
    };
    std::map<uint64_t, Built> built;
    for (size_t i = 0; i + 1 < asked_.size(); ++i) {
      const std::vector<int64_t> dims = made_matrix(i);
      if (dims.empty()) continue;
      std::vector<size_t> with = {i};
      bool is_diagonal = true;
      for (size_t j = i + 1; j < std::min(asked_.size(), i + 1 + kMatrixLookAhead); ++j) {
        if (!is_same_root(i, j)) break;
        const auto tensors = tensor_inputs(inputs(j));
        const auto it = std::find_if(tensors.begin(), tensors.end(),
                                     [&](const TensorShape& t) { return t.dims == dims; });
        if (!is_multiplication(asked_.name(j))) {
          const auto result = output_shape(asked_.name(j), inputs(j));
          const bool makes = result && result->dims == dims;
          if (it == tensors.end() && !makes) continue;
          if (asked_.kind(j) != OpClass::view) {
            is_diagonal = false;
            with.push_back(j);
          }
          continue;
        }
        if (it == tensors.end() || tensors.size() < 2) continue;
        const TensorShape& other = it == tensors.begin() ? tensors[1] : tensors[0];
        const int64_t columns = other.dims.size() < 2   ? 1
                                : it == tensors.begin() ? other.dims.back()
                                                        : other.dims[other.dims.size() - 2];
        if (!is_diagonal && columns * kWideToOne > dims.back()) break;
        with.push_back(j);
        Built& b = built[asked_.key(j)];
        for (const size_t w : with) b.ns += take(w, b.times, b.calls);
        ++b.count;
        b.dims = dims;
        b.maker = i;
        b.product = j;
        b.is_diagonal = b.is_diagonal && is_diagonal;
        break;
      }
    }
    for (auto& [key, b] : built) {
      if (!is_worth_it(b.ns)) continue;
      Waste waste;
      waste.kind = WasteKind::built_matrix;
      waste.title = fmt::format(
          "{} writes matrices of {}, which {} multiplies by {}: {} of {} for what vectors tell",
          asked_.name(b.maker), sizes_text(b.dims), asked_.name(b.product),
          b.is_diagonal ? "a tensor" : "vectors", time_text(b.ns), time_text(all_.wall_ns));
      waste.evidence.push_back(
          fmt::format("{} times, {}", b.count, shapes_text(inputs(b.product))));
      waste.action =
          b.is_diagonal
              ? "multiply by the diagonal: d.unsqueeze(-1) * x scales the rows without the matrix"
              : "apply the parts to the vector without the matrix: diag(d) v is d * v, and (a b^T) "
                "v is a * (b * v).sum(-1); the Jacobian of a softmax times g is the closed form y "
                "* (g - (g * y).sum(-1, keepdim=True)), which torch.softmax has in its own "
                "backward (a vector-Jacobian product)";
      waste.ns = b.ns;
      waste.saving_ns = static_cast<int64_t>(static_cast<double>(b.ns) *
                                             (1 - 2.0 / static_cast<double>(b.dims.back())));
      waste.proof = WasteProof::likely;
      add(std::move(waste), b.calls, b.times);
    }
  }

  // --- Experts ---------------------------------------------------------------------------

  void find_all_experts() {
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    double saving = 0;
    int64_t experts = 0;
    int64_t chosen = 0;
    int64_t rows = 0;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view of = base(i);
      if (of != "max" && of != "argmax" && of != "topk") continue;
      const auto in = inputs(i);
      if (in.empty() || in[0].dims.size() != 2) continue;
      const int64_t r = in[0].dims[0];
      const int64_t n = in[0].dims[1];
      const auto k = of == "topk" ? whole_argument(in, 1) : std::optional<int64_t>(1);
      if (!k || *k >= n || n < 3 || n > kMostExperts || r < n) continue;
      std::map<uint64_t, std::vector<size_t>> products;
      int64_t kept = 0;  // by a column of the choice
      const size_t end = std::min(asked_.size(), i + 1 + static_cast<size_t>(n) * kExpertOps);
      for (size_t j = i + 1; j < end; ++j) {
        if (base(j) == of && asked_.key(j) == asked_.key(i)) break;
        if (const auto p = product_of(j); p && static_cast<int64_t>(p->m * p->batch) == r) {
          products[asked_.key(j)].push_back(j);
          continue;
        }
        const auto tensors = tensor_inputs(inputs(j));
        const bool reads_column =
            std::any_of(tensors.begin(), tensors.end(), [&](const TensorShape& t) {
              return t.dims == std::vector<int64_t>{r, 1} || t.dims == std::vector<int64_t>{r};
            });
        if (reads_column && (base(j) == "mul" || base(j) == "where" || base(j) == "masked_fill"))
          ++kept;
      }
      if (kept < n) continue;
      for (const auto& [key, at] : products) {
        if (static_cast<int64_t>(at.size()) % n != 0 || at.empty()) continue;
        int64_t own = 0;
        for (const size_t j : at) own += take(j, times, calls);
        ns += own;
        saving += static_cast<double>(own) * (1 - static_cast<double>(*k) / static_cast<double>(n));
        experts = n;
        chosen = *k;
        rows = r;
      }
    }
    if (!is_worth_it(static_cast<int64_t>(saving))) return;
    Waste waste;
    waste.kind = WasteKind::all_experts;
    waste.title = fmt::format(
        "each of {} experts computes all {} rows, of which a choice keeps {} of {}: {} of {}",
        experts, rows, chosen, experts, time_text(static_cast<int64_t>(saving)),
        time_text(all_.wall_ns));
    waste.evidence.push_back(
        fmt::format("products of {} on {} rows follow the choice {} times, each result times a "
                    "column of it",
                    all_.name(calls.front()), rows, experts));
    waste.action =
        "route: send each expert only the tokens that chose it (index_select its own tokens, run "
        "the expert, index_add_ the weighted results), or sort tokens by expert and run a grouped "
        "product (torch._grouped_mm)";
    waste.ns = ns;
    waste.saving_ns = static_cast<int64_t>(saving);
    waste.proof = WasteProof::likely;
    add(std::move(waste), calls, times);
  }

  // --- Padding ---------------------------------------------------------------------------

  struct Batch {
    std::vector<int64_t> lengths;
    int64_t longest = 0;
    int64_t sum = 0;
  };

  // Batches that pad_sequence makes, and pads behind it.
  void find_padding() {
    std::map<std::vector<int64_t>, Batch> batches;  // by sizes
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (base(i) != "pad_sequence" || inputs(i).empty()) continue;
      Batch batch;
      for (const OpInput& part : inputs(i)[0].list)
        if (!part.dims.empty()) batch.lengths.push_back(part.dims[0]);
      if (batch.lengths.size() < 2) continue;
      const auto rows = static_cast<int64_t>(batch.lengths.size());
      int64_t length = *std::max_element(batch.lengths.begin(), batch.lengths.end());
      batch.longest = length;
      for (const int64_t n : batch.lengths) batch.sum += n;
      if (i + 1 < asked_.size() && (base(i + 1) == "pad" || base(i + 1) == "constant_pad_nd") &&
          inputs(i + 1).size() > 1 && inputs(i + 1)[0].dims == std::vector<int64_t>{rows, length})
        for (const int64_t more : numbers_of(inputs(i + 1)[1].concrete)) length += more;
      Batch& all = batches[{rows, length}];
      all.longest = std::max(all.longest, batch.longest);
      all.sum += batch.sum;
      all.lengths.push_back(1);
    }
    // Samples that are padded one by one, and stacked.
    std::map<int64_t, Batch> samples;  // by length
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (base(i) != "pad" && base(i) != "constant_pad_nd") continue;
      const auto in = inputs(i);
      if (in.size() < 2 || in[0].dims.empty() || in[0].dims.size() > 2) continue;
      const std::vector<int64_t> by = numbers_of(in[1].concrete);
      // Of one dimension, the last or the one before.
      const size_t dim = by.size() == 2 && in[0].dims.size() == 1   ? 0
                         : by.size() == 4 && in[0].dims.size() == 2 ? 1
                                                                    : 2;
      if (dim == 2 || (dim == 1 && (by[0] != 0 || by[1] != 0))) continue;
      const int64_t length = in[0].dims[0] + by[by.size() - 2] + by[by.size() - 1];
      Batch& batch = samples[length];
      batch.lengths.push_back(in[0].dims[0]);
      batch.longest = std::max(batch.longest, in[0].dims[0]);
      batch.sum += in[0].dims[0];
    }
    for (size_t i = 0; i < asked_.size() && !samples.empty(); ++i) {
      if (base(i) != "stack" || inputs(i).empty() || inputs(i)[0].list.empty()) continue;
      const std::vector<int64_t>& one = inputs(i)[0].list[0].dims;
      const auto found = one.empty() ? samples.end() : samples.find(one[0]);
      if (found == samples.end()) continue;
      const auto rows = static_cast<int64_t>(inputs(i)[0].list.size());
      if (rows < 2 || found->second.lengths.size() % static_cast<size_t>(rows) != 0) continue;
      Batch& all = batches[{rows, found->first}];
      all = found->second;
      all.lengths.resize(found->second.lengths.size() / static_cast<size_t>(rows));
    }
    size_t asked = 0;  // each reads all ops once
    for (const auto& [dims, batch] : batches)
      if (asked < kMostBatches && add_padding(dims[0], dims[1], batch)) ++asked;
  }

  // Whether so much of the batch is padding that its ops were counted.
  bool add_padding(int64_t rows, int64_t length, const Batch& batch) {
    const double share =
        static_cast<double>(batch.sum) /
        static_cast<double>(rows * length * static_cast<int64_t>(batch.lengths.size()));
    if (share > kPaddedShare) return false;
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      const auto tensors = tensor_inputs(all_.inputs(at));
      const bool reads = std::any_of(tensors.begin(), tensors.end(), [&](const TensorShape& t) {
        return holds_size(t.dims, rows * length) ||
               (holds_size(t.dims, length) && holds_size(t.dims, rows));
      });
      if (!reads) continue;
      ns += all_.ns_at(at);
      times.add(all_.name_id(at), all_.ns_at(at));
      calls.push_back(static_cast<uint32_t>(at));
    }
    const bool is_longer = batch.longest < length;
    const double left =
        is_longer ? static_cast<double>(batch.longest) / static_cast<double>(length) : share;
    const auto saving = static_cast<int64_t>(static_cast<double>(ns) * (1 - left));
    if (!is_worth_it(saving)) return true;
    Waste waste;
    waste.kind = WasteKind::padding;
    waste.title = fmt::format(
        "{:.0f} % of a batch of [{}, {}] is padding: {} of {} for elements that nobody asked for",
        100 * (1 - share), rows, length, time_text(saving), time_text(all_.wall_ns));
    waste.evidence.push_back(
        fmt::format("{} batches; the longest sequence has {} of {}, the mean {:.0f}",
                    batch.lengths.size(), batch.longest, length,
                    static_cast<double>(batch.sum) /
                        static_cast<double>(rows * static_cast<int64_t>(batch.lengths.size()))));
    waste.action =
        is_longer
            ? "pad to the longest sequence of each batch (dynamic padding), and put sequences "
              "of like length into one batch (bucket by length); nested tensors or packed "
              "sequences (varlen attention) need no padding"
            : "put sequences of like length into one batch (bucket by length: sort within a "
              "window); nested tensors or packed sequences (varlen attention) need no padding";
    waste.ns = ns;
    waste.saving_ns = saving;
    waste.proof = WasteProof::shown;
    add(std::move(waste), calls, times);
    return true;
  }

  const Roots& roots_;
};

}  // namespace

void find_excess(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Excess(asked, places, found).run();
}

}  // namespace epilogue::trace
