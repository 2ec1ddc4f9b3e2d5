// SPDX-License-Identifier: Apache-2.0
// Ops of layers and losses, and of images. Columns: op_knowledge.h.
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {
namespace {

// Texts of several rows.
constexpr std::string_view kOneBatch = "run all sequences as one padded or packed batch";
constexpr std::string_view kOneBmm = "stack the operands: one bmm or einsum computes all of them";
constexpr std::string_view kOneProduct =
    "stack the operands: one mm, bmm or einsum computes all of them";
constexpr std::string_view kSmallBatch =
    "steps depend on each other: a small batch leaves the hardware idle";
constexpr std::string_view kLargerBatches =
    "if one step is read of a direction that has just begun, leave that direction out "
    "(bidirectional=False); if sequences are padded, pack them (pack_padded_sequence) or put "
    "like lengths together; if windows overlap, carry the state on in place of a run over each; "
    "if steps are called one by one, one call of nn.LSTM or nn.GRU; else larger batches";
constexpr std::string_view kBatchedNms =
    "torchvision.ops.batched_nms takes the classes or images together";
constexpr std::string_view kReshapedProduct =
    "one mm of reshaped operands if one side is shared; scaled_dot_product_attention if it is "
    "attention; order a chain of products by their sizes";
constexpr std::string_view kFusedLoss =
    "scaled_dot_product_attention; cross_entropy on logits; for a large vocabulary a chunked or "
    "fused linear-cross-entropy";

constexpr OpKnowledge kLayerOps[] = {
    // --- Products ------------------------------------------------------------------------
    {"matrix products", "mm addmm matmul linear _addmm_activation linalg_matmul", OpCost::flops,
     0.015, OpFuses::epilogue,
     "few rows (batch 1), dtype float32 where tensor cores or bf16 units are there, or sizes that "
     "are no multiples of 8",
     "run more rows per call, bf16 or TF32 (torch.set_float32_matmul_precision('high')), sizes "
     "that are multiples of 8; quantised weights for decoding; leave out rows that nothing reads "
     "(padding, positions that the loss ignores), keep factors of low rank apart, and compute once "
     "what does not change between steps",
     OpRole::main, kOneProduct, OpSign::one_hot, true},
    {"products of a matrix and a vector", "addmv mv", OpCost::flops, 0.074, OpFuses::epilogue,
     "weights are read for one row: the memory's rate limits it",
     "run more rows per call; weights of 8 or 4 bits are read in less time", OpRole::main,
     kOneProduct, OpSign::none, true},
    {"products of vectors", "dot vdot inner linalg_vecdot addr ger outer", OpCost::flops, 0.11,
     OpFuses::epilogue, "many short vectors are multiplied one by one",
     "stack them: one mm, bmm or einsum", OpRole::main, kOneProduct},
    {"batched products", "bmm baddbmm addbmm", OpCost::flops, 0.016, OpFuses::epilogue,
     "a batch of small matrices, or operands that are expanded or transposed first",
     kReshapedProduct, OpRole::main, kOneBmm, OpSign::one_hot, true},
    {"products by subscripts", "einsum tensordot", OpCost::flops, 0.014, OpFuses::epilogue,
     "a batch of small matrices, or operands that are expanded or transposed first",
     kReshapedProduct, OpRole::main, kOneBmm, OpSign::one_hot, true},
    {"bilinear layers", "bilinear _trilinear", OpCost::flops, 0, OpFuses::alone,
     "its outputs are unrolled, forward and backward: for each a tensor of all rows is written",
     "one product with the weight for all outputs, then times the other input and a sum: (x1 @ "
     "W.permute(1, 0, 2).flatten(1)).unflatten(1, (outputs, -1)) * x2.unsqueeze(1), summed over "
     "the last dimension, or torch.einsum('bi,oij,bj->bo', x1, W, x2)",
     OpRole::either, "stack the operands: one einsum computes all of them", OpSign::none, true},
    {"chains of products", "chain_matmul linalg_multi_dot", OpCost::flops, 0, OpFuses::epilogue,
     "products are taken from the left whatever their sizes",
     "linalg.multi_dot orders them by size", OpRole::main, kOneBmm, OpSign::none, true},
    {"Kronecker products", "kron", OpCost::bytes, 0.2, OpFuses::pointwise,
     "the result is multiplied next", "(A x B) vec(X) is B X A^T: two small products",
     OpRole::either, kOneBmm, OpSign::then_product, true},
    {"products in 8 bits with scales", "_scaled_mm _scaled_mm_v2 _int_mm", OpCost::flops, 1.1,
     OpFuses::epilogue, "", "", OpRole::main, "stack the operands, or use a grouped product",
     OpSign::none, true},
    {"products with quantised weights",
     "_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu "
     "_weight_int4pack_mm_with_scales_and_zeros _dyn_quant_matmul_4bit _mixed_dtypes_linear "
     "fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation "
     "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation "
     "_wrapped_quantized_linear_prepacked",
     OpCost::flops, 0, OpFuses::epilogue,
     "many rows are multiplied: widening the weights costs more than it saves",
     "for prompts and training use 16 bits or 8 bits with scales; 4 bits pay where few rows read "
     "all weights",
     OpRole::main, "stack the operands, or use a grouped product", OpSign::none, true},
    {"grouped products", "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2 _foreach_mm",
     OpCost::flops, 0, OpFuses::epilogue, "", "", OpRole::main,
     "stack the operands, or use a grouped product", OpSign::none, true},
    {"linear layers of oneDNN and MKL",
     "_mkldnn_linear mkldnn_linear _mkl_linear _linear_pointwise mkldnn_linear_backward "
     "mkldnn_linear_backward_input mkldnn_linear_backward_weights",
     OpCost::flops, 0, OpFuses::alone, "", "", OpRole::main, "run all samples in one call",
     OpSign::none, true},
    // --- Convolutions --------------------------------------------------------------------
    {"convolutions without a library",
     "slow_conv2d _slow_conv2d_forward _slow_conv2d_backward slow_conv3d slow_conv3d_forward "
     "slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d "
     "thnn_conv2d",
     OpCost::flops, 0.086, OpFuses::alone,
     "the library (oneDNN, cuDNN, MIOpen) did not take it: dtype, dilation or an empty batch",
     "run it in float32 or bf16 with torch.backends.mkldnn or cudnn enabled; float64, complex and "
     "integer convolutions have no library kernel",
     OpRole::aside, "run all samples in one call", OpSign::none, true},
    {"depthwise convolutions", "_conv_depthwise2d conv_depthwise3d miopen_depthwise_convolution",
     OpCost::flops, 1.1, OpFuses::alone,
     "each channel is read for few multiplications: the memory's rate limits it",
     "channels_last; cuDNN or oneDNN with torch.backends enabled; fuse the pointwise convolution "
     "behind it by torch.compile(mode=\"max-autotune\")",
     OpRole::either, "run all samples in one call", OpSign::none, true},
    {"convolutions",
     "convolution _convolution _convolution_mode convolution_overrideable conv1d conv2d conv3d "
     "mkldnn_convolution cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu "
     "miopen_convolution miopen_convolution_relu miopen_convolution_add_relu "
     "_nnpack_spatial_convolution _mps_convolution",
     OpCost::flops, 0.02, OpFuses::epilogue,
     "few channels, groups as many as channels, or layouts that change between layers",
     "channels_last for the model and its inputs; torch.backends.cudnn.benchmark for fixed sizes; "
     "fold batch norm into the weights for inference; compute no more than is read (a stride, "
     "padding on the side that stays, a crop before it); kernels of 7 and more that are separable "
     "as rows and then columns, long ones by FFT",
     OpRole::main,
     "run all samples as one batch; of one weight for each channel, band or branch a grouped "
     "convolution (groups=) or one with all output channels",
     OpSign::none, true},
    {"transposed convolutions",
     "conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose "
     "miopen_convolution_transpose _mps_convolution_transpose mkldnn_transposed_convolution",
     OpCost::flops, 0.019, OpFuses::epilogue,
     "the stride is larger than 1: most of what is multiplied is padding in some libraries",
     "upsampling and a convolution, or pixel_shuffle behind a convolution, do no more work; "
     "channels_last",
     OpRole::main, "run all samples as one batch", OpSign::none, true},
    {"gradients of convolutions", "convolution_backward mkldnn_convolution_backward", OpCost::flops,
     0, OpFuses::epilogue,
     "the gradient of the first layer's input is computed, or frozen layers are differentiated",
     "requires_grad=False of frozen weights, and of inputs whose gradient nobody reads; "
     "channels_last; fewer groups",
     OpRole::main, "run all samples as one batch", OpSign::none, true},
    {"convolutions over time first", "conv_tbc", OpCost::flops, 0, OpFuses::epilogue,
     "it is slower than conv1d", "conv1d on batch x channels x time", OpRole::main,
     "run all samples as one batch", OpSign::none, true},
    {"patches as columns", "im2col col2im unfold unfold_backward _unfold fold", OpCost::bytes, 2.6,
     OpFuses::pointwise, "a convolution is written as unfold and a product",
     "conv2d does not write the patches; sums and means of windows are avg_pool or differences of "
     "cumsum; what looks at few neighbours adds shifted slices",
     OpRole::either, "run all samples as one batch"},
    // --- Recurrent layers ----------------------------------------------------------------
    {"LSTM", "lstm lstm_mps mkldnn_rnn_layer mkldnn_rnn_layer_backward _lstm_mps lstm_mps_backward",
     OpCost::scan, 0.023, OpFuses::alone, kSmallBatch, kLargerBatches, OpRole::main, kOneBatch,
     OpSign::none, true},
    {"GRU", "gru", OpCost::scan, 0.032, OpFuses::alone, kSmallBatch, kLargerBatches, OpRole::main,
     kOneBatch, OpSign::none, true},
    {"plain recurrent layers", "rnn_tanh rnn_relu", OpCost::scan, 0, OpFuses::alone, kSmallBatch,
     kLargerBatches, OpRole::main, kOneBatch, OpSign::none, true},
    {"recurrent layers of cuDNN and MIOpen",
     "_cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward _cudnn_rnn_flatten_weight",
     OpCost::scan, 0, OpFuses::alone,
     "weights are not one block of memory, or the layer is in float32 without TF32",
     "flatten_parameters() once after moving the model; larger batches, packed sequences",
     OpRole::main, kOneBatch, OpSign::none, true},
    {"quantised recurrent layers", "quantized_lstm quantized_gru", OpCost::scan, 0, OpFuses::alone,
     "a small batch leaves the hardware idle", "larger batches", OpRole::main, kOneBatch,
     OpSign::none, true},
    {"recurrent cells",
     "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _thnn_fused_lstm_cell _thnn_fused_gru_cell "
     "_thnn_fused_lstm_cell_backward _thnn_fused_gru_cell_backward quantized_lstm_cell "
     "quantized_gru_cell",
     OpCost::flops, 0, OpFuses::alone, "cells are called in a Python loop over time",
     "nn.LSTM, nn.GRU or nn.RNN run the loop in one call; torch.compile unrolls short loops",
     OpRole::either, "nn.LSTM, nn.GRU or nn.RNN run all steps in one call", OpSign::none, true},
    {"packed sequences",
     "_pack_padded_sequence _pad_packed_sequence _pack_sequence pad_sequence "
     "_pack_padded_sequence_backward",
     OpCost::gather, 0.55, OpFuses::alone, "lengths are on a device: the host waits for them",
     "keep lengths on the CPU; sort batches by length in the loader (enforce_sorted=True)",
     OpRole::aside, "pad or pack all sequences in one call"},
    // --- Attention -----------------------------------------------------------------------
    {"attention, op by op", "_scaled_dot_product_attention_math _safe_softmax", OpCost::flops,
     0.043, OpFuses::epilogue,
     "no fused kernel took it: dropout on a CPU, float64, a mask that needs a gradient, or a head "
     "size that is too large",
     "drop the reason (dropout_p=0, bf16 or float32, is_causal=True in place of a mask); "
     "torch.nn.attention.sdpa_kernel says why a kernel declines",
     OpRole::aside, "run all heads and samples as one batch"},
    {"attention, fused",
     "scaled_dot_product_attention _scaled_dot_product_flash_attention "
     "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
     "_scaled_dot_product_cudnn_attention _flash_attention_forward _efficient_attention_forward "
     "_cudnn_attention_forward _scaled_dot_product_fused_attention_overrideable",
     OpCost::flops, 0.02, OpFuses::alone,
     "keys and values are repeated for grouped queries, or padding is attended to",
     "if keys and values are repeated for groups of queries, enable_gqa=True; if the mask is "
     "causal, is_causal=True in its place; if a mask hides most of the places (a window, blocks, "
     "padding), attend within blocks or use nested sequences (flex_attention with a block mask); "
     "if few of the queries are read, give it these alone",
     OpRole::main, "run all heads and samples as one batch"},
    {"gradients of attention, fused",
     "_scaled_dot_product_flash_attention_backward "
     "_scaled_dot_product_flash_attention_for_cpu_backward "
     "_scaled_dot_product_efficient_attention_backward _flash_attention_backward "
     "_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
     "_scaled_dot_product_fused_attention_overrideable_backward",
     OpCost::flops, 0, OpFuses::alone,
     "a mask with a gradient, or dropout, makes the backward pass slower than twice the forward "
     "pass",
     "is_causal=True in place of a mask; a bias that needs a gradient as flex_attention's "
     "score_mod",
     OpRole::main, "run all heads and samples as one batch"},
    {"attention of nn.MultiheadAttention",
     "_native_multi_head_attention _transformer_encoder_layer_fwd _triton_multi_head_attention "
     "_transform_bias_rescale_qkv",
     OpCost::flops, 0, OpFuses::alone, "need_weights=True keeps the fused kernel away",
     "need_weights=False", OpRole::main, "run all samples as one batch", OpSign::none, true},
    // --- Norms ---------------------------------------------------------------------------
    {"batch norm",
     "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
     "_batch_norm_impl_index cudnn_batch_norm miopen_batch_norm _batch_norm_with_update "
     "_batch_norm_no_update quantized_batch_norm",
     OpCost::bytes, 2.5, OpFuses::norms, "training=True in a run without a backward pass",
     "model.eval() for inference; fold it into the convolution before it", OpRole::main,
     "run all samples as one batch", OpSign::none, true},
    {"gradients of batch norm",
     "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward "
     "batch_norm_backward _batch_norm_impl_index_backward batch_norm_backward_reduce "
     "batch_norm_backward_elemt",
     OpCost::bytes, 0, OpFuses::reduction, "frozen norms are differentiated",
     "requires_grad=False and eval() of norms that are frozen", OpRole::main,
     "run all samples as one batch"},
    {"batch norm over ranks",
     "batch_norm_stats batch_norm_elemt batch_norm_gather_stats "
     "batch_norm_gather_stats_with_counts batch_norm_update_stats",
     OpCost::bytes, 0, OpFuses::reduction, "statistics of small layers are gathered one by one",
     "SyncBatchNorm only where a rank's batch is too small; group norm needs no other rank",
     OpRole::main, "run all samples as one batch", OpSign::none, true},
    {"layer norm", "layer_norm native_layer_norm", OpCost::bytes, 1.2, OpFuses::norms,
     "it is written with mean, var, sub and div", "nn.LayerNorm and nn.RMSNorm are one kernel",
     OpRole::main, "run all rows in one call", OpSign::none, true},
    {"RMS norm", "rms_norm _fused_rms_norm", OpCost::bytes, 0.55, OpFuses::norms,
     "it is written with pow, mean, rsqrt and mul",
     "nn.RMSNorm is one kernel on a device; on a CPU torch.compile makes one of its parts",
     OpRole::main, "run all rows in one call", OpSign::none, true},
    {"gradients of layer and RMS norms", "native_layer_norm_backward _fused_rms_norm_backward",
     OpCost::bytes, 0, OpFuses::norms,
     "gradients of weight and bias are summed over all rows in a kernel of their own",
     "torch.compile, or a fused norm (Liger, Apex), sums them in one pass", OpRole::main,
     "run all rows in one call"},
    {"group norm", "group_norm native_group_norm", OpCost::bytes, 0.66, OpFuses::norms,
     "channels_last inputs are made contiguous first", "keep one layout through the block",
     OpRole::main, "run all samples as one batch", OpSign::none, true},
    {"gradients of group norm", "native_group_norm_backward", OpCost::bytes, 0, OpFuses::reduction,
     "channels_last inputs are made contiguous first", "keep one layout through the block",
     OpRole::main, "run all samples as one batch"},
    {"instance norm", "instance_norm", OpCost::bytes, 2.5, OpFuses::norms,
     "channels_last inputs are made contiguous first", "keep one layout through the block",
     OpRole::main, "run all samples as one batch", OpSign::none, true},
    {"local response norm", "local_response_norm", OpCost::bytes, 0, OpFuses::reduction,
     "an old model (AlexNet) uses it", "batch norm costs a fifth of it", OpRole::main,
     "run all samples as one batch"},
    {"softmax", "softmax _softmax softmin special_softmax", OpCost::arithmetic, 1.7, OpFuses::rows,
     "it normalises scores of attention, or is followed by log",
     "scaled_dot_product_attention; log_softmax; on a CPU it fuses with what is around it, but its "
     "exponentials stay",
     OpRole::main, "stack the rows and run them in one call"},
    {"log softmax", "log_softmax _log_softmax special_log_softmax", OpCost::arithmetic, 1.6,
     OpFuses::rows, "it normalises a vocabulary of which one class is read",
     "cross_entropy on logits; for a large vocabulary a chunked or fused linear-cross-entropy",
     OpRole::main, "stack the rows and run them in one call"},
    {"gradients of softmax",
     "_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward",
     OpCost::arithmetic, 0.55, OpFuses::reduction,
     "it normalises scores of attention, or a vocabulary of which one class is read", kFusedLoss,
     OpRole::main, "stack the rows and run them in one call"},
    {"masked softmax", "_masked_softmax _sparse_softmax _sparse_log_softmax", OpCost::arithmetic, 0,
     OpFuses::alone,
     "it normalises scores of attention, or a vocabulary of which one class is read", kFusedLoss,
     OpRole::main, "stack the rows and run them in one call"},
    {"log of sums of exponentials", "logsumexp special_logsumexp", OpCost::arithmetic, 2.5,
     OpFuses::reduction, "it is computed beside a softmax of the same rows",
     "one of them gives the other: softmax = exp(x - logsumexp)", OpRole::main,
     "stack the rows and run them in one call"},
    {"weight norm",
     "_weight_norm _weight_norm_interface _weight_norm_interface_backward norm_except_dim renorm",
     OpCost::bytes, 0.58, OpFuses::reduction,
     "one weight is normalised several times in a step, or in every call of inference",
     "compute the weight once per step: torch.nn.utils.parametrize.cached() around a forward pass "
     "that reads it in a loop; once the weights stay, remove_parametrizations(module, \"weight\")",
     OpRole::aside, "normalise once, outside of the loop", OpSign::inference},
    // --- Losses --------------------------------------------------------------------------
    {"cross entropy", "cross_entropy_loss", OpCost::bytes, 1.3, OpFuses::reduction,
     "logits of a large vocabulary are written whole, in float32",
     "compute the head and the loss in chunks of rows, or a fused linear-cross-entropy; leave out "
     "rows that are ignored; of very many classes a sampled softmax (negatives) or "
     "nn.AdaptiveLogSoftmaxWithLoss in training",
     OpRole::main, "stack logits and targets and compute one loss"},
    {"losses of classes",
     "nll_loss nll_loss_forward nll_loss_nd nll_loss2d nll_loss2d_forward nll_loss_backward "
     "nll_loss2d_backward",
     OpCost::bytes, 0, OpFuses::reduction,
     "log_softmax and nll_loss are two passes over the logits",
     "cross_entropy on logits; a fused linear-cross-entropy writes no logits", OpRole::main,
     "stack logits and targets and compute one loss"},
    {"losses by element",
     "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss mse_loss_backward "
     "smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward",
     OpCost::bytes, 0.37, OpFuses::reduction, "several ops follow each other",
     "torch.compile the loss with the layer before it", OpRole::main,
     "stack the inputs and compute one loss"},
    {"binary cross entropy",
     "binary_cross_entropy binary_cross_entropy_with_logits binary_cross_entropy_backward",
     OpCost::arithmetic, 7.7, OpFuses::reduction, "sigmoid and binary_cross_entropy are two passes",
     "binary_cross_entropy_with_logits is one, and exact", OpRole::main,
     "stack the inputs and compute one loss"},
    {"divergences", "kl_div poisson_nll_loss", OpCost::arithmetic, 5.4, OpFuses::reduction,
     "several ops follow each other", "torch.compile the loss with the layer before it",
     OpRole::main, "stack the inputs and compute one loss"},
    {"losses over pairs",
     "margin_ranking_loss triplet_margin_loss cosine_embedding_loss hinge_embedding_loss",
     OpCost::bytes, 2.3, OpFuses::reduction,
     "similarities of all pairs are computed by broadcasting",
     "normalise rows once; a matrix product then gives all cosines", OpRole::either,
     "stack the pairs and compute one loss"},
    {"losses of margins over classes",
     "multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward "
     "multi_margin_loss_backward multilabel_margin_loss_backward",
     OpCost::arithmetic, 3.3, OpFuses::alone, "it runs over many classes, on one thread on a CPU",
     "cross_entropy, or the margins written with broadcasting and torch.compile", OpRole::either,
     "stack the pairs and compute one loss"},
    {"cosines", "cosine_similarity", OpCost::bytes, 1.4, OpFuses::reduction,
     "similarities of all pairs are computed by broadcasting",
     "normalise rows once; a matrix product then gives all cosines", OpRole::either,
     "stack the pairs and compute one loss"},
    {"alignment losses", "ctc_loss _ctc_loss _ctc_loss_backward _cudnn_ctc_loss", OpCost::scan, 19,
     OpFuses::alone,
     "PyTorch's own kernel runs: targets on the wrong device, a blank that is not 0, or int64 "
     "lengths",
     "cuDNN's takes targets on the CPU in int32, blank=0 and log-probabilities in float32",
     OpRole::either, "one call takes a batch of sequences with their lengths"},
    // --- Images --------------------------------------------------------------------------
    {"cubic resampling",
     "upsample_bicubic2d _upsample_bicubic2d_aa upsample_bicubic2d_backward "
     "_upsample_bicubic2d_aa_backward",
     OpCost::gather, 13, OpFuses::pointwise, "it reads 16 neighbours for each pixel",
     "bilinear interpolation reads 4 neighbours where bicubic reads 16; resize once, in the "
     "loader, and no further than the model reads; a table of positions that stays, once, at load; "
     "antialias=True only to shrink; maps of few channels rather than of many (a 1 x 1 convolution "
     "before it)",
     OpRole::either, "resize one batch"},
    {"bilinear resampling", "upsample_bilinear2d upsample_bilinear2d_backward interpolate",
     OpCost::gather, 2.1, OpFuses::pointwise, "inputs are resized in the step, one by one",
     "resize in the loader's workers, in batches; maps of few channels rather than of many (a 1 x "
     "1 convolution before it), straight to the last size; channels_last lets the CPU kernel use "
     "vectors",
     OpRole::either, "resize one batch"},
    {"nearest resampling",
     "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
     "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_nearest1d_backward "
     "upsample_nearest2d_backward upsample_nearest3d_backward",
     OpCost::gather, 0.81, OpFuses::pointwise, "it repeats pixels before a convolution",
     "a transposed convolution, or a convolution and pixel_shuffle, does not write the repeated "
     "pixels; channels_last",
     OpRole::either, "resize one batch"},
    {"linear and trilinear resampling",
     "upsample_linear1d upsample_trilinear3d upsample_linear1d_backward "
     "upsample_trilinear3d_backward",
     OpCost::gather, 1.3, OpFuses::pointwise, "inputs are resized in the step, one by one",
     "resize in the loader's workers, in batches; channels_last lets the CPU kernel use vectors",
     OpRole::either, "resize one batch"},
    {"resampling with antialiasing",
     "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_lanczos2d_aa",
     OpCost::gather, 2.6, OpFuses::alone, "inputs are resized in the step, one by one",
     "resize in the loader's workers; uint8 images have vectorised kernels on a CPU",
     OpRole::either, "resize one batch"},
    {"sampling at points",
     "grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler "
     "_grid_sampler_2d_cpu_fallback",
     OpCost::gather, 6.4, OpFuses::pointwise, "mode='bicubic', or a grid that does not change",
     "if most points lie outside of the image (a patch pasted into a large one), sample the "
     "points of its box alone; if the grid stays, make it once; if it is a plain resizing, "
     "interpolate; warps in series are one (multiply their matrices, or sample the grid); if mode "
     "is bicubic, bilinear reads 4 neighbours in place of 16; augment in the loader, or at the "
     "size that the model reads",
     OpRole::either, "sample one batch"},
    {"gradients of sampling at points",
     "grid_sampler_2d_backward grid_sampler_3d_backward cudnn_grid_sampler_backward "
     "_grid_sampler_2d_cpu_fallback_backward",
     OpCost::gather, 0, OpFuses::alone, "the gradient of the grid is computed and not read",
     "detach the grid; atomics on a device add where points meet", OpRole::either,
     "sample one batch"},
    {"affine grids",
     "affine_grid_generator cudnn_affine_grid_generator affine_grid_generator_backward",
     OpCost::bytes, 6.4, OpFuses::pointwise, "the same grid is made in every step",
     "make the grid once and keep it as a buffer", OpRole::either, "sample one batch"},
    {"max pooling",
     "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices "
     "max_pool1d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool1d "
     "quantized_max_pool2d",
     OpCost::bytes, 6.3, OpFuses::pointwise,
     "windows overlap much, or the layout is not channels_last",
     "channels_last; a stride as large as the window; a stride in the convolution before it; of "
     "several windows on one input the larger as small ones in series",
     OpRole::main, "run all samples as one batch"},
    {"gradients of max pooling",
     "max_pool2d_with_indices_backward max_pool3d_with_indices_backward max_pool2d_backward "
     "mkldnn_max_pool2d_backward",
     OpCost::gather, 0.49, OpFuses::alone, "windows overlap: gradients are added by index",
     "a stride as large as the window; a stride in the convolution before it", OpRole::main,
     "run all samples as one batch"},
    {"average pooling",
     "avg_pool1d avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward lp_pool2d",
     OpCost::bytes, 2.3, OpFuses::pointwise,
     "windows overlap much, or the layout is not channels_last",
     "channels_last; a stride as large as the window; a stride in the convolution before it",
     OpRole::main, "run all samples as one batch"},
    {"unpooling", "max_unpool2d max_unpool3d", OpCost::gather, 1.3, OpFuses::alone,
     "it writes by index into zeros", "nearest resampling or a transposed convolution",
     OpRole::main, "run all samples as one batch"},
    {"adaptive average pooling",
     "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
     "_adaptive_avg_pool3d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
     "mkldnn_adaptive_avg_pool2d",
     OpCost::bytes, 0.61, OpFuses::pointwise, "the output size is 1, or divides the input's",
     "mean over the last dimensions for size 1; plain pooling if sizes divide", OpRole::main,
     "run all samples as one batch"},
    {"adaptive max pooling",
     "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool2d_backward "
     "adaptive_max_pool3d_backward",
     OpCost::bytes, 1.4, OpFuses::pointwise, "the output size is 1",
     "amax over the last dimensions", OpRole::main, "run all samples as one batch"},
    {"fractional pooling",
     "fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_backward", OpCost::bytes, 0,
     OpFuses::pointwise, "windows are drawn in every step", "plain pooling, or windows drawn once",
     OpRole::main, "run all samples as one batch"},
    {"suppression of boxes", "nms", OpCost::search, 0, OpFuses::alone,
     "it runs class by class in a Python loop, or on all candidates",
     "batched_nms; topk of the scores first", OpRole::either, kBatchedNms},
    {"regions of interest", "roi_align roi_pool", OpCost::gather, 0, OpFuses::alone,
     "regions are pooled image by image",
     "roi_align takes the boxes of all images in one call; fewer candidates (topk of the scores) "
     "first",
     OpRole::either, kBatchedNms},
    {"overlaps of boxes", "box_iou", OpCost::pairs, 0, OpFuses::alone,
     "all boxes are compared with all",
     "compare within an image or class; topk of the scores first", OpRole::either, kBatchedNms},
    {"images on a CPU with oneDNN layouts", "mkldnn_adaptive_avg_pool2d_backward _mkldnn_transpose",
     OpCost::bytes, 0, OpFuses::alone, "layouts change between layers",
     "channels_last needs no layouts of oneDNN"},
};

}  // namespace

std::span<const OpKnowledge> layer_ops() { return kLayerOps; }

}  // namespace epilogue::trace
