// SPDX-License-Identifier: Apache-2.0
// PyTorch's own kernels: a template's work is named by its functor.
//   at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>
//   at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<...>, ...>>
#include <algorithm>
#include <cctype>
#include <span>
#include <vector>

#include "explain/kernel_name/decode.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue::trace {
namespace {

constexpr int kMostWrappers = 6;  // templates around a functor
constexpr std::string_view kAnonymousScope = "(anonymous namespace)::";

struct Functor {
  std::string op;                  // "add", "gelu", "copy"
  std::vector<std::string> types;  // of its arguments (and result), in order
};

constexpr std::string_view kPrefixes[] = {"CUDAFunctorOnSelf_", "CUDAFunctor_", "launch_"};
constexpr std::string_view kSuffixes[] = {
    "_kernel_cuda",   "_cuda_kernel", "_kernel_impl", "_cuda_impl",
    "_cuda_out",      "_impl",        "_cuda",        "_kernel",
    "CUDAKernelImpl", "KernelImpl",   "CUDAKernel",   "MathFunctor",
    "_functor",       "Functor",      "Ops",          "Op"};

// "GeluCUDAKernelImpl" -> "gelu", "BitwiseAndFunctor" -> "bitwise_and".
std::string clean_op(std::string_view name) {
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  for (const std::string_view suffix : kSuffixes)
    if (name.size() > suffix.size() && name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      break;
    }
  std::string op;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool starts_word =
        std::isupper(c) != 0 && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    if (starts_word) op += '_';
    op += static_cast<char>(std::tolower(c));
  }
  return op;
}

void add_types(std::span<const std::string_view> args, Functor& functor) {
  for (const std::string_view arg : args)
    if (const auto type = element_type(arg); !type.empty()) functor.types.emplace_back(type);
}

// The types of the last "{lambda(float, float)#1}": functors are chosen by type in nested lambdas.
void add_lambda_types(std::string_view text, Functor& functor) {
  constexpr std::string_view kLambda = "{lambda(";
  const size_t at = text.rfind(kLambda);
  if (at == std::string_view::npos) return;
  // Read the parameters as if they were template arguments.
  const std::string_view params = text.substr(at + kLambda.size());
  const std::string as_template = "f<" + std::string(params.substr(0, params.find(')'))) + ">";
  add_types(parse_cpp_name(as_template).args, functor);
}

Functor parse_functor(std::string_view text) {
  CppName cpp = parse_cpp_name(text);
  std::string_view base = base_name(cpp.name);
  for (int i = 0; i < kMostWrappers && !cpp.args.empty(); ++i) {
    if (contains(base, "gpu_kernel") || base == "gpu_index_kernel") {
      text = cpp.args.front();
    } else if (base == "func_wrapper_t" && cpp.args.size() > 1) {
      text = cpp.args[1];
    } else {
      break;
    }
    cpp = parse_cpp_name(text);
    base = base_name(cpp.name);
  }
  Functor functor;
  if (base == "BinaryFunctor" || base == "AUnaryFunctor" || base == "BUnaryFunctor") {
    if (cpp.args.empty()) return functor;
    add_types(std::span(cpp.args).first(cpp.args.size() - 1), functor);
    const Functor inner = parse_functor(cpp.args.back());
    functor.op = inner.op;
    if (functor.types.empty()) functor.types = inner.types;
    return functor;
  }
  functor.op = clean_op(base);
  add_types(cpp.args, functor);
  if (functor.types.empty()) add_lambda_types(text, functor);
  return functor;
}

// The type that is worked on: a mask or a condition comes before it.
std::string main_type(const Functor& functor) {
  for (const std::string& type : functor.types)
    if (type != "bool") return type;
  return functor.types.empty() ? std::string() : functor.types.front();
}

void set_operation(KernelName& out, const Functor& functor) {
  known(out, "operation", functor.op);
  out.ops = {functor.op};
  if (functor.types.empty()) return;
  known(out, "types", join(functor.types, ", "), "of the functor's arguments");
  known(out, "type", main_type(functor));
}

KernelKind elementwise_kind(std::string_view op) {
  if (op.ends_with("copy") || op.starts_with("copy_")) return KernelKind::copy;
  if (op == "fill") return KernelKind::fill;
  if (op.starts_with("index") || op.ends_with("index")) return KernelKind::index;
  return KernelKind::elementwise;
}

void read_elementwise_args(const NameText& name, std::string_view base, KernelName& out) {
  std::vector<int64_t> numbers;
  for (const std::string_view arg : name.cpp.args) {
    const std::optional<int64_t> number = parse_number(arg);
    if (!number) break;
    numbers.push_back(*number);
  }
  if (base.starts_with("vectorized") && numbers.size() == 1)
    known(out, "vector_width", std::to_string(numbers[0]), "elements per load and store");
  if (numbers.size() == 2) {
    known(out, "threads_per_block", std::to_string(numbers[0]));
    known(out, "elements_per_thread", std::to_string(numbers[1]));
  }
  if (base == "elementwise_kernel" || base.starts_with("elementwise_kernel_manual"))
    inferred(out, "access", "strided", "inputs that are not contiguous, or broadcast");
  if (contains(name.text, "LoadWithCast") || contains(name.text, "gpu_kernel_impl<"))
    inferred(out, "casts", "possible", "loads and stores may convert types");
}

bool decode_elementwise(const NameText& name, std::string_view base, KernelName& out) {
  const auto functor_at = std::find_if(
      name.cpp.args.begin(), name.cpp.args.end(),
      [](std::string_view arg) { return !parse_number(arg) && element_type(arg).empty(); });
  if (functor_at == name.cpp.args.end()) return false;
  Functor functor = parse_functor(*functor_at);
  out.family = "ATen elementwise";
  out.kind = base.starts_with("index_") ? KernelKind::index : elementwise_kind(functor.op);
  if (out.kind == KernelKind::index) functor.types.clear();  // of addresses, not of elements
  set_operation(out, functor);
  read_elementwise_args(name, base, out);
  out.summary = "elementwise " + functor.op;
  if (!functor.types.empty()) out.summary += " " + main_type(functor);
  if (const KernelField* width = out.find("vector_width"))
    out.summary += ", " + width->value + " wide";
  if (out.find("access") != nullptr) out.summary += ", strided";
  return true;
}

bool decode_reduce(const NameText& name, KernelName& out) {
  if (name.cpp.args.size() < 3) return false;
  const CppName reduce = parse_cpp_name(name.cpp.args[2]);
  if (reduce.args.size() < 2) return false;
  Functor functor = parse_functor(reduce.args[1]);
  functor.types.clear();
  add_types(std::span(reduce.args).first(1), functor);
  out.family = "ATen reduce";
  out.kind = KernelKind::reduce;
  set_operation(out, functor);
  known(out, "threads_per_block", std::string(name.cpp.args[0]), "at most");
  known(out, "vector_width", std::string(name.cpp.args[1]), "outputs per thread");
  if (reduce.args.size() > 3)
    if (const auto type = element_type(reduce.args[3]); !type.empty())
      known(out, "output_type", std::string(type));
  out.summary = "reduction " + functor.op;
  if (!functor.types.empty()) out.summary += " " + functor.types.front();
  return true;
}

struct AtenKernel {
  std::string_view mark;  // in the name without namespaces
  KernelKind kind;
  std::string_view what;
};
constexpr AtenKernel kAtenKernels[] = {
    {"layer_norm", KernelKind::norm, "layer norm"},
    {"GammaBetaBackward", KernelKind::norm, "layer norm, gradient of gamma and beta"},
    {"RowwiseMoments", KernelKind::norm, "norm, mean and variance of rows"},
    {"LayerNorm", KernelKind::norm, "layer norm"},
    {"GroupNorm", KernelKind::norm, "group norm"},
    {"groupnorm", KernelKind::norm, "group norm"},
    {"group_norm", KernelKind::norm, "group norm"},
    {"batch_norm", KernelKind::norm, "batch norm"},
    {"rms_norm", KernelKind::norm, "RMS norm"},
    {"softmax", KernelKind::softmax, "softmax"},
    {"SoftMax", KernelKind::softmax, "softmax"},
    {"CatArray", KernelKind::copy, "concatenation"},
    {"multi_tensor_apply", KernelKind::optimizer, "one op over a list of tensors"},
    {"indexSelect", KernelKind::index, "index select"},
    {"indexFunc", KernelKind::index, "index"},
    {"indexing_backward", KernelKind::index, "index, backward"},
    {"write_indices", KernelKind::index, "indices of non-zeros"},
    {"gather", KernelKind::index, "gather"},
    {"scatter", KernelKind::index, "scatter"},
    {"embedding", KernelKind::embedding, "embedding"},
    {"EmbeddingBag", KernelKind::embedding, "embedding bag"},
    {"TopK", KernelKind::sort, "top k"},
    {"topk", KernelKind::sort, "top k"},
    {"Sort", KernelKind::sort, "sort"},
    {"sort", KernelKind::sort, "sort"},
    {"scan", KernelKind::reduce, "scan"},
    {"pool", KernelKind::other, "pooling"},
    {"upsample", KernelKind::other, "upsampling"},
    {"nll_loss", KernelKind::other, "loss"},
    {"NLLCriterion", KernelKind::other, "loss"},
    {"ClassNLL", KernelKind::other, "loss"},
    {"dropout", KernelKind::elementwise, "dropout"},
    {"distribution", KernelKind::elementwise, "random numbers"},
    {"triu_tril", KernelKind::elementwise, "triangle"},
    {"transform_bias_rescale_qkv", KernelKind::elementwise, "bias and scale of attention's inputs"},
    {"conv_depthwise", KernelKind::conv, "depthwise convolution"},
    {"im2col", KernelKind::conv, "image to columns"},
    {"col2im", KernelKind::conv, "columns to image"},
    {"linearize_index", KernelKind::index, "linear indices"},
    {"spin_kernel", KernelKind::other, "busy wait"},
};

bool decode_named(const NameText& name, std::string_view base, KernelName& out) {
  for (const AtenKernel& kernel : kAtenKernels) {
    if (!contains(base, kernel.mark)) continue;
    out.family = "ATen";
    out.kind = kernel.kind;
    known(out, "function", std::string(base));
    known(out, "operation", std::string(kernel.what));
    if (contains(base, "backward") || contains(base, "Backward"))
      known(out, "direction", "backward");
    Functor types;
    add_types(name.cpp.args, types);
    std::erase(types.types, "bool");
    if (!types.types.empty()) known(out, "type", types.types.front());
    if (base.starts_with("multi_tensor_apply") && name.cpp.args.size() > 1) {
      const std::string op = clean_op(base_name(parse_cpp_name(name.cpp.args[1]).name));
      known(out, "functor", op);
      out.ops = {op};
    }
    out.summary = std::string(kernel.what);
    if (!types.types.empty()) out.summary += " " + types.types.front();
    return true;
  }
  return false;
}

}  // namespace

bool decode_aten(const NameText& name, KernelName& out) {
  const std::string_view function = name.cpp.name;
  const bool is_ours = function.starts_with("at::") || function.starts_with(kAnonymousScope);
  const std::string_view base = base_name(function);
  const bool is_loose = base.starts_with("cunn_") || base == "linearize_index_kernel";
  if (!is_ours && !is_loose) return false;
  if (base == "reduce_kernel" && decode_reduce(name, out)) return true;
  if (contains(base, "elementwise") && !contains(base, "distribution") &&
      decode_elementwise(name, base, out))
    return true;
  return decode_named(name, base, out);
}

// Cuts the joined op names of a fused kernel. Names with an underscore must be listed; a single
// word that is not listed is taken as an op all the same where it is one (kWords) or marked as a
// guess.

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
