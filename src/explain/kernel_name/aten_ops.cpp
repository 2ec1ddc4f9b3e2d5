// SPDX-License-Identifier: Apache-2.0
// Cuts the joined op names of a fused kernel. Names with an underscore must be listed; a single
// word that is not listed is taken as an op all the same where it is one (kWords) or marked as a
// guess.
#include <algorithm>
#include <span>
#include <vector>

#include "explain/kernel_name/decode.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue::trace {
namespace {

// ATen ops with underscores in their names that Inductor prints, and the few custom ops seen. Those
// of the table of pointwise functions are known too.
constexpr std::string_view kJoinedNames[] = {"_adaptive_avg_pool2d",
                                             "_adaptive_avg_pool2d_backward",
                                             "_assert_async",
                                             "_conj",
                                             "_cudnn_rnn",
                                             "_efficient_attention_backward",
                                             "_efficient_attention_forward",
                                             "_embedding_bag",
                                             "_flash_attention_backward",
                                             "_flash_attention_forward",
                                             "_foreach_add",
                                             "_foreach_addcdiv",
                                             "_foreach_addcmul",
                                             "_foreach_copy",
                                             "_foreach_div",
                                             "_foreach_lerp",
                                             "_foreach_mul",
                                             "_foreach_neg",
                                             "_foreach_norm",
                                             "_foreach_pow",
                                             "_foreach_reciprocal",
                                             "_foreach_sqrt",
                                             "_foreach_sub",
                                             "_fused_rms_norm",
                                             "_fused_rms_norm_backward",
                                             "_log_softmax",
                                             "_log_softmax_backward_data",
                                             "_native_batch_norm_legit",
                                             "_native_batch_norm_legit_functional",
                                             "_native_batch_norm_legit_no_training",
                                             "_prelu_kernel",
                                             "_prelu_kernel_backward",
                                             "_reshape_alias",
                                             "_safe_softmax",
                                             "_scaled_dot_product_cudnn_attention",
                                             "_scaled_dot_product_cudnn_attention_backward",
                                             "_scaled_dot_product_efficient_attention",
                                             "_scaled_dot_product_efficient_attention_backward",
                                             "_scaled_dot_product_flash_attention",
                                             "_scaled_dot_product_flash_attention_backward",
                                             "_scaled_grouped_mm",
                                             "_scaled_mm",
                                             "_softmax",
                                             "_softmax_backward_data",
                                             "_sparse_semi_structured_mm",
                                             "_to_copy",
                                             "_unsafe_index",
                                             "_unsafe_index_put",
                                             "_unsafe_masked_index",
                                             "_unsafe_masked_index_put_accumulate",
                                             "_unsafe_view",
                                             "_upsample_bilinear2d_aa",
                                             "_weight_int4pack_mm",
                                             "_weight_int8pack_mm",
                                             "_weight_norm_interface",
                                             "adaptive_avg_pool2d",
                                             "adaptive_max_pool2d",
                                             "affine_grid_generator",
                                             "alias_copy",
                                             "all_gather_into_tensor",
                                             "all_reduce",
                                             "as_strided",
                                             "as_strided_scatter",
                                             "avg_pool2d",
                                             "avg_pool2d_backward",
                                             "avg_pool3d",
                                             "batch_norm_elemt",
                                             "binary_cross_entropy",
                                             "binary_cross_entropy_backward",
                                             "binary_cross_entropy_with_logits",
                                             "bitwise_and",
                                             "bitwise_left_shift",
                                             "bitwise_not",
                                             "bitwise_or",
                                             "bitwise_right_shift",
                                             "bitwise_xor",
                                             "channel_shuffle",
                                             "clamp_max",
                                             "clamp_min",
                                             "constant_pad_nd",
                                             "convolution_backward",
                                             "copy_",
                                             "cudnn_batch_norm",
                                             "cudnn_batch_norm_backward",
                                             "diagonal_scatter",
                                             "embedding_bag",
                                             "embedding_dense_backward",
                                             "empty_like",
                                             "empty_strided",
                                             "expand_as",
                                             "fill_",
                                             "flex_attention",
                                             "flex_attention_backward",
                                             "floor_divide",
                                             "fmha_v3_fwd",
                                             "full_like",
                                             "fused_dropout",
                                             "glu_backward",
                                             "grid_sampler_2d",
                                             "group_norm",
                                             "hardsigmoid_backward",
                                             "hardtanh_backward",
                                             "hinge_embedding_loss",
                                             "huber_loss",
                                             "huber_loss_backward",
                                             "index_add",
                                             "index_copy",
                                             "index_fill",
                                             "index_put",
                                             "index_put_",
                                             "index_select",
                                             "is_nonzero",
                                             "kl_div",
                                             "l1_loss",
                                             "layer_norm",
                                             "lift_fresh",
                                             "lift_fresh_copy",
                                             "linalg_vector_norm",
                                             "log_sigmoid_backward",
                                             "log_sigmoid_forward",
                                             "log_softmax",
                                             "logical_and",
                                             "logical_not",
                                             "logical_or",
                                             "logical_xor",
                                             "masked_fill",
                                             "masked_scatter",
                                             "masked_select",
                                             "max_pool2d_with_indices",
                                             "max_pool2d_with_indices_backward",
                                             "max_pool3d_with_indices",
                                             "moe_forward",
                                             "moe_forward_shared",
                                             "mse_loss",
                                             "mse_loss_backward",
                                             "mul_",
                                             "add_",
                                             "native_batch_norm",
                                             "native_batch_norm_backward",
                                             "native_dropout",
                                             "native_dropout_backward",
                                             "native_group_norm",
                                             "native_group_norm_backward",
                                             "native_layer_norm",
                                             "native_layer_norm_backward",
                                             "new_empty",
                                             "new_empty_strided",
                                             "new_full",
                                             "new_ones",
                                             "new_zeros",
                                             "nll_loss",
                                             "nll_loss2d_backward",
                                             "nll_loss2d_forward",
                                             "nll_loss_backward",
                                             "nll_loss_forward",
                                             "one_hot",
                                             "ones_like",
                                             "pixel_shuffle",
                                             "pixel_unshuffle",
                                             "rand_like",
                                             "randint_like",
                                             "randn_like",
                                             "reduce_scatter_tensor",
                                             "reflection_pad1d",
                                             "reflection_pad2d",
                                             "reflection_pad2d_backward",
                                             "repeat_interleave",
                                             "replication_pad2d",
                                             "rms_norm",
                                             "rrelu_with_noise",
                                             "scalar_tensor",
                                             "scaled_dot_product_attention",
                                             "scatter_add",
                                             "scatter_reduce",
                                             "select_backward",
                                             "select_scatter",
                                             "slice_backward",
                                             "slice_scatter",
                                             "smooth_l1_loss",
                                             "smooth_l1_loss_backward",
                                             "soft_margin_loss",
                                             "softmax_backward",
                                             "special_erf",
                                             "special_expm1",
                                             "split_with_sizes",
                                             "split_with_sizes_copy",
                                             "sym_size",
                                             "unsafe_split",
                                             "upsample_bicubic2d",
                                             "upsample_bilinear2d",
                                             "upsample_nearest1d",
                                             "upsample_nearest2d",
                                             "upsample_nearest2d_backward",
                                             "upsample_nearest3d",
                                             "wait_tensor",
                                             "zeros_like"};

// Words that are ops by themselves, beside the table's; others are guesses.
constexpr std::string_view kWords[] = {
    "acos",       "addcdiv",     "addcmul",   "addmm",        "addmv",
    "alias",      "all",         "amax",      "amin",         "any",
    "arange",     "argmax",      "argmin",    "asin",         "atan",
    "atan2",      "baddbmm",     "bernoulli", "bmm",          "bucketize",
    "cat",        "ceil",        "celu",      "clone",        "col2im",
    "contiguous", "conv1d",      "conv2d",    "convolution",  "copy",
    "cosh",       "cummax",      "cumprod",   "cumsum",       "deg2rad",
    "detach",     "diagonal",    "digamma",   "dot",          "dropout",
    "embedding",  "empty",       "erf",       "erfc",         "erfinv",
    "exp2",       "expand",      "expm1",     "eye",          "fill",
    "flatten",    "flip",        "floor",     "fmax",         "fmin",
    "fmod",       "frac",        "full",      "gather",       "getitem",
    "glu",        "hardsigmoid", "hardtanh",  "hypot",        "im2col",
    "index",      "isinf",       "isnan",     "item",         "lerp",
    "lgamma",     "lift",        "linear",    "linspace",     "log",
    "log10",      "log1p",       "log2",      "logaddexp",    "logcumsumexp",
    "logit",      "logsumexp",   "matmul",    "max",          "mean",
    "median",     "min",         "mm",        "multinomial",  "mv",
    "nansum",     "narrow",      "nonzero",   "norm",         "ones",
    "permute",    "prelu",       "prod",      "rad2deg",      "rand",
    "randint",    "randn",       "randperm",  "reciprocal",   "relu6",
    "remainder",  "repeat",      "reshape",   "roll",         "round",
    "rsqrt",      "rsub",        "scatter",   "searchsorted", "select",
    "selu",       "sign",        "sinh",      "slice",        "softmax",
    "sort",       "split",       "square",    "squeeze",      "stack",
    "std",        "sum",         "t",         "take",         "tan",
    "tile",       "to",          "topk",      "transpose",    "trapezoid",
    "tril",       "triu",        "trunc",     "unbind",       "unfold",
    "unsqueeze",  "var",         "view",      "xlogy",        "zero",
    "zeros"};

constexpr size_t kMostOps = 256;

// The list and the table's ops whose names have underscores, or have none.
std::vector<std::string_view> with_table(std::span<const std::string_view> list, bool underscores) {
  std::vector<std::string_view> names(list.begin(), list.end());
  for (const PointwiseRow& row : kPointwiseTable)
    if (const std::string_view name = op_base_name(row.fn);
        !row.op.empty() && (name.find('_') != std::string_view::npos) == underscores)
      names.push_back(name);
  return names;
}

// The longest entry that the text starts with and that ends at an underscore or at the end.
std::string_view longest(std::string_view text, std::span<const std::string_view> names,
                         std::string_view after) {
  std::string_view best;
  for (const std::string_view name : names) {
    if (name.size() <= best.size() || !text.starts_with(name)) continue;
    if (text.size() > name.size() && text[name.size()] != '_') continue;
    // Names are sorted: one that would come before its predecessor is no name here.
    if (name >= after) best = name;
  }
  return best;
}

}  // namespace

FusedOps split_fused_ops(std::string_view joined, OpOrder order) {
  static const std::vector<std::string_view> joined_names = with_table(kJoinedNames, true);
  static const std::vector<std::string_view> words = with_table(kWords, false);
  FusedOps result;
  while (!joined.empty() && result.ops.size() < kMostOps) {
    const bool has_limit = order == OpOrder::sorted && !result.ops.empty();
    const std::string_view after = has_limit ? result.ops.back() : std::string_view();
    std::string_view name = longest(joined, joined_names, after);
    if (const auto word = longest(joined, words, {}); word.size() > name.size()) name = word;
    if (name.empty()) {
      name = joined.substr(0, joined.find('_', joined.starts_with("_") ? 1 : 0));
      result.is_certain = false;
    }
    result.ops.emplace_back(name);
    joined.remove_prefix(std::min(joined.size(), name.size() + 1));
  }
  if (!joined.empty()) result.is_certain = false;
  return result;
}

}  // namespace epilogue::trace
