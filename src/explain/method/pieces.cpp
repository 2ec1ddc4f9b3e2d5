// SPDX-License-Identifier: Apache-2.0
// Work in pieces that one op does at once, and work for more than is asked: sums over shifted
// slices, wide windows of pooling, modules side by side, products of all gathered rows, kernels
// under a mask.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kLags = 16;          // iterations in a row
constexpr size_t kLagWithin = 4;      // ops between a slice, its product and the sum
constexpr int64_t kLagOverlap = 4;    // of a slice, in shifts
constexpr int64_t kWideWindow = 5;    // of a pool, along each side
constexpr size_t kSiblings = 4;       // modules side by side
constexpr double kSmallShare = 0.3;   // of them, in calls and small ops
constexpr int64_t kSmallNs = 5'000;   // what calling a small op takes
constexpr size_t kGatherWithin = 12;  // ops between a gather, its join and a product
constexpr size_t kMaskWithin = 8;     // ops between a masked weight and its convolution
constexpr int64_t kMaskedWindow = 3;  // taps along a side

bool is_any_convolution(std::string_view base) {
  return is_convolution(base) || base == "_convolution";
}

class Pieces : AskedSearch {
 public:
  Pieces(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty()) return;
    find_siblings();
    if (all_.trace.inputs.size() == 0) return;
    find_lags();
    find_wide_pools();
    find_gathered_products();
    find_masked_kernels();
  }

 private:
  bool is_backward(size_t i) const {
    return is_autograd_node(asked_.roots().name(asked_.roots().of(asked_.at(i))));
  }
  int64_t per_step(int64_t count) const { return count / static_cast<int64_t>(all_.steps); }

  // --- Sums over shifted slices ----------------------------------------------------------

  // One product of a loop over lags or taps: x[:, lag:] * y, and the sum of it.
  struct Lag {
    size_t first = 0;  // its first op
    size_t last = 0;
    int64_t start = 0;
    int64_t length = 0;
  };

  // The product `i` of a slice whose start is not 0, and that a sum along the slice, or an addition
  // of slices times a number, reads.
  std::optional<Lag> lag_at(size_t i) const {
    if (asked_.base(i) != "mul" || is_backward(i)) return std::nullopt;
    const std::vector<TensorShape> factors = tensors(i);
    if (factors.empty()) return std::nullopt;
    Lag lag;
    int64_t dim = -1;
    for (size_t j = i; j > 0 && i - j < kLagWithin;) {
      --j;
      if (asked_.base(j) != "slice") continue;
      const auto in = asked_.inputs(j);
      const auto d = whole_argument(in, 1);
      const auto start = whole_argument(in, 2);
      if (!d || in.empty() || in[0].dims.empty()) continue;
      const auto rank = static_cast<int64_t>(in[0].dims.size());
      const int64_t at = *d < 0 ? *d + rank : *d;
      if (at < 0 || at >= rank || whole_argument(in, 4).value_or(1) != 1) continue;
      lag.first = j;
      if (start.value_or(0) <= lag.start) continue;
      const auto place = static_cast<size_t>(at);
      if (std::ssize(factors[0].dims) <= at) continue;
      lag.start = *start;
      lag.length = factors[0].dims[place];
      dim = at;
    }
    if (dim < 0 || lag.length < 2) return std::nullopt;
    for (size_t j = i + 1; j < end_of(i, kLagWithin); ++j) {
      const std::string_view base = asked_.base(j);
      const std::vector<TensorShape> read = tensors(j);
      if (read.empty()) continue;
      lag.last = j;
      if (base == "sum" || base == "mean") {
        const auto in = asked_.inputs(j);
        if (read[0].dims != factors[0].dims) return std::nullopt;
        const auto rank = static_cast<int64_t>(read[0].dims.size());
        const std::vector<int64_t> over =
            in.size() > 1 ? numbers_of(in[1].concrete) : std::vector<int64_t>{};
        const bool is_along =
            std::ranges::any_of(over, [&](int64_t d) { return d == dim || d + rank == dim; });
        return over.empty() || is_along ? std::optional(lag) : std::nullopt;
      }
      if (base != "add") continue;
      // Of a filter each slice is multiplied by one number, or one for each row.
      const bool is_tap =
          factors.size() < 2 || std::ranges::any_of(factors, [&](const TensorShape& t) {
            return t.numel() * lag.length <= factors[0].numel() ||
                   t.numel() * lag.length <= factors[1].numel();
          });
      return is_tap ? std::optional(lag) : std::nullopt;
    }
    return std::nullopt;
  }

  void find_lags() {
    CostlyForm form;
    std::vector<Lag> run;
    size_t longest = 0;
    const auto end_run = [&] {
      if (run.size() >= kLags) {
        if (form.count == 0) form.first = run.front().last;
        for (size_t i = run.front().first; i <= run.back().last; ++i) take(form, i);
        form.count += std::ssize(run);
        longest = std::max(longest, run.size());
      }
      run.clear();
    };
    for (size_t i = 0; i < asked_.size(); ++i) {
      const auto lag = lag_at(i);
      if (!lag) continue;
      if (!run.empty()) {
        const int64_t by = lag->start - run.back().start;
        const bool goes_on = by != 0 && step(i) == step(run.back().last) &&
                             lag->first <= run.back().last + kLagWithin &&
                             lag->length >= kLagOverlap * std::abs(by) &&
                             (run.size() < 2 || by == run.back().start - run[run.size() - 2].start);
        if (!goes_on) end_run();
      }
      run.push_back(*lag);
    }
    end_run();
    if (form.count == 0) return;
    report(WasteKind::shifted_sums, form,
           fmt::format("a loop multiplies slices that are shifted against each other and adds them "
                       "up, {} shifts one by one",
                       longest),
           {fmt::format("{} products with a sum in all, each over the whole tensor", form.count)},
           "all shifts at once: a correlation or convolution over many shifts is torch.fft.rfft of "
           "both (padded to twice the length), a product and irfft (an autocorrelation: irfft of "
           "|rfft(x)|^2); with few taps F.conv1d with the taps as its weight",
           std::nullopt, WasteProof::likely);
  }

  // --- Wide windows of pooling -----------------------------------------------------------

  // The side of a square window that moves by 1.
  std::optional<int64_t> window_of(size_t i) const {
    constexpr std::array<std::string_view, 2> kPools = {"max_pool2d", "max_pool2d_with_indices"};
    const auto in = asked_.inputs(i);
    if (!is_one(kPools, asked_.base(i)) || in.size() < 3) return std::nullopt;
    const std::vector<int64_t> window = numbers_of(in[1].concrete);
    const std::vector<int64_t> stride = numbers_of(in[2].concrete);
    const auto is_ones = [](const std::vector<int64_t>& of) {
      return std::ranges::all_of(of, [](int64_t n) { return n == 1; });
    };
    if (window.empty() || stride.empty() || !is_ones(stride) || window.front() < kWideWindow ||
        window.front() != window.back() || (in.size() > 4 && !is_ones(numbers_of(in[4].concrete))))
      return std::nullopt;
    return window.front();
  }

  void find_wide_pools() {
    struct Pools {
      CostlyForm form;
      std::map<int64_t, int64_t> ns_by_window;
    };
    std::map<Dims, Pools> by_input;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const auto window = window_of(i);
      if (!window) continue;
      const std::vector<TensorShape> read = tensors(i);
      if (read.empty()) continue;
      Pools& pools = by_input[read[0].dims];
      if (pools.form.count++ == 0) pools.form.first = i;
      pools.ns_by_window[*window] += take(pools.form, i);
    }
    for (auto& [dims, pools] : by_input) {
      std::string windows;
      int64_t one_by_one = 0;  // as rows and then columns
      for (const auto& [window, ns] : pools.ns_by_window) {
        windows += fmt::format("{}{} x {}", windows.empty() ? "" : ", ", window, window);
        one_by_one += ns / window * 2;
      }
      const auto [least, least_ns] = *pools.ns_by_window.begin();
      const auto kinds = std::ssize(pools.ns_by_window);
      const int64_t largest = pools.ns_by_window.rbegin()->first;
      const bool is_series =
          kinds > 1 && std::ranges::all_of(pools.ns_by_window, [&](const auto& pool) {
            return (pool.first - 1) % (least - 1) == 0;
          });
      const std::string separate = fmt::format(
          "a window of (1, {}) and then one of ({}, 1) give the same maxima with {} "
          "reads in place of {}",
          largest, largest, 2 * largest, largest * largest);
      report_saving(
          WasteKind::wide_pools, pools.form,
          fmt::format("max pooling with windows of {} that move by 1 reads each number up to {} "
                      "times",
                      windows, largest * largest),
          {fmt::format("on {}, {} calls", sizes_text(dims), pools.form.count)},
          is_series
              ? fmt::format("if they read the same tensor, take them in series: {} x {} pools "
                            "one after the other (each reads the result of the one before) give "
                            "{} (the smaller window of the result is the larger one of the "
                            "input); else {}",
                            least, least, windows, separate)
              : separate,
          pools.form.ns - (is_series ? std::min(kinds * least_ns, pools.form.ns) : one_by_one),
          WasteProof::likely);
    }
  }

  // --- Modules side by side --------------------------------------------------------------

  using ModuleCall = Places::ModuleCall;

  static std::string_view class_of(std::string_view module) {
    const size_t end = module.rfind('_');
    return end == std::string_view::npos ? module : module.substr(0, end);
  }

  // Positions of the asked ops within a call of a module, outside of autograd's nodes.
  std::pair<size_t, size_t> ops_within(const ModuleCall& call) const {
    const auto start = [&](uint32_t at, int64_t ns) { return all_.event(at).ts_ns < ns; };
    const auto& list = asked_.list();
    const auto first = std::lower_bound(list.begin(), list.end(), call.start_ns, start);
    const auto last = std::lower_bound(first, list.end(), call.end_ns, start);
    return {static_cast<size_t>(first - list.begin()), static_cast<size_t>(last - list.begin())};
  }

  // A join of as many tensors as there are modules follows the last one: they stand side by side,
  // and are no layers.
  bool are_joined(size_t after, size_t count) const {
    for (size_t i = after; i < std::min(asked_.size(), after + 3); ++i) {
      const std::string_view base = asked_.base(i);
      if (base == "cat" || base == "stack")
        return all_.trace.inputs.size() == 0 || tensors(i).size() == count;
      if (asked_.kind(i) != OpClass::view) return false;
    }
    return false;
  }

  void add_group(const std::vector<const ModuleCall*>& group, CostlyForm& form, int64_t& ops,
                 int64_t& small_ns, size_t& most) {
    std::set<std::string_view> names;
    for (const ModuleCall* call : group) names.insert(call->name);
    if (group.size() < kSiblings || names.size() != group.size()) return;
    const auto [first, last] = ops_within(*group.front());
    if (first == last) return;
    for (size_t i = first; i < last; ++i) {
      const std::string_view base = asked_.base(i);
      if (base == "cat" || base.starts_with("embedding") || is_backward(i)) return;
    }
    size_t end = last;
    for (const ModuleCall* call : group) {
      const auto [from, to] = ops_within(*call);
      if (to - from != last - first) return;
      for (size_t i = 0; i < to - from; ++i)
        if (asked_.key(from + i) != asked_.key(first + i)) return;
      end = to;
    }
    if (!are_joined(end, group.size())) return;
    if (form.count == 0) form.first = first;
    form.count += std::ssize(group);
    most = std::max(most, group.size());
    std::vector<uint32_t> within;
    for (size_t i = first; i < end; ++i) form.ns += asked_.take(i, form.times, form.calls, &within);
    ops += std::ssize(within);
    for (const uint32_t at : within) small_ns += std::min(all_.ns_at(at), kSmallNs);
  }

  void find_siblings() {
    if (all_.is_device) return;
    struct Siblings {
      CostlyForm form;
      int64_t ops = 0;
      int64_t small_ns = 0;
      size_t most = 0;
    };
    std::map<std::string_view, Siblings> by_class;
    const std::vector<ModuleCall> modules = places_.module_calls();
    std::map<uint32_t, std::vector<const ModuleCall*>> open;  // by the module around
    const auto end_group = [&](std::vector<const ModuleCall*>& group) {
      if (!group.empty()) {
        Siblings& s = by_class[class_of(group.front()->name)];
        add_group(group, s.form, s.ops, s.small_ns, s.most);
      }
      group.clear();
    };
    for (const ModuleCall& call : modules) {
      std::vector<const ModuleCall*>& group = open[call.around];
      if (!group.empty() && (class_of(group.front()->name) != class_of(call.name) ||
                             group.front()->name == call.name))
        end_group(group);
      group.push_back(&call);
    }
    for (auto& [around, group] : open) end_group(group);
    for (auto& [name, s] : by_class) {
      if (s.form.count == 0 ||
          static_cast<double>(s.small_ns) < kSmallShare * static_cast<double>(s.form.ns))
        continue;
      const auto count = static_cast<int64_t>(s.most);
      s.form.op_calls = s.ops / count * (count - 1);
      report_saving(
          WasteKind::sibling_modules, s.form,
          fmt::format("{} modules of {} run one after the other with the same ops{}, and their "
                      "results are joined",
                      s.most, name, all_.trace.inputs.size() == 0 ? "" : " and sizes"),
          {fmt::format("{} calls of {} in a step, {} ops in all with the backward pass",
                       per_step(s.form.count), name, s.ops),
           fmt::format("{} of it in calls and small ops", time_text(s.small_ns))},
          fmt::format("run all {} {} modules as one: join their weights to one larger Linear "
                      "(heads: one projection, then view and transpose to [batch, heads, rows, "
                      "columns]); if each reads rows of its own, stack the weights and use "
                      "torch.bmm, or torch.func.stack_module_state and vmap (convolutions: "
                      "groups={})",
                      s.most, name, s.most),
          s.small_ns / count * (count - 1), WasteProof::likely);
    }
  }

  // --- Products of all gathered rows -----------------------------------------------------

  void find_gathered_products() {
    std::map<Dims, int64_t> gathered;  // rows that all ranks gave, and how many ranks
    size_t last_gather = asked_.size();
    CostlyForm form;
    int64_t ranks = 0;
    Dims product;
    size_t seen = 0;  // of all ops: a gather stands within an op of autograd
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view name = asked_.name(i);
      for (; seen <= asked_.at(i); ++seen)
        if (all_.name(seen).starts_with("c10d::") &&
            all_.name(seen).find("allgather") != std::string_view::npos)
          last_gather = i;
      if (last_gather == asked_.size() || is_backward(i)) continue;
      const std::vector<TensorShape> read = tensors(i);
      if (read.size() < 2) continue;
      if (asked_.base(i) == "cat" && i - last_gather <= kGatherWithin) {
        const Dims& own = read[0].dims;
        if (own.size() == 2 &&
            std::ranges::all_of(read, [&](const TensorShape& t) { return t.dims == own; }))
          gathered[{own[0] * std::ssize(read), own[1]}] = std::ssize(read);
        continue;
      }
      if (!is_multiplication(name)) continue;
      const auto left = gathered.find(read[0].dims);
      if (left == gathered.end() || read[1].dims != Dims{read[0].dims[1], read[0].dims[0]})
        continue;
      const int64_t rows = read[0].dims[0];
      if (form.count++ == 0) form.first = i;
      ranks = left->second;
      product = read[0].dims;
      take(form, i);
      // The loss over all pairs.
      for (size_t j = i + 1; j < end_of(i, kGatherWithin); ++j) {
        const std::vector<TensorShape> after = tensors(j);
        if (after.empty() || after[0].dims != Dims{rows, rows}) break;
        take(form, j);
      }
    }
    if (form.count == 0) return;
    report_saving(
        WasteKind::gathered_product, form,
        fmt::format("each rank multiplies all gathered rows by all gathered rows ({} rows of {} "
                    "ranks), so that every rank computes the same",
                    product[0], ranks),
        {counted(form.count, "time", "times") + ", " + shapes_text(asked_.inputs(form.first)),
         "with what reads the product, forward and backward"},
        fmt::format("compute the own rows alone: the {} rows of this rank by all {} gathered "
                    "ones, with labels that begin at rank * {}; the mean over ranks is the same "
                    "loss (gradients of the gathered rows come through "
                    "torch.distributed.nn.functional.all_gather)",
                    product[0] / ranks, product[0], product[0] / ranks),
        form.ns / ranks * (ranks - 1), WasteProof::likely);
  }

  // --- Kernels under a mask --------------------------------------------------------------

  // The weight of a convolution times numbers for each tap.
  bool is_masked_weight(size_t i) const {
    if (asked_.base(i) != "mul" || is_backward(i)) return false;
    const std::vector<TensorShape> factors = tensors(i);
    if (factors.size() != 2 || factors[0].dims.size() < 3 || factors[1].dims.empty()) return false;
    const Dims& weight = factors[0].dims;
    const Dims& mask = factors[1].dims;
    const size_t sides = weight.size() - 2;
    if (mask.size() < sides) return false;
    bool is_wide = false;
    for (size_t s = 1; s <= sides; ++s) {
      if (mask[mask.size() - s] != weight[weight.size() - s]) return false;
      is_wide = is_wide || mask[mask.size() - s] >= kMaskedWindow;
    }
    return is_wide;
  }

  void find_masked_kernels() {
    CostlyForm form;
    std::string shape;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (!is_masked_weight(i)) continue;
      const Dims weight = tensors(i)[0].dims;
      for (size_t j = i + 1; j < end_of(i, kMaskWithin); ++j) {
        const std::vector<TensorShape> read = tensors(j);
        if (!is_any_convolution(asked_.base(j)) || read.size() < 2 || read[1].dims != weight)
          continue;
        const int64_t ns = take(form, j);
        ++form.count;
        if (form.count == 1 || (ns > 0 && shape.empty())) {
          form.first = j;
          shape = shapes_text(asked_.inputs(i));
        }
        break;
      }
    }
    if (form.count == 0) return;
    report(WasteKind::masked_kernel, form,
           "convolutions have weights that are multiplied by a mask of their window just before: "
           "taps that are zero are computed all the same",
           {fmt::format("{}, the first on {}", counted(form.count, "convolution", "convolutions"),
                        shape),
            "no trace tells which taps are zero"},
           "if whole rows or columns of the window are zero (a causal mask), leave them out: "
           "convolve with the part of the weight that is left (weight[:, :, :rows]) and pad the "
           "input on that side alone (F.pad), or sum a convolution of the rows before and one of "
           "the row itself; if whole channels are zero, groups or fewer channels",
           std::nullopt, WasteProof::question);
  }
};

}  // namespace

void find_pieces(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Pieces(asked, places, found).run();
}

}  // namespace epilogue::trace
