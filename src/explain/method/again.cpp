// SPDX-License-Identifier: Apache-2.0
// Work that each round of a loop does again on what the round before left: a product of a whole of
// which one element changed, reductions over a set that grows by one, each order of a few parts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kRoundWithin = 64;    // ops of a round
constexpr int64_t kChangedTimes = 16;  // the whole is so many times what changed
constexpr int64_t kLeastWhole = 4096;  // elements
constexpr int64_t kRounds = 8;         // in a row
constexpr size_t kViewBefore = 3;      // ops between a view and the write to it
constexpr int64_t kMostParts = 8;      // of which all orders are tried
constexpr int64_t kLeastOrders = 6;
constexpr int64_t kLeastOrdered = 1 << 14;  // elements
constexpr size_t kOrderWithin = 32;         // ops of one order

bool is_reduction(std::string_view base) {
  constexpr std::array<std::string_view, 10> kReductions = {
      "amin", "amax", "min", "max", "sum", "mean", "any", "all", "argmin", "argmax"};
  return is_one(kReductions, base);
}

class Again : AskedSearch {
 public:
  Again(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    find_changed();
    find_grown();
    find_orders();
  }

 private:
  // --- A whole of which one element changed ---

  // Op `j` writes to a part of a tensor of `whole`: x[:, i] = ..., x[i] *= -1, index_fill_.
  bool writes_part(size_t j, const Dims& whole) const {
    if (!is_in_place(asked_.name(j)) || dims_at(j, 0).empty()) return false;
    const std::string_view base = asked_.base(j);
    const std::vector<TensorShape> read = tensors(j);
    if (base == "index_put" || base == "index_fill" || base == "index_copy" || base == "scatter")
      return read.size() > 1 && read[0].dims == whole &&
             elements_in(read.back().dims) * kChangedTimes <= elements_in(whole);
    if (elements_in(dims_at(j, 0)) * kChangedTimes > elements_in(whole)) return false;
    for (size_t back = 1; back <= std::min(kViewBefore, j); ++back) {
      const std::string_view view = asked_.base(j - back);
      if ((view == "select" || view == "slice") && dims_at(j - back, 0) == whole) return true;
    }
    return false;
  }

  // The operand of product `i` that the loop changes: no larger than the other one.
  std::optional<Dims> changing_operand(size_t i) const {
    const std::vector<TensorShape> read = tensors(i);
    if (read.size() < 2) return std::nullopt;
    const size_t first = read.size() - 2;
    const Dims& left = read[first].dims;
    const Dims& right = read[first + 1].dims;
    if (left.size() > 3 || right.size() < 2) return std::nullopt;
    const Dims& smaller = elements_in(left) <= elements_in(right) ? left : right;
    if (elements_in(smaller) < kLeastWhole) return std::nullopt;
    return smaller;
  }

  void find_changed() {
    struct Rounds {
      CostlyForm form;
      Dims whole;
      int64_t in_row = 0;
      int64_t most = 0;
      size_t last = 0;
      size_t write = 0;
    };
    std::map<uint64_t, Rounds> by_product;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view base = asked_.base(i);
      if (base != "matmul" && base != "mm" && base != "bmm" && base != "linear" && base != "mv")
        continue;
      if (!is_forward(i)) continue;
      const auto whole = changing_operand(i);
      if (!whole) continue;
      const auto [found, is_new] = by_product.try_emplace(asked_.key(i));
      Rounds& rounds = found->second;
      if (is_new) rounds.whole = *whole;
      bool changes = false;
      if (!is_new && i - rounds.last <= kRoundWithin && step(i) == step(rounds.last))
        for (size_t j = rounds.last + 1; j < i && !changes; ++j)
          if (writes_part(j, *whole)) {
            changes = true;
            rounds.write = j;
          }
      rounds.in_row = changes ? rounds.in_row + 1 : 0;
      rounds.most = std::max(rounds.most, rounds.in_row);
      if (changes) {
        if (rounds.form.count++ == 0) rounds.form.first = i;
        take(rounds.form, i);
        // What reads its result alone: the sum that judges the change.
        for (size_t j = next(i), seen = 0; j < asked_.size() && seen < 2; j = next(j), ++seen) {
          if (!reads(j, *whole) || is_in_place(asked_.name(j))) break;
          take(rounds.form, j);
        }
      }
      rounds.last = i;
    }
    for (auto& [key, rounds] : by_product) {
      if (rounds.most < kRounds) continue;
      const double part = elements_in(dims_at(rounds.write, 0)) / elements_in(rounds.whole);
      const bool is_scattered = dims_at(rounds.write, 0) == rounds.whole;
      report(WasteKind::changed_part, rounds.form,
             fmt::format("{} computes all of {} again after {} changed a part of it",
                         asked_.name(rounds.form.first), sizes_text(rounds.whole),
                         asked_.name(rounds.write)),
             {fmt::format("{} in a row, {}", counted(rounds.most, "time", "times"),
                          shapes_text(asked_.inputs(rounds.form.first))),
              is_scattered ? std::string("few elements are written by index in between")
                           : fmt::format("{} of {} elements are written in between",
                                         TensorShape{dims_at(rounds.write, 0), {}}.numel(),
                                         TensorShape{rounds.whole, {}}.numel())},
             "compute the change alone: of a quadratic form (an energy, a cut) the difference for "
             "one element is its change times its local field, one row or column of the matrix "
             "(mv, or index_select and a sum); keep the product and add the changed part to it "
             "(result += change * matrix[i]); elements that do not meet (the colours of a "
             "chessboard) can change together",
             is_scattered ? std::nullopt : std::optional(1 - part), WasteProof::likely);
    }
  }

  // --- Sets that grow by one ---

  // Calls of one op in a row whose sizes differ in one dimension, which grows by the same number.
  struct Growing {
    std::vector<size_t> calls;
    int64_t size = 0;
    int64_t by = 0;
  };

  void find_grown() {
    if (all_.wall_ns <= 0) return;
    // What grows has other sizes each time: calls of sizes that come again are passed over.
    std::vector<uint32_t> uses(all_.trace.inputs.size());
    for (size_t i = 0; i < asked_.size(); ++i)
      if (const uint32_t id = all_.inputs_id(asked_.at(i)); id < uses.size()) ++uses[id];
    using Key = std::tuple<std::string_view, uint32_t, size_t, Dims>;
    std::map<Key, Growing> open;
    std::vector<std::pair<size_t, Growing>> closed;  // by the dimension that grows
    const auto close = [&](size_t d, Growing& growing) {
      if (std::ssize(growing.calls) >= kRounds) closed.emplace_back(d, std::move(growing));
      growing = {};
    };
    for (size_t i = 0; i < asked_.size(); ++i) {
      const uint32_t id = all_.inputs_id(asked_.at(i));
      const std::string_view base = asked_.base(i);
      const bool is_work = asked_.kind(i) == OpClass::pointwise || is_reduction(base) ||
                           base == "cdist" || base == "norm" || base == "linalg_vector_norm";
      if (!is_work || id >= uses.size() || uses[id] > 4 * all_.steps || !is_forward(i)) continue;
      const std::vector<TensorShape> read = tensors(i);
      if (read.empty()) continue;
      const auto result = output_shape(asked_.name(i), asked_.inputs(i));
      const Dims& dims = result ? result->dims : read[0].dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        Dims others = dims;
        others.erase(others.begin() + static_cast<ptrdiff_t>(d));
        Growing& growing = open[{base, step(i), d, std::move(others)}];
        const int64_t by = dims[d] - growing.size;
        if (!growing.calls.empty() && (by <= 0 || (growing.calls.size() > 1 && by != growing.by)))
          close(d, growing);
        if (!growing.calls.empty()) growing.by = by;
        growing.calls.push_back(i);
        growing.size = dims[d];
      }
    }
    for (auto& [key, growing] : open) close(std::get<2>(key), growing);
    report_grown(closed);
  }

  // The reduction goes over the dimension.
  bool reduces(size_t i, size_t dim) const {
    const auto in = asked_.inputs(i);
    if (!is_reduction(asked_.base(i)) || in.size() < 2 || in[0].dims.empty()) return false;
    const auto rank = std::ssize(in[0].dims);
    return std::ranges::any_of(numbers_of(in[1].concrete), [&](int64_t d) {
      return (d < 0 ? d + rank : d) == static_cast<int64_t>(dim);
    });
  }

  void report_grown(const std::vector<std::pair<size_t, Growing>>& closed) {
    const Growing* reduced = nullptr;
    for (const auto& [d, growing] : closed)
      if (reduces(growing.calls.front(), d) &&
          (reduced == nullptr || growing.calls.size() > reduced->calls.size()))
        reduced = &growing;
    if (reduced == nullptr) return;
    // Attention to what was there before needs all of it.
    for (size_t i = reduced->calls[0]; i < reduced->calls[1]; ++i) {
      const std::string_view base = asked_.base(i);
      if (base.find("softmax") != std::string_view::npos || is_multiplication(asked_.name(i)) ||
          base == "linear" || base.find("attention") != std::string_view::npos || base == "cat")
        return;
    }
    CostlyForm form;
    std::set<size_t> taken;
    int64_t dearest = 0;
    for (const auto& [d, growing] : closed) {
      if (growing.by != reduced->by || growing.calls.size() + 2 < reduced->calls.size()) continue;
      int64_t ns = 0;
      for (const size_t i : growing.calls)
        if (taken.insert(i).second) ns += take(form, i);
      if (ns > dearest) form.first = growing.calls.back();
      dearest = std::max(dearest, ns);
    }
    form.count = std::ssize(reduced->calls);
    form.second = reduced->calls.back();
    report(WasteKind::grown_set, form,
           fmt::format("each round computes a set from the start that the round before had, and "
                       "{} reduces it: it grows by {} to {}",
                       asked_.name(form.second), reduced->by, reduced->size),
           {fmt::format("{} rounds in a row, the last on {}", form.count,
                        shapes_text(asked_.inputs(form.first)))},
           "keep the result of the round before and bring in what is new alone: a running minimum "
           "(best = torch.minimum(best, distance to the newest)), maximum, sum or count; the work "
           "of each round is then that of one element, not of all so far; if all rounds are known "
           "beforehand, cummin, cummax or cumsum computes them at once",
           1 - 2 / static_cast<double>(std::max<int64_t>(2, form.count)), WasteProof::likely);
  }

  // --- Each order of a few parts ---

  // The number of parts that op `i` may reorder: a small dimension of a large tensor; 0 if none.
  int64_t parts_of(size_t i) const {
    const Dims& dims = dims_at(i, 0);
    if (dims.size() < 2 || elements_in(dims) < static_cast<double>(kLeastOrdered)) return 0;
    if (asked_.base(i) == "index_select") {
      const auto dim = whole_argument(asked_.inputs(i), 1);
      const std::vector<TensorShape> read = tensors(i);
      if (!dim || *dim < 0 || *dim >= std::ssize(dims) || read.size() < 2) return 0;
      const int64_t n = dims[static_cast<size_t>(*dim)];
      return read[1].numel() == n && n >= 2 && n <= kMostParts ? n : 0;
    }
    // The places of advanced indexing are not recorded: what follows reads as many elements.
    const size_t j = next(i);
    if (j >= asked_.size() || dims_at(j, 0) != dims) return 0;
    int64_t least = 0;
    for (const int64_t n : std::span(dims).first(dims.size() - 1))
      if (n >= 2 && n <= kMostParts && (least == 0 || n < least)) least = n;
    return least;
  }

  static int64_t orders_of(int64_t parts) {
    int64_t orders = 1;
    for (int64_t n = 2; n <= parts; ++n) orders *= n;
    return orders;
  }

  void find_orders() {
    struct Orders {
      int64_t parts = 0;
      std::map<uint32_t, std::vector<size_t>> by_step;
    };
    std::map<uint64_t, Orders> by_key;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view base = asked_.base(i);
      if ((base != "index" && base != "index_select") || asked_.inputs(i).empty() || !is_forward(i))
        continue;
      const int64_t parts = parts_of(i);
      if (parts == 0) continue;
      Orders& orders = by_key[asked_.key(i)];
      orders.parts = parts;
      orders.by_step[step(i)].push_back(i);
    }
    for (const auto& [key, orders] : by_key) {
      CostlyForm form;
      int64_t per_step = 0;
      for (const auto& [step, calls] : orders.by_step) {
        const auto count = std::ssize(calls);
        if (count < kLeastOrders || count != orders_of(orders.parts)) continue;
        per_step = count;
        const size_t round = calls[1] - calls[0];
        if (round > kOrderWithin) continue;
        if (form.count == 0) form.first = calls.front();
        form.count += count;
        for (size_t i = calls.front(); i < std::min(calls.back() + round, asked_.size()); ++i)
          if (is_forward(i)) take(form, i);
      }
      if (form.count == 0) continue;
      const int64_t n = orders.parts;
      report(WasteKind::each_order, form,
             fmt::format("{} puts the {} parts of {} into each of {} orders, and all of it is "
                         "computed for each",
                         asked_.name(form.first), n, sizes_text(dims_at(form.first, 0)), per_step),
             {times_of(form), "with what follows it, forward and backward"},
             fmt::format(
                 "each order is a sum of pairs: compute the {} x {} pairs once (one batched "
                 "product, or one op on x.unsqueeze(2) and y.unsqueeze(1), reduced to [..., {}, "
                 "{}]), then for each order pick {} numbers (gather with the table of orders), add "
                 "them up and take the best; for more parts "
                 "scipy.optimize.linear_sum_assignment on the pairs",
                 n, n, n, n, n),
             1 - static_cast<double>(n) / static_cast<double>(per_step), WasteProof::likely);
    }
  }
};

}  // namespace

void find_work_again(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Again(asked, places, found).run();
}

}  // namespace epilogue::trace
