// SPDX-License-Identifier: Apache-2.0
// Ops that move, choose, make or pack values. Columns: op_knowledge.h.
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {
namespace {

// Texts of several rows.
constexpr std::string_view kOneDraw = "draw the numbers of all iterations in one call";
constexpr std::string_view kNoiseOfOneThread =
    "noise is drawn on the CPU by one thread, or drawn and then moved to a device";
constexpr std::string_view kDrawOnDevice =
    "draw it on the device where it is used (device=, generator=); draw once per epoch if it need "
    "not be new";
constexpr std::string_view kIndexOnce =
    "index or unbind once instead of slicing element by element; whole tensors need no loop";
constexpr std::string_view kSmallCalls =
    "thousands of small calls: each costs a microsecond of dispatch";
constexpr std::string_view kCompileViews =
    "torch.compile removes them; index once in place of slicing in a loop";
constexpr std::string_view kReduceRows = "stack the rows and reduce along a dimension in one call";
constexpr std::string_view kCopyStacked =
    "copy or cast one stacked tensor instead of many small ones";
constexpr std::string_view kPadOnce =
    "pad once: nn.utils.rnn.pad_sequence, or a tensor made beforehand";
constexpr std::string_view kCsrOnce =
    "a dense product is faster above about 5 to 10 %; CSR (to_sparse_csr) once, outside of the "
    "step; coalesce once";

constexpr OpKnowledge kMovingOps[] = {
    // --- Embeddings and indexing ---------------------------------------------------------
    {"gradient of an embedding, dense", "embedding_dense_backward embedding_backward",
     OpCost::bytes, 2.3, OpFuses::alone,
     "the table has many more rows than the batch reads: the gradient is a whole table, and the "
     "optimizer reads all of it",
     "nn.Embedding(sparse=True) with torch.optim.SparseAdam or SGD touches only the rows that "
     "were read; if the table is not trained, requires_grad_(False); if few distinct ids fill the "
     "batch, look each up once (torch.unique with return_inverse)",
     OpRole::main, "", OpSign::wide_table},
    {"embedding", "embedding", OpCost::gather, 4.6, OpFuses::pointwise, "", "", OpRole::main,
     "look all ids up in one call: tables of one width can be one table with an offset for each",
     OpSign::none, true},
    {"rows renormalised by an embedding", "embedding_renorm", OpCost::gather, 0, OpFuses::alone,
     "max_norm of nn.Embedding is set: every call renormalises the rows that it reads, one by one",
     "leave max_norm out: normalise the rows that were looked up (F.normalize), or renormalise the "
     "whole table once per step in one call",
     OpRole::aside, "look all ids up in one call", OpSign::none, true},
    {"bag of embeddings",
     "embedding_bag _embedding_bag _embedding_bag_forward_only _embedding_bag_backward "
     "_embedding_bag_dense_backward _embedding_bag_sparse_backward "
     "_embedding_bag_per_sample_weights_backward",
     OpCost::gather, 0.4, OpFuses::alone, "one call per table, over many tables",
     "one table with offsets (or torchrec's grouped tables) looks all of them up in one call; "
     "sparse=True keeps gradients to the rows that were read",
     OpRole::either, "one table with offsets takes the ids of all of them in one call",
     OpSign::none, true},
    {"rows by index", "index_select", OpCost::gather, 0.35, OpFuses::pointwise,
     "the index is a range or is the same in every step",
     "if the index is a range, a slice or narrow makes a view; if it never changes, apply it once "
     "(store the rows in the order in which they are read); if a projection to fewer columns "
     "follows, project first and take rows behind it; if the rows are added up next, add without "
     "writing them (embedding_bag, index_add, a sparse product); if rows come again and again, "
     "each distinct one once (torch.unique with return_inverse)",
     OpRole::either, "index once with the positions of all of them"},
    {"elements by index", "gather take take_along_dim", OpCost::gather, 2.9, OpFuses::pointwise,
     "the index is a range, or the same for all rows",
     "if whole rows are taken, index_select or F.embedding reads them at once, where gather goes "
     "element by element; if it picks one number of many that were computed for it, compute that "
     "one alone; what several terms gather, gather once",
     OpRole::either, "index once with the positions of all of them"},
    {"advanced indexing", "index _unsafe_index", OpCost::gather, 0.84, OpFuses::pointwise,
     "the index is a boolean mask: it becomes nonzero, and its size depends on data",
     "if the index is a mask, torch.where or a product with the mask keeps shapes; if rows are "
     "taken by numbers, index_select or F.embedding, whose gradients add whole rows; if they are "
     "added up or averaged next, counts of the numbers times the table (scatter_add of ones, then "
     "matmul) write no rows; if several results share what is taken, take it once; if the index "
     "stays, apply it once",
     OpRole::either, "index once with the positions of all of them"},
    {"writes by index", "index_put _index_put_impl _unsafe_index_put index_fill index_copy put",
     OpCost::gather, 2.4, OpFuses::alone,
     "accumulate=True, or the gradient of advanced indexing: indices are sorted, or elements are "
     "written one by one",
     "slices and torch.where write in order; for sums by index use index_add with sorted indices "
     "or segment_reduce",
     OpRole::aside, "write once with the positions and values of all of them", OpSign::accumulates},
    {"sums by index", "index_add scatter_add", OpCost::gather, 1.4, OpFuses::alone,
     "many sources go to one place: they are added one after the other, or atomically",
     "sort by index once and use segment_reduce, or torch.sparse.mm with a matrix in CSR, which "
     "adds in one pass; add what is already projected to fewer columns; whole rows by index_add "
     "rather than elements by scatter_add with an expanded index",
     OpRole::either, "join the indices and add once"},
    {"reductions by index", "index_reduce scatter_reduce", OpCost::gather, 8.7, OpFuses::alone,
     "many sources go to one place: they are added one after the other, or atomically",
     "sort by index once and use segment_reduce, or torch.sparse.mm with a matrix in CSR, which "
     "adds in one pass",
     OpRole::either, "join the indices and add once"},
    {"writes by scatter", "scatter", OpCost::gather, 2.8, OpFuses::alone,
     "it builds one-hot rows or a mask",
     "compare the index with arange (broadcast): one elementwise op that fuses", OpRole::either,
     "join the indices and add once"},
    {"segments", "segment_reduce _segment_reduce_backward", OpCost::bytes, 0, OpFuses::alone,
     "segments have very different lengths",
     "sort segments by length, or pad them to a few lengths", OpRole::either,
     "join the indices and add once"},
    {"masked selection", "masked_select masked_scatter masked_scatter_backward", OpCost::wait, 8.8,
     OpFuses::alone, "the size of the result depends on data",
     "torch.where or masked_fill keep the shape and do not wait", OpRole::aside,
     "one mask over the whole tensor"},
    {"masked filling", "masked_fill where", OpCost::bytes, 5.5, OpFuses::pointwise, "", "",
     OpRole::main, "one mask over the whole tensor"},
    {"places of non-zeros", "nonzero nonzero_numpy argwhere count_nonzero nonzero_static",
     OpCost::wait, 7.7, OpFuses::alone, "the host waits for the size on a device",
     "masks keep shapes; torch.nonzero_static takes the size from you; of a mask that stays "
     "(edges, padding) find the places once and keep them",
     OpRole::aside, "one call over the whole tensor"},
    {"distinct values", "_unique _unique2 unique_dim unique", OpCost::sort, 1.5, OpFuses::alone,
     "called in every step on much the same values",
     "prepare it with the data (in the loader), or count with bincount if values are small "
     "integers",
     OpRole::aside, "one call over the whole tensor (dim=, return_inverse=True)"},
    {"distinct values that follow each other", "unique_consecutive unique_dim_consecutive",
     OpCost::wait, 1.1, OpFuses::alone, "the number of values is read by the host",
     "keep the inverse (return_inverse=True) and the size of the input where the count is not "
     "needed",
     OpRole::aside, "one call over the whole tensor (dim=, return_inverse=True)"},
    {"counts by value", "bincount", OpCost::gather, 1.4, OpFuses::alone,
     "it asks for the largest value first, for which the host waits on a device",
     "scatter_add of ones into a tensor of known size does not wait", OpRole::aside,
     "add an offset for each group to the values, and count once"},
    {"histograms",
     "histc histogram histogramdd _histogramdd_bin_edges _histogramdd_from_bin_cts "
     "_histogramdd_from_bin_tensors",
     OpCost::gather, 11, OpFuses::alone,
     "it is drawn of all parameters or activations in every step",
     "draw it every few hundred steps, or of a sample", OpRole::aside,
     "add an offset for each group to the values, and count once"},
    {"one-hot vectors", "one_hot", OpCost::bytes, 0.96, OpFuses::alone,
     "its result goes into a product: most of what is multiplied is zero",
     "an embedding, or index_select on the weight, reads the rows that count", OpRole::aside,
     "one call over all indices"},
    {"search in sorted values", "searchsorted bucketize", OpCost::search, 7.8, OpFuses::alone,
     "the boundaries are few and evenly spaced",
     "if they are evenly spaced, a division and floor give the bucket; if the values or the "
     "boundaries stay, keep the places; if many values are equal, look up the distinct ones",
     OpRole::either, "one call over all values"},
    {"membership", "isin", OpCost::search, 4.6, OpFuses::alone,
     "the set of values is the same in every step",
     "a table of booleans by value (index) answers in one read; sort the set once and use "
     "searchsorted",
     OpRole::aside, "one call over all values"},
    // --- Sorting -------------------------------------------------------------------------
    {"sorting", "sort msort", OpCost::sort, 5.7, OpFuses::alone,
     "the result is cut to a few elements, or compared with a threshold",
     "topk gives the largest k without ordering the rest; kthvalue gives one; for top-p sampling "
     "take topk of some hundred first; values that do not change are sorted once, and searchsorted "
     "finds places and ranks in them; ranks within groups are one sort of a joint key",
     OpRole::aside, "stack the rows and sort along the last dimension in one call",
     OpSign::cut_after},
    {"sorting of places", "argsort", OpCost::sort, 5.8, OpFuses::alone,
     "the result is cut to a few elements, or compared with a threshold",
     "topk gives the places of the largest k; argsort of argsort is one scatter of arange; an "
     "order that does not change (edges by node, rows by length) is kept",
     OpRole::aside, "stack the rows and sort along the last dimension in one call",
     OpSign::cut_after},
    {"largest k", "topk", OpCost::sort, 0.6, OpFuses::alone,
     "k is a large part of the row, or sorted=True is not needed",
     "pass sorted=False if the order is not read; cut the candidates first (a threshold, the "
     "groups that can win), or topk of blocks and then of their winners",
     OpRole::either, "stack the rows and take topk along the last dimension in one call"},
    {"k-th value", "kthvalue", OpCost::sort, 1.4, OpFuses::alone,
     "it is a threshold for many rows, or is computed for a quantile",
     "several k of one tensor are one sort and indices; topk(sorted=False) of the smaller side; a "
     "quantile of a sample",
     OpRole::either, "stack the rows and take topk along the last dimension in one call"},
    {"medians", "median nanmedian", OpCost::sort, 1.7, OpFuses::alone,
     "it is computed over all elements in every step, for statistics",
     "compute it on a sample, or every few steps; of windows that overlap once, when the data are "
     "prepared (scipy.ndimage.median_filter)",
     OpRole::aside, kReduceRows},
    {"quantiles", "quantile nanquantile", OpCost::sort, 2.2, OpFuses::alone,
     "it is called for each level apart, or computed over all elements in every step, for "
     "statistics; it sorts all of them",
     "several levels of one tensor are one call, which sorts once (torch.quantile(x, "
     "torch.tensor([0.1, 0.5, 0.9]), dim)), or one sort and indices; compute it on a sample, or "
     "every few steps; kthvalue gives a single quantile without sorting",
     OpRole::aside, kReduceRows},
    {"modes", "mode", OpCost::sort, 4.5, OpFuses::alone, "classes are small integers",
     "bincount and argmax, or one_hot sums for rows", OpRole::aside, kReduceRows},
    // --- Joining and copying -------------------------------------------------------------
    {"concatenation",
     "cat concat concatenate hstack vstack dstack column_stack row_stack _chunk_cat block_diag "
     "_cat",
     OpCost::bytes, 0.52, OpFuses::pointwise,
     "a tensor grows by a little each time: all that was there is copied again",
     "allocate the whole once and write slices; keep parts in a list and join them once; a KV "
     "cache of fixed size (StaticCache)",
     OpRole::main,
     "keep parts in a list and join them once, or write slices of a tensor made beforehand",
     OpSign::grows},
    {"stacking", "stack _stack", OpCost::bytes, 0.43, OpFuses::pointwise,
     "many small tensors are stacked in every step",
     "write into one tensor made beforehand (out[i] = ...), or keep them stacked", OpRole::main,
     "keep parts in a list and join them once, or write slices of a tensor made beforehand",
     OpSign::grows},
    {"copies", "copy clone _lazy_clone _to_cpu cpu _copy_from _copy_from_and_resize", OpCost::bytes,
     0.19, OpFuses::pointwise, "the same tensor is cast or made contiguous in every step",
     "keep it in the type and layout in which it is read; under autocast, cast weights once",
     OpRole::main, kCopyStacked, OpSign::repeats_input},
    {"casts",
     "_to_copy to type_as _cast_Float _cast_Half _cast_Double _autocast_to_full_precision "
     "_autocast_to_reduced_precision",
     OpCost::bytes, 0.25, OpFuses::pointwise, "weights or the same inputs are cast in every step",
     "keep it in the type in which it is read; under autocast, cast weights once "
     "(model.to(torch.bfloat16)), or compile",
     OpRole::main, kCopyStacked, OpSign::repeats_input},
    {"contiguous copies", "contiguous", OpCost::bytes, 1.5, OpFuses::pointwise,
     "a transposed or sliced tensor is copied before an op that takes strides",
     "products and most ops read transposed views as they are; keep one memory format through the "
     "model",
     OpRole::main, kCopyStacked, OpSign::repeats_input},
    {"repetition", "repeat tile", OpCost::bytes, 0.17, OpFuses::pointwise,
     "its result is only read by ops that broadcast",
     "expand makes a view; repeat_interleave with a tensor of counts also waits for their sum: "
     "pass output_size"},
    {"repetition of elements", "repeat_interleave", OpCost::gather, 0.18, OpFuses::pointwise,
     "counts are a tensor, whose sum the host waits for, or keys and values of grouped queries are "
     "repeated",
     "pass output_size; expand makes a view for a fixed count; enable_gqa=True of "
     "scaled_dot_product_attention"},
    {"padding with a constant", "constant_pad_nd pad", OpCost::bytes, 0.59, OpFuses::pointwise,
     "it stands before a convolution that can pad",
     "padding= and padding_mode= of the convolution save the copy", OpRole::main, kPadOnce},
    {"padding by reflection",
     "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
     "replication_pad3d",
     OpCost::gather, 0.31, OpFuses::pointwise, "it stands before a convolution that can pad",
     "padding= and padding_mode= of the convolution save the copy", OpRole::main, kPadOnce},
    {"circular padding", "_pad_circular", OpCost::bytes, 0, OpFuses::pointwise,
     "it stands before a convolution that can pad",
     "padding_mode=\"circular\" does the same; pad once for several convolutions", OpRole::main,
     kPadOnce},
    {"rolling", "roll fft_fftshift fft_ifftshift", OpCost::bytes, 0.31, OpFuses::pointwise,
     "windows of attention are shifted and shifted back in every layer",
     "two slices and a cat cost the same; an index made once serves all layers; torch.compile "
     "fuses it",
     OpRole::either},
    {"flipping", "flip fliplr flipud rot90", OpCost::bytes, 0.24, OpFuses::pointwise,
     "it reverses a scan, or augments on the step's device",
     "total minus cumsum gives a reversed sum; augment in the loader", OpRole::either},
    {"pixels and channels", "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle",
     OpCost::bytes, 3.1, OpFuses::pointwise, "it makes tensors contiguous between layouts",
     "keep channels_last through the block", OpRole::either},
    {"triangles", "tril triu", OpCost::bytes, 1.1, OpFuses::pointwise,
     "a causal mask is made anew in every step",
     "is_causal=True needs no mask; else make it once and keep it as a buffer", OpRole::either},
    {"filling", "fill zero fill_diagonal", OpCost::bytes, 0.32, OpFuses::pointwise,
     "memory is filled and then written over",
     "torch.empty, or zero_grad(set_to_none=True), writes it once", OpRole::main,
     "torch._foreach_zero_, or one tensor for all of them"},
    {"new tensors of one value",
     "zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full scalar_tensor",
     OpCost::bytes, 0.23, OpFuses::pointwise, "memory is filled and then written over",
     "torch.empty, or zero_grad(set_to_none=True), writes it once", OpRole::main,
     "torch._foreach_zero_, or one tensor for all of them"},
    {"ranges", "arange linspace logspace range eye fft_fftfreq fft_rfftfreq", OpCost::bytes, 0.81,
     OpFuses::pointwise, "it is made anew in every step", "make it once and keep it as a buffer",
     OpRole::aside, "make it once, outside of the loop"},
    {"grids", "meshgrid cartesian_prod combinations tril_indices triu_indices vander",
     OpCost::bytes, 0.2, OpFuses::pointwise, "it is made anew in every step",
     "make it once and keep it as a buffer", OpRole::aside, "make it once, outside of the loop"},
    // --- Random numbers ------------------------------------------------------------------
    {"normal random numbers", "randn randn_like normal log_normal", OpCost::arithmetic, 5.8,
     OpFuses::draws, kNoiseOfOneThread,
     "draw it on the device where it is used (device=, generator=); draw once per epoch if it need "
     "not be new; normal numbers that are added up are one normal number of the summed variance: "
     "one draw in place of a loop",
     OpRole::either, kOneDraw},
    {"uniform random numbers", "rand rand_like uniform", OpCost::arithmetic, 6.5, OpFuses::draws,
     kNoiseOfOneThread, kDrawOnDevice, OpRole::either, kOneDraw},
    {"random integers", "randint randint_like random", OpCost::arithmetic, 5.8, OpFuses::draws,
     kNoiseOfOneThread, kDrawOnDevice, OpRole::either, kOneDraw},
    {"random numbers of other distributions", "exponential cauchy geometric", OpCost::arithmetic,
     24, OpFuses::draws, kNoiseOfOneThread, kDrawOnDevice, OpRole::either, kOneDraw},
    {"random numbers by rejection",
     "_standard_gamma _sample_dirichlet _dirichlet_grad poisson binomial", OpCost::arithmetic, 44,
     OpFuses::alone, "they are drawn one distribution at a time",
     "draw a batch in one call; on a CPU one thread draws", OpRole::either, kOneDraw},
    {"dropout",
     "dropout native_dropout _fused_dropout alpha_dropout feature_dropout feature_alpha_dropout "
     "native_dropout_backward",
     OpCost::arithmetic, 12, OpFuses::draws, "it runs in inference, or its rate is 0",
     "model.eval() if this is inference; set the rate to 0 or use nn.Identity if it does not "
     "regularise; attention takes its rate as dropout_p",
     OpRole::main, "draw the masks of all iterations in one call", OpSign::inference},
    {"random bits", "bernoulli rrelu_with_noise rrelu", OpCost::arithmetic, 15, OpFuses::draws,
     "a mask is drawn for a whole tensor where one number per row would do",
     "draw one number per row or sample and expand it", OpRole::main,
     "draw the masks of all iterations in one call", OpSign::inference},
    {"masks with a scale", "_masked_scale", OpCost::bytes, 0, OpFuses::pointwise, "", "",
     OpRole::main, "draw the masks of all iterations in one call", OpSign::inference},
    {"random choices", "multinomial", OpCost::sort, 2.8, OpFuses::alone,
     "the weights are the same each time, and each call sums all of them; or sampling from logits "
     "goes through softmax and multinomial, for whose check the host waits",
     "of weights that stay: keep their cumulative sum and look random numbers up in it "
     "(torch.searchsorted(cdf, torch.rand(k) * cdf[-1]), with replacement), or draw for many steps "
     "in one call; of logits: argmax of logits plus Gumbel noise (or exponential noise, as vLLM "
     "does) does not wait",
     OpRole::aside, "draw all choices in one call"},
    {"permutations", "randperm", OpCost::sort, 1.5, OpFuses::alone,
     "a permutation of everything is made to take a few",
     "randint draws indices with replacement; make permutations in the loader; for sampling from "
     "logits, argmax of logits plus Gumbel noise does not wait",
     OpRole::aside, "draw all choices in one call", OpSign::cut_after},
    {"quasi-random numbers",
     "_sobol_engine_draw _sobol_engine_ff _sobol_engine_scramble _sobol_engine_initialize_state",
     OpCost::arithmetic, 2.5, OpFuses::alone, "a sequence is drawn in small pieces",
     "draw the numbers of many steps in one call", OpRole::aside, kOneDraw},
    // --- Shapes --------------------------------------------------------------------------
    {"views",
     "view view_as reshape reshape_as _unsafe_view _reshape_alias flatten unflatten ravel expand "
     "expand_as broadcast_to broadcast_tensors alias lift_fresh lift result_type detach "
     "is_same_size unfold_copy",
     OpCost::metadata, 1400, OpFuses::pointwise, kSmallCalls, kCompileViews, OpRole::main,
     kIndexOnce},
    {"transposed views",
     "t transpose permute movedim moveaxis swapaxes swapdims numpy_T mT mH adjoint matrix_H",
     OpCost::metadata, 1100, OpFuses::pointwise, kSmallCalls, kCompileViews, OpRole::main,
     kIndexOnce},
    {"slices",
     "slice select narrow diagonal as_strided squeeze unsqueeze diag atleast_1d atleast_2d "
     "atleast_3d",
     OpCost::metadata, 2100, OpFuses::pointwise, kSmallCalls, kCompileViews, OpRole::main,
     kIndexOnce},
    {"splits",
     "split split_with_sizes chunk unbind tensor_split hsplit vsplit dsplit unsafe_split "
     "unsafe_chunk unsafe_split_with_sizes",
     OpCost::metadata, 0, OpFuses::pointwise,
     "parts are made contiguous one by one, or hundreds of small parts are made",
     "ops read strided parts as they are; one op over the whole tensor", OpRole::main, kIndexOnce},
    {"allocation", "empty empty_like empty_strided new_empty resize resize_as set",
     OpCost::metadata, 1800, OpFuses::alone,
     "large results are new memory each time: the system clears and maps its pages",
     "reuse buffers (out=, in-place forms); jemalloc or tcmalloc keep freed memory on a CPU"},
    {"copies with a part replaced",
     "slice_scatter select_scatter diagonal_scatter as_strided_scatter", OpCost::bytes, 0,
     OpFuses::pointwise, "a functionalised graph copies the whole to change a part",
     "torch.compile makes it in place again; eager code writes x[i] = y"},
    {"copies of views",
     "view_copy expand_copy slice_copy select_copy permute_copy transpose_copy t_copy split_copy "
     "split_with_sizes_copy unbind_copy as_strided_copy diagonal_copy squeeze_copy unsqueeze_copy "
     "detach_copy narrow_copy alias_copy",
     OpCost::bytes, 0, OpFuses::pointwise,
     "views are written out (functionalisation, FSDP's all-gather)",
     "views cost nothing where the backend has them; split_with_sizes_copy of FSDP shrinks with "
     "fewer, larger groups"},
    {"diagonals", "diag_embed diagflat linalg_diagonal", OpCost::bytes, 0, OpFuses::pointwise,
     "a diagonal matrix goes into a product", "x * d.unsqueeze(-1) scales rows without the matrix",
     OpRole::aside, "", OpSign::then_product},
    {"pinned memory", "pin_memory _pin_memory is_pinned", OpCost::bytes, 0, OpFuses::alone,
     "memory is pinned in every step",
     "pin_memory=True of the loader pins in a thread of its own; keep pinned buffers",
     OpRole::aside, "keep one pinned buffer and copy into it"},
    {"memory for other streams", "record_stream", OpCost::metadata, 0, OpFuses::alone,
     "many tensors are held back until other streams are done",
     "wait for the stream once; fewer, larger tensors"},
    // --- Quantisation --------------------------------------------------------------------
    {"quantising",
     "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic int_repr "
     "_make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor "
     "choose_qparams_per_token_asymmetric",
     OpCost::bytes, 0.16, OpFuses::pointwise,
     "weights are widened in every call: more bytes move than without quantisation",
     "torch.compile (torchao) fuses the widening into the product; quantise weights once",
     OpRole::either},
    {"widening", "dequantize", OpCost::bytes, 0.26, OpFuses::pointwise,
     "weights are widened in every call: more bytes move than without quantisation",
     "torch.compile (torchao) fuses the widening into the product; products with quantised weights "
     "widen as they go",
     OpRole::either},
    {"simulated quantisation",
     "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine "
     "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
     "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine "
     "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
     OpCost::bytes, 5.3, OpFuses::pointwise, "it runs in inference, or on weights that stay",
     "convert() once training ends; quantise frozen weights once", OpRole::either},
    {"observers of ranges",
     "fused_moving_avg_obs_fake_quant _fused_moving_avg_obs_fq_helper _choose_qparams_per_tensor "
     "choose_qparams_optimized",
     OpCost::bytes, 0, OpFuses::reduction, "observers stay active after calibration",
     "disable_observer once ranges are known", OpRole::either, "", OpSign::inference},
    {"packing of quantised weights",
     "_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight "
     "fbgemm_pack_quantized_matrix fbgemm_pack_gemm_matrix_fp16 fbgemm_linear_quantize_weight "
     "mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight to_mkldnn _mkldnn_reshape "
     "_saturate_weight_to_fp16 _wrapped_linear_prepack",
     OpCost::bytes, 0, OpFuses::alone, "weights are packed in every call",
     "pack once when the model is loaded; torch.compile with freezing packs constants once",
     OpRole::aside, "pack once, outside of the loop"},
    // --- Sparse, nested ------------------------------------------------------------------
    {"sparse products", "_sparse_mm _sparse_addmm smm sspaddmm hspmm _sparse_mm_reduce_impl",
     OpCost::gather, 0.22, OpFuses::alone,
     "more than some per cent of the elements are there, or the layout is COO", kCsrOnce,
     OpRole::either, "stack the right-hand sides to one product"},
    {"sampled products", "sparse_sampled_addmm", OpCost::gather, 0, OpFuses::alone,
     "few elements of a product are wanted, but indices change in every step",
     "keep the layout (indices) and update values", OpRole::either,
     "stack the right-hand sides to one product"},
    {"products of two sparse matrices", "_sparse_sparse_matmul", OpCost::gather, 0, OpFuses::alone,
     "more than some per cent of the elements are there, or the layout is COO", kCsrOnce,
     OpRole::either, "stack the right-hand sides to one product"},
    {"products with 2:4 sparsity",
     "_sparse_semi_structured_linear _sparse_semi_structured_mm _sparse_semi_structured_addmm "
     "_cslt_sparse_mm _cslt_compress _to_sparse_semi_structured _sparse_semi_structured_apply "
     "_sparse_semi_structured_apply_dense _sparse_semi_structured_tile",
     OpCost::flops, 0, OpFuses::alone,
     "products are small, or weights are compressed in every call",
     "compress once; dense products of fewer than some thousand rows are as fast", OpRole::either,
     "stack the right-hand sides to one product"},
    {"sparse tensors from parts",
     "sparse_coo_tensor _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors "
     "_sparse_coo_tensor_unsafe sparse_csr_tensor _sparse_csr_tensor_unsafe "
     "sparse_compressed_tensor _sparse_compressed_tensor_unsafe sparse_csc_tensor "
     "sparse_bsr_tensor sparse_bsc_tensor _validate_sparse_coo_tensor_args "
     "_validate_sparse_csr_tensor_args _validate_sparse_compressed_tensor_args",
     OpCost::wait, 0, OpFuses::alone,
     "indices are checked in every step, for which the host waits on a device",
     "build the layout once; check_invariants=False", OpRole::aside,
     "convert once, outside of the loop"},
    {"conversions of sparse layouts",
     "to_sparse to_sparse_csr to_sparse_csc to_sparse_bsr _to_sparse _to_sparse_csr _to_sparse_csc "
     "_to_sparse_bsr _coo_to_sparse _convert_indices_from_coo_to_csr "
     "_convert_indices_from_csr_to_coo",
     OpCost::sort, 2.1, OpFuses::alone, "the layout changes in every step",
     "convert once; keep indices and update values", OpRole::aside,
     "convert once, outside of the loop"},
    {"dense tensors of sparse ones", "to_dense _to_dense", OpCost::bytes, 0.69, OpFuses::alone,
     "the layout changes in every step", "convert once; keep indices and update values",
     OpRole::aside, "convert once, outside of the loop"},
    {"coalescing", "coalesce _coalesce", OpCost::sort, 3, OpFuses::alone,
     "gradients or adjacency lists are coalesced in every step",
     "gradients of an embedding with sparse=True: sparse=False if the table is small or a step "
     "reads most of its rows (a dense gradient is not sorted); of adjacency lists: coalesce once "
     "and mark it (is_coalesced=True); keep indices sorted; CSR needs none",
     OpRole::aside, "convert once, outside of the loop"},
    {"parts of sparse tensors", "indices _indices values _values crow_indices col_indices _nnz",
     OpCost::metadata, 0, OpFuses::alone, "the layout changes in every step",
     "convert once; keep indices and update values", OpRole::main,
     "convert once, outside of the loop"},
    {"masks of sparse tensors", "sparse_mask _sparse_mask_projection", OpCost::gather, 0,
     OpFuses::alone, "the mask changes in every step",
     "index the dense tensor with the indices once they are known", OpRole::aside,
     "convert once, outside of the loop"},
    {"nested tensors from padded ones",
     "_nested_tensor_from_mask _nested_from_padded _nested_from_padded_tensor "
     "_nested_from_padded_and_nested_example _padded_dense_to_jagged_forward "
     "_nested_tensor_from_tensor_list",
     OpCost::bytes, 0, OpFuses::alone, "sequences are padded and unpadded between layers",
     "keep torch.jagged through the whole block", OpRole::either},
    {"padded tensors from nested ones",
     "to_padded_tensor nested_to_padded_tensor _jagged_to_padded_dense_forward", OpCost::bytes, 0,
     OpFuses::alone, "sequences are padded and unpadded between layers",
     "keep torch.jagged through the whole block", OpRole::either},
    {"views of nested tensors",
     "_nested_view_from_buffer _nested_view_from_jagged _nested_get_values _nested_get_offsets "
     "_nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets",
     OpCost::metadata, 0, OpFuses::alone, "layouts are computed on the host for each op",
     "torch.jagged keeps offsets on the device"},
    {"sums of sparse tensors", "_sparse_sum _sparse_csr_sum _sparse_csr_prod _sparse_sum_backward",
     OpCost::gather, 0, OpFuses::alone, "a COO tensor is summed without being coalesced",
     "coalesce once, or CSR: rows are then sums of slices", OpRole::either},
};

}  // namespace

std::span<const OpKnowledge> moving_ops() { return kMovingOps; }

}  // namespace epilogue::trace
