// SPDX-License-Identifier: Apache-2.0
// What reads a result decides which form of it is cheapest: eigenvalues whose logarithms are added
// up, sizes that the next op undoes, frames that are left out, products that a layer reads next,
// triples that are masked, tables of which the batch reads few rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kSwollen = 4;     // times the elements of what comes before and behind
constexpr int64_t kFramesStep = 2;  // of a slice
constexpr int64_t kMostHop = 1 << 30;
constexpr size_t kFramesWithin = 8;    // ops between a transform and its slice
constexpr size_t kTriplesWithin = 8;   // ops on all triples
constexpr int64_t kLeastTriples = 32;  // rows, of which all triples are written
constexpr int64_t kLeastOuter = 16;    // columns of each vector
constexpr int64_t kMostOuter = 1 << 20;
constexpr int64_t kLeastTable = 4096;  // rows
constexpr int64_t kTableTimes = 4;     // as many rows as the batch reads
constexpr size_t kLayerWithin = 3;     // ops from the products to the layer that reads them

// An op, what reads its result, and the form that gives the same for less.
struct ReadForm {
  std::string_view makers;   // separated by spaces
  std::string_view readers;  // one after the other, views left out
  bool is_values;            // the result has a dimension less: one number for each row
  double saving;             // of the time of both
  std::string_view says;     // behind "aten::linalg_eigvalsh of [8, 96, 96]"
  std::string_view action;
};

constexpr std::string_view kEigenvalues = "linalg_eigvalsh linalg_eigvals linalg_eigh linalg_eig";
constexpr std::string_view kValues =
    "linalg_eigvalsh linalg_eigvals linalg_eigh linalg_eig linalg_svdvals linalg_svd";
constexpr std::string_view kLogDeterminant =
    "a factorisation gives the log-determinant without eigenvalues: torch.linalg.slogdet(A)[1], or "
    "of a symmetric positive definite matrix 2 * torch.linalg.cholesky(A).diagonal(dim1=-2, "
    "dim2=-1).log().sum(-1), in a tenth of the time";

constexpr std::string_view kLargest =
    "a few steps of power iteration (v = F.normalize(A.mT @ (A @ v), dim=-2), from the v of the "
    "step before) give the largest singular value, which for a symmetric matrix is the largest "
    "magnitude of its eigenvalues; torch.lobpcg or torch.svd_lowrank gives a few";

constexpr ReadForm kReaders[] = {
    {kValues, "log sum", true, 0.8, "is taken for its values, whose logarithms are added up",
     kLogDeterminant},
    {kValues, "abs log sum", true, 0.8, "is taken for its values, whose logarithms are added up",
     kLogDeterminant},
    {kValues, "prod", true, 0.8, "is taken for its values, which are multiplied",
     "torch.linalg.det(A) (of singular values its absolute value), or slogdet, which does not "
     "overflow: one LU factorisation"},
    {kEigenvalues, "sum", true, 0.95, "is taken for its values, which are added up",
     "the sum of the eigenvalues is the trace: A.diagonal(dim1=-2, dim2=-1).sum(-1)"},
    {"linalg_svdvals linalg_svd", "square sum", true, 0.95,
     "is taken for its values, whose squares are added up",
     "that is the squared Frobenius norm: A.square().sum((-2, -1))"},
    {"linalg_svdvals linalg_svd", "pow sum", true, 0.95,
     "is taken for its values, whose squares are added up",
     "the sum of the squared singular values is the squared Frobenius norm: A.square().sum((-2, "
     "-1))"},
    {kValues, "amax", true, 0.8, "is taken for its values, of which the largest alone is read",
     kLargest},
    {kValues, "max", true, 0.8, "is taken for its values, of which the largest alone is read",
     kLargest},
    {"argsort", "argsort", false, 0.4, "gives an order, which is sorted again for ranks",
     "the second sort is a scatter: ranks = torch.empty_like(order).scatter_(-1, order, "
     "torch.arange(n).expand_as(order)); for a correlation of ranks only that"},
};

bool is_among(std::string_view names, std::string_view name) {
  for (size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' '))
      return true;
  }
  return false;
}

bool is_resize(std::string_view base) {
  return base.starts_with("upsample_") || base.starts_with("_upsample_");
}

class Readers : AskedSearch {
 public:
  Readers(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (asked_.inputs(i).empty() || asked_.kind(i) == OpClass::view || !is_forward(i)) continue;
      const std::string_view base = asked_.base(i);
      if (base.starts_with("linalg_") || base == "argsort") look_for_reader(i);
      if (is_resize(base)) look_for_size(i);
      if (base == "stft") look_for_frames(i);
      if (base == "mul") look_for_layer(i);
      if (base == "square" || base == "pow" || base == "abs") look_for_table(i);
      if (base == "embedding") read_table(i);
      if (asked_.kind(i) == OpClass::pointwise) look_for_triples(i);
    }
    report_readers();
    report_sizes();
    report_frames();
    report_layers();
    report_tables();
    report_triples();
  }

 private:
  // --- Forms that what reads them makes cheaper ---

  // The ops behind `i` that are read one after the other; 0 if they are others.
  size_t last_reader(size_t i, const ReadForm& row) const {
    Dims result = dims_at(i, 0);
    if (row.is_values && !result.empty()) {
      result.pop_back();
      if (!result.empty()) result.back() = std::min(dims_at(i, 0).back(), result.back());
    }
    size_t at = i;
    for (std::string_view rest = row.readers; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      at = next(at);
      if (at >= asked_.size() || asked_.base(at) != rest.substr(0, end) || dims_at(at, 0) != result)
        return 0;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return at;
  }

  void look_for_reader(size_t i) {
    if (dims_at(i, 0).empty()) return;
    for (const ReadForm& row : kReaders) {
      if (!is_among(row.makers, asked_.base(i))) continue;
      const size_t last = last_reader(i, row);
      if (last == 0) continue;
      CostlyForm& form = form_at(readers_, i, last);
      rows_[asked_.key(i)] = &row;
      take(form, i);
      for (size_t j = next(i); j <= last; j = next(j)) take(form, j);
      return;
    }
  }

  void report_readers() {
    for (const auto& [key, form] : readers_) {
      const ReadForm& row = *rows_.at(key);
      report(
          WasteKind::shorter_form, form,
          fmt::format("{} of {} {}", asked_.name(form.first), sizes_text(dims_at(form.first, 0)),
                      row.says),
          {times_of(form), fmt::format("{} reads the result next", asked_.name(next(form.first)))},
          std::string(row.action), row.saving, WasteProof::likely);
    }
  }

  // --- Sizes that come back ---

  // An image is made larger, and the next op makes it smaller again.
  void look_for_size(size_t i) {
    const Dims& from = dims_at(i, 0);
    const size_t j = next(i);
    if (from.size() < 3 || j >= asked_.size()) return;
    const std::string_view base = asked_.base(j);
    const bool is_pool = base.find("pool") != std::string_view::npos;
    if (!is_resize(base) && !is_pool) return;
    const Dims& middle = dims_at(j, 0);
    if (middle.size() != from.size() || middle[0] != from[0] || middle[1] != from[1] ||
        elements_in(middle) < kSwollen * elements_in(from))
      return;
    // How far it goes back: of a size that was recorded, or by the window. In double: the sizes of
    // a broken trace have no bounds.
    double to = 0;
    const auto in = asked_.inputs(j);
    const std::vector<int64_t> sizes =
        in.size() > 1 ? numbers_of(in[1].concrete) : std::vector<int64_t>();
    if (sizes.size() + 2 == middle.size() && (is_resize(base) || base.starts_with("adaptive"))) {
      to = static_cast<double>(middle[0]) * static_cast<double>(middle[1]);
      for (const int64_t size : sizes) to *= static_cast<double>(size);
    } else if (is_pool && !sizes.empty()) {
      to = elements_in(middle);
      for (size_t d = 2; d < middle.size(); ++d)
        to /= std::max(1.0, static_cast<double>(sizes[std::min(d - 2, sizes.size() - 1)]));
    }
    if (to <= 0 || elements_in(middle) < kSwollen * to) return;
    CostlyForm& form = form_at(sizes_, i, j);
    take(form, i);
    take(form, j);
    left_[asked_.key(i)] = std::max(to, elements_in(from)) / elements_in(middle);
  }

  void report_sizes() {
    for (const auto& [key, form] : sizes_)
      report(WasteKind::resized_twice, form,
             fmt::format("{} makes {} of {}, and {} makes that smaller again",
                         asked_.name(form.first), sizes_text(dims_at(form.second, 0)),
                         sizes_text(dims_at(form.first, 0)), asked_.name(form.second)),
             {times_of(form), "one follows the other"},
             "resize once, straight from the first size to the last (F.interpolate(x, size=..., "
             "antialias=True) to shrink), without the large one in between; leave both out if the "
             "sizes are equal",
             1 - left_.at(key), WasteProof::likely);
  }

  // --- Frames that are left out ---

  void look_for_frames(size_t i) {
    const auto in = asked_.inputs(i);
    const auto size = whole_argument(in, 1);
    if (!size || dims_at(i, 0).empty()) return;
    const int64_t bins = *size / 2 + 1;
    std::vector<size_t> with = {i};
    for (size_t j = i + 1; j < end_of(i, kFramesWithin); ++j) {
      const Dims& dims = dims_at(j, 0);
      if (asked_.base(j) == "slice") {
        const auto step_of = whole_argument(asked_.inputs(j), 4);
        auto dim = whole_argument(asked_.inputs(j), 1);
        if (!step_of || *step_of < kFramesStep || *step_of > kMostHop || !dim || dims.size() < 2)
          continue;
        if (*dim < 0) dim = *dim + std::ssize(dims);
        if (*dim < 0 || *dim >= std::ssize(dims) || dims[static_cast<size_t>(*dim)] == bins)
          continue;
        CostlyForm& form = form_at(frames_, i, j);
        for (const size_t w : with) take(form, w);
        steps_[asked_.key(i)] = *step_of;
        return;
      }
      const bool is_alone = is_elementwise(asked_.kind(j));
      if (asked_.kind(j) == OpClass::view) continue;
      if (!is_alone || std::ranges::find(dims, bins) == dims.end()) return;
      with.push_back(j);
    }
  }

  void report_frames() {
    for (const auto& [key, form] : frames_) {
      const int64_t step = steps_.at(key);
      const auto hop = whole_argument(asked_.inputs(form.first), 2);
      report(WasteKind::cut_result, form,
             fmt::format("{} computes {} times the frames that {} keeps", asked_.name(form.first),
                         step, asked_.name(form.second)),
             {times_of(form), "with the ops between them"},
             fmt::format("compute the frames that are read alone: hop_length={} ({} times as far) "
                         "in place of a slice with step {}",
                         hop && *hop < kMostHop ? std::to_string(*hop * step)
                                                : "... * " + std::to_string(step),
                         step, step),
             1 - 1 / static_cast<double>(step), WasteProof::shown);
    }
  }

  // --- Products of two vectors that a layer reads ---

  void look_for_layer(size_t i) {
    const Dims& left = dims_at(i, 0);
    const Dims& right = dims_at(i, 1);
    if (left.size() < 3 || left.size() != right.size() || left.back() != 1 ||
        right[right.size() - 2] != 1)
      return;
    const int64_t n = left[left.size() - 2];
    const int64_t m = right.back();
    if (n < kLeastOuter || m < kLeastOuter || n > kMostOuter || m > kMostOuter) return;
    for (size_t j = i + 1; j < end_of(i, kLayerWithin); ++j) {
      if (asked_.kind(j) == OpClass::view) continue;
      const std::string_view base = asked_.base(j);
      const size_t operand = base == "addmm" ? 1 : 0;
      if ((base != "linear" && base != "mm" && base != "matmul" && base != "addmm") ||
          dims_at(j, operand).empty() || dims_at(j, operand).back() != n * m)
        return;
      CostlyForm& form = form_at(layers_, i, j);
      take(form, i);
      take(form, j);
      return;
    }
  }

  void report_layers() {
    for (const auto& [key, form] : layers_) {
      const Dims& left = dims_at(form.first, 0);
      const int64_t n = left[left.size() - 2];
      const int64_t m = dims_at(form.first, 1).back();
      report(WasteKind::outer_layer, form,
             fmt::format("{} writes all {} x {} products of two vectors for each row, and {} reads "
                         "them",
                         asked_.name(form.first), n, m, asked_.name(form.second)),
             {times_of(form), "with their gradients"},
             fmt::format(
                 "{}give the layer a low rank ((x @ U) * (y @ V) @ W with few columns, as in "
                 "factorised bilinear pooling), or write no products: torch.einsum('bi,oij,bj->bo',"
                 " x, weight.view(-1, {}, {}), y), one product with the weight and a sum",
                 n == m ? fmt::format("of a vector with itself keep half of the products (i <= j: "
                                      "torch.triu_indices({}, {}) once, a layer of {} columns); ",
                                      n, n, n * (n + 1) / 2)
                        : "",
                 n, m),
             std::nullopt, WasteProof::likely);
    }
  }

  // --- Penalties of a whole table ---

  void read_table(size_t i) {
    const Dims& table = dims_at(i, 0);
    if (table.size() != 2 || table[0] < kLeastTable) return;
    double& rows = tables_[table];
    rows = std::max(rows, elements_in(dims_at(i, 1)));
  }

  void look_for_table(size_t i) {
    const Dims& dims = dims_at(i, 0);
    if (dims.size() != 2 || dims[0] < kLeastTable || asked_.sequence(i) < 0) return;
    const size_t j = next(i);
    if (j >= asked_.size() || dims_at(j, 0) != dims ||
        (asked_.base(j) != "sum" && asked_.base(j) != "mean"))
      return;
    CostlyForm& form = form_at(penalties_, i, j);
    take(form, i);
    take(form, j);
  }

  void report_tables() {
    if (!all_.has_backward) return;
    for (const auto& [key, form] : penalties_) {
      const Dims& dims = dims_at(form.first, 0);
      const auto table = tables_.find(dims);
      if (table == tables_.end() || table->second * kTableTimes > static_cast<double>(dims[0]))
        continue;
      report(WasteKind::table_penalty, form,
             fmt::format("a penalty goes over all {} rows of a table, of which the batch reads {} "
                         "at most",
                         dims[0], static_cast<int64_t>(table->second)),
             {times_of(form), "with its gradient, which is a whole table, too"},
             "penalise the rows that were looked up, which are at hand: rows = embedding(ids); "
             "rows.square().sum() (as factorisation methods do it); then sparse=True keeps the "
             "gradient to these rows, too; for the whole table weight_decay of the optimizer, or "
             "every N steps",
             1 - table->second / static_cast<double>(dims[0]), WasteProof::likely);
    }
  }

  // --- All triples ---

  void look_for_triples(size_t i) {
    const auto result = output_shape(asked_.name(i), asked_.inputs(i));
    if (!result || result->dims.size() < 3) return;
    const Dims last(result->dims.end() - 3, result->dims.end());
    if (last[0] < kLeastTriples || last[1] != last[0] || last[2] != last[0]) return;
    const std::vector<TensorShape> read = tensors(i);
    if (read.size() < 2 || std::ranges::any_of(read, [&](const TensorShape& t) {
          return t.repeats <= 1 && t.dims == result->dims;
        }))
      return;
    CostlyForm& form = form_at(triples_, i, i);
    take(form, i);
    for (size_t j = next(i), seen = 0; j < asked_.size() && seen < kTriplesWithin;
         j = next(j), ++seen) {
      if (!is_forward(j)) break;
      if (!reads(j, result->dims)) continue;
      take(form, j);
      form.second = j;
    }
  }

  void report_triples() {
    CostlyForm all;
    for (const auto& [key, form] : triples_) {
      if (form.ns > all.ns) {
        all.first = form.first;
        all.second = form.second;
      }
      all.ns += form.ns;
      all.count += form.count;
      all.calls.insert(all.calls.end(), form.calls.begin(), form.calls.end());
      all.times.add(form.times);
    }
    if (all.count == 0) return;
    const auto result = output_shape(asked_.name(all.first), asked_.inputs(all.first));
    const int64_t n = result->dims.back();
    report(WasteKind::all_triples, all,
           fmt::format("all triples of {} rows are written out: {} makes {}", n,
                       asked_.name(all.first), sizes_text(result->dims)),
           {times_of(all), "with the ops on them, and their gradients"},
           fmt::format(
               "compute the triples that count alone: if a mask of labels keeps few of them, list "
               "these once (mask.nonzero(), before the differences) and gather their distances; "
               "of a triplet loss take for each row the farthest of its class and the nearest of "
               "the others (batch-hard: max and min along the rows of [{}, {}]); sums over the "
               "third index that are linear are products of [{}, {}] matrices; else blocks of rows",
               n, n, n, n),
           std::nullopt, WasteProof::likely);
  }

  Forms readers_, sizes_, frames_, layers_, penalties_, triples_;
  std::map<uint64_t, const ReadForm*> rows_;  // of readers_
  std::map<uint64_t, double> left_;           // of sizes_: the share that stays
  std::map<uint64_t, int64_t> steps_;         // of frames_
  std::map<Dims, double> tables_;             // rows that a batch reads of each
};

}  // namespace

void find_readers(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Readers(asked, places, found).run();
}

}  // namespace epilogue::trace
