// SPDX-License-Identifier: Apache-2.0
// Tensors that are written to be read once: rows that are gathered to be added up, targets that
// hold a row of classes for one index, zeros between numbers, weights of inference that each pass
// makes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "explain/index/aten_ops.h"
#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kPooledWithin = 6;        // ops between the gather and the sum
constexpr size_t kReadAgainWithin = 16;    // ops behind their sum
constexpr int64_t kPooledRows = 4;         // for each sum
constexpr int64_t kWrittenRows = 1 << 16;  // elements
constexpr size_t kLossWithin = 24;         // ops between a target and its loss
constexpr int64_t kManyClasses = 32;
constexpr size_t kStuffedWithin = 12;   // ops between zeros and the product that reads them
constexpr double kZeroShare = 0.5;      // of what is multiplied
constexpr size_t kWeightWithin = 8;     // ops before the layer that reads the weight
constexpr int64_t kSmallWeight = 1024;  // elements
constexpr int64_t kLongTime = 4;        // steps for each row of the batch
constexpr int64_t kManySteps = 32;
constexpr size_t kTimeWithin = 5;
constexpr int64_t kManyChecks = 4;  // in a step

int64_t numbers_in(const Dims& dims) { return TensorShape{dims, {}}.numel(); }

class Rows : AskedSearch {
 public:
  Rows(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (asked_.empty() || all_.trace.inputs.size() == 0) return;
    for (size_t i = 0; i < asked_.size(); ++i) {
      look_for_pooled(i);
      look_for_target(i);
      look_for_zeros(i);
      look_for_weight(i);
      look_for_time(i);
      look_for_check(i);
    }
    report_pooled();
    report_targets();
    report_zeros();
    report_weights();
    report_time();
    report_checks();
  }

 private:
  struct Form : CostlyForm {
    Dims dims;
    double share = 0;    // of zeros
    int64_t blocks = 0;  // along the diagonal; 0: none
  };
  using Forms = std::map<uint64_t, Form>;

  // --- Rows that are gathered to be added up ---------------------------------------------

  // The result of a gather of whole rows: [batch, rows, columns].
  std::optional<Dims> gathered(size_t i) const {
    const std::string_view base = asked_.base(i);
    const std::vector<TensorShape> read = tensors(i);
    if (read.empty() || read[0].dims.size() != 2) return std::nullopt;
    if ((base == "embedding" && read.size() > 1) || (base == "index" && read.size() == 2)) {
      Dims dims = read[1].dims;
      if (base == "index" && read[1].type == "bool") return std::nullopt;
      dims.push_back(read[0].dims[1]);
      return dims;
    }
    // The ids of advanced indexing are mostly not recorded: what follows reads the rows.
    if (base == "index" && read.size() == 1 && next(i) < asked_.size()) {
      const Dims& dims = dims_at(next(i), 0);
      if (dims.size() == 3 && dims.back() == read[0].dims[1]) return dims;
    }
    return std::nullopt;
  }

  void look_for_pooled(size_t i) {
    const auto dims = gathered(i);
    if (!dims || dims->size() < 3 || numbers_in(*dims) < kWrittenRows) return;
    const auto rank = static_cast<int64_t>(dims->size());
    std::vector<size_t> between;
    for (size_t j = i + 1; j < end_of(i, kPooledWithin); ++j) {
      const std::string_view base = asked_.base(j);
      const auto in = asked_.inputs(j);
      if (!reads(j, *dims)) continue;
      if (base == "mul" || asked_.kind(j) == OpClass::copy) {
        between.push_back(j);
        continue;
      }
      if ((base != "sum" && base != "mean") || in.size() < 2 || in[0].dims != *dims) return;
      const std::vector<int64_t> over = numbers_of(in[1].concrete);
      if (over.size() != 1) return;
      const int64_t d = over[0] < 0 ? over[0] + rank : over[0];
      if (d != rank - 2 || (*dims)[static_cast<size_t>(d)] < kPooledRows) return;
      if (are_read_again(j, *dims)) return;
      Form& form = pooled_[asked_.key(i)];
      take(form, i);
      for (const size_t b : between) take(form, b);
      take(form, j);
      if (form.count++ == 0) form.first = i;
      form.second = j;
      form.dims = *dims;
      return;
    }
  }

  // Another op of the forward pass reads the rows, so that they have to be written anyway.
  bool are_read_again(size_t j, const Dims& dims) const {
    for (size_t k = j + 1; k < end_of(j, kReadAgainWithin); ++k) {
      if (!is_forward(k) || step(k) != step(j) || gathered(k) == dims) return false;
      if (reads(k, dims) && !is_in_place(asked_.name(k))) return true;
    }
    return false;
  }

  void report_pooled() {
    for (const auto& [key, form] : pooled_) {
      const int64_t table = dims_at(form.first, 0)[0];
      const int64_t rows = form.dims[form.dims.size() - 2];
      // As many rows for each sum as the table has: counts of them are fewer numbers.
      const bool is_counted = 2 * rows >= table;
      report(WasteKind::pooled_rows, form,
             fmt::format("{} writes rows of {} that {} adds up next", asked_.name(form.first),
                         sizes_text(form.dims), asked_.name(form.second)),
             {times_of(form),
              fmt::format("{} of {} rows for each of {} sums", rows, table, form.dims[0])},
             is_counted
                 ? fmt::format("count how often each row is drawn and multiply once: counts = "
                               "zeros({}, {}).scatter_add_(1, ids, ones), then counts @ table (a "
                               "matrix product; / {} for the mean): no rows are copied; counts of "
                               "random draws come from torch.multinomial or bincount",
                               form.dims[0], table, rows)
                 : "look up and add in one op: nn.EmbeddingBag or F.embedding_bag(ids, table, "
                   "offsets, mode='sum' or 'mean'), with padding_idx or per_sample_weights in "
                   "place of a mask: it writes no rows",
             std::nullopt, WasteProof::likely);
    }
  }

  // --- Targets with a row of classes for each index --------------------------------------

  // Sizes of a tensor of which each row gets one number at an index.
  std::optional<Dims> target(size_t i) const {
    const std::string_view base = asked_.base(i);
    const auto in = asked_.inputs(i);
    if (in.empty() || in[0].dims.empty()) return std::nullopt;
    if (base == "one_hot") {
      const auto classes = whole_argument(in, 1);
      if (!classes || *classes < kManyClasses) return std::nullopt;
      Dims dims = in[0].dims;
      dims.push_back(*classes);
      return dims;
    }
    if (base != "scatter" || in.size() < 3 || in[0].dims.size() < 2 ||
        in[2].dims.size() != in[0].dims.size() || in[0].dims.back() < kManyClasses ||
        in[2].dims.back() != 1)
      return std::nullopt;
    return in[0].dims;
  }

  bool is_filled(size_t i, const Dims& dims) const {
    const std::string_view base = asked_.base(i);
    const auto in = asked_.inputs(i);
    if (asked_.kind(i) == OpClass::fill || base.ends_with("_like"))
      return !in.empty() && in[0].dims == dims;
    if (base != "full" && base != "zeros" && base != "new_zeros" && base != "new_full")
      return false;
    return std::any_of(in.begin(), in.end(),
                       [&](const OpInput& one) { return one.concrete == sizes_text(dims); });
  }

  void look_for_target(size_t i) {
    const auto dims = target(i);
    if (!dims || numbers_in(*dims) < kWrittenRows) return;
    std::vector<size_t> with = {i};
    for (size_t back = 1; back <= std::min<size_t>(3, i); ++back)
      if (is_filled(i - back, *dims)) with.push_back(i - back);
    for (size_t j = i + 1; j < end_of(i, kLossWithin); ++j) {
      if (!asked_.is_same_root(i, j)) return;
      if (!reads(j, *dims)) continue;
      const std::string_view base = asked_.base(j);
      const std::vector<TensorShape> read = tensors(j);
      const auto of_target = std::count_if(read.begin(), read.end(),
                                           [&](const TensorShape& t) { return t.dims == *dims; });
      const bool is_sum_of_products = base == "mul" && of_target > 1 && j + 1 < asked_.size() &&
                                      asked_.base(j + 1) == "sum" && reads(j + 1, *dims);
      if (base == "kl_div" || (base == "cross_entropy_loss" && of_target > 1) ||
          is_sum_of_products) {
        Form& form = targets_[asked_.key(i)];
        for (const size_t w : with) take(form, w);
        take(form, j);
        if (is_sum_of_products) take(form, j + 1);
        if (form.count++ == 0) form.first = i;
        form.second = j;
        form.dims = *dims;
        return;
      }
      if (is_in_place(asked_.name(j)) || asked_.kind(j) == OpClass::copy) with.push_back(j);
    }
  }

  void report_targets() {
    for (const auto& [key, form] : targets_)
      report(WasteKind::dense_target, form,
             fmt::format("{} makes a target of {} with a row of classes for each index, which {} "
                         "goes over",
                         asked_.name(form.first), sizes_text(form.dims), asked_.name(form.second)),
             {times_of(form)},
             "compute the loss from the class indices: F.cross_entropy(logits, target, "
             "label_smoothing=..., ignore_index=...), or gather the log-probability of the target "
             "(nll_loss): no dense target is written, and none is read backward",
             std::nullopt, WasteProof::likely);
  }

  // --- Zeros that are multiplied ---------------------------------------------------------

  std::optional<Dims> zeros(size_t i) const {
    const std::string_view base = asked_.base(i);
    const auto in = asked_.inputs(i);
    if (base == "zeros_like" && !in.empty()) return in[0].dims;
    if (base != "zeros" && base != "new_zeros") return std::nullopt;
    const size_t at = base == "zeros" ? 0 : 1;
    if (in.size() <= at || in[at].concrete.empty()) return std::nullopt;
    return numbers_of(in[at].concrete);
  }

  // A solver, a factorisation, an inverse, ... of a matrix.
  static bool is_of_matrix(std::string_view name) {
    const std::string_view base = aten_base(name);
    return is_multiplication(name) || base.starts_with("linalg_") || base == "inverse" ||
           base == "logdet" || base == "slogdet" || base.find("cholesky") != std::string_view::npos;
  }

  struct Blocks {
    Dims dims;  // of the whole; empty: not known
    int64_t count = 0;
    int64_t written = 0;  // elements
  };

  // The tensors of block_diag; of a list that was not recorded the batch that was unbound for it.
  Blocks blocks_of(size_t i) const {
    Blocks blocks;
    const auto in = asked_.inputs(i);
    if (!in.empty() && in[0].list.size() > 1) {
      blocks.dims = {0, 0};
      for (const OpInput& block : in[0].list) {
        if (block.dims.size() != 2) return {};
        blocks.dims[0] += block.dims[0];
        blocks.dims[1] += block.dims[1];
        blocks.written += numbers_in(block.dims);
        ++blocks.count;
      }
      return blocks;
    }
    for (size_t back = 1; back <= std::min<size_t>(3, i); ++back) {
      const Dims& batch = dims_at(i - back, 0);
      if (asked_.base(i - back) != "unbind" || batch.size() != 3 || batch[0] < 2) continue;
      // A broken trace has sizes without bounds.
      if (std::ranges::any_of(batch, [](int64_t n) { return n < 1 || n > 1 << 20; })) return {};
      return {{batch[0] * batch[1], batch[0] * batch[2]}, batch[0], numbers_in(batch)};
    }
    return {};
  }

  // Blocks along the diagonal: what reads them next goes through the zeros, too.
  void look_for_blocks(size_t i) {
    if (asked_.base(i) != "block_diag") return;
    const Blocks blocks = blocks_of(i);
    if (blocks.dims.empty()) return;
    for (size_t j = i + 1; j < end_of(i, kStuffedWithin); ++j) {
      if (!is_of_matrix(asked_.name(j)) || !reads(j, blocks.dims)) continue;
      Form& form = zeros_[asked_.key(j)];
      take(form, i);
      take(form, j);
      if (form.count++ == 0) form.first = i;
      form.second = j;
      form.dims = blocks.dims;
      form.share =
          1 - static_cast<double>(blocks.written) / static_cast<double>(numbers_in(blocks.dims));
      form.blocks = blocks.count;
      return;
    }
  }

  void look_for_zeros(size_t i) {
    look_for_blocks(i);
    const auto dims = zeros(i);
    if (!dims || dims->size() < 2 || numbers_in(*dims) < kWrittenRows / 4) return;
    int64_t written = 0;
    bool is_strided = false;
    std::vector<size_t> with = {i};
    for (size_t j = i + 1; j < end_of(i, kStuffedWithin); ++j) {
      const std::string_view base = asked_.base(j);
      const auto in = asked_.inputs(j);
      if (zeros(j) == dims) return;
      if (base == "slice" && reads(j, *dims) && whole_argument(in, 4).value_or(1) > 1)
        is_strided = true;
      if (base == "copy" && !in.empty() && numbers_in(in[0].dims) < numbers_in(*dims)) {
        written += numbers_in(in[0].dims);
        with.push_back(j);
        continue;
      }
      const bool is_product = is_convolution(base) || is_multiplication(asked_.name(j));
      if (!is_product) {
        if (reads(j, *dims) && asked_.kind(j) != OpClass::view) return;
        continue;
      }
      if (!reads(j, *dims)) continue;
      const double share = 1 - static_cast<double>(written) /
                                   static_cast<double>(std::max<int64_t>(1, numbers_in(*dims)));
      if (written == 0 || share < kZeroShare) return;
      Form& form = zeros_[asked_.key(j)];
      for (const size_t w : with) take(form, w);
      take(form, j);
      if (form.count++ == 0) form.first = i;
      form.second = j;
      form.dims = *dims;
      form.share = share;
      if (is_strided) ++strided_;
      return;
    }
  }

  void report_zeros() {
    Form all;
    const Form* longest = nullptr;
    for (const auto& [key, form] : zeros_) {
      if (longest == nullptr || form.ns > longest->ns) longest = &form;
      all.ns += form.ns;
      all.count += form.count;
      all.calls.insert(all.calls.end(), form.calls.begin(), form.calls.end());
      for (const auto& [op, ns] : form.times.list(all_.trace))
        for (const uint32_t call : form.calls)
          if (all_.name(call) == op) {
            all.times.add(all_.name_id(call), ns);
            break;
          }
    }
    if (longest == nullptr) return;
    all.first = longest->first;
    const bool is_convolved = is_convolution(asked_.base(longest->second));
    report(
        WasteKind::stuffed_zeros, all,
        fmt::format("{} {} {}, of which {:.0f} % are zeros that {} writes",
                    asked_.name(longest->second),
                    is_multiplication(asked_.name(longest->second)) || is_convolved ? "multiplies"
                                                                                    : "reads",
                    sizes_text(longest->dims), 100 * longest->share, asked_.name(longest->first)),
        {counted(all.count, "time", "times") + ", " + shapes_text(asked_.inputs(longest->second))},
        is_convolved && strided_ > 0
            ? "zeros between pixels and a convolution are a transposed convolution: "
              "conv_transpose2d with the stride (nn.ConvTranspose2d), or a convolution at the "
              "lower resolution and pixel_shuffle, multiplies none of them"
        : longest->blocks > 0
            ? fmt::format(
                  "the matrix is block-diagonal, and its {} blocks do not meet: keep them as a "
                  "batch [{}, {}, {}] and call {} once on it (torch.linalg and bmm take batches, "
                  "right-hand sides as [{}, {}, 1]); blocks of several sizes padded to a few, or "
                  "one by one",
                  longest->blocks, longest->blocks, longest->dims[0] / longest->blocks,
                  longest->dims[1] / longest->blocks, asked_.name(longest->second), longest->blocks,
                  longest->dims[0] / longest->blocks)
            : "multiply the parts that are not zero: the blocks one by one as a batch (bmm), or "
              "a smaller tensor of the rows that hold numbers",
        std::nullopt, WasteProof::likely);
  }

  // --- Weights that each pass of inference makes -----------------------------------------

  void look_for_weight(size_t j) {
    if (all_.has_backward) return;
    const std::string_view base = asked_.base(j);
    if (base != "linear" && !is_convolution(base)) return;
    const auto in = asked_.inputs(j);
    if (in.size() < 2 || in[1].dims.size() < 2) return;
    const Dims& weight = in[1].dims;
    if (weight == in[0].dims || numbers_in(weight) < kSmallWeight) return;
    std::vector<size_t> makers;
    for (size_t back = 1; back <= std::min(kWeightWithin, j); ++back) {
      const size_t i = j - back;
      const std::string_view of = asked_.base(i);
      const auto read = asked_.inputs(i);
      if (of == "linear" || is_convolution(of) || is_multiplication(asked_.name(i))) {
        // A product of data may give the weight.
        const std::vector<TensorShape> operands = tensors(i);
        if (operands.size() > 1 && !operands[0].dims.empty() && !weight.empty() &&
            operands[0].dims.front() == weight.front() && operands[1].dims.back() == weight.back())
          makers.clear();
        break;
      }
      if (read.empty()) continue;
      const bool casts = of == "to" || of == "_to_copy" || of == "contiguous" || of == "clone" ||
                         asked_.kind(i) == OpClass::pointwise || of == "_weight_norm" ||
                         of == "_weight_norm_interface";
      if (!casts || is_in_place(asked_.name(i))) continue;
      const auto result = output_shape(asked_.name(i), read);
      const bool makes = result ? result->dims == weight : read[0].dims == weight;
      if (makes) makers.push_back(i);
    }
    if (makers.empty()) return;
    for (const size_t i : makers) {
      if (taken_.size() <= i) taken_.resize(asked_.size());
      if (taken_[i] != 0) continue;
      taken_[i] = 1;
      take(weights_, i);
    }
    if (weights_.count++ == 0 || numbers_in(weight) > numbers_in(weights_.dims)) {
      weights_.first = makers.front();
      weights_.second = j;
      weights_.dims = weight;
    }
  }

  void report_weights() {
    if (weights_.count == 0) return;
    report(WasteKind::made_weight, weights_,
           fmt::format("weights of inference are made anew for each call: {} gives {}, which {} "
                       "reads as its weight",
                       asked_.name(weights_.first), sizes_text(weights_.dims),
                       asked_.name(weights_.second)),
           {times_of(weights_)},
           "make them once before inference: cast the model (model.to(torch.bfloat16)), merge or "
           "bake in what is applied to the weight (remove_parametrizations, remove_weight_norm, a "
           "mask, a scale, a dequantisation), and keep the result",
           1.0, WasteProof::likely);
  }

  // --- Batches that are taken for time ---------------------------------------------------

  void look_for_time(size_t i) {
    const std::string_view base = asked_.base(i);
    if (base != "gru" && base != "lstm" && base != "rnn_tanh" && base != "rnn_relu") return;
    const auto in = asked_.inputs(i);
    if (in.empty() || in[0].dims.size() != 3 || in.back().concrete != "False") return;
    const int64_t steps = in[0].dims[0];
    const int64_t batch = in[0].dims[1];
    if (steps < kManySteps || steps < kLongTime * batch) return;
    // One of the batch's rows is read as if it were the last step.
    for (size_t j = i + 1; j < end_of(i, kTimeWithin); ++j) {
      const auto read = asked_.inputs(j);
      const std::string_view reader = asked_.base(j);
      if ((reader != "select" && reader != "slice") || read.empty() || read[0].dims.size() != 3 ||
          read[0].dims[0] != steps || read[0].dims[1] != batch)
        continue;
      if (whole_argument(read, 1) != std::optional<int64_t>(1)) continue;
      Form& form = time_[asked_.key(i)];
      take(form, i);
      form.op_calls += calls_of(i) * (steps - batch) / steps;
      if (form.count++ == 0) form.first = i;
      form.second = j;
      return;
    }
  }

  // Ops that it calls, and those of its nodes of the backward pass where these are known.
  int64_t calls_of(size_t i) const {
    const Event& e = asked_.all().event(asked_.at(i));
    int64_t calls = 0;
    for (size_t at = asked_.at(i); at < all_.ops.size() && all_.event(at).ts_ns < e.end_ns(); ++at)
      calls += all_.event(at).tid == e.tid ? 1 : 0;
    return calls;
  }

  void report_time() {
    for (const auto& [key, form] : time_) {
      const Dims& dims = asked_.inputs(form.first)[0].dims;
      report(WasteKind::swapped_time, form,
             fmt::format("{} runs {} steps of {} rows, and {} reads along dimension 1 as if that "
                         "were the time",
                         asked_.name(form.first), dims[0], dims[1], asked_.name(form.second)),
             {times_of(form), "batch_first is False: dimension 0 is taken for the time"},
             fmt::format("if dimension 0 is the batch, pass batch_first=True (or transpose): {} "
                         "steps of {} rows, and the results change too",
                         dims[1], dims[0]),
             1 - static_cast<double>(2 * dims[1]) / static_cast<double>(dims[0]),
             WasteProof::likely);
    }
  }

  // --- Values that are looked at ---------------------------------------------------------

  void look_for_check(size_t i) {
    constexpr std::array<std::string_view, 3> kChecks = {"isnan", "isinf", "isfinite"};
    constexpr std::array<std::string_view, 10> kReads = {
        "any", "all", "logical_not", "bitwise_not", "bitwise_or",
        "or",  "sum", "is_nonzero",  "item",        "logical_or"};
    if (!is_one(kChecks, asked_.base(i)) ||
        is_autograd_node(all_.name(asked_.roots().at(asked_.roots().of(asked_.at(i))))))
      return;
    take(checks_, i);
    for (size_t j = i + 1; j < asked_.size() && is_one(kReads, asked_.base(j)); ++j)
      take(checks_, j);
    if (checks_.count++ == 0) checks_.first = i;
  }

  void report_checks() {
    const auto per_step = checks_.count / static_cast<int64_t>(all_.steps);
    if (per_step < kManyChecks) return;
    report(WasteKind::value_checks, checks_,
           fmt::format("values are looked at for NaN and infinity {} times in a step", per_step),
           {times_of(checks_), "each reads a whole tensor, and the host waits for the answer"},
           "check the loss alone (one number), or the norm of the gradients, which "
           "clip_grad_norm_(error_if_nonfinite=True) computes anyway; look at single layers, "
           "gradients and weights in a debug mode or every N steps",
           1 - 1 / static_cast<double>(per_step), WasteProof::likely);
  }

  Form checks_;
  Forms pooled_, targets_, zeros_, time_;
  Form weights_;
  std::vector<char> taken_;  // by asked op: a weight's
  size_t strided_ = 0;
};

}  // namespace

void find_written_rows(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  Rows(asked, places, found).run();
}

}  // namespace epilogue::trace
