// SPDX-License-Identifier: Apache-2.0
#include "explain/index/aten_ops.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "pointwise/pointwise_fn.h"

namespace epilogue::trace {
namespace {

struct OpGroup {
  OpClass op_class;
  std::string_view names;  // separated by spaces, without "aten::"
};
constexpr OpGroup kOpGroups[] = {
    {OpClass::view,
     "t transpose permute view _unsafe_view reshape _reshape_alias as_strided expand expand_as "
     "slice select narrow squeeze unsqueeze flatten unflatten split split_with_sizes chunk unbind "
     "detach alias view_as lift_fresh resolve_conj resolve_neg empty empty_like empty_strided "
     "new_empty resize result_type unfold diagonal movedim swapaxes numpy_T mT mH result_type to "
     "contiguous clone _to_copy dropout"},
    // Beside those of the table of pointwise functions.
    {OpClass::pointwise,
     "rsub exp2 expm1 log log2 log1p rsqrt reciprocal square sign tan erf erfc floor ceil "
     "round trunc clamp_min clamp_max relu6 threshold log_sigmoid_forward hardtanh "
     "hardsigmoid masked_fill logical_and logical_or logical_not logical_xor bitwise_and "
     "bitwise_or bitwise_not bitwise_xor isnan isinf addcmul addcdiv lerp native_dropout "
     "bernoulli native_dropout_backward fmod remainder atan2 nan_to_num"},
    {OpClass::copy, "copy"},
    {OpClass::fill, "fill zero zeros ones full zeros_like ones_like full_like"},
    {OpClass::rowwise,
     "softmax _softmax log_softmax _log_softmax _softmax_backward_data "
     "_log_softmax_backward_data layer_norm native_layer_norm native_layer_norm_backward rms_norm "
     "_fused_rms_norm _fused_rms_norm_backward"},
    {OpClass::reduction,
     "sum mean amax amin max min prod norm linalg_vector_norm var std var_mean argmax argmin all "
     "any cumsum mse_loss nll_loss nll_loss_forward"},
    {OpClass::gemm, "mm addmm bmm baddbmm _scaled_mm _addmm_activation"},
};

const std::unordered_map<std::string_view, OpClass>& classes() {
  static const auto table = [] {
    std::unordered_map<std::string_view, OpClass> t;
    for (const OpGroup& group : kOpGroups) {
      std::string_view rest = group.names;
      while (!rest.empty()) {
        const size_t end = std::min(rest.find(' '), rest.size());
        t.emplace(rest.substr(0, end), group.op_class);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    for (const PointwiseRow& row : kPointwiseTable)
      if (!row.op.empty()) t.emplace(op_base_name(row.fn), OpClass::pointwise);
    return t;
  }();
  return table;
}

struct DType {
  std::string_view name;
  int64_t bytes;
};
// c10's names, as Kineto's "Input type" has them; the floating ones in order of promotion.
constexpr DType kTypes[] = {{"double", 8},
                            {"float", 4},
                            {"c10::Half", 2},
                            {"c10::BFloat16", 2},
                            {"c10::Float8_e5m2", 1},
                            {"c10::Float8_e4m3fn", 1},
                            {"c10::Float8_e5m2fnuz", 1},
                            {"c10::Float8_e4m3fnuz", 1},
                            {"c10::complex<double>", 16},
                            {"c10::complex<float>", 8},
                            {"c10::complex<c10::Half>", 4},
                            {"long int", 8},
                            {"long", 8},
                            {"long long", 8},
                            {"int", 4},
                            {"unsigned int", 4},
                            {"short", 2},
                            {"short int", 2},
                            {"signed char", 1},
                            {"unsigned char", 1},
                            {"bool", 1}};
constexpr size_t kFloatingTypes = 8;
constexpr size_t kFirstWholeType = 11;  // behind the complex ones
static_assert(kTypes[kFirstWholeType].name == "long int");

size_t type_position(std::string_view type) {
  const auto* at = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const DType& t) { return t.name == type; });
  return static_cast<size_t>(at - std::begin(kTypes));
}

bool has_sizes(const OpInput& input) {
  return std::all_of(input.dims.begin(), input.dims.end(), [](int64_t d) { return d >= 0; });
}

bool is_tensor(const OpInput& input) {
  return !input.is_list && type_position(input.type) < std::size(kTypes) && has_sizes(input);
}

// Kineto gives the sizes of a TensorList's elements, but not their dtypes.
bool is_tensor_of_list(const OpInput& element) {
  return is_tensor(element) ||
         (element.type.empty() && !element.dims.empty() && has_sizes(element));
}

// Where other tensors of the op have strides.
bool is_sparse(const OpInput& input) {
  return !input.dims.empty() && input.dims.front() > 1 && input.strides.empty();
}

int64_t repeats_in_memory(const OpInput& input) {
  int64_t repeats = 1;
  if (input.strides.size() != input.dims.size()) return repeats;
  for (size_t i = 0; i < input.dims.size(); ++i)
    if (input.strides[i] == 0 && input.dims[i] > 1 &&
        __builtin_mul_overflow(repeats, input.dims[i], &repeats))
      return 1;
  return repeats;
}

// "aten::mul_" -> "mul"; "" for what is no ATen op.
std::string_view aten_base_name(std::string_view name) {
  constexpr std::string_view kPrefix = "aten::";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  if (name.ends_with('_') && name.size() > 1) name.remove_suffix(1);
  return name;
}

// The widest floating type of the inputs, else the first one's. Zero-dimensional ones (numbers) do
// not widen tensors.
std::string_view promoted(std::span<const TensorShape> inputs) {
  const bool only_numbers = std::all_of(inputs.begin(), inputs.end(),
                                        [](const TensorShape& t) { return t.dims.empty(); });
  size_t best = kFloatingTypes;
  for (const TensorShape& t : inputs)
    if (only_numbers || !t.dims.empty()) best = std::min(best, type_position(t.type));
  return best < kFloatingTypes ? kTypes[best].name : inputs.front().type;
}

// True where the output is bool whatever the inputs are.
bool is_comparison(std::string_view base) {
  if (const PointwiseRow* row = pointwise_row_of_op(base))
    return row->result == PointwiseResult::truth;
  constexpr std::array<std::string_view, 6> kComparisons = {
      "logical_and", "logical_or", "logical_not", "logical_xor", "isnan", "isinf"};
  return std::find(kComparisons.begin(), kComparisons.end(), base) != kComparisons.end();
}

// Output dtype of a pointwise op that is not in place; nothing if it does not follow.
std::optional<std::string_view> pointwise_type(std::string_view base,
                                               std::span<const TensorShape> tensors) {
  if (is_comparison(base)) return "bool";
  if (base == "where") {  // where(condition, x, y); where(condition) gives indices
    if (tensors.size() < 2) return std::nullopt;
    tensors = tensors.subspan(1);
  }
  return promoted(tensors);
}

// [.., m, k] x [.., k, n]; addmm and baddbmm have their bias first.
std::optional<TensorShape> product_shape(std::string_view base,
                                         std::span<const TensorShape> tensors) {
  const bool has_bias = base == "addmm" || base == "baddbmm" || base == "_addmm_activation";
  const size_t first = has_bias ? 1 : 0;
  if (tensors.size() < first + 2) return std::nullopt;
  const TensorShape& a = tensors[first];
  const TensorShape& b = tensors[first + 1];
  if (a.dims.size() < 2 || b.dims.size() != a.dims.size()) return std::nullopt;
  TensorShape out{a.dims, a.type};
  out.dims.back() = b.dims.back();
  return out;
}

}  // namespace

std::optional<std::vector<int64_t>> broadcast_dims(std::span<const TensorShape> inputs) {
  std::vector<int64_t> dims;
  for (const TensorShape& t : inputs) {
    if (t.dims.size() > dims.size()) dims.insert(dims.begin(), t.dims.size() - dims.size(), 1);
    const size_t offset = dims.size() - t.dims.size();
    for (size_t d = 0; d < t.dims.size(); ++d) {
      int64_t& size = dims[offset + d];
      if (size != t.dims[d] && size != 1 && t.dims[d] != 1) return std::nullopt;
      if (size == 1) size = t.dims[d];
    }
  }
  return dims;
}

OpClass op_class(std::string_view name) {
  if (name == "detach" || name == "detach_") return OpClass::view;  // autograd's, without a prefix
  const auto found = classes().find(aten_base_name(name));
  return found == classes().end() ? OpClass::unknown : found->second;
}

bool is_elementwise(OpClass op) {
  return op == OpClass::pointwise || op == OpClass::copy || op == OpClass::fill;
}

size_t most_operands(std::string_view name) {
  const PointwiseRow* row = pointwise_row_of_op(aten_base_name(name));
  return row != nullptr && op_class(name) == OpClass::pointwise ? row->operands : SIZE_MAX;
}

bool is_transcendental(std::string_view name) {
  const std::string_view base = aten_base_name(name);
  if (const PointwiseRow* row = pointwise_row_of_op(base))
    return row->cost == PointwiseCost::costly;
  // Ops that the table lacks.
  if (base == "native_dropout") return true;  // random numbers cost more than their bytes
  constexpr std::array<std::string_view, 11> kMarks = {
      "tanh", "sigmoid", "exp", "log", "pow", "erf", "elu", "soft", "sin", "cos", "bernoulli"};
  return !base.starts_with("relu") &&  // relu6 holds "elu" too
         std::any_of(kMarks.begin(), kMarks.end(), [&](std::string_view mark) {
           return base.find(mark) != std::string_view::npos;
         });
}

bool is_cpu_collective(std::string_view name) {
  // As c10d's process groups of CPUs call their work.
  constexpr std::array<std::string_view, 3> kPrefixes = {"gloo:", "mpi:", "ucc:"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::optional<int64_t> element_bytes(std::string_view type) {
  const size_t at = type_position(type);
  return at < std::size(kTypes) ? std::optional(kTypes[at].bytes) : std::nullopt;
}

int64_t TensorShape::numel() const {
  int64_t n = 1;
  for (const int64_t d : dims)
    if (__builtin_mul_overflow(n, d, &n)) return 0;  // no tensor that a device could hold
  return n;
}

std::optional<int64_t> TensorShape::bytes() const {
  const std::optional<int64_t> each = element_bytes(type);
  int64_t total = 0;
  if (!each || __builtin_mul_overflow(numel() / repeats, *each, &total)) return std::nullopt;
  return total;
}

namespace {

bool has_strides(std::span<const OpInput> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const OpInput& input) {
    return is_tensor(input) && !input.strides.empty();
  });
}

}  // namespace

bool has_sparse(std::span<const OpInput> inputs) {
  return has_strides(inputs) && std::any_of(inputs.begin(), inputs.end(), [](const OpInput& input) {
           return is_tensor(input) && is_sparse(input);
         });
}

bool is_channels_last(const OpInput& tensor) {
  const std::vector<int64_t>& dims = tensor.dims;
  const std::vector<int64_t>& strides = tensor.strides;
  return dims.size() == 4 && strides.size() == 4 && dims[1] > 1 && strides[1] == 1 &&
         strides[3] == dims[1];
}

std::vector<TensorShape> tensor_inputs(std::span<const OpInput> inputs) {
  std::vector<TensorShape> tensors;
  const bool are_strides_known = has_strides(inputs);
  for (const OpInput& input : inputs) {
    const bool is_known = !are_strides_known || !is_sparse(input);
    const std::string_view type = is_known ? std::string_view(input.type) : "";
    if (is_tensor(input)) tensors.push_back({input.dims, type, repeats_in_memory(input)});
    for (const OpInput& element : input.list)
      if (is_tensor_of_list(element)) tensors.push_back({element.dims, element.type});
  }
  return tensors;
}

std::optional<TensorShape> output_shape(std::string_view name, std::span<const OpInput> inputs) {
  const std::string_view base = aten_base_name(name);
  const std::vector<TensorShape> tensors = tensor_inputs(inputs);
  if (tensors.empty()) return std::nullopt;
  switch (op_class(name)) {
    case OpClass::view:
    case OpClass::unknown:
    case OpClass::reduction: return std::nullopt;
    case OpClass::gemm:
      // What a product with a sparse operand gives out is not said: dense or sparse.
      return has_sparse(inputs) ? std::nullopt : product_shape(base, tensors);
    case OpClass::fill:
    case OpClass::rowwise:
    case OpClass::copy: return tensors.front();  // copy_(self, source): self's dtype
    case OpClass::pointwise: break;
  }
  if (is_in_place(name)) return tensors.front();
  std::optional<std::vector<int64_t>> dims = broadcast_dims(tensors);
  const std::optional<std::string_view> type = pointwise_type(base, tensors);
  if (!dims || !type) return std::nullopt;
  return TensorShape{std::move(*dims), *type};
}

std::optional<TensorShape> reduced_rows(std::string_view name, const TensorShape& input) {
  if (input.dims.empty()) return std::nullopt;
  TensorShape out = input;
  const std::string_view base = aten_base_name(name);
  const size_t type = type_position(input.type);
  const bool is_whole = type >= kFirstWholeType && type < std::size(kTypes);
  const bool adds = base == "sum" || base == "prod" || base == "cumsum";
  if (base == "argmax" || base == "argmin" || (adds && is_whole)) out.type = "long int";
  if (base != "cumsum") out.dims.back() = 1;
  return out;
}

}  // namespace epilogue::trace
