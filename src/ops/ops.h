// SPDX-License-Identifier: Apache-2.0
// The index of all ops: one line per op. Tests, docs, backends and the command iterate over it.
#pragma once

#include <array>

#include "core/op.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue {

// views.cpp
extern const OpDef kAsStrided, kT, kTranspose, kView, kUnsafeView, kExpand, kSlice, kSliceBackward;
// views/permute.cpp, views/split.cpp
extern const OpDef kPermute, kSqueeze, kUnsqueeze, kStack;
// copies.cpp
extern const OpDef kReshape, kContiguous, kClone, kTo, kToCopy, kCat, kCopy_, kFill_, kZero_;
// matmul.cpp, linear.cpp
extern const OpDef kMm, kAddmm, kBmm, kMatmul, kLinear;
// arithmetic.cpp
extern const OpDef kAdd, kSub, kMul, kDiv, kNeg, kExp, kLog, kAdd_, kMul_, kDiv_;
// activations.cpp, gelu.cpp
extern const OpDef kRelu, kThresholdBackward, kSigmoid, kSigmoidBackward, kTanh, kTanhBackward;
extern const OpDef kSilu, kSiluBackward, kGelu, kGeluBackward;
// activation_functions.cpp, elementary_functions.cpp: the rows of the table of functions from
// leaky_relu and from sqrt on, in its order.
constexpr size_t rows_between(PointwiseFn first, PointwiseFn end) {
  return static_cast<size_t>(end) - static_cast<size_t>(first);
}
inline constexpr PointwiseFn kLastFunction = kPointwiseTable.back().fn;
using ActivationOps = std::array<OpDef, rows_between(PointwiseFn::leaky_relu, PointwiseFn::sqrt)>;
using ElementaryOps = std::array<OpDef, rows_between(PointwiseFn::sqrt, kLastFunction) + 1>;
extern const ActivationOps kActivationOps;
extern const ElementaryOps kElementaryOps;
constexpr const OpDef& function_op(PointwiseFn fn) {
  return fn < PointwiseFn::sqrt ? kActivationOps[rows_between(PointwiseFn::leaky_relu, fn)]
                                : kElementaryOps[rows_between(PointwiseFn::sqrt, fn)];
}
// reductions.cpp
extern const OpDef kSum, kMean;
// reductions/extremum.cpp, variance.cpp, cumsum.cpp
extern const OpDef kMax, kMin, kArgmax, kArgmin, kVar, kStd, kCumsum, kCumsumBackward;
// indexing/gather.cpp, index_select.cpp, masks.cpp
extern const OpDef kGather, kScatterAdd, kIndexSelect, kIndexAdd;
extern const OpDef kEmbedding, kEmbeddingDenseBackward, kMaskedFill, kTril, kTriu;
// softmax.cpp
extern const OpDef kSoftmax, kSoftmaxUnit, kSoftmaxBackward;
extern const OpDef kLogSoftmax, kLogSoftmaxUnit, kLogSoftmaxBackward;
// layer_norm.cpp, rms_norm.cpp
extern const OpDef kLayerNorm, kNativeLayerNorm, kNativeLayerNormBackward;
extern const OpDef kRmsNorm, kFusedRmsNorm, kFusedRmsNormBackward;
// mse_loss.cpp, nll_loss.cpp, cross_entropy.cpp
extern const OpDef kMseLoss, kMseLossBackward, kNllLoss, kNllLossForward, kNllLossBackward;
extern const OpDef kCrossEntropyLoss;
// difference_losses.cpp, binary_cross_entropy.cpp
extern const OpDef kL1Loss, kSmoothL1Loss, kHuberLoss;
extern const OpDef kBinaryCrossEntropy, kBinaryCrossEntropyWithLogits;
// cross_entropy_loss.cpp
extern const OpDef kCrossEntropyForward, kCrossEntropyBackward;
// dropout.cpp
extern const OpDef kDropout, kBernoulli_;
// foreach.cpp, optimizer_steps.cpp
extern const OpDef kForeachNorm, kForeachMul_, kForeachClampMin_, kForeachClampMax_;
extern const OpDef kAmpNonFiniteCheckAndUnscale_, kFusedAdam_, kFusedAdamW_, kFusedSgd_;

// Ops that have names above.
inline constexpr std::array kNamedOps{
    &kAsStrided,                     // aten::as_strided
    &kT,                             // aten::t
    &kTranspose,                     // aten::transpose
    &kView,                          // aten::view
    &kUnsafeView,                    // aten::_unsafe_view
    &kExpand,                        // aten::expand
    &kSlice,                         // aten::slice
    &kSliceBackward,                 // aten::slice_backward
    &kReshape,                       // aten::reshape
    &kContiguous,                    // aten::contiguous
    &kClone,                         // aten::clone
    &kTo,                            // aten::to
    &kToCopy,                        // aten::_to_copy
    &kCat,                           // aten::cat
    &kCopy_,                         // aten::copy_
    &kFill_,                         // aten::fill_
    &kZero_,                         // aten::zero_
    &kMm,                            // aten::mm
    &kAddmm,                         // aten::addmm
    &kBmm,                           // aten::bmm
    &kMatmul,                        // aten::matmul
    &kLinear,                        // aten::linear
    &kAdd,                           // aten::add
    &kSub,                           // aten::sub
    &kMul,                           // aten::mul
    &kDiv,                           // aten::div
    &kNeg,                           // aten::neg
    &kExp,                           // aten::exp
    &kAdd_,                          // aten::add_
    &kMul_,                          // aten::mul_
    &kDiv_,                          // aten::div_
    &kRelu,                          // aten::relu
    &kThresholdBackward,             // aten::threshold_backward
    &kSigmoid,                       // aten::sigmoid
    &kSigmoidBackward,               // aten::sigmoid_backward
    &kTanh,                          // aten::tanh
    &kTanhBackward,                  // aten::tanh_backward
    &kSilu,                          // aten::silu
    &kSiluBackward,                  // aten::silu_backward
    &kGelu,                          // aten::gelu
    &kGeluBackward,                  // aten::gelu_backward
    &kSum,                           // aten::sum
    &kMean,                          // aten::mean
    &kSoftmax,                       // aten::softmax
    &kSoftmaxUnit,                   // aten::_softmax
    &kSoftmaxBackward,               // aten::_softmax_backward_data
    &kLogSoftmax,                    // aten::log_softmax
    &kLogSoftmaxUnit,                // aten::_log_softmax
    &kLogSoftmaxBackward,            // aten::_log_softmax_backward_data
    &kLayerNorm,                     // aten::layer_norm
    &kNativeLayerNorm,               // aten::native_layer_norm
    &kNativeLayerNormBackward,       // aten::native_layer_norm_backward
    &kRmsNorm,                       // aten::rms_norm
    &kFusedRmsNorm,                  // aten::_fused_rms_norm
    &kFusedRmsNormBackward,          // aten::_fused_rms_norm_backward
    &kMseLoss,                       // aten::mse_loss
    &kMseLossBackward,               // aten::mse_loss_backward
    &kNllLoss,                       // aten::nll_loss
    &kNllLossForward,                // aten::nll_loss_forward
    &kNllLossBackward,               // aten::nll_loss_backward
    &kCrossEntropyLoss,              // aten::cross_entropy_loss
    &kCrossEntropyForward,           // aten::cross_entropy_loss_forward
    &kCrossEntropyBackward,          // aten::cross_entropy_loss_backward
    &kDropout,                       // aten::dropout
    &kBernoulli_,                    // aten::bernoulli_
    &kForeachNorm,                   // aten::_foreach_norm
    &kForeachMul_,                   // aten::_foreach_mul_
    &kForeachClampMin_,              // aten::_foreach_clamp_min_
    &kForeachClampMax_,              // aten::_foreach_clamp_max_
    &kAmpNonFiniteCheckAndUnscale_,  // aten::_amp_foreach_non_finite_check_and_unscale_
    &kFusedAdam_,                    // aten::_fused_adam_
    &kFusedAdamW_,                   // aten::_fused_adamw_
    &kFusedSgd_,                     // aten::_fused_sgd_
    &kPermute,                       // aten::permute
    &kSqueeze,                       // aten::squeeze
    &kUnsqueeze,                     // aten::unsqueeze
    &kStack,                         // aten::stack
    &kLog,                           // aten::log
    &kMax,                           // aten::max
    &kMin,                           // aten::min
    &kArgmax,                        // aten::argmax
    &kArgmin,                        // aten::argmin
    &kVar,                           // aten::var
    &kStd,                           // aten::std
    &kCumsum,                        // aten::cumsum
    &kCumsumBackward,                // aten::cumsum_backward
    &kGather,                        // aten::gather
    &kScatterAdd,                    // aten::scatter_add
    &kIndexSelect,                   // aten::index_select
    &kIndexAdd,                      // aten::index_add
    &kEmbedding,                     // aten::embedding
    &kEmbeddingDenseBackward,        // aten::embedding_dense_backward
    &kMaskedFill,                    // aten::masked_fill
    &kTril,                          // aten::tril
    &kTriu,                          // aten::triu
    &kL1Loss,                        // aten::l1_loss
    &kSmoothL1Loss,                  // aten::smooth_l1_loss
    &kHuberLoss,                     // aten::huber_loss
    &kBinaryCrossEntropy,            // aten::binary_cross_entropy
    &kBinaryCrossEntropyWithLogits,  // aten::binary_cross_entropy_with_logits
};

inline constexpr auto kOps = [] {
  constexpr size_t kFirst = static_cast<size_t>(PointwiseFn::leaky_relu);
  std::array<const OpDef*, kNamedOps.size() + kPointwiseFns - kFirst> ops = {};
  for (size_t i = 0; i < kNamedOps.size(); ++i) ops[i] = kNamedOps[i];
  for (size_t i = kFirst; i < kPointwiseFns; ++i)
    ops[kNamedOps.size() + i - kFirst] = &function_op(kPointwiseTable[i].fn);
  return ops;
}();

}  // namespace epilogue
