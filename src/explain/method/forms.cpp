// SPDX-License-Identifier: Apache-2.0
// Ops whose result a cheaper form gives: all pairs that are written out, windows that overlap,
// products with one-hot rows and with Kronecker products, weights that are made anew from factors,
// penalties of parameters.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr double kEitherComposite = 0.3;  // of one that may be the program's work
constexpr size_t kBlocksOfPairs = 96;     // ops from the pairs to what cuts them into groups
constexpr double kCompositeShare = 0.1;   // of the run
constexpr int64_t kPairsTimes = 8;        // as many elements as the larger operand
constexpr int64_t kWrittenPairs = 1 << 16;
constexpr size_t kReducedWithin = 6;    // ops between the pairs and what reduces them
constexpr int64_t kWindowsOverlap = 4;  // windows that hold an element
constexpr size_t kWindowReaders = 8;    // ops after the windows
constexpr size_t kProductWithin = 6;    // ops between a matrix and its product
constexpr size_t kDispatchWithin = 24;  // ops between places of rows and their products
constexpr int64_t kLowRank = 4;         // times as wide as its factors' rank
constexpr size_t kPenalties = 4;        // parameters of a step

constexpr std::array<std::string_view, 20> kReducingOps = {"sum",
                                                           "mean",
                                                           "std",
                                                           "var",
                                                           "std_mean",
                                                           "var_mean",
                                                           "amax",
                                                           "amin",
                                                           "max",
                                                           "min",
                                                           "prod",
                                                           "median",
                                                           "nanmedian",
                                                           "quantile",
                                                           "norm",
                                                           "logsumexp",
                                                           "any",
                                                           "all",
                                                           "linalg_vector_norm",
                                                           "argmax"};

class Forms : AskedSearch {
 public:
  Forms(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    find_composites();
    find_penalties();
    find_kronecker_products();
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    find_pairs();
    find_windows();
    find_window_networks();
    find_one_hot_products();
    find_made_weights();
  }

 private:
  // --- Ops that are many ops -------------------------------------------------------------

  // Programs are rarely about such an op, and its time is in what it calls.
  void find_composites() {
    std::map<std::string_view, CostlyForm> forms;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const OpKnowledge* known = op_knowledge(asked_.name(i));
      if (known == nullptr || known->role == OpRole::main || known->remedy.empty()) continue;
      CostlyForm& form = forms[asked_.name(i)];
      take(form, i);
      if (form.count++ == 0) form.first = i;
    }
    for (auto& [name, form] : forms) {
      int64_t own_ns = 0;
      for (const uint32_t at : form.calls) own_ns += all_.ns_at(at);
      // Its own time is a finding of its own.
      const OpKnowledge* known = op_knowledge(name);
      const double share = known->role == OpRole::aside ? kCompositeShare : kEitherComposite;
      if (2 * own_ns > form.ns ||
          static_cast<double>(form.ns) < share * static_cast<double>(all_.wall_ns))
        continue;
      // One op that holds most of the call is named itself, and what it is called for.
      int64_t forward_ns = 0;
      for (const uint32_t at : form.calls) forward_ns += all_.event(at).dur_ns;
      const auto longest = form.times.list(all_.trace).front();
      if (longest.first != name && 2 * longest.second > form.ns && 2 * forward_ns > form.ns)
        continue;
      report(WasteKind::composite_op, form, fmt::format("{} and what it calls", name),
             {times_of(form), fmt::format("a loss if {}", known->misuse)},
             std::string(known->remedy), std::nullopt, WasteProof::likely);
    }
  }

  // --- All pairs -------------------------------------------------------------------------

  static bool has_number_for_each_row(const Dims& rows, const Dims& numbers) {
    return rows.size() == numbers.size() && numbers.back() == 1 &&
           std::equal(rows.begin(), std::prev(rows.end()), numbers.begin());
  }

  // Sizes that two operands have together, if these are all pairs of their rows.
  std::optional<Dims> pairs_of(size_t i) const {
    const std::string_view base = asked_.base(i);
    const bool is_whole = base == "cosine_similarity" || base == "pairwise_distance";
    if (!is_whole && asked_.kind(i) != OpClass::pointwise) return std::nullopt;
    const std::vector<TensorShape> tensors = tensor_inputs(asked_.inputs(i));
    if (tensors.size() < 2) return std::nullopt;
    auto result = broadcast_dims(std::span(tensors).first(2));
    if (!result || result->size() < 3) return std::nullopt;
    // A vector divided by a number of its own: its norm, say.
    if (base == "div" && has_number_for_each_row(tensors[0].dims, tensors[1].dims))
      return std::nullopt;
    int64_t largest = 1;
    for (size_t t = 0; t < 2; ++t) {
      if (tensors[t].dims == *result && tensors[t].repeats < kPairsTimes) return std::nullopt;
      largest = std::max(largest, tensors[t].numel() / std::max<int64_t>(1, tensors[t].repeats));
    }
    const int64_t numel = TensorShape{*result, {}}.numel();
    if (numel < kWrittenPairs || numel / kPairsTimes < largest) return std::nullopt;
    return result;
  }

  // The pairs are cut into as many groups as they have rows of, later in the step: how many.
  int64_t groups_of(size_t from, const Dims& pairs) const {
    for (size_t j = from + 1; j < end_of(from, kBlocksOfPairs); ++j) {
      const std::string_view base = asked_.base(j);
      if (base != "split" && base != "split_with_sizes" && base != "chunk") continue;
      const auto in = asked_.inputs(j);
      if (in.size() < 2 || in[0].dims.size() != 3) continue;
      const Dims& dims = in[0].dims;
      const std::vector<int64_t> sizes = numbers_of(in[1].concrete);
      if (sizes.empty() || dims[0] < 2 || dims[0] * dims[1] != pairs[0] || dims[2] != pairs[1])
        continue;
      if (base == "chunk" ? sizes[0] == dims[0] : sizes[0] * dims[0] == dims[2]) return dims[0];
    }
    return 0;
  }

  // Differences or products of all pairs that are reduced at once.
  void find_pairs() {
    std::map<uint64_t, CostlyForm> forms;
    std::map<uint64_t, Dims> sizes;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const auto dims = pairs_of(i);
      if (!dims) continue;
      const std::string_view base = asked_.base(i);
      size_t last = i;
      if (base != "cosine_similarity" && base != "pairwise_distance") {
        for (size_t j = i + 1; j < std::min(asked_.size(), i + kReducedWithin); ++j) {
          const std::vector<TensorShape> tensors = tensor_inputs(asked_.inputs(j));
          if (!asked_.is_same_root(i, j) || tensors.empty() || tensors[0].dims != *dims) break;
          if (!is_one(kReducingOps, asked_.base(j))) continue;
          last = j;
          break;
        }
        if (last == i) continue;
      }
      CostlyForm& form = forms[asked_.key(i)];
      for (size_t j = i; j <= last; ++j) take(form, j);
      if (form.count++ == 0) form.first = i;
      form.second = last;
      sizes[asked_.key(i)] = *dims;
      i = last;
    }
    for (auto& [key, form] : forms) {
      const std::string_view base = asked_.base(form.first);
      const bool is_product = base == "mul" || base == "cosine_similarity";
      constexpr std::array<std::string_view, 10> kComparisons = {
          "ge", "gt", "le", "lt", "eq", "greater", "greater_equal", "less", "less_equal", "ne"};
      const bool is_comparison = is_one(kComparisons, base);
      const std::vector<TensorShape> operands = tensor_inputs(asked_.inputs(form.first));
      report(WasteKind::all_pairs, form,
             fmt::format("{} writes out all pairs of {} and {} ({}), which {} reduces",
                         asked_.name(form.first), sizes_text(operands[0].dims),
                         sizes_text(operands[1].dims), sizes_text(sizes[key]),
                         form.second == form.first ? "it" : asked_.name(form.second)),
             {times_of(form)},
             groups_of(form.second, sizes[key]) > 0
                 ? "all rows of the batch meet those of all samples, and the blocks of the same "
                   "sample alone are read (split, then one of each): do not flatten the batch; "
                   "compute image by image, or batched, [samples, rows, others], with the batch "
                   "dimension in front (torch.cdist takes batches)"
             : asked_.base(form.second) == "logsumexp" && base == "add"
                 ? "a product in log space: subtract the maximum of each row, take exp of both "
                   "operands once, multiply them as matrices (matmul), take the log and add the "
                   "maximum again ((x - m).exp() @ table.exp()).log() + m, the table's exp once "
                   "before a loop; where terms differ by more than 80 in the log, keep logsumexp"
             : is_comparison
                 ? "of a sum that counts how many edges or thresholds a number passes: "
                   "torch.bucketize(x, edges) or torch.searchsorted(sorted, x) find the place of "
                   "each number in a sorted list (rows of edges for each column: searchsorted with "
                   "the columns as rows); of equality torch.isin, bincount, or a table that is "
                   "indexed"
             : is_product && sizes[key].size() >= 4 &&
                     std::ranges::any_of(operands,
                                         [](const TensorShape& t) {
                                           return t.dims.size() >= 4 && t.dims[0] > 1 &&
                                                  t.dims[1] > 1;
                                         })
                 ? "if it makes a weight for each sample (modulation, dynamic filters): scale the "
                   "input's channels by the style, run one convolution or product with the shared "
                   "weight for all samples, and scale its output (demodulation: the squared weight "
                   "summed over the window once, times the squared style); else one matrix product "
                   "gives the sums of products: a @ b.T, or einsum"
             : is_product
                 ? "one matrix product gives the sums of products of all pairs: a @ b.T, or einsum "
                   "(for cosines normalise the rows first: F.normalize(a) @ F.normalize(b).T)"
                 : "distances of all pairs are torch.cdist, or |a|^2 + |b|^2 - 2 a @ b.T with one "
                   "matrix product: neither writes the pairs; other sums of pairs go in blocks of "
                   "rows",
             std::nullopt, WasteProof::likely);
    }
  }

  // --- Windows that overlap --------------------------------------------------------------

  static std::string window_action(std::string_view base, int64_t size) {
    if (base == "median" || base == "nanmedian" || base == "quantile")
      return fmt::format(
          "a running median needs no sort for each window: filter once when the data are prepared "
          "(scipy.ndimage.median_filter and scipy.signal.medfilt keep the order from one window "
          "to the next), or approximate it: medians of short windows in series (of {} as 3 x 3 x "
          "...), a window on every few samples (a larger step of unfold), or a mean "
          "(avg_pool1d) where no outliers are cut",
          size);
    if (base == "max" || base == "min" || base == "amax" || base == "amin" || base == "argmax")
      return fmt::format(
          "max_pool1d(x, {}, stride=1) reduces without the windows (-max_pool1d(-x) for the "
          "smallest; return_indices=True for places), or smaller windows in series: each doubles "
          "the reach with one torch.maximum of two shifted slices",
          size);
    if (base == "norm" || base == "linalg_vector_norm")
      return fmt::format(
          "avg_pool1d(x * x, {}, stride=1) times {} is the sum of squares of each window, or "
          "differences of cumsum(x * x); its root is the norm",
          size, size);
    return "sums over windows follow from one pass: differences of cumsum(x) (and of cumsum(x * x) "
           "for std and var), or avg_pool1d / max_pool1d with stride 1; a weighted sum is a "
           "convolution";
  }

  void find_windows() {
    std::map<uint64_t, CostlyForm> forms;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (asked_.base(i) != "unfold") continue;
      const auto in = asked_.inputs(i);
      const auto dim = whole_argument(in, 1);
      const auto size = whole_argument(in, 2);
      const auto step = whole_argument(in, 3);
      if (!dim || !size || !step || *step < 1 || in[0].dims.empty()) continue;
      const auto rank = static_cast<int64_t>(in[0].dims.size());
      const int64_t d = *dim < 0 ? *dim + rank : *dim;
      if (d < 0 || d >= rank || *size / *step < kWindowsOverlap) continue;
      Dims windows = in[0].dims;
      windows[static_cast<size_t>(d)] = (windows[static_cast<size_t>(d)] - *size) / *step + 1;
      windows.push_back(*size);
      CostlyForm& form = forms[asked_.key(i)];
      for (size_t j = i + 1; j < std::min(asked_.size(), i + 1 + kWindowReaders); ++j) {
        const std::vector<TensorShape> tensors = tensor_inputs(asked_.inputs(j));
        if (tensors.empty() || tensors[0].dims != windows || !is_one(kReducingOps, asked_.base(j)))
          continue;
        take(form, j);
        form.second = j;
      }
      if (form.count++ == 0) form.first = i;
    }
    for (auto& [key, form] : forms) {
      if (form.second == 0) continue;
      const auto in = asked_.inputs(form.first);
      const int64_t size = whole_argument(in, 2).value_or(1);
      const int64_t step = whole_argument(in, 3).value_or(1);
      report(WasteKind::overlapping_windows, form,
             fmt::format("{} reduces windows of {} that overlap: it reads each element {} times",
                         asked_.name(form.second), size, size / step),
             {times_of(form)}, window_action(asked_.base(form.second), size),
             1 - static_cast<double>(4 * step) /
                     static_cast<double>(std::max<int64_t>(size, 4 * step)),
             WasteProof::shown);
    }
  }

  // Windows that an op, or two in series, cut of a tensor.
  struct Windows {
    Dims dims;
    int64_t from = 0;  // elements of what they are cut of
    std::vector<int64_t> sizes;
  };
  std::optional<Windows> windows_of(size_t i) const {
    if (asked_.base(i) != "unfold") return std::nullopt;
    const auto in = asked_.inputs(i);
    const auto dim = whole_argument(in, 1);
    const auto size = whole_argument(in, 2);
    const auto step = whole_argument(in, 3);
    if (!dim || !size || !step || *step < 1 || in[0].dims.empty()) return std::nullopt;
    const auto rank = static_cast<int64_t>(in[0].dims.size());
    const int64_t d = *dim < 0 ? *dim + rank : *dim;
    if (d < 0 || d >= rank || in[0].dims[static_cast<size_t>(d)] < *size) return std::nullopt;
    Windows windows = {.dims = in[0].dims, .from = TensorShape{in[0].dims, {}}.numel()};
    int64_t& count = windows.dims[static_cast<size_t>(d)];
    count = (count - *size) / *step + 1;
    windows.dims.push_back(*size);
    windows.sizes = {*size};
    return windows;
  }

  // A network of convolutions on a batch of windows: on the whole it computes each element once.
  void find_window_networks() {
    if (all_.has_backward) return;
    std::map<uint64_t, CostlyForm> forms;
    std::map<uint64_t, Windows> windows;
    for (size_t i = 0; i < asked_.size(); ++i) {
      auto of = windows_of(i);
      if (!of) continue;
      size_t last = i;
      for (size_t j = i + 1; j < end_of(i, kWindowReaders); ++j) {
        const auto more = windows_of(j);
        if (!more || asked_.inputs(j)[0].dims != of->dims) continue;
        of->dims = more->dims;
        of->sizes.push_back(more->sizes[0]);
        last = j;
      }
      const int64_t numel = TensorShape{of->dims, {}}.numel();
      if (numel < kWindowsOverlap * of->from) continue;
      if (const auto first = network_on(*of, numel, last)) {
        CostlyForm& form = forms[asked_.key(i)];
        take_batch(form, *first);
        if (form.count++ == 0) form.first = i;
        form.second = *first;
        windows[asked_.key(i)] = *of;
      }
      i = last;
    }
    for (auto& [key, form] : forms) {
      const Windows& of = windows[key];
      const int64_t numel = TensorShape{of.dims, {}}.numel();
      const Dims batch = tensors(form.second)[0].dims;
      report(WasteKind::overlapping_windows, form,
             fmt::format("{} runs on {} windows that overlap ({}, from one tensor of {}): {:.0f} "
                         "times its elements",
                         asked_.name(form.second), batch[0], sizes_text(batch),
                         sizes_text(asked_.inputs(form.first)[0].dims),
                         static_cast<double>(numel) / static_cast<double>(of.from)),
             {times_of(form), "with what follows on the batch of windows"},
             "run the network once on the whole image (or signal) and read its map of results at "
             "every stride: convolutions without padding give the same (a linear layer behind them "
             "is a convolution with a kernel of the window's size); with padding the edges of "
             "windows differ, so compare the results; else a larger stride: fewer windows",
             1 - static_cast<double>(of.from) / static_cast<double>(numel), WasteProof::likely);
    }
  }

  // The first convolution that reads all windows as one batch.
  std::optional<size_t> network_on(const Windows& windows, int64_t numel, size_t last) const {
    for (size_t j = last + 1; j < end_of(last, kWindowReaders); ++j) {
      if (!asked_.base(j).starts_with("conv")) continue;
      const std::vector<TensorShape> read = tensors(j);
      if (read.size() < 2 || read[0].dims.size() < windows.sizes.size() + 1 ||
          read[0].dims.size() != read[1].dims.size() || read[0].numel() != numel)
        return std::nullopt;
      if (!std::equal(windows.sizes.rbegin(), windows.sizes.rend(), read[0].dims.rbegin()))
        return std::nullopt;
      return j;
    }
    return std::nullopt;
  }

  // An op on a batch of as many rows, and those behind it that read such a batch.
  void take_batch(CostlyForm& form, size_t first) const {
    const int64_t rows = tensors(first)[0].dims[0];
    for (size_t j = first; j < asked_.size(); ++j) {
      const std::vector<TensorShape> read = tensors(j);
      if (read.empty() || read[0].dims.empty() || read[0].dims[0] != rows ||
          !asked_.is_same_root(first, j))
        break;
      take(form, j);
    }
  }

  // --- Products with what is mostly zeros ------------------------------------------------

  // The product that reads a result of these sizes soon; nothing if there is none.
  std::optional<size_t> product_after(size_t i, const Dims& dims, CostlyForm& form) {
    std::vector<size_t> between;
    for (size_t j = i + 1; j < std::min(asked_.size(), i + 1 + kProductWithin); ++j) {
      const std::vector<TensorShape> tensors = tensor_inputs(asked_.inputs(j));
      const bool reads = std::any_of(tensors.begin(), tensors.end(),
                                     [&](const TensorShape& t) { return t.dims == dims; });
      if (is_multiplication(asked_.name(j))) {
        if (!reads) continue;
        take(form, i);
        for (const size_t b : between) take(form, b);
        take(form, j);
        return j;
      }
      if (reads) between.push_back(j);
    }
    return std::nullopt;
  }

  // The product makes places of rows ([rows, experts, places], one of them 1 in each row), and
  // further products send rows there and bring them back.
  bool take_dispatch(size_t product, CostlyForm& form) const {
    const std::vector<TensorShape> factors = tensors(product);
    if (factors.size() != 2 || factors[0].dims.size() != 2 || factors[1].dims.size() != 2 ||
        factors[0].dims[0] != factors[1].dims[0])
      return false;
    const Dims places = {factors[0].dims[0], factors[0].dims[1], factors[1].dims[1]};
    bool has_more = false;
    for (size_t j = product + 1; j < end_of(product, kDispatchWithin); ++j) {
      if (asked_.base(j) == "one_hot" || !is_forward(j)) break;
      if (asked_.kind(j) == OpClass::view || !reads(j, places)) continue;
      take(form, j);
      has_more = has_more || is_multiplication(asked_.name(j));
    }
    return has_more;
  }

  void find_one_hot_products() {
    std::map<uint64_t, CostlyForm> forms;
    std::set<uint64_t> dispatches;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (asked_.base(i) != "one_hot") continue;
      const auto in = asked_.inputs(i);
      const auto classes = whole_argument(in, 1);
      if (!classes || *classes < 2 || in.empty()) continue;
      Dims dims = in[0].dims;
      dims.push_back(*classes);
      CostlyForm& form = forms[asked_.key(i)];
      const auto product = product_after(i, dims, form);
      if (!product) continue;
      if (form.count++ == 0) form.first = i;
      form.second = *product;
      if (take_dispatch(*product, form)) dispatches.insert(asked_.key(i));
    }
    for (auto& [key, form] : forms) {
      if (form.count == 0) continue;
      const int64_t classes = whole_argument(asked_.inputs(form.first), 1).value_or(1);
      report(WasteKind::built_matrix, form,
             fmt::format("aten::one_hot makes rows of {} with a single 1, which {} multiplies",
                         classes, asked_.name(form.second)),
             {times_of(form), shapes_text(asked_.inputs(form.second))},
             dispatches.contains(key)
                 ? "move the rows by index, not by products with zeros: place = expert * capacity "
                   "+ position; slots.index_copy_(0, place, rows) sends them (or sort the rows by "
                   "expert: argsort, index_select), out = slots.index_select(0, place) * weight "
                   "brings them back"
                 : "read the rows: nn.Embedding, nn.functional.embedding(index, table) or "
                   "table.index_select(0, index) gives the same without the matrix",
             1 - 2.0 / static_cast<double>(classes), WasteProof::shown);
    }
  }

  // (A x B) v: without shapes the names alone tell.
  void find_kronecker_products() {
    CostlyForm form;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (asked_.base(i) != "kron") continue;
      for (size_t j = i + 1; j < std::min(asked_.size(), i + kProductWithin); ++j) {
        if (!is_multiplication(asked_.name(j))) continue;
        take(form, i);
        take(form, j);
        if (form.count++ == 0) form.first = i;
        form.second = j;
        break;
      }
    }
    if (form.count == 0) return;
    report(
        WasteKind::built_matrix, form,
        fmt::format("aten::kron writes a Kronecker product, which {} multiplies next",
                    asked_.name(form.second)),
        {fmt::format("{} times", form.count)},
        "multiply by the factors: (A x B) vec(U) is vec(A U B^T), i.e. A @ U @ B.T with U viewed "
        "as a matrix: two small products in place of the large matrix",
        std::nullopt, WasteProof::likely);
  }

  // --- Weights that are made anew --------------------------------------------------------

  // W + U V, multiplied by fewer rows than the sum is worth: x W^T + (x V^T) U^T.
  void find_made_weights() {
    CostlyForm form;
    int64_t rank = 0;
    for (size_t i = 0; i + 2 < asked_.size(); ++i) {
      const std::string_view of = asked_.base(i);
      if (of != "mm" && of != "matmul") continue;
      const std::vector<TensorShape> factors = tensor_inputs(asked_.inputs(i));
      if (factors.size() != 2 || factors[0].dims.size() != 2 || factors[1].dims.size() != 2)
        continue;
      const Dims weight = {factors[0].dims[0], factors[1].dims[1]};
      const int64_t k = factors[0].dims[1];
      if (k * kLowRank > std::min(weight[0], weight[1])) continue;
      std::vector<size_t> sums;
      for (size_t j = i + 1; j < std::min(asked_.size(), i + 1 + kProductWithin); ++j) {
        const std::vector<TensorShape> tensors = tensor_inputs(asked_.inputs(j));
        if (asked_.base(j) == "linear" && tensors.size() > 1 && tensors[1].dims == weight) {
          const int64_t rows = tensors[0].numel() / std::max<int64_t>(1, weight[1]);
          if (sums.empty() || rows * (weight[0] + weight[1]) > weight[0] * weight[1]) break;
          take(form, i);
          for (const size_t s : sums) take(form, s);
          if (form.count++ == 0) form.first = i;
          form.second = j;
          rank = k;
          break;
        }
        const bool has_weight = std::any_of(tensors.begin(), tensors.end(),
                                            [&](const TensorShape& t) { return t.dims == weight; });
        if (!has_weight || asked_.kind(j) != OpClass::pointwise) {
          if (asked_.kind(j) == OpClass::view) continue;
          break;
        }
        if (asked_.base(j) == "add" || asked_.base(j) == "mul") sums.push_back(j);
      }
    }
    if (form.count == 0) return;
    report(
        WasteKind::made_weight, form,
        fmt::format("weights are made anew from factors of rank {} in each pass, and then "
                    "multiplied by fewer rows than that is worth",
                    rank),
        {times_of(form), "read next by " + shapes_text(asked_.inputs(form.second))},
        "apply the factors to the input: F.linear(x, weight) + (x @ down.T) @ up.T (as LoRA does); "
        "for inference merge them once and keep the sum",
        0.9, WasteProof::likely);
  }

  // --- Penalties -------------------------------------------------------------------------

  // p.pow(2).sum() added up over parameters, whose gradients pass through each of them again.
  void find_penalties() {
    if (!all_.has_backward) return;
    constexpr std::array<std::string_view, 5> kPowers = {"pow", "square", "abs", "norm",
                                                         "linalg_vector_norm"};
    CostlyForm form;
    std::vector<size_t> run;
    size_t links = 0;
    const auto end_run = [&] {
      if (links >= kPenalties) {
        if (form.count == 0) form.first = run.front();
        for (const size_t i : run) take(form, i);
        form.count += static_cast<int64_t>(links);
      }
      run.clear();
      links = 0;
    };
    for (size_t i = 0; i + 1 < asked_.size(); ++i) {
      if (!is_one(kPowers, asked_.base(i)) || asked_.sequence(i) < 0) continue;
      const bool is_norm = asked_.base(i).find("norm") != std::string_view::npos;
      const size_t sum = is_norm ? i : i + 1;
      if (sum + 1 >= asked_.size() || (!is_norm && asked_.base(sum) != "sum")) continue;
      // To one number: the sum has no list of dimensions.
      if (const auto in = asked_.inputs(sum); !is_norm && in.size() > 2) continue;
      size_t last = sum;
      if (const std::string_view next = asked_.base(sum + 1); next == "add" || next == "mul")
        last = sum + 1;
      if (last == sum) continue;
      if (!run.empty() && i > run.back() + 2) end_run();
      for (size_t r = i; r <= last; ++r) run.push_back(r);
      ++links;
      i = last;
    }
    end_run();
    if (form.count == 0) return;
    report(
        WasteKind::hand_penalty, form,
        fmt::format("a penalty of {} tensors is computed tensor by tensor in the forward pass, and "
                    "its gradient through each of them",
                    form.count / static_cast<int64_t>(all_.steps)),
        {fmt::format("{}, then a sum and an addition, {} times", asked_.name(form.first),
                     form.count)},
        "if these are the parameters, pass weight_decay to the optimizer, which adds the penalty's "
        "gradient in its own pass (of AdamW decoupled); else torch._foreach_norm takes all tensors "
        "at once",
        std::nullopt, WasteProof::likely);
  }
};

}  // namespace

void find_forms(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Forms(asked, places, found).run();
}

}  // namespace epilogue::trace
