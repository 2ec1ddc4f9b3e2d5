// SPDX-License-Identifier: Apache-2.0
// FusedMlp: a row chain with its weights, and the norms that are kernels of their own.
#include <algorithm>
#include <array>
#include <type_traits>

#include "core/backend.h"
#include "core/fused_call.h"
#include "core/kernel_list.h"
#include "core/known_weight.h"
#include "core/tensor_impl.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "nn/fused_spec.h"
#include "nn/inference_only.h"
#include "ops/overlap.h"

namespace epilogue {
namespace {

constinit const OpDef kFusedGatedMlp{.name = "epilogue::fused_gated_mlp",
                                     .schema = "(Tensor x, Tensor[] weights)"};
constinit const OpDef kFusedMlp{.name = "epilogue::fused_mlp",
                                .schema = "(Tensor x, Tensor[] weights)"};
constinit const OpDef kFusedLinear{.name = "epilogue::fused_linear",
                                   .schema = "(Tensor x, Tensor[] weights)"};

// Biases of three linears and a residual, and some.
constexpr size_t kInlineOperands = 8;

}  // namespace

class FusedMlp::Impl {
 public:
  Impl(const nn::FusedSpec& spec)
      : weights_(spec.weights.begin(), spec.weights.end()),
        biases_(spec.biases.begin(), spec.biases.end()),
        options_(spec.options),
        activation_(spec.activation),
        gated_(spec.gated),
        residual_is_x_(spec.residual_is_x),
        side_by_side_(spec.side_by_side),
        rounded_(spec.rounded.begin(), spec.rounded.end()) {
    nn::require_fit(this->spec(), nullptr);
    chain_ = backend_of(weights_[0].device()).make_row_chain(nn::row_chain_of(this->spec()));
    work_ = nn::work_of(this->spec());
    ops_ = FusedOps(work_.names);
    known_.reserve(weights_.size());
    for (const Tensor& w : weights_) known_.emplace_back(w);
  }

  // `residual`: what is added, unless that is x.
  Tensor run(const Tensor& x, const Tensor& residual = {}) const {
    require_call(x);
    if (!has_more_kernels()) {
      Tensor out = empty(result_sizes(x), x.dtype(), x.device());
      run_chain(x, {&out, 1});
      return out;
    }
    const Tensor rows =
        nn::chain_does_norm(options_, x.device()) ? x : nn::norm_by_ops(nn::pre_norm(options_), x);
    Tensor y = empty(result_sizes(x), x.dtype(), x.device());
    run_chain(rows, {&y, 1}, residual.defined() ? residual : x);
    if (options_.post_norm != PostNorm::none) y = nn::norm_by_ops(nn::post_norm(options_), y);
    return options_.post_norm == PostNorm::of_result && options_.residual ? x + y : y;
  }

  size_t results() const { return side_by_side_ ? weights_.size() : 1; }

  // results() outs.
  void run_into(const Tensor& x, std::span<const Tensor> outs, const Tensor& residual = {}) const {
    require_call(x);
    const Dims sizes = result_sizes(x);
    const bool wants = options_.residual && !residual_is_x_;
    if (residual.defined() != wants ||
        (wants && (!(residual.sizes() == sizes) || residual.dtype() != x.dtype() ||
                   !(residual.device() == x.device()))))
      nn::fail(spec(),
               wants ? "a residual of x's dtype and sizes " + to_string(sizes) : "no residual",
               to_string(residual));
    for (size_t i = 0; i < outs.size(); ++i) {
      const Dims wanted = side_by_side_ ? result_sizes(x, weights_[i]) : sizes;
      require_out(x, outs[i], wanted);
      if (extents_meet(x, outs[i]) || (wants && extents_meet(residual, outs[i])))
        nn::fail(spec(), "an out apart from x", to_string(outs[i]) + " that overlaps it");
      for (size_t j = 0; j < i; ++j)
        if (extents_meet(outs[j], outs[i]))
          nn::fail(spec(), "outs apart from each other",
                   to_string(outs[i]) + " that overlaps another");
    }
    if (has_more_kernels()) {
      copy_(outs[0], run(x, residual));
    } else {
      run_chain(x, outs, residual);
      for (const Tensor& out : outs) out.increment_version();
    }
  }

 private:
  nn::FusedSpec spec() const {
    const char* const name = !residual_is_x_ ? "FusedLinear"
                             : gated_        ? "fused_gated_mlp"
                                             : "fused_mlp";
    return {name,   weights_,       biases_,  activation_,  options_,
            gated_, residual_is_x_, rounded_, side_by_side_};
  }

  // Whether the chain is not all.
  bool has_more_kernels() const {
    return options_.post_norm != PostNorm::none ||
           !nn::chain_does_norm(options_, weights_[0].device());
  }

  Dims result_sizes(const Tensor& x) const { return result_sizes(x, weights_.back()); }
  static Dims result_sizes(const Tensor& x, const Tensor& last) {
    Dims sizes = x.sizes();
    sizes[sizes.rank() - 1] = last.size(0);
    return sizes;
  }

  void require_out(const Tensor& x, const Tensor& out, const Dims& sizes) const {
    if (!out.defined() || out.dtype() != x.dtype() || !(out.sizes() == sizes) ||
        !(out.device() == x.device()) || !out.is_contiguous())
      nn::fail(spec(), "a contiguous out of x's dtype and sizes " + to_string(sizes),
               to_string(out));
  }

  void require_call(const Tensor& x) const {
    const Tensor& first = weights_[0];
    if (!x.defined() || x.dim() == 0) nn::fail(spec(), "rows [..., k]", to_string(x));
    if (x.size(-1) != first.size(1) || x.dtype() != first.dtype() ||
        !(x.device() == first.device()))
      nn::fail(spec(),
               "x [..., " + std::to_string(first.size(1)) + "] of the weights' dtype " +
                   std::string(dtype_name(first.dtype())) + " on their device",
               to_string(x));
    if (std::ranges::any_of(known_, &KnownWeight::is_moved))
      nn::fail(spec(), "weights in the memory that they had", "one that was given other memory");
    nn::require_inference(
        [&](const char* expected, const char* got) { nn::fail(spec(), expected, got); },
        [&] { return wants_gradient(x); });
  }

  bool wants_gradient(const Tensor& x) const {
    const auto wants = nn::wants_gradient;
    const FusedOptions& o = options_;
    return wants(x) || wants(o.norm_weight) || wants(o.norm_bias) || wants(o.post_norm_weight) ||
           wants(o.post_norm_bias) || std::ranges::any_of(weights_, wants) ||
           std::ranges::any_of(biases_, wants);
  }

  // `residual`: what is added, where the rows are another tensor.
  void run_chain(const Tensor& any_x, std::span<const Tensor> outs,
                 const Tensor& any_residual = {}) const {
    const Tensor x = with_rows(any_x);
    const Tensor residual = any_residual.defined() ? with_rows(any_residual) : Tensor();
    const MatrixView rows = rows_of(x);
    std::array<MatrixView, 2 * kInlineOperands> few;
    const bool are_few = std::max(biases_.size(), outs.size()) < kInlineOperands;
    std::vector<MatrixView> many(are_few ? 0 : biases_.size() + 1 + outs.size());
    MatrixView* const results = are_few ? few.data() : many.data();
    MatrixView* const operands = results + outs.size();
    for (size_t i = 0; i < outs.size(); ++i)
      results[i] = {outs[i].data(), outs[i].dtype(), outs[i].size(-1), 1};
    size_t count = 0;
    for (const Tensor& b : biases_)
      if (b.defined()) operands[count++] = {b.data(), b.dtype(), 0, b.strides()[0]};
    if (options_.residual && options_.post_norm != PostNorm::of_result)
      operands[count++] = residual.defined() ? rows_of(residual) : rows;
    const int64_t m = row_count(x);
    const auto inputs = [&] {
      std::vector<Tensor> list = {x};
      list.insert(list.end(), weights_.begin(), weights_.end());
      return list;
    };
    const auto notes = [&] { return notes_of(x, outs, m); };
    const OpDef& op = !residual_is_x_ ? kFusedLinear : gated_ ? kFusedGatedMlp : kFusedMlp;
    run_fused({op, inputs, notes}, outs, [&] {
      chain_->run(m, rows, {operands, count}, {results, outs.size()});
    });
  }

  static int64_t row_count(const Tensor& x) {
    int64_t rows = 1;
    for (int d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
    return rows;
  }

  // Whether x is a matrix of rows whose elements lie side by side.
  static bool has_rows(const Tensor& x) {
    return x.is_contiguous() || (x.dim() == 2 && (x.size(1) <= 1 || x.strides()[1] == 1));
  }
  static Tensor with_rows(const Tensor& x) { return has_rows(x) ? x : contiguous(x); }
  static MatrixView rows_of(const Tensor& x) {
    return {x.data(), x.dtype(), x.is_contiguous() ? x.size(-1) : x.strides()[0], 1};
  }

  FusedKernelNotes notes_of(const Tensor& x, std::span<const Tensor> outs, int64_t rows) const {
    const auto n = static_cast<double>(rows);
    auto bytes = static_cast<double>(x.bytes());
    for (const Tensor& out : outs) bytes += static_cast<double>(out.bytes());
    return {describe_row_chain(*chain_, rows, ops_.short_names, x.dtype()), work_.flops_per_row * n,
            work_.parameter_bytes + bytes, work_.parameter_bytes + work_.unfused_bytes_per_row * n,
            ops_.full_names};
  }

  std::vector<Tensor> weights_;
  std::vector<Tensor> biases_;
  FusedOptions options_;
  nn::Activation activation_;
  bool gated_;
  bool residual_is_x_;
  bool side_by_side_;
  std::vector<RoundedWeight> rounded_;  // or empty
  std::unique_ptr<RowChain> chain_;
  nn::FusedWork work_;
  FusedOps ops_;
  std::vector<KnownWeight> known_;
};

FusedMlp FusedMlp::gated(const Tensor& gate, const Tensor& up, const Tensor& down,
                         nn::Activation activation, const FusedOptions& options,
                         std::span<const Tensor> biases) {
  if (!nn::is_gated(activation))
    throw Error("[FusedMlp::gated] expected a gated activation, got " +
                std::string(nn::activation_name(activation)));
  const Tensor weights[] = {gate, up, down};
  const nn::FusedSpec spec = {"FusedMlp::gated", weights, biases, activation, options, true};
  return FusedMlp(std::make_shared<const Impl>(spec));
}

FusedMlp FusedMlp::plain(std::span<const Tensor> weights, std::span<const Tensor> biases,
                         nn::Activation activation, const FusedOptions& options) {
  if (nn::is_gated(activation))
    throw Error("[FusedMlp::plain] expected a plain activation, got " +
                std::string(nn::activation_name(activation)));
  const nn::FusedSpec spec = {"FusedMlp::plain", weights, biases, activation, options, false};
  return FusedMlp(std::make_shared<const Impl>(spec));
}

namespace {

// Stands for a weight that is rounded already: its sizes, dtype and address, over memory of it.
// Nobody reads its elements.
Tensor stand_in(const RoundedWeight& any, DType dtype, const char* name) {
  if (!has_float_type(dtype))
    throw Error("[" + std::string(name) + "] expected f32, bf16 or f16, got " +
                std::string(dtype_name(dtype)));
  return std::visit(
      [&](const auto& w) {
        if constexpr (std::is_same_v<std::decay_t<decltype(w)>, Int4Weight>) {
          require_int4_weight(w, name);
        } else {
          require_int8_weight(w, name);
        }
        return Tensor::from_blob(w.scales.data(), {w.n, w.k}, dtype, [keep = w](void*) {}, {0, 0});
      },
      any);
}

std::vector<Tensor> stand_ins(std::span<const RoundedWeight> rounded, DType dtype,
                              const char* name) {
  std::vector<Tensor> weights;
  for (const RoundedWeight& w : rounded) weights.push_back(stand_in(w, dtype, name));
  return weights;
}

}  // namespace

FusedMlp FusedMlp::gated(const RoundedWeight& gate, const RoundedWeight& up,
                         const RoundedWeight& down, nn::Activation activation, DType dtype,
                         const FusedOptions& options, std::span<const Tensor> biases) {
  if (!nn::is_gated(activation))
    throw Error("[FusedMlp::gated] expected a gated activation, got " +
                std::string(nn::activation_name(activation)));
  const RoundedWeight rounded[] = {gate, up, down};
  const std::vector<Tensor> weights = stand_ins(rounded, dtype, "FusedMlp");
  const nn::FusedSpec spec = {"FusedMlp::gated", weights, biases, activation,
                              options,           true,    true,   rounded};
  return FusedMlp(std::make_shared<const Impl>(spec));
}

FusedMlp FusedMlp::plain(std::span<const RoundedWeight> rounded, std::span<const Tensor> biases,
                         nn::Activation activation, DType dtype, const FusedOptions& options) {
  if (nn::is_gated(activation))
    throw Error("[FusedMlp::plain] expected a plain activation, got " +
                std::string(nn::activation_name(activation)));
  const std::vector<Tensor> weights = stand_ins(rounded, dtype, "FusedMlp");
  const nn::FusedSpec spec = {"FusedMlp::plain", weights, biases, activation,
                              options,           false,   true,   rounded};
  return FusedMlp(std::make_shared<const Impl>(spec));
}

Tensor FusedMlp::operator()(const Tensor& x) const { return impl_->run(x); }
void FusedMlp::run_into(const Tensor& x, const Tensor& out) const { impl_->run_into(x, {&out, 1}); }

namespace {

// Whether one kernel takes them all: a backend's that knows stages side by side, of one rounding.
bool may_be_one_kernel(std::span<const Tensor> weights, std::span<const RoundedWeight> rounded) {
  const auto is_like = [&rounded](const RoundedWeight& any) {
    const auto* const first = std::get_if<Int4Weight>(rounded.data());
    const auto* const w = std::get_if<Int4Weight>(&any);
    if (first == nullptr || w == nullptr) return first == w;
    return w->group == first->group && w->zeros.defined() == first->zeros.defined() &&
           w->scales.dtype() == first->scales.dtype();
  };
  return weights.size() > 1 && weights[0].defined() &&
         weights[0].device().type == DeviceType::cpu && std::ranges::all_of(rounded, is_like);
}

}  // namespace

FusedLinear::FusedLinear(std::span<const Tensor> weights, std::span<const Tensor> biases,
                         const FusedOptions& options) {
  add_parts(weights, {}, biases, options);
}

FusedLinear::FusedLinear(std::span<const RoundedWeight> rounded, std::span<const Tensor> biases,
                         DType dtype, const FusedOptions& options) {
  add_parts(stand_ins(rounded, dtype, "FusedLinear"), rounded, biases, options);
}

void FusedLinear::add_parts(std::span<const Tensor> weights, std::span<const RoundedWeight> rounded,
                            std::span<const Tensor> biases, const FusedOptions& options) {
  const auto fail = [](const std::string& expected, const std::string& got) {
    throw Error("[FusedLinear] expected " + expected + ", got " + got);
  };
  if (weights.empty()) fail("at least one weight", "none");
  if (!biases.empty() && biases.size() != weights.size())
    fail("one bias per weight", std::to_string(biases.size()));
  if (options.post_norm != PostNorm::none) fail("no norm after the products", "one");
  if (options.residual && weights.size() > 1)
    fail("one weight with a residual", std::to_string(weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i > 0 && weights[i].defined() && weights[i].dim() == 2 &&
        weights[0].size(1) != weights[i].size(1))
      fail("weights [n, " + std::to_string(weights[0].size(1)) + "]", to_string(weights[i]));
  }
  const bool is_one = may_be_one_kernel(weights, rounded);
  const size_t each = is_one ? weights.size() : 1;
  for (size_t i = 0; i < weights.size(); i += each)
    parts_.push_back(std::make_shared<const FusedMlp::Impl>(nn::FusedSpec{
        "FusedLinear", weights.subspan(i, each), biases.empty() ? biases : biases.subspan(i, each),
        nn::Activation::relu, options, false, false,
        rounded.empty() ? rounded : rounded.subspan(i, each), is_one}));
}

void FusedLinear::run_into(const Tensor& x, std::span<const Tensor> outs,
                           const Tensor& residual) const {
  const size_t each = parts_[0]->results();
  if (outs.size() != each * parts_.size())
    throw Error("[FusedLinear] expected " + std::to_string(each * parts_.size()) + " outs, got " +
                std::to_string(outs.size()));
  for (size_t i = 0; i < parts_.size(); ++i)
    parts_[i]->run_into(x, outs.subspan(i * each, each), residual);
}

}  // namespace epilogue
