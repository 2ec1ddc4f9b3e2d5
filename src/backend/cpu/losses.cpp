// SPDX-License-Identifier: Apache-2.0
// CPU kernels of mse_loss, binary_cross_entropy and nll_loss.
#include "ops/losses/losses.h"

#include <algorithm>
#include <optional>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/reduce.h"
#include "core/element.h"
#include "core/tensor_impl.h"
#include "ops/losses/binary_cross_entropy.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

// Two or three tensors of one shape as rows, cut into pieces of at most kRowPiece elements: all
// elements are one row where every tensor is contiguous, else the last dimension is.
class Pieces {
 public:
  Pieces(const Dims& sizes, std::initializer_list<const Tensor*> tensors)
      : sizes_(sizes), is_flat_(true) {
    for (const Tensor* t : tensors)
      is_flat_ = is_flat_ && t->is_contiguous() && t->sizes() == sizes;
    const int64_t numel = element_count(sizes);
    row_ = is_flat_ || sizes.empty() ? numel : sizes[sizes.rank() - 1];
    per_row_ = (row_ + kRowPiece - 1) / kRowPiece;
    count_ = row_ == 0 ? 0 : numel / row_ * per_row_;
  }
  Rows rows(const Tensor& t) const {
    Dims inner;
    for (int d = is_flat_ ? 0 : std::max(0, sizes_.rank() - 1); d < sizes_.rank(); ++d)
      inner.push_back(d);
    if (t.sizes() == sizes_) return {t, inner};
    return {detail::make_view(t, sizes_, broadcast_strides(t, sizes_)), inner};
  }
  int64_t count() const { return count_; }
  int64_t grain() const { return grain_for(std::min(row_, kRowPiece)); }
  int64_t row(int64_t piece) const { return piece / per_row_; }
  int64_t begin(int64_t piece) const { return piece % per_row_ * kRowPiece; }
  int64_t size(int64_t piece) const { return std::min(kRowPiece, row_ - begin(piece)); }

 private:
  Dims sizes_;
  bool is_flat_;
  int64_t row_;
  int64_t per_row_;
  int64_t count_;
};

const char* decline_mse(const Call& call) {
  for (const Tensor& t : call.in)
    if (!has_float_type(t.dtype())) return kNeedsFloatType;
  return nullptr;
}

Pieces mse_pieces(const Call& call) {
  const Dims sizes = broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes());
  return {sizes, {&call.in[0], &call.in[1]}};
}

void run_mse_none(const Call& call, const Pieces& pieces) {
  const Rows self = pieces.rows(call.in[0]);
  const Rows target = pieces.rows(call.in[1]);
  const Rows out = pieces.rows(call.out[0]);
  const auto& kernels = simd::pointwise_kernels();
  parallel_for(pieces.count(), pieces.grain(), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const int64_t row = pieces.row(p);
      const int64_t begin = pieces.begin(p);
      const int64_t n = pieces.size(p);
      float* to = out.target(row, begin, scratch(Slot::c, n));
      const auto length = static_cast<size_t>(n);
      kernels.run(PointwiseFn::sub,
                  {self.read(row, begin, n, scratch(Slot::a, n)),
                   target.read(row, begin, n, scratch(Slot::b, n))},
                  to, length);
      kernels.run(PointwiseFn::mul, {to, to}, to, length);
      out.write(row, begin, n, to);
    }
  });
}

void run_mse(const Call& call) {
  const Pieces pieces = mse_pieces(call);
  const Reduction reduction = reduction_of(call, 0);
  if (reduction == Reduction::none) return run_mse_none(call, pieces);
  const Rows self = pieces.rows(call.in[0]);
  const Rows target = pieces.rows(call.in[1]);
  const auto kernel = simd::row_kernels().squared_difference;
  const double sum = ordered_sum(pieces.count(), pieces.grain(), [&](int64_t p) -> double {
    const int64_t n = pieces.size(p);
    const float* a = self.read(pieces.row(p), pieces.begin(p), n, scratch(Slot::a, n));
    const float* b = target.read(pieces.row(p), pieces.begin(p), n, scratch(Slot::b, n));
    return kernel(a, b, static_cast<size_t>(n));
  });
  const auto count = static_cast<double>(self.count() * self.size());
  store_element(call.out[0].dtype(), call.out[0].data(), 0,
                reduction == Reduction::mean ? sum / count : sum);
}

Pieces mse_backward_pieces(const Call& call) {
  const bool is_each = reduction_of(call, 0) == Reduction::none;
  return {call.out[0].sizes(), {&call.in[1], &call.in[2], is_each ? &call.in[0] : &call.out[0]}};
}

// (self - target) * factor, or times a gradient for each element.
void run_mse_backward(const Call& call) {
  const Pieces pieces = mse_backward_pieces(call);
  const Reduction reduction = reduction_of(call, 0);
  const Rows self = pieces.rows(call.in[1]);
  const Rows target = pieces.rows(call.in[2]);
  const Rows grad = pieces.rows(call.in[0]);
  const Rows out = pieces.rows(call.out[0]);
  double factor = reduction == Reduction::mean ? 2 / static_cast<double>(call.out[0].numel()) : 2;
  const bool is_each = reduction == Reduction::none;
  if (!is_each) factor *= load_element(call.in[0].dtype(), call.in[0].data(), 0);
  const auto& kernels = simd::pointwise_kernels();
  parallel_for(pieces.count(), pieces.grain(), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const int64_t row = pieces.row(p);
      const int64_t begin = pieces.begin(p);
      const int64_t n = pieces.size(p);
      const auto length = static_cast<size_t>(n);
      float* to = out.target(row, begin, scratch(Slot::c, n));
      kernels.run(PointwiseFn::sub,
                  {self.read(row, begin, n, scratch(Slot::a, n)),
                   target.read(row, begin, n, scratch(Slot::b, n))},
                  to, length);
      kernels.scale(to, static_cast<float>(factor), to, length);
      if (is_each)
        kernels.run(PointwiseFn::mul, {to, grad.read(row, begin, n, scratch(Slot::d, n))}, to,
                    length);
      out.write(row, begin, n, to);
    }
  });
}

// binary_cross_entropy: two logarithms per element, one at a time as log's own kernel takes them.
Pieces bce_pieces(const Call& call) {
  const Tensor& weight = call.in[2].defined() ? call.in[2] : call.in[0];
  return {call.in[0].sizes(), {&call.in[0], &call.in[1], &weight}};
}

const char* decline_bce(const Call& call) {
  for (const Tensor& t : call.in)
    if (t.defined() && !has_float_type(t.dtype())) return kNeedsFloatType;
  return nullptr;
}

// Writes the losses of a piece to `to` and gives their sum.
double bce_piece(const Call& call, const Pieces& pieces, const Rows* weights, int64_t piece,
                 float* to) {
  const int64_t row = pieces.row(piece);
  const int64_t begin = pieces.begin(piece);
  const int64_t n = pieces.size(piece);
  const float* x = pieces.rows(call.in[0]).read(row, begin, n, scratch(Slot::a, n));
  const float* t = pieces.rows(call.in[1]).read(row, begin, n, scratch(Slot::b, n));
  for (int64_t i = 0; i < n; ++i)
    to[i] = probability_loss(require_probability(call.op, x[i]), t[i]);
  const auto length = static_cast<size_t>(n);
  if (weights != nullptr)
    simd::pointwise_kernels().run(
        PointwiseFn::mul, {to, weights->read(row, begin, n, scratch(Slot::d, n))}, to, length);
  return static_cast<double>(simd::row_kernels().sum(to, length));
}

void run_bce(const Call& call) {
  const Pieces pieces = bce_pieces(call);
  const Reduction reduction = reduction_of(call, 0);
  std::optional<Rows> weights;
  if (call.in[2].defined()) weights = pieces.rows(call.in[2]);
  const Rows* const weight_rows = weights ? &*weights : nullptr;
  if (reduction == Reduction::none) {
    const Rows out = pieces.rows(call.out[0]);
    parallel_for(pieces.count(), pieces.grain() / 8 + 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        float* to = out.target(pieces.row(p), pieces.begin(p), scratch(Slot::c, pieces.size(p)));
        bce_piece(call, pieces, weight_rows, p, to);
        out.write(pieces.row(p), pieces.begin(p), pieces.size(p), to);
      }
    });
    return;
  }
  const double sum = ordered_sum(pieces.count(), pieces.grain() / 8 + 1, [&](int64_t p) {
    return bce_piece(call, pieces, weight_rows, p, scratch(Slot::c, pieces.size(p)));
  });
  const auto count = static_cast<double>(call.in[0].numel());
  store_element(call.out[0].dtype(), call.out[0].data(), 0,
                reduction == Reduction::mean ? sum / count : sum);
}

// nll_loss: memory is touched once per row, there is nothing to vectorise. Every dtype.
constexpr int64_t kTargetPiece = 1024;  // rows
constexpr int64_t kTargetGrain = 8;     // pieces per thread

struct Targets {
  const OpDef& op;
  const Tensor& self;
  const Tensor& target;
  const Tensor& weight;
  int64_t ignore_index;
  int64_t classes = self.size(-1);
  int64_t row_stride = self.dim() == 2 ? self.strides()[0] : 0;
  int64_t class_stride = self.strides()[self.dim() - 1];
  int64_t target_stride = target.dim() == 1 ? target.strides()[0] : 0;

  int64_t pieces() const { return (target.numel() + kTargetPiece - 1) / kTargetPiece; }
  int64_t end(int64_t piece) const { return std::min(target.numel(), (piece + 1) * kTargetPiece); }
  int64_t class_at(int64_t row) const {
    return class_of(op, target.data_as<int64_t>()[row * target_stride], ignore_index, classes);
  }
  double weight_of(int64_t c) const {
    return weight.defined() ? load_element(weight.dtype(), weight.data(), c * weight.strides()[0])
                            : 1;
  }
};

const char* decline_never(const Call&) { return nullptr; }

Targets forward_targets(const Call& call) {
  return {call.op, call.in[0], call.in[1], call.in[2], call.attr<int64_t>(1)};
}

template <class T>
void run_nll_of(const Call& call) {
  const Targets targets = forward_targets(call);
  const Reduction reduction = reduction_of(call, 0);
  const auto* self = static_cast<const T*>(call.in[0].data());
  const bool is_each = reduction == Reduction::none;
  auto* out = static_cast<T*>(call.out[0].data());
  const double sum = ordered_sum(targets.pieces(), kTargetGrain, [&](int64_t piece) {
    double part = 0;
    for (int64_t i = piece * kTargetPiece; i < targets.end(piece); ++i) {
      const int64_t c = targets.class_at(i);
      const double loss = c == kIgnored
                              ? 0
                              : -targets.weight_of(c) *
                                    widen(self[i * targets.row_stride + c * targets.class_stride]);
      if (is_each) out[i] = round_from_double<T>(loss);
      part += loss;
    }
    return part;
  });
  const double total = ordered_sum(targets.pieces(), kTargetGrain, [&](int64_t piece) {
    double part = 0;
    for (int64_t i = piece * kTargetPiece; i < targets.end(piece); ++i) {
      const int64_t c = targets.class_at(i);
      part += c == kIgnored ? 0 : targets.weight_of(c);
    }
    return part;
  });
  store_element(call.out[1].dtype(), call.out[1].data(), 0, total);
  if (!is_each) out[0] = round_from_double<T>(reduction == Reduction::mean ? sum / total : sum);
}

Targets backward_targets(const Call& call) {
  return {call.op, call.in[1], call.in[2], call.in[3], call.attr<int64_t>(1)};
}

int64_t backward_grain(const Targets& targets) { return grain_for(targets.classes); }

template <class T>
void run_nll_backward_of(const Call& call) {
  const Targets targets = backward_targets(call);
  const Reduction reduction = reduction_of(call, 0);
  const Tensor& grad = call.in[0];
  const int64_t grad_stride = grad.dim() == 1 ? grad.strides()[0] : 0;
  const double total = reduction == Reduction::mean ? call.in[4].item() : 1;
  auto* out = static_cast<T*>(call.out[0].data());
  parallel_for(targets.target.numel(), backward_grain(targets), [&](int64_t begin, int64_t end) {
    std::fill(out + begin * targets.classes, out + end * targets.classes, T{});
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = targets.class_at(i);
      if (c == kIgnored) continue;
      const double g = load_element(grad.dtype(), grad.data(), i * grad_stride);
      out[i * targets.classes + c] = round_from_double<T>(-targets.weight_of(c) * g / total);
    }
  });
}

void run_nll(const Call& call) {
  dispatch(call.in[0].dtype(), [&]<class T>() { run_nll_of<T>(call); });
}
void run_nll_backward(const Call& call) {
  dispatch(call.in[1].dtype(), [&]<class T>() { run_nll_backward_of<T>(call); });
}

void describe_mse(const Call& call, KernelInfo& info, const Pieces& pieces, const char* what) {
  info.name = kernel_name(what, call.out[0].dtype());
  describe_items(info, pieces.count(), pieces.grain(), pieces.count() == 0 ? 1 : pieces.size(0));
}
void describe_nll(const Call& call, KernelInfo& info) {
  const Targets targets = forward_targets(call);
  info.name = kernel_name("nll_loss", call.in[0].dtype());
  describe_items(info, targets.pieces(), kTargetGrain,
                 std::min(targets.target.numel(), kTargetPiece));
}
void describe_nll_backward(const Call& call, KernelInfo& info) {
  const Targets targets = backward_targets(call);
  info.name = kernel_name("nll_loss_backward", call.in[1].dtype());
  describe_items(info, targets.target.numel(), backward_grain(targets), targets.classes);
}

constexpr Kernel kMseKernels[] = {
    {"mse_loss", decline_mse, run_mse,
     [](const Call& c, KernelInfo& i) { describe_mse(c, i, mse_pieces(c), "mse_loss"); }}};
constexpr Kernel kMseBackwardKernels[] = {
    {"mse_loss_backward", decline_mse, run_mse_backward, [](const Call& c, KernelInfo& i) {
       describe_mse(c, i, mse_backward_pieces(c), "mse_loss_backward");
     }}};
constexpr Kernel kBceKernels[] = {
    {"binary_cross_entropy", decline_bce, run_bce, [](const Call& c, KernelInfo& i) {
       describe_mse(c, i, bce_pieces(c), "binary_cross_entropy");
     }}};
constexpr Kernel kNllKernels[] = {{"nll_loss", decline_never, run_nll, describe_nll}};
constexpr Kernel kNllBackwardKernels[] = {
    {"nll_loss_backward", decline_never, run_nll_backward, describe_nll_backward}};

constexpr KernelList kLossLists[] = {{&kMseLoss, kMseKernels},
                                     {&kMseLossBackward, kMseBackwardKernels},
                                     {&kBinaryCrossEntropy, kBceKernels},
                                     {&kNllLossForward, kNllKernels},
                                     {&kNllLossBackward, kNllBackwardKernels}};

}  // namespace

std::span<const KernelList> loss_lists() { return kLossLists; }

}  // namespace epilogue::cpu
