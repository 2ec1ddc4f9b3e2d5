// SPDX-License-Identifier: Apache-2.0
// Work that the program need not do, read from the order, the sizes and the sequence numbers of its
// ops: passes over all that was there before, gradients that nobody reads, products with a matrix
// of data, convolutions by hand.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_ops.h"
#include "explain/method/cut_action.h"
#include "explain/method/method.h"
#include "explain/method/roots.h"
#include "explain/products/gemm_shape.h"

namespace epilogue::trace {
namespace {

// Rows that grow by the same number so many times in a row are a sequence that grows.
constexpr size_t kGrowths = 6;
// If nothing shows what extends it; batches that are sorted by length grow, too.
constexpr size_t kGrowthsAlone = 12;
constexpr int64_t kLargestGrowth = 8;  // a part of the longest
// A matrix of data of so many rows and columns, times so many fewer columns.
constexpr int64_t kWideMatrix = 256;
constexpr int64_t kNarrower = 4;
constexpr size_t kReadLookAhead = 12;   // outermost ops that may read a result
constexpr double kReadShare = 0.25;     // of a result: more is no question
constexpr int64_t kLongLine = 1 << 16;  // elements of a result with one dimension
constexpr size_t kRowReaders = 4;       // ops behind an index whose tensors were not recorded
constexpr size_t kSources = 32;         // outermost ops before a result of which little is read
constexpr size_t kUnfoldLookAhead = 8;  // outermost ops between the patches and their product

class Wastes : WasteSearch {
 public:
  Wastes(const CountedOps& all, const Places& places, const Roots& roots, std::vector<Waste>& found)
      : WasteSearch(all, places, found), roots_(roots) {}

  void run() {
    find_growth();
    find_unread_gradients();
    find_constant_matrices();
    find_unfolded_convolutions();
    find_cut_results();
  }

 private:
  // --- A sequence that grows -------------------------------------------------------------

  // Rows of products with one weight, in the order in which they first occur.
  struct Rows {
    std::vector<int64_t> first_seen;
    std::map<int64_t, uint32_t> step_of;           // of the first call with so many rows
    std::vector<std::pair<uint32_t, int64_t>> of;  // calls, and their rows
    int64_t ns = 0;
  };

  struct Growth {
    int64_t from = 0;
    int64_t to = 0;
    int64_t by = 0;
    size_t times = 0;
  };

  // The longest stretch of the rows in which each is the one before plus the same number.
  static Growth growth_of(const Rows& rows) {
    Growth best;
    for (size_t i = 0; i + 1 < rows.first_seen.size();) {
      const int64_t by = rows.first_seen[i + 1] - rows.first_seen[i];
      size_t end = i + 1;
      const uint32_t step = rows.step_of.at(rows.first_seen[i]);
      while (end < rows.first_seen.size() &&
             rows.first_seen[end] - rows.first_seen[end - 1] == by &&
             rows.step_of.at(rows.first_seen[end]) == step)
        ++end;
      if (by > 0 && end - i - 1 > best.times)
        best = {rows.first_seen[i], rows.first_seen[end - 1], by, end - i - 1};
      i = std::max(i + 1, end - 1);
    }
    return best;
  }

  // Joins of a tensor with a little more, again and again.
  bool is_extended() const {
    std::set<int64_t> results;
    size_t grown = 0;
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      if (all_.base(at) != "cat") continue;
      int64_t sum = 0;
      int64_t largest = 0;
      for (const TensorShape& part : tensor_inputs(all_.inputs(at))) {
        sum += part.numel();
        largest = std::max(largest, part.numel());
      }
      if (largest < sum && 2 * largest >= sum && results.contains(largest)) ++grown;
      results.insert(sum);
    }
    return grown >= kGrowths - 1;
  }

  void find_growth() {
    std::map<std::tuple<StringId, int64_t, int64_t>, Rows> by_weight;
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      if (!is_gemm_op(all_.name(at))) continue;
      const auto problem = gemm_problem(all_.name(at), all_.inputs(at));
      if (!problem || problem->shape.batch != 1) continue;
      const GemmShape& s = problem->shape;
      Rows& rows = by_weight[{all_.name_id(at), s.n, s.k}];
      if (rows.step_of.try_emplace(s.m, all_.links.step[all_.ops[at]]).second)
        rows.first_seen.push_back(s.m);
      rows.of.emplace_back(static_cast<uint32_t>(at), s.m);
      rows.ns += all_.ns_at(at);
    }
    const Rows* longest = nullptr;
    Growth growth;
    for (const auto& [weight, rows] : by_weight) {
      const Growth one = growth_of(rows);
      if (one.times < kGrowths || one.by > one.to / kLargestGrowth) continue;
      if (longest == nullptr || rows.ns > longest->ns) {
        longest = &rows;
        growth = one;
      }
    }
    if (longest == nullptr) return;
    const bool is_shown = is_extended();
    if (!is_shown && growth.times < kGrowthsAlone) return;
    add_growth(*longest, growth, is_shown);
  }

  // What every op whose inputs grow spends on rows that a pass before had.
  void add_growth(const Rows& rows, const Growth& growth, bool is_shown) {
    struct Sizes {
      int64_t ns = 0;
      int64_t again_ns = 0;
      std::map<int64_t, std::pair<int64_t, int64_t>> numel;  // by rows: a sum and a count
    };
    std::unordered_map<StringId, Sizes> by_op;
    std::vector<uint32_t> calls;
    int64_t passes = 0;
    int64_t now = 0;  // rows of the pass
    for (size_t i = 0; i < rows.of.size(); ++i) {
      const auto [call, m] = rows.of[i];
      if (m != now) passes += m > growth.from && m <= growth.to ? 1 : 0;
      now = m;
      if (m <= growth.from || m > growth.to || (m - growth.from) % growth.by != 0) continue;
      calls.push_back(call);
      const bool is_last = i + 1 == rows.of.size();
      const size_t end = is_last ? call + 1 : rows.of[i + 1].first;
      for (size_t at = call; at < end; ++at) {
        Sizes& sizes = by_op[all_.name_id(at)];
        sizes.ns += all_.ns_at(at);
        sizes.again_ns += all_.ns_at(at) / m * (m - growth.by);
        int64_t numel = 0;
        for (const TensorShape& t : tensor_inputs(all_.inputs(at))) numel += t.numel();
        auto& [sum, count] = sizes.numel[m];
        sum += numel;
        ++count;
      }
    }
    OpTimes times;
    Waste waste;
    int64_t again_ns = 0;
    for (const auto& [name, sizes] : by_op) {
      const auto mean = [](const auto& of) { return of.second.first / of.second.second; };
      if (mean(*sizes.numel.rbegin()) <= mean(*sizes.numel.begin())) continue;
      waste.ns += sizes.ns;
      again_ns += sizes.again_ns;
      times.add(name, sizes.again_ns);
    }
    if (!is_worth_it(again_ns)) return;
    waste.kind = WasteKind::grown_sequence;
    waste.title = fmt::format(
        "each of {} passes runs over the whole sequence before it again: {} of {} for rows that a "
        "pass before had",
        passes, time_text(again_ns), time_text(all_.wall_ns));
    waste.evidence.push_back(fmt::format("{} on {} to {} rows, {} more each time",
                                         all_.name(calls.front()), growth.from + growth.by,
                                         growth.to, growth.by));
    waste.evidence.emplace_back(
        is_shown ? "aten::cat joins what a pass gave to the sequence, which grows"
                 : "if the passes are batches that are sorted by length, this is no loss");
    waste.action =
        "keep what the passes before computed: a KV cache (use_cache=True and past_key_values of "
        "transformers' generate, StaticCache), or the state of a recurrence, and run the new rows "
        "alone";
    waste.saving_ns = again_ns;
    waste.proof = is_shown ? WasteProof::shown : WasteProof::question;
    add(std::move(waste), calls, times);
  }

  // --- Gradients that nobody reads -------------------------------------------------------

  struct Gradient {
    size_t root = kNone;  // of the node that computed it
    int64_t sequence = -1;
    bool is_added = false;  // to a gradient that was there
  };

  // Nodes from the first to the last of one backward pass.
  struct Pass {
    uint32_t step = kNone;
    std::vector<size_t> nodes;  // roots
    std::vector<Gradient> gradients;
  };

  std::vector<Pass> backward_passes() const {
    std::vector<Pass> passes;
    int64_t highest = -1;
    size_t last_node = kNone;
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (!is_autograd_node(roots_.name(r))) continue;
      const int64_t sequence = roots_.sequence(r);
      if (roots_.name(r).ends_with("AccumulateGrad")) {
        if (passes.empty() || last_node == kNone) continue;
        passes.back().gradients.push_back(
            {last_node, roots_.sequence(last_node), roots_.has(r, "add")});
        continue;
      }
      if (sequence < 0) continue;
      if (passes.empty() || sequence > highest) {
        passes.emplace_back().step = roots_.step(r);
        highest = sequence;
      }
      passes.back().nodes.push_back(r);
      last_node = r;
    }
    return passes;
  }

  // Gradients of one pass that are added to what was there, beside others that are not: nobody sets
  // them to zero. One backward pass for each step; of several, one pass may add to the other's.
  void find_unread_gradients() {
    if (all_.links.steps.empty()) return;
    const std::vector<Pass> passes = backward_passes();
    std::set<uint32_t> steps;
    for (const Pass& pass : passes)
      if (!steps.insert(pass.step).second) return;
    if (passes.size() < 2) return;
    OpTimes times;
    std::vector<uint32_t> calls;
    int64_t ns = 0;
    size_t added = 0;
    size_t all_gradients = 0;
    for (const Pass& pass : passes) {
      int64_t first_read = -1;  // the lowest sequence number of a node that an optimizer needs
      size_t unread = 0;
      for (const Gradient& g : pass.gradients) {
        if (g.is_added) {
          ++unread;
        } else if (first_read < 0 || g.sequence < first_read) {
          first_read = g.sequence;
        }
      }
      if (unread == 0 || first_read < 0) return;
      added += unread;
      all_gradients += pass.gradients.size();
      for (const size_t node : pass.nodes) {
        if (roots_.sequence(node) >= first_read) continue;
        ns += roots_.add_times(node, times);
        calls.insert(calls.end(), roots_.within(node).begin(), roots_.within(node).end());
      }
    }
    if (!is_worth_it(ns)) return;
    Waste waste;
    waste.kind = WasteKind::unread_gradient;
    waste.title = fmt::format("the backward pass computes gradients that nobody reads: {} of {}",
                              time_text(ns), time_text(all_.wall_ns));
    waste.evidence.push_back(
        fmt::format("{} of {} gradients of a step are added to what was there, the others are new: "
                    "no optimizer sets them to zero, so none trains these parameters (a frozen "
                    "model)",
                    added / passes.size(), all_gradients / passes.size()));
    waste.ns = ns;
    waste.saving_ns = ns;
    waste.proof = WasteProof::shown;
    waste.place = places_.of(calls);
    const std::string part = !waste.place.module.empty()     ? "module " + waste.place.module
                             : !waste.place.function.empty() ? waste.place.function
                                                             : "the part that is not trained";
    waste.action = fmt::format(
        "run the forward pass of {} under torch.no_grad(), or set requires_grad_(False) on its "
        "parameters (detach() its result); if it is to be trained, give its parameters to the "
        "optimizer",
        part);
    add(std::move(waste), calls, times);
  }

  // --- Products with a matrix of data ----------------------------------------------------

  // Ops that make or change a tensor of these sizes, products with it and views left out.
  bool is_made_here(const std::vector<int64_t>& dims) const {
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      const std::string_view name = all_.name(at);
      if (is_autograd_node(name) || name.find("Backward") != std::string_view::npos ||
          is_multiplication(name) || op_class(name) == OpClass::view ||
          name == "aten::resolve_conj" || name == "aten::resolve_neg" || name == "aten::mT" ||
          name == "aten::contiguous")
        continue;
      const auto inputs = all_.inputs(at);
      for (const OpInput& input : inputs)
        if (input.concrete == sizes_text(dims)) return true;
      for (const TensorShape& t : tensor_inputs(inputs))
        if (t.dims == dims) return true;
      // What all pairs of rows give: [n, 1] and [1, n], [n, d] and [n, d].
      if (const auto result = output_shape(name, inputs); result && result->dims == dims)
        return true;
    }
    return false;
  }

  void find_constant_matrices() {
    struct Products {
      std::vector<uint32_t> at;
      int64_t ns = 0;
      int64_t columns = 0;
      bool is_right = false;
      bool has_forward = false;  // outside of linear: a frozen layer has its gradient alone
    };
    std::map<std::vector<int64_t>, Products> by_matrix;
    std::set<std::vector<int64_t>> weights;  // of linear
    for (size_t at = 0; at < all_.ops.size(); ++at) {
      const std::string_view name = all_.name(at);
      if (name != "aten::mm" && name != "aten::mv" && name != "aten::addmm") continue;
      // A layer's weight is the right operand of a linear, and trained.
      const uint32_t parent = all_.links.parent[all_.ops[at]];
      const auto inputs = all_.inputs(at);
      const std::vector<TensorShape> tensors = tensor_inputs(inputs);
      const size_t left = name == "aten::addmm" ? 1 : 0;
      if (parent != kNone && aten_base(all_.trace.name(all_.trace.events[parent])) == "linear") {
        if (tensors.size() > left + 1) weights.insert(tensors[left + 1].dims);
        continue;
      }
      if (tensors.size() < left + 2 || has_sparse(inputs)) continue;
      const std::vector<int64_t>& matrix = tensors[left].dims;
      const std::vector<int64_t>& right = tensors[left + 1].dims;
      const auto is_wide = [](const std::vector<int64_t>& dims) {
        return dims.size() == 2 && dims[0] == dims[1] && dims[0] >= kWideMatrix;
      };
      if (!is_wide(matrix)) {
        // On the right it may be a weight: in training a weight gets a gradient.
        if (!all_.has_backward || !is_wide(right)) continue;
        Products& calls = by_matrix[right];
        calls.at.push_back(static_cast<uint32_t>(at));
        calls.ns += all_.ns_at(at);
        calls.is_right = true;
        const uint32_t root = roots_.of(at);
        calls.has_forward =
            calls.has_forward || (root != kNone && !is_autograd_node(roots_.name(root)));
        continue;
      }
      const int64_t columns = right.size() == 2 ? right[1] : 1;
      if (columns > matrix[0] / kNarrower) continue;
      Products& calls = by_matrix[matrix];
      calls.at.push_back(static_cast<uint32_t>(at));
      calls.ns += all_.ns_at(at);
      calls.columns = std::max(calls.columns, columns);
    }
    for (const auto& [matrix, calls] : by_matrix) {
      if (!is_worth_it(calls.ns) || calls.at.size() < 2 || is_made_here(matrix)) continue;
      if (gets_gradient(matrix)) continue;
      if (calls.is_right && (!calls.has_forward || weights.contains(matrix))) continue;
      OpTimes times;
      for (const uint32_t at : calls.at) times.add(all_.name_id(at), all_.ns_at(at));
      Waste waste;
      waste.kind = WasteKind::constant_matrix;
      waste.title = fmt::format(
          "products with one dense matrix of {} take {} of {}: if it is mostly zeros (an "
          "adjacency, a mask, a Laplacian) or a pattern (a triangle of ones, a transform), so is "
          "the work",
          sizes_text(matrix), time_text(calls.ns), time_text(all_.wall_ns));
      waste.evidence.push_back(fmt::format("{} calls on {}", calls.at.size(),
                                           shapes_text(all_.inputs(calls.at.front()))));
      waste.evidence.emplace_back(
          all_.has_backward ? "no op of the run makes it, and it gets no gradient: it is data"
                            : "no op of the run makes it");
      waste.action =
          "if most of it is zeros, keep it sparse (matrix.to_sparse_csr() once; torch.sparse.mm or "
          "@), or gather rows by the edges and index_add_ them; if it is a triangle of ones, the "
          "product is torch.cumsum; if it is a transform (Fourier, Toeplitz), call torch.fft or a "
          "convolution";
      waste.ns = calls.ns;
      waste.proof = WasteProof::question;
      add(std::move(waste), calls.at, times);
    }
  }

  // A gradient of these sizes is computed, or kept.
  bool gets_gradient(const std::vector<int64_t>& matrix) const {
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (!is_autograd_node(roots_.name(r))) continue;
      for (const uint32_t at : roots_.within(r)) {
        if (all_.base(at) != "mm" && all_.base(at) != "addmm") continue;
        const auto problem = gemm_problem(all_.name(at), all_.inputs(at));
        if (problem && problem->shape.m == matrix[0] && problem->shape.n == matrix[1]) return true;
      }
    }
    return false;
  }

  // --- Convolutions by hand --------------------------------------------------------------

  void find_unfolded_convolutions() {
    OpTimes times;
    std::vector<uint32_t> patches;
    std::set<int64_t> numbers;  // of the sequence, whose backward nodes belong to it
    int64_t ns = 0;
    int64_t around_ns = 0;  // without the products
    std::string shape;
    std::vector<char> taken(roots_.size());
    const auto take = [&](size_t root) {
      if (taken[root]) return;
      taken[root] = true;
      ns += roots_.add_times(root, times);
      for (const uint32_t at : roots_.within(root))
        if (!is_gemm_op(all_.name(at))) around_ns += all_.ns_at(at);
    };
    for (size_t r = 0; r < roots_.size(); ++r) {
      const std::string_view base = roots_.base(r);
      // Tensor.unfold is a view along one dimension: two of them are patches.
      const bool is_view = base == "unfold";
      if (base != "im2col" && !(is_view && r > 0 && roots_.base(r - 1) == "unfold")) continue;
      for (size_t next = r + 1; next < std::min(roots_.size(), r + 1 + kUnfoldLookAhead); ++next) {
        if (!is_multiplication(roots_.name(next))) continue;
        patches.push_back(roots_.at(r));
        if (shape.empty()) shape = shapes_text(all_.inputs(roots_.at(r)));
        for (size_t i = r; i <= next; ++i) {
          take(i);
          if (const int64_t number = roots_.sequence(i); number >= 0) numbers.insert(number);
        }
        break;
      }
    }
    if (patches.empty()) return;
    for (size_t r = 0; r < roots_.size(); ++r)
      if (is_autograd_node(roots_.name(r)) && numbers.contains(roots_.sequence(r))) take(r);
    if (!is_worth_it(around_ns)) return;
    Waste waste;
    waste.kind = WasteKind::unfolded_convolution;
    waste.title = fmt::format(
        "a convolution is written as unfold and a product: patches and copies of them take {} of "
        "{}",
        time_text(around_ns), time_text(all_.wall_ns));
    waste.evidence.push_back(fmt::format("{} calls of {}{}, each with a product next",
                                         patches.size(), all_.name(patches.front()),
                                         shape.empty() ? "" : " on " + shape));
    waste.action =
        "call torch.nn.functional.conv2d (nn.Conv2d) with the weight viewed as [out, in, kernel, "
        "kernel]: a convolution does not write the patches";
    waste.ns = ns;
    waste.saving_ns = around_ns;
    waste.proof = WasteProof::likely;
    add(std::move(waste), patches, times);
  }

  // --- Results of which little is read ---------------------------------------------------

  // Sizes of the result of an op each of whose elements (of `row_wise`: rows) is computed alone.
  struct Result {
    std::vector<int64_t> dims;
    bool row_wise = false;
  };
  std::optional<Result> result_of(size_t root) const {
    const std::string_view name = roots_.name(root);
    const auto inputs = all_.inputs(roots_.at(root));
    const std::vector<TensorShape> tensors = tensor_inputs(inputs);
    if (tensors.empty() || tensors[0].dims.empty() || has_sparse(inputs)) return std::nullopt;
    Result result{tensors[0].dims, false};
    if (name == "aten::linear" && tensors.size() > 1 && tensors[1].dims.size() == 2) {
      result.dims.back() = tensors[1].dims[0];
    } else if ((name == "aten::matmul" || name == "aten::mm" || name == "aten::bmm") &&
               tensors.size() > 1 && tensors[0].dims.size() > 1 && tensors[1].dims.size() > 1) {
      if (tensors[1].dims.size() > tensors[0].dims.size()) {
        result.dims = tensors[1].dims;
        result.dims[result.dims.size() - 2] = tensors[0].dims[tensors[0].dims.size() - 2];
      }
      result.dims.back() = tensors[1].dims.back();
    } else if (name == "aten::addmm" && tensors.size() > 2 && tensors[1].dims.size() == 2) {
      result.dims = {tensors[1].dims[0], tensors[2].dims.back()};
    } else if (name.starts_with("aten::conv") && inputs.size() > 5 && tensors.size() > 1 &&
               tensors[1].dims.size() > 2) {
      return convolved(inputs, tensors[0].dims, tensors[1].dims);
    } else if (op_class(name) == OpClass::pointwise && !is_in_place(name)) {
      const auto shape = output_shape(name, inputs);
      if (!shape) return std::nullopt;
      result.dims = shape->dims;
    } else if (op_class(name) == OpClass::rowwise) {
      result.row_wise = true;
    } else {
      return std::nullopt;
    }
    return result;
  }

  // Of a convolution that is not transposed: samples, filters, positions.
  static std::optional<Result> convolved(std::span<const OpInput> inputs,
                                         const std::vector<int64_t>& input,
                                         const std::vector<int64_t>& weight) {
    const std::vector<int64_t> stride = numbers_of(inputs[3].concrete);
    const std::vector<int64_t> padding = numbers_of(inputs[4].concrete);
    const std::vector<int64_t> dilation = numbers_of(inputs[5].concrete);
    const size_t n = weight.size() - 2;
    if (input.size() != weight.size() || stride.size() != n || padding.size() != n ||
        dilation.size() != n)
      return std::nullopt;
    Result result{{input[0], weight[0]}, false};
    for (size_t d = 0; d < n; ++d) {
      const int64_t taps = dilation[d] * (weight[d + 2] - 1) + 1;
      result.dims.push_back(
          (input[d + 2] + 2 * padding[d] - taps) / std::max<int64_t>(1, stride[d]) + 1);
    }
    return result;
  }

  // The share of a tensor that a view or an indexing op takes; nothing if it is neither, or if that
  // is not known.
  std::optional<double> share_taken(size_t root, const Result& result) const {
    const std::string_view base = roots_.base(root);
    const auto inputs = all_.inputs(roots_.at(root));
    const auto rank = static_cast<int64_t>(result.dims.size());
    const auto numel =
        static_cast<double>(std::max<int64_t>(1, TensorShape{result.dims, {}}.numel()));
    const bool is_cut = base == "slice" || base == "select" || base == "narrow";
    if (is_cut) {
      const auto dim = whole_argument(inputs, 1);
      if (!dim) return std::nullopt;
      const int64_t d = *dim < 0 ? *dim + rank : *dim;
      if (d < 0 || d >= rank || (result.row_wise && d + 1 == rank)) return std::nullopt;
      const int64_t size = std::max<int64_t>(1, result.dims[static_cast<size_t>(d)]);
      int64_t taken = 1;
      if (base == "narrow") taken = whole_argument(inputs, 3).value_or(size);
      if (base == "slice") {
        int64_t start = whole_argument(inputs, 2).value_or(0);
        int64_t end = whole_argument(inputs, 3).value_or(size);
        if (start < 0) start += size;
        if (end < 0) end += size;
        const int64_t step = std::max<int64_t>(1, whole_argument(inputs, 4).value_or(1));
        const int64_t range = std::min(end, size) - std::clamp<int64_t>(start, 0, size);
        taken = (std::max<int64_t>(0, range) + step - 1) / step;
      }
      return static_cast<double>(taken) / static_cast<double>(size);
    }
    if (result.row_wise) return std::nullopt;
    if ((base == "diagonal" || base == "trace") && rank >= 2)
      return 1.0 / static_cast<double>(std::max(result.dims[static_cast<size_t>(rank) - 1],
                                                result.dims[static_cast<size_t>(rank) - 2]));
    const std::vector<TensorShape> tensors = tensor_inputs(inputs);
    if (base == "embedding" && tensors.size() > 1 && rank == 2)
      return static_cast<double>(tensors[1].numel()) /
             static_cast<double>(std::max<int64_t>(1, result.dims[0]));
    if (base == "gather" && tensors.size() > 1)
      return static_cast<double>(tensors[1].numel()) / numel;
    if (base == "index_select" && tensors.size() > 1) {
      const auto dim = whole_argument(inputs, 1);
      if (!dim || *dim < 0 || *dim >= rank) return std::nullopt;
      return static_cast<double>(tensors[1].numel()) /
             static_cast<double>(std::max<int64_t>(1, result.dims[static_cast<size_t>(*dim)]));
    }
    if (base == "index" && inputs.size() > 1 && !inputs[1].list.empty() &&
        inputs[1].list.size() == tensors.size() - 1) {
      // Of index tensors that broadcast; a mask has the sizes of what it reads.
      double rows = 1;
      double of = 1;
      for (size_t i = 0; i < inputs[1].list.size(); ++i) {
        const auto& dims = inputs[1].list[i].dims;
        if (dims.empty() || dims.size() == result.dims.size() || i >= result.dims.size())
          return std::nullopt;
        rows = std::max(rows, static_cast<double>(TensorShape{dims, {}}.numel()));
        of *= static_cast<double>(result.dims[i]);
      }
      return rows / std::max(1.0, of);
    }
    // The index tensors were not recorded: an op that follows reads rows of the same width.
    if (base == "index" && result.dims.size() > 1) {
      for (size_t next = root + 1; next < std::min(roots_.size(), root + 1 + kRowReaders); ++next) {
        const auto read = tensor_inputs(all_.inputs(roots_.at(next)));
        if (read.empty() || read.front().dims.size() < 2 || is_autograd_node(roots_.name(next)))
          continue;
        if (read.front().dims.back() != result.dims.back() || read.front().dims == result.dims)
          return std::nullopt;
        return static_cast<double>(read.front().numel()) / numel;
      }
    }
    return std::nullopt;
  }

  struct Cut {
    double share = 0;
    size_t reader = kNone;
  };

  // Adds what comes before a result of which rows alone are read, on the same rows.
  void add_sources(size_t root, const std::vector<int64_t>& dims,
                   std::vector<size_t>& roots) const {
    const auto has_rows = [&](const TensorShape& t) {
      return t.dims.size() + 1 >= dims.size() &&
             std::equal(dims.begin(), dims.end() - 1, t.dims.begin());
    };
    for (size_t r = root; r > 0 && root - r < kSources;) {
      --r;
      const std::string_view name = roots_.name(r);
      const std::vector<TensorShape> tensors = tensor_inputs(all_.inputs(roots_.at(r)));
      if (is_autograd_node(name) || is_in_place(name) ||
          std::none_of(tensors.begin(), tensors.end(), has_rows))
        return;
      roots.push_back(r);
    }
  }

  // Elementwise ops and casts that come right before, on the same elements, and the product or
  // convolution that gave these.
  void add_elementwise_sources(size_t root, const std::vector<int64_t>& dims,
                               std::vector<size_t>& roots) const {
    for (size_t r = root; r > 0 && root - r < kSources;) {
      --r;
      const std::string_view name = roots_.name(r);
      if (is_autograd_node(name)) return;
      const std::vector<TensorShape> tensors = tensor_inputs(all_.inputs(roots_.at(r)));
      const bool is_elementwise = is_cast(aten_base(name)) || op_class(name) == OpClass::pointwise;
      if (is_elementwise && !tensors.empty() && tensors[0].dims == dims) {
        roots.push_back(r);
        continue;
      }
      const auto result = is_elementwise ? std::nullopt : result_of(r);
      if (result && !result->row_wise && result->dims == dims) roots.push_back(r);
      return;
    }
  }

  static bool is_cast(std::string_view base) {
    return base == "to" || base == "_to_copy" || base == "clone";
  }
  static bool makes_tensor(std::string_view name) {
    return op_class(name) != OpClass::view || is_cast(aten_base(name));
  }

  // What is read of a result by the ops that follow, if that is little.
  std::optional<Cut> cut_of(size_t root, const Result& result) const {
    Cut cut;
    for (size_t next = root + 1; next < std::min(roots_.size(), root + 1 + kReadLookAhead);
         ++next) {
      // Another result: the op again, or one that came right before it.
      if (all_.key(roots_.at(next)) == all_.key(roots_.at(root)) ||
          (root > 0 && makes_tensor(roots_.name(root - 1)) &&
           all_.inputs_id(roots_.at(next)) != kNone &&
           all_.key(roots_.at(next)) == all_.key(roots_.at(root - 1))))
        break;
      const std::vector<TensorShape> tensors = tensor_inputs(all_.inputs(roots_.at(next)));
      if (std::none_of(tensors.begin(), tensors.end(),
                       [&](const TensorShape& t) { return t.dims == result.dims; }))
        continue;
      const auto share =
          tensors.front().dims == result.dims ? share_taken(next, result) : std::nullopt;
      if (!share) return std::nullopt;
      if (*share >= 1) continue;  // x[:, -1] slices all rows first
      cut.share += *share;
      if (cut.reader == kNone) cut.reader = next;
    }
    if (cut.reader == kNone || cut.share > kReadShare) return std::nullopt;
    return cut;
  }

  void find_cut_results() {
    struct Found {
      std::vector<uint32_t> calls;
      std::set<int64_t> numbers;
      std::vector<size_t> roots;
      double share = 0;
      std::vector<int64_t> dims;
      std::string reader;
      int64_t step = 1;  // of a slice
    };
    std::map<std::pair<std::string_view, std::string_view>, Found> by_ops;
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (is_autograd_node(roots_.name(r)) || roots_.kind(r) == OpClass::view) continue;
      const auto result = result_of(r);
      // Long lines of numbers alone: a loop may go through a small one.
      if (!result || (result->dims.size() < 2 && TensorShape{result->dims, {}}.numel() < kLongLine))
        continue;
      const auto cut = cut_of(r, *result);
      if (!cut) continue;
      Found& found = by_ops[{roots_.name(r), roots_.name(cut->reader)}];
      found.calls.push_back(roots_.at(r));
      const size_t before = found.roots.size();
      found.roots.push_back(r);
      const std::string_view reads = roots_.base(cut->reader);
      if (reads == "index" || reads == "index_select" || reads == "embedding")
        add_sources(r, result->dims, found.roots);
      else
        add_elementwise_sources(r, result->dims, found.roots);
      if (roots_.base(cut->reader) == "slice")
        found.step = whole_argument(all_.inputs(roots_.at(cut->reader)), 4).value_or(1);
      for (size_t i = before; i < found.roots.size(); ++i)
        if (roots_.sequence(found.roots[i]) >= 0)
          found.numbers.insert(roots_.sequence(found.roots[i]));
      found.share = std::max(found.share, cut->share);
      if (found.dims.empty()) found.dims = result->dims;
      found.reader = roots_.name(cut->reader);
    }
    for (auto& [ops, found] : by_ops) {
      // The gradient of what is not read is zero, and computed all the same.
      for (size_t r = 0; r < roots_.size(); ++r)
        if (is_autograd_node(roots_.name(r)) && found.numbers.contains(roots_.sequence(r)))
          found.roots.push_back(r);
      OpTimes times;
      int64_t ns = 0;
      for (const size_t r : found.roots) ns += roots_.add_times(r, times);
      const auto saving = static_cast<int64_t>(static_cast<double>(ns) * (1 - found.share));
      if (!is_worth_it(saving)) continue;
      Waste waste;
      waste.kind = WasteKind::cut_result;
      waste.title =
          fmt::format("{} computes {}, of which {} reads {:.1f} %: {} for the rest", ops.first,
                      sizes_text(found.dims), ops.second, 100 * found.share, time_text(saving));
      waste.evidence.push_back(fmt::format("{} calls on {}", found.calls.size(),
                                           shapes_text(all_.inputs(found.calls.front()))));
      if (found.roots.size() > found.calls.size() + found.numbers.size())
        waste.evidence.emplace_back("with the ops before it on the same rows");
      CutResult what;
      what.op = ops.first;
      what.reader = found.reader;
      what.dimensions = found.dims.size();
      what.step = found.step;
      for (const size_t r : found.roots) {
        what.has_convolution = what.has_convolution || roots_.name(r).starts_with("aten::conv");
        what.is_graph = what.is_graph || adds_by_index(roots_.base(r));
      }
      waste.action = cut_action(what);
      waste.ns = ns;
      waste.saving_ns = saving;
      waste.proof = WasteProof::likely;
      add(std::move(waste), found.calls, times);
    }
  }

  const Roots& roots_;
};

}  // namespace

std::vector<Waste> find_wastes(const CountedOps& all, const Places& places) {
  std::vector<Waste> found;
  const Roots roots(all);
  const AskedOps asked(all, roots);
  Wastes(all, places, roots, found).run();
  find_wastes_of_passes(all, places, roots, found);
  find_unread_forward(all, places, roots, found);
  find_input_gradients(all, places, roots, found);
  find_wastes_of_functions(all, places, found);
  find_excess(asked, places, found);
  find_column_orders(asked, places, found);
  find_written_rows(asked, places, found);
  find_forms(asked, places, found);
  find_transforms(asked, places, found);
  find_dropout_passes(asked, places, found);
  find_kept_orders(asked, places, found);
  find_computed_twice(asked, places, found);
  find_same_inputs(asked, places, found);
  find_pieces(asked, places, found);
  find_fixed_operands(asked, places, found);
  find_known_forms(asked, places, found);
  find_readers(asked, places, found);
  find_parts(asked, places, found);
  find_work_again(asked, places, found);
  std::stable_sort(found.begin(), found.end(), [](const Waste& a, const Waste& b) {
    return a.saving_ns.value_or(a.ns) > b.saving_ns.value_or(b.ns);
  });
  return found;
}

}  // namespace epilogue::trace
