// SPDX-License-Identifier: Apache-2.0
// Ops that are linear in what they read: which of two comes first is a choice, and so is how many
// columns or rows the dearer one has.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kNextWithin = 6;     // ops between the two
constexpr int64_t kFewerColumns = 2;  // times as few
constexpr int64_t kFewerRows = 4;

class Columns : AskedSearch {
 public:
  Columns(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    for (size_t i = 0; i + 1 < asked_.size(); ++i) {
      if (const auto spread = spread_dims(i)) add_spread_first(i, *spread);
      if (const auto projected = projected_dims(i)) {
        add_spread_last(i, *projected);
        add_reduced(i, *projected);
      }
    }
    for (const auto& [key, order] : orders_) report(order);
  }

 private:
  // A sparse tensor has sizes and no strides.
  static bool is_sparse_first(std::span<const OpInput> in) {
    return has_sparse(in) && in[0].strides.empty();
  }

  // The result of an op that works on each column alone and costs as much as there are columns: a
  // product with a sparse matrix, rows that are added by index.
  std::optional<Dims> spread_dims(size_t i) const {
    const std::string_view base = asked_.base(i);
    const auto in = asked_.inputs(i);
    const bool is_product = base == "mm" || base == "matmul" || base == "sparse_mm" ||
                            base == "_sparse_mm" || base == "spmm";
    if (is_product) {
      if (in.size() < 2 || in[0].dims.size() != 2 || in[1].dims.size() != 2 || !is_sparse_first(in))
        return std::nullopt;
      return Dims{in[0].dims[0], in[1].dims[1]};
    }
    if (base == "index_add" || base == "scatter_add" || base == "scatter_reduce") {
      if (in.empty() || in[0].dims.size() != 2) return std::nullopt;
      return in[0].dims;
    }
    return std::nullopt;
  }

  struct Projection {
    Dims from;
    Dims to;
    bool has_bias = false;
  };

  // A linear layer or a product with a matrix that is no batch.
  std::optional<Projection> projected_dims(size_t i) const {
    const std::string_view base = asked_.base(i);
    const auto in = asked_.inputs(i);
    if (base != "linear" && base != "mm" && base != "matmul" && base != "addmm")
      return std::nullopt;
    const size_t left = base == "addmm" ? 1 : 0;
    if (in.size() < left + 2 || in[left].dims.size() < 2 || in[left + 1].dims.size() != 2 ||
        has_sparse(in))
      return std::nullopt;
    Projection p{in[left].dims, in[left].dims, false};
    const Dims& weight = in[left + 1].dims;
    p.to.back() = base == "linear" ? weight[0] : weight[1];
    if (p.from.back() != (base == "linear" ? weight[1] : weight[0])) return std::nullopt;
    p.has_bias = base == "addmm" || (base == "linear" && in.size() > 2 && !in[2].dims.empty());
    return p;
  }

  // A view, or a factor that is the same for all columns.
  bool keeps_columns(size_t i, const Dims& dims) const {
    const std::string_view base = asked_.base(i);
    if (asked_.kind(i) == OpClass::view) return true;
    if (base != "mul" && base != "div") return false;
    size_t large = 0;
    for (const TensorShape& t : tensors(i)) {
      if (t.numel() <= 1 || t.dims.back() == 1) continue;
      if (t.dims != dims) return false;
      ++large;
    }
    return large == 1;
  }

  // Rows are spread over a graph, and then projected to fewer columns.
  void add_spread_first(size_t i, const Dims& dims) {
    for (size_t j = i + 1; j < end_of(i, kNextWithin); ++j) {
      if (!asked_.is_same_root(i, j)) return;
      const auto next = projected_dims(j);
      if (!next) {
        // Zeros that are made for it, gathers of other rows, sums of counts.
        if (reads(j, dims) && !keeps_columns(j, dims)) return;
        continue;
      }
      if (next->from != dims) return;
      const int64_t columns = next->to.back();
      if (columns * kFewerColumns > dims.back()) return;
      DearerOrder& order = orders_[{asked_.key(i), asked_.key(j)}];
      const int64_t ns = asked_.take(i, order.times, order.calls);
      order.ns += ns;
      order.saving += static_cast<double>(ns) *
                      (1 - static_cast<double>(columns) /
                               static_cast<double>(std::max<int64_t>(1, dims.back())));
      order.title = fmt::format("{} spreads {} columns, which {} then projects to {}",
                                asked_.name(i), dims.back(), asked_.name(j), columns);
      order.evidence = fmt::format("{}, then {}: both are linear, and each column is spread alone",
                                   shapes_text(asked_.inputs(i)), shapes_text(asked_.inputs(j)));
      order.action = fmt::format(
          "project before spreading: A @ (X @ W) in place of (A @ X) @ W, i.e. the linear layer "
          "first (without its bias, which is added behind), so that {} columns in place of {} go "
          "over the edges",
          columns, dims.back());
      return;
    }
  }

  // A projection to more columns without a bias, and then rows are spread.
  void add_spread_last(size_t i, const Projection& p) {
    if (p.has_bias || p.from.size() != 2 || p.to.back() < kFewerColumns * p.from.back()) return;
    for (size_t j = i + 1; j < end_of(i, kNextWithin); ++j) {
      if (!asked_.is_same_root(i, j)) return;
      const auto in = asked_.inputs(j);
      const auto spread = spread_dims(j);
      if (!spread) {
        if (reads(j, p.to) && !keeps_columns(j, p.to)) return;
        continue;
      }
      if (!is_sparse_first(in) || in[1].dims != p.to) return;
      DearerOrder& order = orders_[{asked_.key(i), asked_.key(j)}];
      const int64_t ns = asked_.take(j, order.times, order.calls);
      order.ns += ns;
      order.saving += static_cast<double>(ns) *
                      (1 - static_cast<double>(p.from.back()) / static_cast<double>(p.to.back()));
      order.title = fmt::format("{} projects to {} columns, which {} then spreads", asked_.name(i),
                                p.to.back(), asked_.name(j));
      order.evidence = fmt::format("{}, then {}: both are linear", shapes_text(asked_.inputs(i)),
                                   shapes_text(in));
      order.action = fmt::format(
          "spread before projecting: (A @ X) @ W in place of A @ (X @ W), so that {} columns in "
          "place of {} go over the edges",
          p.from.back(), p.to.back());
      return;
    }
  }

  // A product whose rows or columns are summed next.
  void add_reduced(size_t i, const Projection& p) {
    if (asked_.base(i) == "linear" && p.to.size() > 2) return;  // pool, then project: excess.cpp
    const size_t j = i + 1;
    const auto in = asked_.inputs(j);
    const std::string_view base = asked_.base(j);
    if ((base != "sum" && base != "mean") || !asked_.is_same_root(i, j) || in.size() < 2 ||
        in[0].dims != p.to || p.to.size() != 2)
      return;
    const std::vector<int64_t> over = numbers_of(in[1].concrete);
    if (over.size() != 1) return;
    const int64_t d = over[0] < 0 ? over[0] + 2 : over[0];
    if (d < 0 || d > 1 || p.to[static_cast<size_t>(d)] < kFewerRows) return;
    DearerOrder& order = orders_[{asked_.key(i), asked_.key(j)}];
    const int64_t ns = asked_.take(i, order.times, order.calls);
    order.ns += ns;
    order.saving +=
        static_cast<double>(ns) * (1 - 1 / static_cast<double>(p.to[static_cast<size_t>(d)]));
    order.title = fmt::format("{} computes {}, of which {} keeps one {} alone", asked_.name(i),
                              sizes_text(p.to), asked_.name(j), d == 0 ? "row" : "column");
    order.evidence = shapes_text(asked_.inputs(i));
    order.action = fmt::format(
        "{} one operand first: (A @ B).sum(0) is A.sum(0) @ B, and (A @ B).sum(1) is A @ B.sum(1)",
        base);
  }

  std::map<std::pair<uint64_t, uint64_t>, DearerOrder> orders_;
};

}  // namespace

void find_column_orders(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Columns(asked, places, found).run();
}

}  // namespace epilogue::trace
