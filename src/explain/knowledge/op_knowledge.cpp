// SPDX-License-Identifier: Apache-2.0
#include "explain/knowledge/op_knowledge.h"

#include <array>
#include <string>
#include <unordered_map>

#include "pointwise/pointwise_fn.h"

namespace epilogue::trace {
namespace {

constexpr std::array<std::string_view, 11> kCostNames = {
    "bytes", "arithmetic", "flops",  "gather", "sort",    "scan",
    "solve", "transform",  "search", "wait",   "metadata"};
constexpr std::array<std::string_view, 6> kFusesNames = {"pointwise", "reduction", "epilogue",
                                                         "draws",     "scans",     "alone"};
constexpr std::array<std::string_view, 3> kRoleNames = {"main", "either", "aside"};
constexpr std::array<std::string_view, 12> kSignNames = {
    "none",      "wide_table", "accumulates",  "cut_after",       "grows",      "repeats_input",
    "inference", "one_hot",    "strided_scan", "outer_broadcast", "one_column", "then_product"};

constexpr OpKnowledge kTable[] = {
    // --- Embeddings and indexing -----------------------------------------------------------------
    {"gradient of an embedding, dense", "embedding_dense_backward embedding_backward",
     OpCost::bytes, OpFuses::alone,
     "the table has many more rows than the batch reads: the gradient is a whole table, and the "
     "optimizer reads all of it",
     "nn.Embedding(sparse=True) with torch.optim.SparseAdam or SGD touches only the rows that "
     "were read",
     OpRole::main, "", OpSign::wide_table},
    {"embedding", "embedding embedding_renorm", OpCost::gather, OpFuses::pointwise,
     "max_norm is set: every call renormalises rows in place",
     "leave max_norm out, or renormalise once per step", OpRole::main,
     "look all ids up in one call"},
    {"bag of embeddings",
     "embedding_bag _embedding_bag _embedding_bag_forward_only _embedding_bag_backward "
     "_embedding_bag_dense_backward _embedding_bag_sparse_backward "
     "_embedding_bag_per_sample_weights_backward",
     OpCost::gather, OpFuses::alone, "one call per table, over many tables",
     "one table with offsets (or torchrec's grouped tables) looks all of them up in one call; "
     "sparse=True keeps gradients to the rows that were read",
     OpRole::either, "one table with offsets takes the ids of all of them in one call"},
    {"rows by index", "index_select gather take take_along_dim", OpCost::gather, OpFuses::pointwise,
     "the index is a range or is the same in every step",
     "a slice or narrow makes a view instead; an index that never changes can be applied once",
     OpRole::either, "index once with the positions of all of them"},
    {"advanced indexing", "index _unsafe_index", OpCost::gather, OpFuses::pointwise,
     "the index is a boolean mask: it becomes nonzero, and its size depends on data",
     "torch.where, or a product with the mask, keeps shapes; index once and reuse the result",
     OpRole::either, "index once with the positions of all of them"},
    {"writes by index", "index_put _index_put_impl _unsafe_index_put index_fill index_copy put",
     OpCost::gather, OpFuses::alone,
     "accumulate=True, or the gradient of advanced indexing: indices are sorted, or elements are "
     "written one by one",
     "slices and torch.where write in order; for sums by index use index_add with sorted indices "
     "or segment_reduce",
     OpRole::aside, "write once with the positions and values of all of them", OpSign::accumulates},
    {"sums by index", "index_add index_reduce scatter_add scatter_reduce scatter segment_reduce",
     OpCost::gather, OpFuses::alone,
     "many sources go to one place: they are added one after the other, or atomically",
     "sort by index once and use segment_reduce, or torch.sparse.mm with a matrix in CSR, which "
     "adds in one pass",
     OpRole::either, "join the indices and add once"},
    {"masked selection", "masked_select masked_scatter masked_scatter_backward", OpCost::wait,
     OpFuses::alone, "the size of the result depends on data",
     "torch.where or masked_fill keep the shape and do not wait", OpRole::aside,
     "one mask over the whole tensor"},
    {"masked filling", "masked_fill where", OpCost::bytes, OpFuses::pointwise, "", "", OpRole::main,
     "one mask over the whole tensor"},
    {"places of non-zeros", "nonzero nonzero_numpy argwhere count_nonzero nonzero_static",
     OpCost::wait, OpFuses::alone, "the host waits for the size on a device",
     "masks keep shapes; torch.nonzero_static takes the size from you", OpRole::aside,
     "one call over the whole tensor"},
    {"distinct values", "unique unique_consecutive _unique _unique2 unique_dim", OpCost::sort,
     OpFuses::alone, "called in every step on much the same values",
     "prepare it with the data (in the loader), or count with bincount if values are small "
     "integers",
     OpRole::aside, "one call over the whole tensor (dim=, return_inverse=True)"},
    {"counts by value", "bincount histc histogram _histogramdd_from_bin_cts", OpCost::gather,
     OpFuses::alone, "it asks for the largest value first, for which the host waits on a device",
     "scatter_add of ones into a tensor of known size does not wait", OpRole::aside,
     "add an offset for each group to the values, and count once"},
    {"one-hot vectors", "one_hot", OpCost::bytes, OpFuses::alone,
     "its result goes into a product: most of what is multiplied is zero",
     "an embedding, or index_select on the weight, reads the rows that count", OpRole::aside,
     "one call over all indices"},
    {"search in sorted values", "searchsorted bucketize", OpCost::search, OpFuses::alone,
     "the boundaries are few and evenly spaced", "a division and floor give the bucket",
     OpRole::either, "one call over all values"},
    // --- Sorting ---------------------------------------------------------------------------------
    {"sorting", "sort argsort msort", OpCost::sort, OpFuses::alone,
     "the result is cut to a few elements, or compared with a threshold",
     "topk gives the largest k without ordering the rest; kthvalue gives one", OpRole::aside,
     "stack the rows and sort along the last dimension in one call", OpSign::cut_after},
    {"largest k", "topk kthvalue", OpCost::sort, OpFuses::alone,
     "k is a large part of the row, or sorted=True is not needed",
     "pass sorted=False if the order is not read; cut the candidates first", OpRole::either,
     "stack the rows and take topk along the last dimension in one call"},
    {"medians and quantiles", "median nanmedian quantile nanquantile mode", OpCost::sort,
     OpFuses::alone, "it is computed over all elements in every step, for statistics",
     "compute it on a sample, or every few steps", OpRole::aside,
     "stack the rows and reduce along a dimension in one call"},
    // --- Joining and copying ---------------------------------------------------------------------
    {"concatenation", "cat concat stack hstack vstack _cat", OpCost::bytes, OpFuses::pointwise,
     "a tensor grows by a little each time: all that was there is copied again",
     "allocate the whole once and write slices; keep parts in a list and join them once; a KV "
     "cache of fixed size (StaticCache)",
     OpRole::main,
     "keep parts in a list and join them once, or write slices of a tensor made beforehand",
     OpSign::grows},
    {"copies and casts", "copy _to_copy to clone contiguous", OpCost::bytes, OpFuses::pointwise,
     "the same tensor is cast or made contiguous in every step",
     "keep it in the type and layout in which it is read; under autocast, cast weights once",
     OpRole::main, "copy or cast one stacked tensor instead of many small ones",
     OpSign::repeats_input},
    {"repetition", "repeat repeat_interleave tile", OpCost::bytes, OpFuses::pointwise,
     "its result is only read by ops that broadcast",
     "expand makes a view; repeat_interleave with a tensor of counts also waits for their sum: "
     "pass output_size",
     OpRole::main},
    {"padding",
     "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d "
     "replication_pad2d _pad_circular",
     OpCost::bytes, OpFuses::pointwise, "it stands before a convolution that can pad",
     "padding= and padding_mode= of the convolution save the copy", OpRole::main,
     "pad once: nn.utils.rnn.pad_sequence, or a tensor made beforehand"},
    {"rearranging elements",
     "roll fft_fftshift fft_ifftshift flip fliplr flipud rot90 pixel_shuffle pixel_unshuffle "
     "channel_shuffle tril triu",
     OpCost::bytes, OpFuses::pointwise, "the same mask or order is made in every step",
     "make it once and keep it as a buffer", OpRole::either},
    {"filling", "fill zero zeros zeros_like ones ones_like full full_like new_zeros new_full",
     OpCost::bytes, OpFuses::pointwise, "memory is filled and then written over",
     "torch.empty, or zero_grad(set_to_none=True), writes it once", OpRole::main,
     "torch._foreach_zero_, or one tensor for all of them"},
    {"ranges and grids", "arange linspace logspace meshgrid eye range", OpCost::bytes,
     OpFuses::pointwise, "it is made anew in every step", "make it once and keep it as a buffer",
     OpRole::aside, "make it once, outside of the loop"},
    // --- Random numbers --------------------------------------------------------------------------
    {"random numbers",
     "rand randn randint rand_like randn_like randint_like normal uniform random exponential "
     "cauchy log_normal geometric",
     OpCost::arithmetic, OpFuses::draws,
     "noise is drawn on the CPU by one thread, or drawn and then moved to a device",
     "draw it on the device where it is used (device=, generator=); draw once per epoch if it "
     "need not be new",
     OpRole::either, "draw the numbers of all iterations in one call"},
    {"random masks",
     "bernoulli dropout native_dropout _fused_dropout alpha_dropout "
     "feature_dropout native_dropout_backward",
     OpCost::arithmetic, OpFuses::draws, "it runs in inference, or its rate is 0",
     "model.eval() if this is inference; set the rate to 0 or use nn.Identity if it does not "
     "regularise; attention takes its rate as dropout_p",
     OpRole::main, "draw the masks of all iterations in one call", OpSign::inference},
    {"random choices", "multinomial randperm", OpCost::sort, OpFuses::alone,
     "a permutation of everything is made to take a few",
     "randint draws indices with replacement; make permutations in the loader; for sampling from "
     "logits, argmax of logits plus Gumbel noise does not wait",
     OpRole::aside, "draw all choices in one call", OpSign::cut_after},
    // --- Products --------------------------------------------------------------------------------
    {"matrix products",
     "mm addmm matmul linear _addmm_activation addmv mv addr ger outer dot vdot "
     "inner",
     OpCost::flops, OpFuses::epilogue,
     "few rows (batch 1), dtype float32 where tensor cores or bf16 units are there, or sizes that "
     "are no multiples of 8",
     "run more rows per call, bf16 or TF32 (torch.set_float32_matmul_precision('high')), sizes "
     "that are multiples of 8; quantised weights for decoding",
     OpRole::main, "stack the operands: one mm, bmm or einsum computes all of them",
     OpSign::one_hot},
    {"batched products", "bmm baddbmm einsum tensordot chain_matmul linalg_multi_dot kron",
     OpCost::flops, OpFuses::epilogue,
     "a batch of small matrices, or operands that are expanded or transposed first",
     "one mm of reshaped operands if one side is shared; scaled_dot_product_attention if it is "
     "attention; order a chain of products by their sizes",
     OpRole::main, "stack the operands: one bmm or einsum computes all of them", OpSign::one_hot},
    {"scaled and quantised products",
     "_scaled_mm _int_mm _weight_int8pack_mm _weight_int4pack_mm "
     "_weight_int4pack_mm_for_cpu _scaled_grouped_mm _grouped_mm",
     OpCost::flops, OpFuses::epilogue, "", "", OpRole::main,
     "stack the operands, or use a grouped product"},
    {"grouped layers on a CPU", "_mkldnn_linear mkldnn_linear _mkl_linear _linear_pointwise",
     OpCost::flops, OpFuses::alone, "", "", OpRole::main, "run all samples in one call"},
    // --- Convolutions ----------------------------------------------------------------------------
    {"convolutions without a library",
     "slow_conv2d _slow_conv2d_forward _slow_conv2d_backward slow_conv3d slow_conv3d_forward "
     "slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d "
     "thnn_conv2d _conv_depthwise2d conv_depthwise3d",
     OpCost::flops, OpFuses::alone,
     "the library (oneDNN, cuDNN, MIOpen) did not take it: dtype, dilation or an empty batch",
     "run it in float32 or bf16 with torch.backends.mkldnn or cudnn enabled; float64, complex and "
     "integer convolutions have no library kernel",
     OpRole::aside, "run all samples in one call"},
    {"convolutions",
     "convolution _convolution convolution_overrideable conv1d conv2d conv3d conv_transpose1d "
     "conv_transpose2d conv_transpose3d mkldnn_convolution cudnn_convolution miopen_convolution "
     "cudnn_convolution_transpose miopen_convolution_transpose convolution_backward "
     "mkldnn_convolution_backward _nnpack_spatial_convolution mkldnn_transposed_convolution",
     OpCost::flops, OpFuses::epilogue,
     "few channels, groups as many as channels, or layouts that change between layers",
     "channels_last for the model and its inputs; torch.backends.cudnn.benchmark for fixed sizes; "
     "fold batch norm into the weights for inference",
     OpRole::main, "run all samples as one batch"},
    {"patches as columns", "im2col col2im unfold fold _unfold", OpCost::bytes, OpFuses::pointwise,
     "a convolution is written as unfold and a product", "conv2d does not write the patches",
     OpRole::either, "run all samples as one batch"},
    // --- Recurrent layers ------------------------------------------------------------------------
    {"recurrent layers",
     "lstm gru rnn_tanh rnn_relu _cudnn_rnn _cudnn_rnn_backward miopen_rnn mkldnn_rnn_layer "
     "mkldnn_rnn_layer_backward lstm_mps",
     OpCost::scan, OpFuses::alone,
     "steps depend on each other: a small batch leaves the hardware idle",
     "larger batches, sequences of like length packed together; the fused nn.LSTM or nn.GRU, not "
     "a loop of cells",
     OpRole::main, "run all sequences as one padded or packed batch"},
    {"recurrent cells",
     "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _thnn_fused_lstm_cell "
     "_thnn_fused_gru_cell _thnn_fused_lstm_cell_backward",
     OpCost::flops, OpFuses::alone, "cells are called in a Python loop over time",
     "nn.LSTM, nn.GRU or nn.RNN run the loop in one call; torch.compile unrolls short loops",
     OpRole::either, "nn.LSTM, nn.GRU or nn.RNN run all steps in one call"},
    // --- Attention -------------------------------------------------------------------------------
    {"attention, op by op", "_scaled_dot_product_attention_math _safe_softmax", OpCost::flops,
     OpFuses::epilogue,
     "no fused kernel took it: dropout on a CPU, float64, a mask that needs a gradient, or a head "
     "size that is too large",
     "drop the reason (dropout_p=0, bf16 or float32, is_causal=True in place of a mask); "
     "torch.nn.attention.sdpa_kernel says why a kernel declines",
     OpRole::aside, "run all heads and samples as one batch"},
    {"attention, fused",
     "scaled_dot_product_attention _scaled_dot_product_flash_attention "
     "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
     "_scaled_dot_product_cudnn_attention _flash_attention_forward _efficient_attention_forward "
     "_scaled_dot_product_flash_attention_backward "
     "_scaled_dot_product_flash_attention_for_cpu_backward "
     "_scaled_dot_product_efficient_attention_backward _flash_attention_backward "
     "_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
     "_scaled_dot_product_fused_attention_overrideable",
     OpCost::flops, OpFuses::alone,
     "keys and values are repeated for grouped queries, or padding is attended to",
     "enable_gqa=True, is_causal=True, nested or packed sequences (flex_attention with a block "
     "mask)",
     OpRole::main, "run all heads and samples as one batch"},
    {"attention of nn.MultiheadAttention",
     "_native_multi_head_attention _transformer_encoder_layer_fwd _triton_multi_head_attention "
     "_transform_bias_rescale_qkv",
     OpCost::flops, OpFuses::alone, "need_weights=True keeps the fused kernel away",
     "need_weights=False", OpRole::main, "run all samples as one batch"},
    // --- Norms -----------------------------------------------------------------------------------
    {"batch norm",
     "batch_norm native_batch_norm _native_batch_norm_legit _batch_norm_impl_index "
     "cudnn_batch_norm miopen_batch_norm native_batch_norm_backward cudnn_batch_norm_backward "
     "batch_norm_stats batch_norm_elemt batch_norm_gather_stats_with_counts "
     "_batch_norm_with_update batch_norm_backward",
     OpCost::bytes, OpFuses::reduction, "training=True in a run without a backward pass",
     "model.eval() for inference; fold it into the convolution before it", OpRole::main,
     "run all samples as one batch"},
    {"layer and RMS norms",
     "layer_norm native_layer_norm native_layer_norm_backward rms_norm _fused_rms_norm "
     "_fused_rms_norm_backward",
     OpCost::bytes, OpFuses::reduction, "it is written with mean, var, sub and div",
     "nn.LayerNorm and nn.RMSNorm are one kernel", OpRole::main, "run all rows in one call"},
    {"group and instance norms",
     "group_norm native_group_norm native_group_norm_backward instance_norm local_response_norm",
     OpCost::bytes, OpFuses::reduction, "channels_last inputs are made contiguous first",
     "keep one layout through the block", OpRole::main, "run all samples as one batch"},
    {"softmax",
     "softmax _softmax log_softmax _log_softmax _softmax_backward_data "
     "_log_softmax_backward_data softmin _masked_softmax logsumexp",
     OpCost::arithmetic, OpFuses::reduction,
     "it normalises scores of attention, or a vocabulary of which one class is read",
     "scaled_dot_product_attention; cross_entropy on logits; for a large vocabulary a chunked or "
     "fused linear-cross-entropy",
     OpRole::main, "stack the rows and run them in one call"},
    // --- Reductions and scans --------------------------------------------------------------------
    {"reductions",
     "sum mean prod amax amin max min all any nansum nanmean norm linalg_vector_norm std var "
     "var_mean std_mean aminmax argmax argmin",
     OpCost::bytes, OpFuses::reduction, "a value for logging is reduced in every step",
     "reduce every few steps; foreach forms take all parameters in one call", OpRole::main,
     "reduce a stacked tensor along a dimension, or use torch._foreach_norm"},
    {"scans", "cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper",
     OpCost::scan, OpFuses::scans,
     "it runs along a short or strided dimension, or twice to get a "
     "reversed sum",
     "scan along the last, contiguous dimension; total minus cumsum gives the reversed one; a "
     "product with a triangular matrix is faster for short rows",
     OpRole::either, "stack the rows and scan along the last dimension in one call",
     OpSign::strided_scan},
    {"differences and gradients", "diff gradient trapezoid trapz", OpCost::bytes,
     OpFuses::pointwise, "", "", OpRole::main},
    // --- Pointwise -------------------------------------------------------------------------------
    {"simple arithmetic",
     "add sub rsub mul div neg abs sign square reciprocal clamp clamp_min clamp_max maximum "
     "minimum addcmul addcdiv lerp threshold relu relu6 leaky_relu hardtanh hardsigmoid "
     "floor ceil round trunc frac fmod remainder eq ne lt le gt ge logical_and logical_or "
     "logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf isfinite "
     "threshold_backward hardtanh_backward leaky_relu_backward nan_to_num heaviside",
     OpCost::bytes, OpFuses::pointwise, "several follow each other: each reads and writes memory",
     "torch.compile makes one kernel of a chain; in-place forms save an allocation", OpRole::main,
     "write it over the whole tensor, or use torch._foreach_* over a list of tensors",
     OpSign::outer_broadcast},
    {"functions",
     "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan atan2 sinh cosh "
     "asinh acosh atanh tanh sigmoid erf erfc erfinv pow xlogy xlog1py logaddexp logaddexp2 gelu "
     "silu mish elu celu selu softplus logsigmoid log_sigmoid_forward glu prelu hypot float_power "
     "gelu_backward silu_backward tanh_backward sigmoid_backward elu_backward softplus_backward "
     "glu_backward log_sigmoid_backward mish_backward",
     OpCost::arithmetic, OpFuses::pointwise, "pow with a whole exponent, or exp(log()) of the same",
     "x * x for pow(x, 2); tanh's approximation of GELU (approximate='tanh') where the model "
     "allows it; torch.compile",
     OpRole::main, "write it over the whole tensor", OpSign::outer_broadcast},
    {"special functions",
     "lgamma digamma polygamma igamma igammac special_bessel_j0 special_bessel_j1 special_i0 "
     "special_i0e special_i1 special_i1e special_zeta special_ndtri special_erfcx i0 sinc mvlgamma",
     OpCost::arithmetic, OpFuses::alone,
     "it costs tens to hundreds of operations for each element and runs without vector "
     "instructions",
     "tabulate and interpolate if arguments repeat; compute what does not change once",
     OpRole::either, "call it once on the whole tensor"},
    {"complex numbers",
     "complex polar view_as_real view_as_complex real imag angle conj conj_physical _conj "
     "_conj_physical resolve_conj",
     OpCost::bytes, OpFuses::alone, "complex tensors fall out of fused kernels",
     "two real tensors (or a last dimension of 2) fuse; rotary embeddings need no complex numbers",
     OpRole::either},
    {"comparison of all elements", "equal allclose isclose is_nonzero", OpCost::wait,
     OpFuses::alone, "the host waits for the answer on a device",
     "keep checks out of the step, or count mismatches on the device and read them later",
     OpRole::aside, "compare whole tensors once"},
    {"reading a number", "item _local_scalar_dense tolist", OpCost::wait, OpFuses::alone,
     "a loss or a condition is read in every step: the host waits",
     "read it every few steps, or keep a sum on the device (detach) and read it once",
     OpRole::aside,
     ".tolist() reads all numbers of a tensor at once; sums and comparisons of whole tensors need "
     "no loop"},
    // --- Losses ----------------------------------------------------------------------------------
    {"cross entropy",
     "cross_entropy_loss nll_loss nll_loss_forward nll_loss_backward nll_loss2d "
     "nll_loss2d_forward nll_loss2d_backward nll_loss_nd",
     OpCost::bytes, OpFuses::reduction,
     "logits of a large vocabulary are written whole, in float32",
     "compute the head and the loss in chunks of rows, or a fused linear-cross-entropy; leave out "
     "rows that are ignored",
     OpRole::main, "stack logits and targets and compute one loss"},
    {"losses by element",
     "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
     "binary_cross_entropy_with_logits kl_div poisson_nll_loss soft_margin_loss "
     "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward",
     OpCost::bytes, OpFuses::reduction, "several ops follow each other",
     "torch.compile the loss with the layer before it", OpRole::main,
     "stack the inputs and compute one loss"},
    {"losses over pairs",
     "margin_ranking_loss triplet_margin_loss cosine_embedding_loss multi_margin_loss "
     "multilabel_margin_loss hinge_embedding_loss cosine_similarity",
     OpCost::bytes, OpFuses::reduction, "similarities of all pairs are computed by broadcasting",
     "normalise rows once; a matrix product then gives all cosines", OpRole::either,
     "stack the pairs and compute one loss"},
    {"alignment losses", "ctc_loss _ctc_loss _ctc_loss_backward _cudnn_ctc_loss", OpCost::scan,
     OpFuses::alone,
     "PyTorch's own kernel runs: targets on the wrong device, a blank that is not 0, or int64 "
     "lengths",
     "cuDNN's takes targets on the CPU in int32, blank=0 and log-probabilities in float32",
     OpRole::either, "one call takes a batch of sequences with their lengths"},
    // --- Distances -------------------------------------------------------------------------------
    {"distances of all pairs",
     "cdist _cdist_forward _cdist_backward _euclidean_dist pdist "
     "_pdist_forward _pdist_backward pairwise_distance",
     OpCost::search, OpFuses::alone, "p = 2 over many points is computed pair by pair",
     "compute_mode='use_mm_for_euclid_dist' makes it a matrix product; its gradient too; topk of "
     "blocks keeps the matrix small",
     OpRole::either, "cdist takes batches: stack the point sets"},
    // --- Images ----------------------------------------------------------------------------------
    {"cubic resampling",
     "upsample_bicubic2d _upsample_bicubic2d_aa upsample_bicubic2d_backward "
     "_upsample_bicubic2d_aa_backward",
     OpCost::gather, OpFuses::pointwise, "it reads 16 neighbours for each pixel",
     "bilinear interpolation reads 4 neighbours where bicubic reads 16; resize once, in the "
     "loader",
     OpRole::either, "resize one batch"},
    {"resampling",
     "interpolate upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d "
     "upsample_bilinear2d upsample_trilinear3d _upsample_nearest_exact2d _upsample_bilinear2d_aa "
     "upsample_bilinear2d_backward upsample_nearest2d_backward upsample_trilinear3d_backward "
     "_upsample_nearest_exact1d",
     OpCost::gather, OpFuses::pointwise, "inputs are resized in the step, one by one",
     "resize in the loader's workers, in batches; channels_last lets the CPU kernel use vectors",
     OpRole::either, "resize one batch"},
    {"sampling at points",
     "grid_sampler grid_sampler_2d grid_sampler_3d grid_sampler_2d_backward "
     "grid_sampler_3d_backward affine_grid_generator",
     OpCost::gather, OpFuses::pointwise, "mode='bicubic', or a grid that does not change",
     "bilinear interpolation reads 4 neighbours where bicubic reads 16; make the grid once; "
     "interpolate serves plain resizing",
     OpRole::either, "sample one batch"},
    {"pooling",
     "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d "
     "avg_pool2d avg_pool3d max_pool2d_with_indices_backward avg_pool2d_backward "
     "mkldnn_max_pool2d max_unpool2d lp_pool2d",
     OpCost::bytes, OpFuses::pointwise, "windows overlap much, or the layout is not channels_last",
     "channels_last; a stride as large as the window; a stride in the convolution before it",
     OpRole::main, "run all samples as one batch"},
    {"adaptive pooling",
     "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
     "adaptive_max_pool2d adaptive_max_pool1d _adaptive_avg_pool2d_backward "
     "adaptive_max_pool2d_backward fractional_max_pool2d",
     OpCost::bytes, OpFuses::pointwise, "the output size is 1, or divides the input's",
     "mean over the last dimensions for size 1; plain pooling if sizes divide", OpRole::main,
     "run all samples as one batch"},
    {"boxes", "nms roi_align roi_pool box_iou", OpCost::search, OpFuses::alone,
     "it runs class by class in a Python loop, or on all candidates",
     "batched_nms; topk of the scores first", OpRole::either,
     "torchvision.ops.batched_nms takes the classes or images together"},
    // --- Spectra ---------------------------------------------------------------------------------
    {"Fourier transforms",
     "_fft_r2c _fft_c2r _fft_c2c fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 "
     "fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfft",
     OpCost::transform, OpFuses::alone,
     "sizes have large prime factors, or a complex transform is taken of real numbers",
     "pad to a size of small factors (a power of two); rfft of real input does half of the work; "
     "transform constant filters once",
     OpRole::either, "transforms take batches: stack the signals"},
    {"short-time transforms", "stft istft hann_window hamming_window blackman_window kaiser_window",
     OpCost::transform, OpFuses::alone, "windows or filters are made anew in every call",
     "keep the window as a buffer; compute features once, in the loader", OpRole::either,
     "stft takes batches: stack the signals"},
    // --- Linear algebra --------------------------------------------------------------------------
    {"factorisations",
     "linalg_cholesky cholesky linalg_cholesky_ex linalg_lu linalg_lu_factor linalg_lu_factor_ex "
     "linalg_qr qr geqrf linalg_householder_product linalg_ldl_factor linalg_ldl_factor_ex "
     "lu_unpack orgqr ormqr",
     OpCost::solve, OpFuses::alone,
     "the same matrix is factorised again, or in a loop over a batch",
     "factorise once and reuse it (cholesky_solve, lu_solve); batches go in one call; the _ex "
     "forms do not wait for errors on a device",
     OpRole::either, "torch.linalg takes batches: stack the matrices"},
    {"solving",
     "linalg_solve linalg_solve_ex _linalg_solve_ex solve linalg_solve_triangular triangular_solve "
     "cholesky_solve _cholesky_solve_helper linalg_lu_solve lu_solve linalg_lstsq linalg_ldl_solve",
     OpCost::solve, OpFuses::alone, "right-hand sides come one at a time",
     "stack right-hand sides to one call; keep the factorisation (cholesky_solve, lu_solve) if the "
     "matrix stays",
     OpRole::either, "torch.linalg takes batches: stack the matrices and right-hand sides",
     OpSign::one_column},
    {"inverses and determinants",
     "linalg_inv linalg_inv_ex inverse linalg_pinv pinverse linalg_det _linalg_det det "
     "linalg_slogdet _linalg_slogdet slogdet logdet cholesky_inverse linalg_matrix_power "
     "linalg_matrix_exp matrix_exp",
     OpCost::solve, OpFuses::alone, "the inverse is multiplied with something",
     "linalg.solve does less work and is more exact; log-determinants follow from a Cholesky "
     "factor's diagonal",
     OpRole::aside, "torch.linalg takes batches: stack the matrices", OpSign::then_product},
    {"eigenvalues and singular values",
     "linalg_eigh _linalg_eigh linalg_eig linalg_eigvals linalg_eigvalsh linalg_svd _linalg_svd "
     "linalg_svdvals svd linalg_matrix_rank linalg_matrix_norm linalg_cond _linalg_eigvals lobpcg",
     OpCost::solve, OpFuses::alone, "all are computed where a few are read, or for a norm",
     "svdvals or eigvalsh if vectors are not read; svd_lowrank or lobpcg for the largest few; a "
     "power iteration for a spectral norm",
     OpRole::either, "torch.linalg takes batches: stack the matrices"},
    // --- Quantisation ----------------------------------------------------------------------------
    {"quantising and widening",
     "quantize_per_tensor quantize_per_channel dequantize quantize_per_tensor_dynamic "
     "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine "
     "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
     "_fake_quantize_learnable_per_tensor_affine choose_qparams_per_token_asymmetric",
     OpCost::bytes, OpFuses::pointwise,
     "weights are widened in every call: more bytes move than without quantisation",
     "torch.compile (torchao) fuses the widening into the product; quantise weights once",
     OpRole::either},
    // --- Sparse, nested --------------------------------------------------------------------------
    {"sparse products",
     "_sparse_mm sparse_sampled_addmm _sparse_addmm smm sspaddmm _sparse_sparse_matmul "
     "_sparse_semi_structured_linear _sparse_semi_structured_mm",
     OpCost::gather, OpFuses::alone,
     "more than some per cent of the elements are there, or the layout is COO",
     "a dense product is faster above about 5 to 10 %; CSR (to_sparse_csr) once, outside of the "
     "step; coalesce once",
     OpRole::either, "stack the right-hand sides to one product"},
    {"sparse layouts",
     "to_sparse to_sparse_csr to_dense _to_dense coalesce _coalesce _indices _values "
     "sparse_coo_tensor _sparse_coo_tensor_with_dims_and_tensors sparse_mask "
     "_coo_to_sparse to_sparse_csc to_sparse_bsr _convert_indices_from_coo_to_csr",
     OpCost::sort, OpFuses::alone, "the layout changes in every step",
     "convert once; keep indices and update values", OpRole::aside,
     "convert once, outside of the loop"},
    {"nested tensors",
     "_nested_tensor_from_mask _nested_from_padded to_padded_tensor _nested_view_from_buffer "
     "nested_to_padded_tensor _nested_tensor_from_tensor_list _jagged_to_padded_dense_forward "
     "_padded_dense_to_jagged_forward",
     OpCost::bytes, OpFuses::alone, "sequences are padded and unpadded between layers",
     "keep torch.jagged through the whole block", OpRole::either},
    // --- Optimizer and training ------------------------------------------------------------------
    {"optimizer steps, foreach",
     "_foreach_add _foreach_mul _foreach_div _foreach_addcdiv _foreach_addcmul _foreach_sqrt "
     "_foreach_lerp _foreach_norm _foreach_neg _foreach_sub _foreach_pow _foreach_zero "
     "_foreach_copy _foreach_maximum _foreach_reciprocal",
     OpCost::bytes, OpFuses::pointwise, "each op reads and writes all parameters",
     "fused=True makes one kernel of a step", OpRole::main},
    {"optimizer steps, fused", "_fused_adam _fused_adamw _fused_sgd _fused_adagrad", OpCost::bytes,
     OpFuses::alone, "", "", OpRole::main},
    {"scaling of gradients", "_amp_foreach_non_finite_check_and_unscale _amp_update_scale",
     OpCost::bytes, OpFuses::alone, "a loss is scaled that is not float16's",
     "bf16 needs no GradScaler", OpRole::main},
    {"checks of gradients", "_is_any_true _is_all_true _assert_async _functional_assert_async",
     OpCost::bytes, OpFuses::alone, "anomaly mode is on",
     "switch torch.autograd.set_detect_anomaly on to find a NaN, not for whole runs", OpRole::aside,
     "check once per step"},
    // --- Shapes ----------------------------------------------------------------------------------
    {"views",
     "view reshape _unsafe_view _reshape_alias t transpose permute expand expand_as slice select "
     "narrow squeeze unsqueeze flatten unflatten split split_with_sizes chunk unbind detach alias "
     "as_strided diagonal movedim swapaxes unfold_copy numpy_T mT view_as lift_fresh result_type "
     "broadcast_tensors tensor_split",
     OpCost::metadata, OpFuses::pointwise,
     "thousands of small calls: each costs a microsecond of dispatch",
     "torch.compile removes them; index once in place of slicing in a loop", OpRole::main,
     "index or unbind once instead of slicing element by element; whole tensors need no loop"},
    {"allocation", "empty empty_like empty_strided new_empty resize resize_as set",
     OpCost::metadata, OpFuses::alone,
     "large results are new memory each time: the system clears and maps its pages",
     "reuse buffers (out=, in-place forms); jemalloc or tcmalloc keep freed memory on a CPU",
     OpRole::main},
};

using Rows = std::unordered_map<std::string_view, const OpKnowledge*>;

const Rows& rows() {
  static const Rows table = [] {
    Rows t;
    for (const OpKnowledge& row : kTable) {
      std::string_view rest = row.names;
      while (!rest.empty()) {
        const size_t end = std::min(rest.find(' '), rest.size());
        t.emplace(rest.substr(0, end), &row);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return t;
  }();
  return table;
}

const OpKnowledge* row_of(std::string_view base) {
  const auto found = rows().find(base);
  if (found != rows().end()) return found->second;
  // The table of pointwise functions knows the cost of the others.
  const PointwiseRow* row = pointwise_row_of_op(base);
  if (row == nullptr) return nullptr;
  return rows().at(row->cost == PointwiseCost::costly ? "exp" : "add");
}

}  // namespace

std::string_view op_cost_name(OpCost cost) { return kCostNames[static_cast<size_t>(cost)]; }
std::string_view op_fuses_name(OpFuses fuses) { return kFusesNames[static_cast<size_t>(fuses)]; }

std::string_view op_role_name(OpRole role) { return kRoleNames[static_cast<size_t>(role)]; }
std::string_view op_sign_name(OpSign sign) { return kSignNames[static_cast<size_t>(sign)]; }

std::span<const OpKnowledge> all_op_knowledge() { return kTable; }

const OpKnowledge* op_knowledge(std::string_view name) {
  for (const std::string_view prefix : {"aten::", "torchvision::", "quantized::"})
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  if (const OpKnowledge* row = row_of(name)) return row;
  for (const std::string_view suffix : {"_", "_out", "_backward", "_copy"}) {
    if (!name.ends_with(suffix) || name.size() == suffix.size()) continue;
    if (const OpKnowledge* row = row_of(name.substr(0, name.size() - suffix.size()))) return row;
  }
  return nullptr;
}

}  // namespace epilogue::trace
