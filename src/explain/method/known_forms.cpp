// SPDX-License-Identifier: Apache-2.0
// Chains of ops whose result a shorter one gives: counts, pairs that are summed, phases that come
// back, windows of windows, products of the longer side.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kLeastCountColumns = 4;
constexpr size_t kOnesWithin = 4;     // ops between the ones and the sum that reads them
constexpr size_t kEdgesWithin = 12;   // ops between the rows that are taken and those added
constexpr double kRepeatedEdges = 2;  // times as many as there are pairs
constexpr size_t kPhaseWithin = 8;    // ops between a phase and its exponential
constexpr int64_t kLeastFields = 8;   // of which all pairs are taken
constexpr size_t kPairsWithin = 4;    // ops between the products, the pairs and their sum
constexpr size_t kLeastScales = 3;
constexpr size_t kReceivedWithin = 3;     // ops between a collective and what reduces its result
constexpr size_t kGatheredWithin = 6;     // ops between parts of all ranks and their sum
constexpr int64_t kLeastReduced = 4;      // rows that become one
constexpr int64_t kLeastSide = 128;       // of a square product
constexpr int64_t kLongerSide = 2;        // times the shorter one
constexpr size_t kPolynomialWithin = 12;  // ops from X X^T to the product with X
constexpr int64_t kLeastGroups = 4;

bool is_matmul(std::string_view base) { return base == "matmul" || base == "mm" || base == "bmm"; }

class KnownForms : AskedSearch {
 public:
  KnownForms(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view base = asked_.base(i);
      if (asked_.name(i).starts_with("c10d::")) {
        look_for_reduction(i);
        look_for_rank_sum(i);
      }
      if (asked_.inputs(i).empty() || !is_forward(i)) continue;
      if (base == "index_add" || base == "scatter_add") {
        look_for_count(i);
        look_for_edges(i);
      } else if (base == "angle") {
        look_for_phase(i);
      } else if (base == "index") {
        look_for_fields(i);
      } else if (base == "avg_pool2d" || base == "max_pool2d") {
        look_for_scale(i);
      } else if (is_matmul(base)) {
        look_for_longer_side(i);
        look_for_both_sides(i);
      } else if (base == "mul") {
        look_for_weighted(i);
      }
    }
    report_counts();
    report_edges();
    report_phases();
    report_fields();
    report_scales();
    report_reductions();
    report_rank_sums();
    report_longer_sides();
    report_both_sides();
    report_weighted();
  }

 private:
  // --- Counts ---

  // Writes ones of these sizes.
  bool makes_ones(size_t i, const Dims& dims) const {
    const std::string_view base = asked_.base(i);
    if (base == "ones_like") return dims_at(i, 0) == dims;
    if (base != "ones" && base != "new_ones") return false;
    return std::ranges::any_of(asked_.inputs(i),
                               [&](const OpInput& in) { return in.concrete == sizes_text(dims); });
  }

  void look_for_count(size_t i) {
    const Dims& source = dims_at(i, 3);
    if (source.size() < 2 || source.back() < kLeastCountColumns) return;
    for (size_t back = 1; back <= std::min(kOnesWithin, i); ++back) {
      const size_t j = i - back;
      if (makes_ones(j, source)) {
        CostlyForm& form = form_at(counts_, i, j);
        take(form, j);
        take(form, i);
        return;
      }
      const std::string_view base = asked_.base(j);
      const bool is_filled = base == "zeros" || base == "new_zeros" || base == "zeros_like";
      if (!is_filled && asked_.kind(j) != OpClass::view) return;
    }
  }

  void report_counts() {
    for (const auto& [key, form] : counts_) {
      const Dims& source = dims_at(form.first, 3);
      report(WasteKind::wide_count, form,
             fmt::format("{} adds up ones of {} that {} writes: a count, {} times side by side",
                         asked_.name(form.first), sizes_text(source), asked_.name(form.second),
                         source.back()),
             {times_of(form)},
             fmt::format("count once for all columns: torch.bincount(index, minlength=n), or ones "
                         "of [{}, 1], and divide by that as a column; if the index stays (a fixed "
                         "graph), compute the counts once before training and keep them; a mean in "
                         "one op is index_reduce or scatter_reduce with \"mean\"",
                         source.front()),
             1 - 1 / static_cast<double>(source.back()), WasteProof::shown);
    }
  }

  // --- Edges that are there again and again ---

  void look_for_edges(size_t i) {
    const Dims& into = dims_at(i, 0);
    const Dims& source = dims_at(i, 3);
    if (into.size() != 2 || source.size() != 2) return;
    for (size_t back = 1; back <= std::min(kEdgesWithin, i); ++back) {
      const size_t j = i - back;
      const std::string_view base = asked_.base(j);
      if (base != "index_select" && base != "index" && base != "embedding") continue;
      const Dims& from = dims_at(j, 0);
      if (from.size() != 2 || !reads(j, {source[0]})) continue;
      const double pairs = static_cast<double>(from[0]) * static_cast<double>(into[0]);
      if (static_cast<double>(source[0]) < kRepeatedEdges * pairs) return;
      CostlyForm& form = form_at(edges_, i, j);
      for (size_t k = j; k <= i; ++k)
        if (k == j || k == i || reads(k, source)) take(form, k);
      return;
    }
  }

  void report_edges() {
    for (const auto& [key, form] : edges_) {
      const int64_t rows = dims_at(form.first, 3)[0];
      const int64_t into = dims_at(form.first, 0)[0];
      const int64_t from = dims_at(form.second, 0)[0];
      report(WasteKind::parallel_edges, form,
             fmt::format("{} adds {} rows that {} takes of {} to {}: there are {} pairs at most",
                         asked_.name(form.first), rows, asked_.name(form.second), from, into,
                         from * into),
             {times_of(form), fmt::format("at least {:.0f} % of the edges are there again",
                                          100 - 100.0 * static_cast<double>(from * into) /
                                                    static_cast<double>(rows))},
             fmt::format("if what goes along an edge depends on its two ends alone, merge parallel "
                         "edges once when the graph is made (unique of the pairs with "
                         "return_counts, or coalesce()) and multiply each by its count; or keep "
                         "the counts as one matrix of [{}, {}] and multiply by that; edges with "
                         "values of their own: add up their values first, where the sum is linear "
                         "in them",
                         into, from),
             1 - static_cast<double>(from * into) / static_cast<double>(rows), WasteProof::likely);
    }
  }

  // --- Phases that come back ---

  static bool is_complex(const OpInput& in) {
    return in.type.find("complex") != std::string_view::npos;
  }

  void look_for_phase(size_t i) {
    const auto in = asked_.inputs(i);
    const Dims& dims = in[0].dims;
    if (!is_complex(in[0]) || dims.empty()) return;
    std::vector<size_t> with = {i};
    for (size_t j = i + 1; j < end_of(i, kPhaseWithin); ++j) {
      const std::string_view base = asked_.base(j);
      const auto read = asked_.inputs(j);
      if (read.empty() || !reads(j, dims)) continue;
      // Phases that are changed are others: of a vocoder, for instance.
      if (base == "add" || base == "sub" || base == "cumsum" || base == "remainder" ||
          base == "diff" || base == "unwrap" || base == "slice")
        return;
      if ((base == "mul" || base == "div") && read.size() > 1 && read[1].dims.empty()) {
        if (!is_complex(read[1])) return;
        with.push_back(j);
      }
      const bool is_exp = base == "exp" && is_complex(read[0]);
      if (!is_exp && base != "polar") continue;
      with.push_back(j);
      CostlyForm& form = form_at(phases_, i, j);
      for (const size_t w : with) take(form, w);
      return;
    }
  }

  void report_phases() {
    for (const auto& [key, form] : phases_)
      report(WasteKind::phase_apart, form,
             fmt::format("{} takes the phase of {}, which {} puts back unchanged",
                         asked_.name(form.first), sizes_text(dims_at(form.first, 0)),
                         asked_.name(form.second)),
             {times_of(form), "no op adds to the phase in between"},
             "multiply the complex spectrum itself: spectra * mask scales magnitudes and keeps "
             "phases, without angle and exp(1j * phase); for a new magnitude spectra * (magnitude "
             "/ spectra.abs().clamp(min=eps)), or torch.polar where the phase is a new one",
             0.9, WasteProof::likely);
  }

  // --- Pairs of fields ---

  void look_for_fields(size_t i) {
    const Dims& dims = dims_at(i, 0);
    if (dims.size() != 3 || dims[1] != dims[2] || dims[1] < kLeastFields) return;
    const int64_t n = dims[1];
    const size_t sum = next(i);
    if (sum >= asked_.size() || asked_.base(sum) != "sum") return;
    const Dims& picked = dims_at(sum, 0);
    if (picked.size() != 2 || picked[0] != dims[0] ||
        (picked[1] != n * (n - 1) / 2 && picked[1] != n * (n + 1) / 2))
      return;
    for (size_t back = 1; back <= std::min(kPairsWithin, i); ++back) {
      const size_t j = i - back;
      if (!is_matmul(asked_.base(j))) continue;
      const Dims& left = dims_at(j, 0);
      if (left.size() != 3 || left[0] != dims[0] || left[1] != n) return;
      CostlyForm& form = form_at(fields_, i, sum);
      take(form, j);
      take(form, i);
      take(form, sum);
      return;
    }
  }

  void report_fields() {
    for (const auto& [key, form] : fields_) {
      const Dims& dims = dims_at(form.first, 0);
      report(WasteKind::gram_pairs, form,
             fmt::format("{} picks {} pairs of all products {}, and {} adds them up",
                         asked_.name(form.first), dims_at(form.second, 0)[1], sizes_text(dims),
                         asked_.name(form.second)),
             {times_of(form), "with their gradients"},
             "the sum over all pairs needs no pairs: half of (the square of the sum of the vectors "
             "minus the sum of their squares), (v.sum(1).square() - v.square().sum(1)).sum(1) / 2, "
             "as in factorisation machines; if each pair has a weight of its own, (weight * "
             "products) with zeros below the diagonal and one sum, without an index",
             std::nullopt, WasteProof::likely);
    }
  }

  // --- Windows of windows ---

  struct Scales {
    std::map<int64_t, std::vector<size_t>> calls;  // by the window
  };

  void look_for_scale(size_t i) {
    const auto in = asked_.inputs(i);
    if (in.size() < 4 || in[0].dims.size() < 3) return;
    const std::vector<int64_t> window = numbers_of(in[1].concrete);
    const std::vector<int64_t> stride = numbers_of(in[2].concrete);
    const std::vector<int64_t> padding = numbers_of(in[3].concrete);
    const bool is_square = !window.empty() && window.front() == window.back();
    const bool is_padded = std::ranges::any_of(padding, [](int64_t size) { return size != 0; });
    if (!is_square || window.front() < 2 || is_padded || (!stride.empty() && stride != window))
      return;
    for (const int64_t size : std::span(in[0].dims).last(2))
      if (size % window.front() != 0) return;
    scales_[{step(i), asked_.base(i), in[0].dims}].calls[window.front()].push_back(i);
  }

  void report_scales() {
    Forms forms;
    for (const auto& [of, its] : scales_) {
      int64_t before = 0;
      bool is_chain = its.calls.size() >= kLeastScales;
      for (const auto& [window, calls] : its.calls) {
        is_chain = is_chain && (before == 0 || window % before == 0);
        before = window;
      }
      if (!is_chain) continue;
      const std::vector<size_t>& first = its.calls.begin()->second;
      for (auto scale = std::next(its.calls.begin()); scale != its.calls.end(); ++scale)
        for (const size_t i : scale->second) {
          CostlyForm& form = form_at(forms, first.front(), scale->second.front());
          take(form, i);
        }
    }
    for (const auto& [key, form] : forms) {
      const int64_t smallest = numbers_of(asked_.inputs(form.first)[1].concrete).front();
      const int64_t largest = numbers_of(asked_.inputs(form.second)[1].concrete).front();
      report(WasteKind::pooled_again, form,
             fmt::format("{} reads {} again for each window from {} to {}, each a multiple of the "
                         "one before",
                         asked_.name(form.first), sizes_text(dims_at(form.first, 0)), smallest,
                         largest),
             {fmt::format("{} beside those of the smallest window, with their gradients",
                          counted(form.count, "call", "calls"))},
             "pool the scale before in place of the full image: windows without overlap give the "
             "same numbers one after the other (kernel 2 again and again), from a quarter of the "
             "pixels or less each time, forward and backward",
             1 - 1 / static_cast<double>(smallest * smallest), WasteProof::shown);
    }
  }

  // --- What is received is reduced ---

  void look_for_reduction(size_t i) {
    if (asked_.name(i).find("alltoall") == std::string_view::npos &&
        asked_.name(i).find("allgather") == std::string_view::npos)
      return;
    const std::vector<TensorShape> moved = tensors(i);
    if (moved.empty() || moved[0].dims.size() < 3) return;
    const Dims& received = moved[0].dims;
    for (size_t j = i + 1; j < end_of(i, kReceivedWithin); ++j) {
      const auto in = asked_.inputs(j);
      if (in.empty() || in[0].dims != received) continue;
      if (asked_.kind(j) == OpClass::view) continue;
      const std::string_view base = asked_.base(j);
      if ((base != "sum" && base != "mean" && base != "amax") || in.size() < 2) return;
      const auto rank = static_cast<int64_t>(received.size());
      int64_t rows = 1;
      const std::vector<int64_t> over = numbers_of(in[1].concrete);
      for (int64_t d : over) {
        if (d < 0) d += rank;
        if (d <= 0 || d >= rank) return;  // over the ranks, too
        rows *= received[static_cast<size_t>(d)];
      }
      if (over.empty() || rows < kLeastReduced) return;
      CostlyForm& form = form_at(reductions_, i, j);
      take(form, i);
      take(form, j);
      reduced_[asked_.key(i)] = rows;
      return;
    }
  }

  // The parts of all ranks are gathered, to be added up.
  void look_for_rank_sum(size_t i) {
    if (asked_.name(i).find("allgather") == std::string_view::npos) return;
    const std::vector<TensorShape> moved = tensors(i);
    bool is_joined = false;
    for (size_t j = i + 1; j < end_of(i, kGatheredWithin); ++j) {
      const auto in = asked_.inputs(j);
      if (asked_.kind(j) == OpClass::view || in.empty()) continue;
      const std::string_view base = asked_.base(j);
      if (base == "stack") {
        is_joined = true;
        continue;
      }
      const bool is_whole = !moved.empty() && in[0].dims == moved[0].dims;
      if ((base != "sum" && base != "mean") || in.size() < 2 || (!is_joined && !is_whole)) {
        if (asked_.name(j).starts_with("c10d::")) continue;
        return;
      }
      const std::vector<int64_t> over = numbers_of(in[1].concrete);
      if (over.size() != 1 || over[0] != 0 || in[0].dims.size() < 2) return;
      CostlyForm& form = form_at(rank_sums_, i, j);
      take(form, i);
      for (size_t k = i + 1; k <= j; ++k) take(form, k);
      return;
    }
  }

  void report_rank_sums() {
    for (const auto& [key, form] : rank_sums_)
      report(WasteKind::late_reduction, form,
             fmt::format("{} gathers the tensors of all ranks, which {} adds up: {}",
                         asked_.name(form.first), asked_.name(form.second),
                         sizes_text(dims_at(form.second, 0))),
             {counted(form.count, "time", "times")},
             "all_reduce adds them up on the way (ReduceOp.AVG or a division for the mean): each "
             "rank sends and keeps one tensor, not one of each rank; where each rank reads its own "
             "part of the sum, reduce_scatter",
             std::nullopt, WasteProof::likely);
  }

  void report_reductions() {
    for (const auto& [key, form] : reductions_) {
      const int64_t rows = reduced_.at(key);
      report(WasteKind::late_reduction, form,
             fmt::format("{} receives {}, of which {} makes one row of {} each",
                         asked_.name(form.first), sizes_text(tensors(form.first)[0].dims),
                         asked_.name(form.second), rows),
             {counted(form.count, "time", "times")},
             fmt::format("reduce before the exchange, on the rank that owns the rows (pool first: "
                         "mean or sum there, or F.embedding_bag), and send the results: 1 / {} of "
                         "the bytes; a mean over rows of several ranks sends sums and counts",
                         rows),
             std::nullopt, WasteProof::likely);
    }
  }

  // --- The longer side ---

  // The last two sizes of a matrix, or of a batch of them.
  static std::pair<int64_t, int64_t> sides(const Dims& dims) {
    if (dims.size() < 2) return {0, 0};
    return {dims[dims.size() - 2], dims.back()};
  }

  // X X^T of tall matrices, products of that alone, and then with X: as good from the other side.
  void look_for_longer_side(size_t i) {
    const auto [rows, inner] = sides(dims_at(i, 0));
    const auto [columns_in, columns] = sides(dims_at(i, 1));
    if (rows < kLeastSide || rows != columns || inner != columns_in || rows < kLongerSide * inner)
      return;
    std::vector<size_t> with = {i};
    bool has_square = false;
    for (size_t j = i + 1; j < end_of(i, kPolynomialWithin); ++j) {
      if (asked_.kind(j) == OpClass::view) continue;
      const std::string_view base = asked_.base(j);
      const auto left = sides(dims_at(j, 0));
      const auto right = sides(dims_at(j, 1));
      const std::pair<int64_t, int64_t> square{rows, rows};
      if (left != square && right != square) continue;
      if (is_matmul(base) || base == "addmm" || base == "baddbmm") {
        with.push_back(j);
        if (left == square && right == square) {
          has_square = true;
          continue;
        }
        if (left != square || right != std::pair{rows, inner} || !has_square) return;
        CostlyForm& form = form_at(longer_, i, j);
        for (const size_t w : with) take(form, w);
        return;
      }
      // Numbers times the products, and their sums. Whatever else it is does not commute.
      const bool is_scaled = (base == "mul" || base == "div") && right.first == 0;
      const bool is_sum = (base == "add" || base == "sub") && has_square;
      if (!is_scaled && !is_sum) return;
      with.push_back(j);
    }
  }

  void report_longer_sides() {
    CostlyForm all;
    int64_t saving = 0;
    int64_t dearest = 0;
    for (const auto& [key, form] : longer_) {
      const auto [rows, inner] = sides(dims_at(form.first, 0));
      if (all.count == 0 || form.ns > dearest) {
        all.first = form.first;
        all.second = form.second;
        dearest = form.ns;
      }
      all.count += form.count;
      all.ns += form.ns;
      all.calls.insert(all.calls.end(), form.calls.begin(), form.calls.end());
      all.times.add(form.times);
      saving += form.ns - form.ns * inner / rows;
    }
    if (all.count == 0) return;
    const auto [rows, inner] = sides(dims_at(all.first, 0));
    report_saving(
        WasteKind::longer_side, all,
        fmt::format("{} of {} by {} makes {} x {}, whose products go back to {} x {}",
                    asked_.name(all.first), sizes_text(dims_at(all.first, 0)),
                    sizes_text(dims_at(all.first, 1)), rows, rows, rows, inner),
        {times_of(all), "the products are scaled, added and multiplied alone"},
        fmt::format("use the shorter side: p(X X^T) X is X p(X^T X), so transpose a matrix with "
                    "more rows than columns before the iteration and the result back; the "
                    "products are then {} x {} (Newton-Schulz, Muon, whitening)",
                    inner, inner),
        saving, WasteProof::likely);
  }

  // --- A matrix from both sides ---

  // Products among its ops and those of its nodes.
  int64_t products_of(size_t i) const {
    OpTimes times;
    std::vector<uint32_t> calls, within;
    asked_.take(i, times, calls, &within);
    return std::ranges::count_if(within, [&](uint32_t at) {
      return all_.name(at) == "aten::mm" || all_.name(at) == "aten::bmm";
    });
  }

  void look_for_both_sides(size_t i) {
    const Dims& dims = dims_at(i, 0);
    const auto [rows, columns] = sides(dims);
    if (rows < kLeastSide || rows != columns || dims_at(i, 1) != dims) return;
    const size_t j = next(i);
    if (j >= asked_.size() || !is_matmul(asked_.base(j)) || dims_at(j, 0) != dims ||
        dims_at(j, 1) != dims || asked_.sequence(i) < 0 || asked_.sequence(j) < 0)
      return;
    // One of two operands has a gradient: the other is no weight.
    if (products_of(i) != 2 || products_of(j) != 2) return;
    CostlyForm& form = form_at(sandwiches_, i, j);
    take(form, i);
    take(form, j);
  }

  void report_both_sides() {
    for (const auto& [key, form] : sandwiches_)
      report(WasteKind::two_sided_product, form,
             fmt::format("{} multiplies {} from two sides by matrices that get no gradient",
                         asked_.name(form.first), sizes_text(dims_at(form.first, 0))),
             {times_of(form), "with their gradients",
              "a loss if these matrices have a form: centring, a permutation, few rows apart"},
             "if the matrix centres (I - 1 / n), subtract the means: k - k.mean(0) - k.mean(1, "
             "keepdim=True) + k.mean(); a diagonal one scales rows and columns, a permutation "
             "indexes them, I - U U^T of few columns is k - U @ (U.T @ k), a sparse one is "
             "torch.sparse.mm; if both sides of a sum are multiplied (trace(H K H L)), one side "
             "does, and the constant one once",
             std::nullopt, WasteProof::question);
  }

  // --- Rows that are weighed for each ---

  // [B, N, 1] times [N, D], and a product that sums over N.
  void look_for_weighted(size_t i) {
    if (asked_.inputs(i).size() < 2) return;
    Dims weights = dims_at(i, 0);
    Dims rows = dims_at(i, 1);
    if (rows.size() == 3) std::swap(weights, rows);
    if (weights.size() != 3 || weights[2] != 1 || rows.size() != 2 || rows[0] != weights[1] ||
        weights[0] < kLeastGroups || rows[1] < kLeastGroups || rows[0] < kLeastSide)
      return;
    const int64_t batch = weights[0], summed = weights[1], width = rows[1];
    const size_t j = next(i);
    if (j >= asked_.size() || !is_matmul(asked_.base(j))) return;
    if (dims_at(j, 0) != Dims{batch, width, summed} && dims_at(j, 1) != Dims{batch, summed, width})
      return;
    CostlyForm& form = form_at(weighted_, i, j);
    take(form, i);
    take(form, j);
  }

  void report_weighted() {
    for (const auto& [key, form] : weighted_) {
      const bool is_swapped = dims_at(form.first, 1).size() == 3;
      const Dims& weights = dims_at(form.first, is_swapped ? 1 : 0);
      const Dims& rows = dims_at(form.first, is_swapped ? 0 : 1);
      report(WasteKind::weighted_rows, form,
             fmt::format("{} weighs all rows of {} for each of {}, and {} sums their products",
                         asked_.name(form.first), sizes_text(rows), weights[0],
                         asked_.name(form.second)),
             {times_of(form), "a loss if most of the weights are equal"},
             "if the weights differ from one number for few rows alone (items seen, points in "
             "reach), compute rows.T @ rows once for all, and add to it the weighted products of "
             "those few, gathered by index (their weight less that number); if the others weigh "
             "nothing, gather the few; else go through the batch in blocks that fit the cache",
             std::nullopt, WasteProof::question);
    }
  }

  Forms counts_, edges_, phases_, fields_, reductions_, rank_sums_, longer_, sandwiches_, weighted_;
  std::map<uint64_t, int64_t> reduced_;  // rows that become one, of reductions_
  std::map<std::tuple<uint32_t, std::string_view, Dims>, Scales> scales_;
};

}  // namespace

void find_known_forms(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  KnownForms(asked, places, found).run();
}

}  // namespace epilogue::trace
