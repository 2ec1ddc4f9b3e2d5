// SPDX-License-Identifier: Apache-2.0
// Results of which a part is read: rows that a gather leaves out behind layers, a direction of a
// recurrent layer that is read at one step, a table that is spread over pairs before a product,
// points of a large image that a small one is sampled at.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "base/units.h"
#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr double kLeftShare = 0.5;     // of the rows, which is read at most
constexpr size_t kLayersBefore = 400;  // ops before a gather
constexpr size_t kOthersBetween = 6;   // ops on other sizes in a row
constexpr size_t kAllReadWithin = 24;  // ops that may read all rows
constexpr int64_t kLeastRows = 8;      // of which a part is read
constexpr size_t kLeastProducts = 3;   // layers before the gather
constexpr size_t kStepWithin = 8;      // ops between a recurrent layer and its reader
constexpr int64_t kLeastSteps = 8;     // of a recurrent layer
constexpr int64_t kSpread = 4;         // pairs for each row of a table
constexpr int64_t kManyIds = 4096;     // ids
constexpr size_t kSpreadWithin = 4;    // ops between the ids and the product
constexpr int64_t kOversampled = 16;   // points for each pixel
constexpr int64_t kLeastMeeting = 8;   // of each of two sides that meet
constexpr size_t kScaledWithin = 4;    // ops between a sum and its exponential
constexpr size_t kSampledWithin = 6;   // ops on the samples

constexpr std::array<std::string_view, 4> kRecurrent = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

// Ops within which rows may read each other, attention left out.
constexpr std::array<std::string_view, 13> kMixers = {
    "_convolution", "sum", "mean",       "max",           "amax", "cumsum",   "roll",
    "flip",         "mv",  "batch_norm", "instance_norm", "sort", "index_add"};

class ReadParts : AskedSearch {
 public:
  ReadParts(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::string_view base = asked_.base(i);
      const bool is_rows = base == "gather" || base == "index_select" || base == "take_along_dim";
      const bool is_table = base == "embedding" || base == "index" || base == "index_select";
      const bool is_sum = base == "add" || base == "sub";
      if (!is_rows && !is_table && !is_sum && !is_one(kRecurrent, base) &&
          !base.starts_with("grid_sampler"))
        continue;
      if (asked_.inputs(i).empty() || !is_forward(i)) continue;
      if (is_sum) look_for_exponential(i);
      if (is_rows) look_for_rows(i);
      if (is_table) look_for_pairs(i);
      if (is_one(kRecurrent, base)) look_for_direction(i);
      if (base.starts_with("grid_sampler")) look_for_points(i);
    }
    report_rows();
    report_directions();
    report_pairs();
    report_points();
    report_exponentials();
  }

 private:
  // --- Exponentials of a sum of two sides ---

  // Rows and columns: each operand has a dimension of 1 where the other has many.
  static bool are_two_sides(const Dims& a, const Dims& b) {
    if (a.size() < 2 || a.size() != b.size()) return false;
    bool has_a = false;
    bool has_b = false;
    for (size_t d = 0; d < a.size(); ++d) {
      has_a = has_a || (a[d] >= kLeastMeeting && b[d] == 1);
      has_b = has_b || (b[d] >= kLeastMeeting && a[d] == 1);
    }
    return has_a && has_b;
  }

  void look_for_exponential(size_t i) {
    const Dims& a = dims_at(i, 0);
    const Dims& b = dims_at(i, 1);
    if (!are_two_sides(a, b)) return;
    const auto sum = output_shape(asked_.name(i), asked_.inputs(i));
    if (!sum) return;
    std::vector<size_t> with = {i};
    for (size_t j = next(i), seen = 0; j < asked_.size() && seen < kScaledWithin;
         j = next(j), ++seen) {
      const std::string_view base = asked_.base(j);
      const std::vector<TensorShape> read = tensors(j);
      if (read.empty() || read[0].dims != sum->dims || !is_forward(j)) return;
      with.push_back(j);
      if (base == "exp") {
        CostlyForm& form = form_at(exponentials_, i, j);
        for (const size_t w : with) take(form, w);
        return;
      }
      // Scaled by a number alone.
      const bool is_scaled = base == "mul" || base == "div" || base == "neg";
      if (!is_scaled || (read.size() > 1 && read[1].numel() > 1)) return;
    }
  }

  void report_exponentials() {
    for (const auto& [key, form] : exponentials_) {
      const Dims& a = dims_at(form.first, 0);
      const Dims& b = dims_at(form.first, 1);
      report(WasteKind::shorter_form, form,
             fmt::format("{} of {} goes over a sum of {} and {}: an exponential of a sum is a "
                         "product",
                         asked_.name(form.second), sizes_text(dims_at(form.second, 0)),
                         sizes_text(a), sizes_text(b)),
             {times_of(form), "with the sum, and its gradients"},
             "take the exponential of each side before they meet (exp(a) * exp(b), or exp(a) / "
             "exp(b) of a difference): few exponentials and one multiplication of the whole; if "
             "the products are added up next, one matrix product (matmul or einsum of the two "
             "sides) writes none of them",
             std::nullopt, WasteProof::likely);
    }
  }

  // --- Rows that layers compute and a gather leaves out ---

  struct Layers : CostlyForm {
    Dims dims;
    int64_t taken = 0;
    size_t products = 0;
    bool mixes = false;      // attention: rows read each other
    bool is_masked = false;  // under a mask of the program
    bool is_causal = false;
    bool has_others = false;  // what mixes rows in another way
  };

  // Rows of dimension 1 that it takes; 0 if it takes none.
  int64_t rows_taken(size_t i) const {
    const Dims& from = dims_at(i, 0);
    const std::vector<TensorShape> read = tensors(i);
    if (from.size() != 3 || read.size() < 2) return 0;
    if (asked_.base(i) == "index_select")
      return whole_argument(asked_.inputs(i), 1) == 1 ? read[1].numel() : 0;
    const Dims& ids = read[1].dims;
    return ids.size() == 3 && ids[0] == from[0] && ids[2] == from[2] ? ids[1] : 0;
  }

  void look_at_layer(size_t j, int64_t rows, Layers& layers) const {
    const std::string_view base = asked_.base(j);
    const auto in = asked_.inputs(j);
    if (base == "scaled_dot_product_attention") {
      layers.mixes = true;
      layers.is_masked = layers.is_masked || !dims_at(j, 3).empty();
      layers.is_causal = layers.is_causal || (in.size() > 5 && in[5].concrete == "True");
    } else if (base == "masked_fill" && dims_at(j, 0).size() > 2) {
      layers.is_masked = true;
    } else if (base == "bmm" || base == "matmul" || base == "einsum") {
      layers.mixes = layers.mixes || dims_at(j, 1).size() > 2 || base == "einsum";
    } else if (is_convolution(base) || is_one(kMixers, base) || is_one(kRecurrent, base) ||
               (base == "linear" && dims_at(j, 0).back() == rows)) {
      layers.has_others = true;
    }
    if (base == "linear" || base == "addmm" || base == "mm") ++layers.products;
  }

  // It reads the rows of [batch, rows, ...], in whichever form: tokens, tokens by heads, flat.
  bool reads_rows(size_t j, int64_t batch, int64_t rows) const {
    for (const TensorShape& t : tensors(j)) {
      const Dims& dims = t.dims;
      if (dims.size() < 2) continue;
      if (dims[0] == batch && std::ranges::find(dims.begin() + 1, dims.end(), rows) != dims.end())
        return true;
      if (static_cast<double>(dims[0]) == static_cast<double>(batch) * static_cast<double>(rows))
        return true;
    }
    return false;
  }

  bool are_read_behind(size_t i) const {
    const Dims& dims = dims_at(i, 0);
    for (size_t k = i + 1; k < end_of(i, kAllReadWithin); ++k) {
      const std::string_view base = asked_.base(k);
      if (!is_forward(k) || step(k) != step(i) || base == "cat" || base.starts_with("scatter"))
        return false;
      if (reads(k, dims) && base != asked_.base(i)) return true;
    }
    return false;
  }

  void look_for_rows(size_t i) {
    const Dims& from = dims_at(i, 0);
    const int64_t taken = rows_taken(i);
    if (taken < 1 || from[1] < kLeastRows ||
        static_cast<double>(taken) > kLeftShare * static_cast<double>(from[1]))
      return;
    if (const auto known = rows_.find(asked_.key(i)); known == rows_.end() && are_read_behind(i))
      return;
    Layers layers;
    std::vector<size_t> with;
    size_t others = 0;
    for (size_t back = 1; back <= std::min(kLayersBefore, i) && others <= kOthersBetween; ++back) {
      const size_t j = i - back;
      if (step(j) != step(i) || !is_forward(j)) break;
      if (asked_.kind(j) == OpClass::view) continue;
      if (!reads_rows(j, from[0], from[1])) {
        ++others;
        continue;
      }
      others = 0;
      with.push_back(j);
      look_at_layer(j, from[1], layers);
    }
    if (layers.products < kLeastProducts || layers.has_others) return;
    // Rows that all read each other are needed; of a causal one each row reads those before.
    const bool is_last = taken == 1 && layers.is_causal;
    if (layers.mixes && !layers.is_masked && !(is_last && from[0] % from[1] == 0)) return;
    if (layers.mixes && !layers.is_masked && !all_.has_backward) return;
    Layers& form = rows_[asked_.key(i)];
    if (form.count++ == 0) {
      static_cast<CostlyForm&>(layers) = CostlyForm{.first = i, .second = i};
      layers.count = 1;
      layers.dims = from;
      layers.taken = taken;
      form = layers;
    }
    for (const size_t j : with) take(form, j);
  }

  void report_rows() {
    for (const auto& [key, form] : rows_) {
      const int64_t rows = form.dims[1];
      const double share = static_cast<double>(form.taken) / static_cast<double>(rows);
      const std::string first =
          fmt::format("gather these {} rows before the first of the layers", form.taken);
      std::string action;
      if (!form.mixes) {
        action =
            fmt::format("the layers compute each row alone: {}, and leave the others out", first);
      } else if (form.is_masked) {
        action = fmt::format(
            "if the mask hides the rows that are left out (hidden patches, padding): {}, so that "
            "the layers run on {} of {} rows and need no mask; if they are read as keys and "
            "values, take the rows before the last layer's queries and MLP",
            first, form.taken, rows);
      }
      if (form.is_causal && form.taken == 1) {
        if (!action.empty()) action += "; ";
        action += fmt::format(
            "if rows of the batch are prefixes of the same sequences (one for each target): one "
            "causal pass over each whole sequence gives the outputs of all its places, so predict "
            "the next item at every place; {} sequences in place of {}",
            std::max<int64_t>(1, form.dims[0] / rows), form.dims[0]);
      }
      report(WasteKind::left_rows, form,
             fmt::format("layers compute {}, of which {} reads {} of {} rows",
                         sizes_text(form.dims), asked_.name(form.first), form.taken, rows),
             {fmt::format("{} products on these rows before it{}", form.products,
                          form.is_masked   ? ", attention under a mask"
                          : form.is_causal ? ", causal attention"
                                           : ""),
              "nothing else reads the others"},
             action, form.mixes ? std::nullopt : std::optional(1 - share),
             form.mixes ? WasteProof::question : WasteProof::likely);
    }
  }

  // --- A direction of a recurrent layer that is read at one step ---

  // Arguments of a recurrent layer.
  static constexpr size_t kLayers = 4, kBidirectional = 7, kBatchFirst = 8;

  // The dimension of its input that is time.
  static size_t time_of(std::span<const OpInput> in) {
    return in[kBatchFirst].concrete == "True" ? 1 : 0;
  }

  void look_for_direction(size_t i) {
    const auto in = asked_.inputs(i);
    const Dims& from = dims_at(i, 0);
    if (in.size() <= kBatchFirst || from.size() != 3 || in[kBidirectional].concrete != "True")
      return;
    const size_t time = time_of(in);
    if (from[time] < kLeastSteps) return;
    size_t reader = 0;
    for (size_t j = i + 1; j < end_of(i, kStepWithin); ++j) {
      const Dims& dims = dims_at(j, 0);
      if (asked_.key(j) == asked_.key(i)) break;
      if (dims.size() != 3 || dims[0] != from[0] || dims[1] != from[1]) continue;
      const auto dim = whole_argument(asked_.inputs(j), 1);
      const auto place = whole_argument(asked_.inputs(j), 2);
      if (asked_.base(j) == "slice" && whole_argument(asked_.inputs(j), 2).value_or(0) == 0 &&
          dim != static_cast<int64_t>(time))
        continue;  // x[:, -1] slices all rows first
      const bool is_end = place == 0 || place == -1 || place == from[time] - 1;
      if (asked_.base(j) != "select" || dim != static_cast<int64_t>(time) || !is_end) return;
      reader = j;
    }
    if (reader == 0) return;
    take(form_at(directions_, i, reader), i);
  }

  void report_directions() {
    for (const auto& [key, form] : directions_) {
      const auto in = asked_.inputs(form.first);
      const int64_t steps = in[0].dims[time_of(in)];
      const int64_t layers = std::max<int64_t>(1, whole_argument(in, kLayers).value_or(1));
      const bool is_first = whole_argument(asked_.inputs(form.second), 2) == 0;
      report(WasteKind::cut_result, form,
             fmt::format("{} runs both directions over {} steps, of which {} reads the {}: the {} "
                         "direction has made one step there",
                         asked_.name(form.first), steps, asked_.name(form.second),
                         is_first ? "first" : "last", is_first ? "forward" : "reverse"),
             {times_of(form)},
             fmt::format(
                 "bidirectional=False if that direction says nothing there; its one step alone "
                 "(the {} cell on the {} input, nn.LSTMCell or nn.GRUCell with its weights) gives "
                 "the same numbers; if a summary of the whole sequence is meant, read the last "
                 "states of both directions (h_n[-2] and h_n[-1]) in place of the {} output",
                 is_first ? "forward" : "reverse", is_first ? "first" : "last",
                 is_first ? "first" : "last"),
             0.5 / static_cast<double>(layers), WasteProof::shown);
    }
  }

  // --- Tables that are spread over pairs ---

  void look_for_pairs(size_t i) {
    const Dims& table = dims_at(i, 0);
    const std::vector<TensorShape> read = tensors(i);
    if (table.size() != 2 || table[1] < 2 || read.size() < 2 || read[1].type == "bool") return;
    const Dims& ids = read[1].dims;
    if (ids.size() != 2 || elements_in(ids) < static_cast<double>(kManyIds) ||
        static_cast<double>(table[0]) > static_cast<double>(ids[0]) + static_cast<double>(ids[1]) ||
        elements_in(ids) < static_cast<double>(kSpread) * static_cast<double>(table[0]))
      return;
    const double numel = elements_in(ids) * static_cast<double>(table[1]);
    for (size_t j = i + 1; j < end_of(i, kSpreadWithin); ++j) {
      const std::string_view base = asked_.base(j);
      const bool is_product = base == "einsum" || base == "bmm" || base == "matmul";
      const bool is_read = std::ranges::any_of(tensors(j), [&](const TensorShape& t) {
        return t.dims.size() >= 3 && elements_in(t.dims) == numel &&
               std::ranges::find(t.dims, table[1]) != t.dims.end();
      });
      if (!is_read || asked_.kind(j) == OpClass::view) continue;
      if (!is_product) return;
      CostlyForm& form = form_at(pairs_, i, j);
      take(form, i);
      take(form, j);
      return;
    }
  }

  void report_pairs() {
    for (const auto& [key, form] : pairs_) {
      const Dims& table = dims_at(form.first, 0);
      const Dims ids = tensors(form.first)[1].dims;
      report(
          WasteKind::spread_table, form,
          fmt::format("{} writes a vector for each of {} x {} pairs from {} rows, and {} "
                      "multiplies them",
                      asked_.name(form.first), ids[0], ids[1], table[0], asked_.name(form.second)),
          {times_of(form), "with their gradients"},
          fmt::format(
              "multiply by the table before the look-up: q @ table.T gives {} numbers for each "
              "query in one product, and gather picks those of the pairs (of relative positions "
              "shift the rows: pad one column, view, slice); numbers move in place of vectors "
              "of {}; of weighted values add up the weights of each row of the table first "
              "(scatter_add) and multiply once",
              table[0], table[1]),
          std::nullopt, WasteProof::likely);
    }
  }

  // --- Points outside of what is sampled ---

  void look_for_points(size_t i) {
    const Dims& image = dims_at(i, 0);
    const Dims& grid = dims_at(i, 1);
    if (image.size() != 4 || grid.size() != 4 || image[0] < 2) return;
    const double pixels = static_cast<double>(image[2]) * static_cast<double>(image[3]);
    const double points = static_cast<double>(grid[1]) * static_cast<double>(grid[2]);
    if (pixels <= 0 || points < static_cast<double>(kOversampled) * pixels) return;
    CostlyForm& form = form_at(points_, i, i);
    take(form, i);
    if (i > 0) {
      // What joins the two coordinates.
      const std::string_view base = asked_.base(i - 1);
      if (base == "stack" || base == "cat") take(form, i - 1);
    }
    const double samples = static_cast<double>(image[0]) * static_cast<double>(image[1]) * points;
    for (size_t j = next(i), seen = 0; j < asked_.size() && seen < kSampledWithin;
         j = next(j), ++seen) {
      const std::vector<TensorShape> read = tensors(j);
      if (!is_forward(j) || read.empty() || elements_in(read[0].dims) != samples) break;
      take(form, j);
      form.second = j;
    }
  }

  void report_points() {
    for (const auto& [key, form] : points_) {
      const Dims& image = dims_at(form.first, 0);
      const Dims& grid = dims_at(form.first, 1);
      report(WasteKind::wide_sample, form,
             fmt::format("{} samples {} images of {} x {} at {} x {} points each",
                         asked_.name(form.first), image[0], image[2], image[3], grid[1], grid[2]),
             {times_of(form), "with the grid, and the ops on the samples",
              "a loss if most points lie outside of the image"},
             "if each is pasted into a box of a larger image (masks, crops, textures): sample the "
             "points of its box alone (F.interpolate to the size of the box) and write that into "
             "the empty image by a slice; count or threshold within the box; if the points are a "
             "regular grid within the image, F.interpolate needs no grid",
             std::nullopt, WasteProof::question);
    }
  }

  std::map<uint64_t, Layers> rows_;
  Forms directions_, pairs_, points_, exponentials_;
};

}  // namespace

void find_parts(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  ReadParts(asked, places, found).run();
}

}  // namespace epilogue::trace
