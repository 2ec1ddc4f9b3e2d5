// SPDX-License-Identifier: Apache-2.0
// Ops that are no matrix products: work, traffic and place on the roofline.
#include "explain/products/op_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "epilogue/trace/gemms.h"
#include "explain/index/aten_ops.h"
#include "explain/kernel_name/text.h"
#include "explain/products/device_peaks.h"
#include "explain/products/gemm_shape.h"

namespace epilogue::trace {
namespace {

using Inputs = std::span<const OpInput>;

// FLOPs of one element: the sums of mean and variance, the difference, the square, the scaling.
constexpr double kNormFlops = 5;
constexpr double kRmsNormFlops = 4;  // square, sum, two scalings
constexpr double kSoftmaxFlops = 5;  // maximum, difference, exponential, sum, division

// "[1, -2]" -> {1, -2}; what is no number ends the list.
std::vector<int64_t> whole_numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    if (std::string_view("[], ()").find(text.front()) != std::string_view::npos) {
      text.remove_prefix(1);
      continue;
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) break;
    numbers.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  return numbers;
}

std::string_view concrete(Inputs inputs, size_t i) {
  return i < inputs.size() ? std::string_view(inputs[i].concrete) : std::string_view();
}

std::optional<TensorShape> tensor_at(Inputs inputs, size_t i) {
  if (i >= inputs.size()) return std::nullopt;
  const std::vector<TensorShape> found = tensor_inputs(inputs.subspan(i, 1));
  if (found.size() != 1 || inputs[i].is_list) return std::nullopt;
  return found.front();
}

// Bytes of all tensors; empty if a dtype is unknown or there is no tensor.
std::optional<double> bytes_of(std::span<const TensorShape> tensors) {
  double total = 0;
  for (const TensorShape& t : tensors) {
    const std::optional<int64_t> bytes = t.bytes();
    if (!bytes) return std::nullopt;
    total += static_cast<double>(*bytes);
  }
  return total;
}

double elements(const TensorShape& t) { return static_cast<double>(t.numel()); }

// --- Convolution: (input, weight, bias, stride, padding, dilation, transposed, ...), the backward
// pass: (grad, input, weight, bias sizes, stride, ..., groups, which gradients).
constexpr size_t kTransposed = 6;
constexpr size_t kMask = 10;

struct ConvolutionShape {
  TensorShape input, weight, output;
  double flops() const {
    // Each weight of one output channel meets each output element once.
    const double per_channel = elements(weight) / std::max<double>(1, weight.dims[0]);
    return 2 * elements(output) * per_channel;
  }
};

std::optional<ConvolutionShape> convolution_shape(Inputs inputs) {
  const auto input = tensor_at(inputs, 0);
  const auto weight = tensor_at(inputs, 1);
  if (!input || !weight || inputs.size() <= kTransposed) return std::nullopt;
  if (input->dims.size() < 3 || weight->dims.size() != input->dims.size()) return std::nullopt;
  if (concrete(inputs, kTransposed) != "False") return std::nullopt;
  const size_t spatial = input->dims.size() - 2;
  const auto strides = whole_numbers(concrete(inputs, 3));
  const auto paddings = whole_numbers(concrete(inputs, 4));
  const auto dilations = whole_numbers(concrete(inputs, 5));
  const auto at = [](const std::vector<int64_t>& list, size_t i) {
    return list.size() == 1 ? list[0] : i < list.size() ? list[i] : -1;
  };
  constexpr int64_t kMost = int64_t{1} << 31;  // files may say anything
  ConvolutionShape shape{*input, *weight, *input};
  shape.output.dims[1] = weight->dims[0];
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t stride = at(strides, i);
    const int64_t padding = at(paddings, i);
    const int64_t dilation = at(dilations, i);
    const int64_t size = input->dims[2 + i];
    const int64_t kernel = weight->dims[2 + i];
    for (const int64_t number : {stride, padding, dilation, size, kernel})
      if (number < 0 || number > kMost) return std::nullopt;
    const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    if (stride == 0 || room < 0) return std::nullopt;
    shape.output.dims[2 + i] = room / stride + 1;
  }
  return shape;
}

std::optional<OpProblem> convolution(Inputs inputs) {
  const auto shape = convolution_shape(inputs);
  if (!shape) return std::nullopt;
  const auto bytes = bytes_of(std::array{shape->input, shape->weight, shape->output});
  if (!bytes) return std::nullopt;
  return OpProblem{RooflineKind::convolution, shape->flops(), *bytes};
}

// One product for each of the gradients of input and weight that is asked for.
std::optional<OpProblem> convolution_backward(Inputs inputs) {
  const auto grad = tensor_at(inputs, 0);
  const auto input = tensor_at(inputs, 1);
  const auto weight = tensor_at(inputs, 2);
  const std::string_view mask = concrete(inputs, kMask);
  if (!grad || !input || !weight || mask.empty() || weight->dims.empty()) return std::nullopt;
  if (concrete(inputs, kTransposed + 1) != "False") return std::nullopt;
  const bool wants_input = mask.starts_with("[True");
  const size_t comma = mask.find(", ");
  const bool wants_weight =
      comma != std::string_view::npos && mask.substr(comma + 2).starts_with("True");
  const double products = (wants_input ? 1 : 0) + (wants_weight ? 1 : 0);
  std::vector<TensorShape> moved = {*grad};
  if (wants_input) moved.insert(moved.end(), {*weight, *input});
  if (wants_weight) moved.insert(moved.end(), {*input, *weight});
  const auto bytes = bytes_of(moved);
  if (!bytes || products == 0) return std::nullopt;
  const ConvolutionShape shape{*input, *weight, *grad};
  return OpProblem{RooflineKind::convolution, products * shape.flops(), *bytes};
}

// --- Attention: query, key and value are [batch, heads, length, head size].
struct AttentionOp {
  std::string_view name;
  size_t query;   // key and value follow
  size_t causal;  // which argument says so
  bool is_backward;
};
constexpr AttentionOp kAttentionOps[] = {
    {"aten::_scaled_dot_product_flash_attention", 0, 4, false},
    {"aten::_scaled_dot_product_efficient_attention", 0, 6, false},
    {"aten::_scaled_dot_product_cudnn_attention", 0, 6, false},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", 0, 4, false},
    {"aten::_scaled_dot_product_flash_attention_backward", 1, 11, true},
    {"aten::_scaled_dot_product_efficient_attention_backward", 1, 11, true},
    {"aten::_scaled_dot_product_cudnn_attention_backward", 1, 14, true},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", 1, 7, true},
};

// Two products, [length, head] x [head, length] and back. Their backward pass has five: one of the
// two again, and two for each. A causal mask leaves half of a square.
std::optional<OpProblem> attention(const AttentionOp& op, Inputs inputs) {
  const auto q = tensor_at(inputs, op.query);
  const auto k = tensor_at(inputs, op.query + 1);
  const auto v = tensor_at(inputs, op.query + 2);
  if (!q || !k || !v || q->dims.size() != 4 || k->dims.size() != 4 || v->dims.size() != 4)
    return std::nullopt;
  const auto of = [](const TensorShape& t, size_t i) { return static_cast<double>(t.dims[i]); };
  const double pairs = of(*q, 0) * of(*q, 1) * of(*q, 2) * of(*k, 2);
  double flops = 2 * pairs * (of(*q, 3) + of(*v, 3));
  if (op.is_backward) flops *= 2.5;
  if (concrete(inputs, op.causal) == "True" && q->dims[2] == k->dims[2]) flops /= 2;
  TensorShape out = *q;
  out.dims[3] = v->dims[3];
  std::vector<TensorShape> moved = {*q, *k, *v, out};
  if (op.is_backward) moved.insert(moved.end(), {*q, *k, *v, out});  // the gradients of all four
  const auto bytes = bytes_of(moved);
  if (!bytes) return std::nullopt;
  return OpProblem{RooflineKind::attention, flops, *bytes};
}

// --- Norms and softmax: all inputs, and a result of the size of the first.
struct RowOp {
  std::string_view name;
  RooflineKind kind;
  double flops;  // of an element; 0: no count is agreed on
};
constexpr RowOp kRowOps[] = {
    {"aten::native_layer_norm", RooflineKind::norm, kNormFlops},
    {"aten::native_batch_norm", RooflineKind::norm, kNormFlops},
    {"aten::cudnn_batch_norm", RooflineKind::norm, kNormFlops},
    {"aten::miopen_batch_norm", RooflineKind::norm, kNormFlops},
    {"aten::native_group_norm", RooflineKind::norm, kNormFlops},
    {"aten::_fused_rms_norm", RooflineKind::norm, kRmsNormFlops},
    {"aten::native_layer_norm_backward", RooflineKind::norm, 0},
    {"aten::native_batch_norm_backward", RooflineKind::norm, 0},
    {"aten::cudnn_batch_norm_backward", RooflineKind::norm, 0},
    {"aten::miopen_batch_norm_backward", RooflineKind::norm, 0},
    {"aten::native_group_norm_backward", RooflineKind::norm, 0},
    {"aten::_fused_rms_norm_backward", RooflineKind::norm, 0},
    {"aten::_softmax", RooflineKind::softmax, kSoftmaxFlops},
    {"aten::_log_softmax", RooflineKind::softmax, kSoftmaxFlops},
    {"aten::_softmax_backward_data", RooflineKind::softmax, 0},
    {"aten::_log_softmax_backward_data", RooflineKind::softmax, 0},
};

std::optional<OpProblem> row_op(const RowOp& op, Inputs inputs) {
  std::vector<TensorShape> moved = tensor_inputs(inputs);
  if (moved.empty()) return std::nullopt;
  TensorShape result = moved.front();
  const bool to_float = op.kind == RooflineKind::softmax && concrete(inputs, 2) == "True";
  if (to_float) result.type = "float";
  moved.push_back(result);
  const auto bytes = bytes_of(moved);
  if (!bytes) return std::nullopt;
  const auto flops = op.flops > 0 ? std::optional(op.flops * elements(result)) : std::nullopt;
  return OpProblem{op.kind, flops, *bytes};
}

// --- Elementwise: one FLOP for each element of the result, as PyTorch's own formulas have it.
std::optional<OpProblem> elementwise(std::string_view op, OpClass op_class, Inputs inputs) {
  std::vector<TensorShape> moved = tensor_inputs(inputs);
  const auto result = output_shape(op, inputs);
  if (moved.empty() || !result) return std::nullopt;
  if (op_class == OpClass::fill) moved.clear();                                   // reads nothing
  if (op_class == OpClass::copy && moved.size() > 1) moved.erase(moved.begin());  // overwritten
  constexpr std::string_view kBinary[] = {"aten::add", "aten::sub", "aten::mul", "aten::div"};
  const bool is_binary = std::find(std::begin(kBinary), std::end(kBinary), op) != std::end(kBinary);
  if (is_binary && moved.size() > 2) moved.resize(2);  // out=
  if (op == "aten::native_dropout") moved.push_back({result->dims, "bool"});
  moved.push_back(*result);
  const auto bytes = bytes_of(moved);
  if (!bytes) return std::nullopt;
  const double flops = op_class == OpClass::fill ? 0 : elements(*result);
  return OpProblem{RooflineKind::elementwise, flops, *bytes};
}

// --- Reductions: one FLOP for each element that is read.
struct ReductionOp {
  std::string_view name;
  size_t dims;  // which argument says over what
};
constexpr ReductionOp kReductionOps[] = {
    {"aten::sum", 1},    {"aten::mean", 1}, {"aten::amax", 1},
    {"aten::amin", 1},   {"aten::prod", 1}, {"aten::argmax", 1},
    {"aten::argmin", 1}, {"aten::var", 1},  {"aten::linalg_vector_norm", 2},
    {"aten::all", 1},    {"aten::any", 1},  {"aten::std", 1},
};

std::optional<OpProblem> reduction(const ReductionOp& op, Inputs inputs) {
  const auto x = tensor_at(inputs, 0);
  if (!x) return std::nullopt;
  // A dtype or a flag in its place is no number: all dimensions go.
  TensorShape result = *x;
  const std::vector<int64_t> over = whole_numbers(concrete(inputs, op.dims));
  const auto rank = static_cast<int64_t>(x->dims.size());
  for (const int64_t d : over) {
    if (d < -rank || d >= rank) return std::nullopt;
    result.dims[static_cast<size_t>(d < 0 ? d + rank : d)] = 1;
  }
  if (over.empty()) result.dims.clear();
  const auto bytes = bytes_of(std::array{*x, result});
  if (!bytes) return std::nullopt;
  return OpProblem{RooflineKind::reduction, elements(*x), *bytes};
}

template <class List>
const auto* find_row(const List& list, std::string_view name) {
  const auto* it =
      std::find_if(std::begin(list), std::end(list), [&](const auto& r) { return r.name == name; });
  return it == std::end(list) ? nullptr : it;
}

}  // namespace

std::optional<OpProblem> op_problem(std::string_view op, std::span<const OpInput> inputs) {
  if (inputs.empty()) return std::nullopt;
  if (op == "aten::convolution") return convolution(inputs);
  if (op == "aten::convolution_backward") return convolution_backward(inputs);
  if (const AttentionOp* row = find_row(kAttentionOps, op)) return attention(*row, inputs);
  if (const RowOp* row = find_row(kRowOps, op)) return row_op(*row, inputs);
  if (const ReductionOp* row = find_row(kReductionOps, op)) return reduction(*row, inputs);
  const OpClass known = op_class(op);
  return is_elementwise(known) ? elementwise(op, known, inputs) : std::nullopt;
}

bool owns_inner_kernels(RooflineKind kind) {
  return kind == RooflineKind::convolution || kind == RooflineKind::attention ||
         kind == RooflineKind::norm;
}

std::string_view roofline_kind_name(RooflineKind kind) {
  constexpr std::string_view kNames[] = {"convolution", "attention",   "norm",
                                         "softmax",     "elementwise", "reduction"};
  return kNames[static_cast<size_t>(kind)];
}

// Rooflines of ops that are no matrix products: convolutions, attention, norms, softmax,
// elementwise ops and reductions.

namespace {

constexpr int kMostParentsOfKernel = 64;
constexpr double kPercent = 100;

std::string dims_text(const OpInput& input, bool with_strides) {
  std::string text = fmt::format("[{}]", fmt::join(input.dims, ", "));
  if (with_strides) text += fmt::format("@{}", fmt::join(input.strides, ","));
  return text;
}

// "[16, 559, 1024] bf16, [1024] bf16": the tensors, without numbers and lists.
std::string tensors_text(std::span<const OpInput> inputs, bool with_strides) {
  std::string text;
  for (const OpInput& input : inputs) {
    const std::string_view type = element_type(input.type);
    if (input.is_list || type.empty() || (input.dims.empty() && !input.concrete.empty())) continue;
    text += (text.empty() ? "" : ", ") + dims_text(input, with_strides) + " " + std::string(type);
  }
  return text;
}

// One run of an op: what it computes, and its kernels.
struct OpRun {
  OpProblem problem;
  int64_t ns = 0;
  int64_t kernels = 0;
  int32_t device = 0;
  uint32_t longest = kNone;  // of its kernels
};

struct RooflineGroup {
  OpRoofline roofline;
  std::vector<int64_t> times_ns;
  uint32_t kernel = kNone;  // the longest of its first run
};

class RooflineCollector {
 public:
  RooflineCollector(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

  std::vector<OpRoofline> run() {
    for (const uint32_t i : links_.device_work) add_work(i);
    for (const uint32_t op : order_) add_run(op, runs_[op]);
    std::vector<OpRoofline> list;
    list.reserve(groups_.size());
    for (auto& [key, group] : groups_) list.push_back(finish(group));
    std::stable_sort(list.begin(), list.end(), [](const OpRoofline& a, const OpRoofline& b) {
      return a.time.total_ns > b.time.total_ns;
    });
    return list;
  }

 private:
  // Ops of one name and one list of arguments have the same problem.
  const std::optional<OpProblem>& problem_of(uint32_t op) {
    static const std::optional<OpProblem> kNoProblem;
    const Event& e = trace_.events[op];
    const OpArgs* args = trace_.op_args(e);
    if (e.category != Category::cpu_op || args == nullptr || args->inputs == kNone)
      return kNoProblem;
    const uint64_t key = uint64_t{e.name} << 32 | args->inputs;
    const auto [place, is_new] = problems_.try_emplace(key);
    if (is_new) place->second = op_problem(trace_.name(e), trace_.inputs[args->inputs]);
    return place->second;
  }

  // The innermost op that is of one of the kinds. One that only calls another does not own what
  // that launches, but for kinds that are made of inner ops.
  std::optional<std::pair<uint32_t, OpProblem>> find_owner(uint32_t work) {
    uint32_t op = links_.op[work];
    for (int depth = 0; op != kNone && depth < kMostParentsOfKernel; ++depth) {
      if (const auto& problem = problem_of(op)) {
        if (depth > 0 && !owns_inner_kernels(problem->kind)) return {};
        return std::pair(op, *problem);
      }
      op = links_.parent[op];
    }
    return {};
  }

  void add_work(uint32_t i) {
    const Event& e = trace_.events[i];
    // Copies may cross a bus: memory's bandwidth is not their limit.
    if (e.category == Category::gpu_memcpy) return;
    const auto owner = find_owner(i);
    if (!owner) return;
    const auto [it, is_new] = runs_.try_emplace(owner->first);
    OpRun& run = it->second;
    if (is_new) {
      order_.push_back(owner->first);
      run.problem = owner->second;
    }
    const KernelArgs* args = trace_.kernel_args(e);
    run.device = args == nullptr ? e.pid : args->device;
    run.ns += e.dur_ns;
    ++run.kernels;
    if (run.longest == kNone || trace_.events[run.longest].dur_ns < e.dur_ns) run.longest = i;
  }

  void add_run(uint32_t op, const OpRun& run) {
    const Event& e = trace_.events[op];
    const uint32_t list = trace_.op_args(e)->inputs;
    const auto inputs = trace_.inputs[list];
    const OpProblem& problem = run.problem;
    const auto [text, is_new] = texts_.try_emplace(list);
    if (is_new) text->second = tensors_text(inputs, true);
    const Key key{e.name, run.device, problem.flops.value_or(-1), text->second};
    RooflineGroup& group = groups_[key];
    if (group.kernel == kNone) {
      group.kernel = run.longest;
      OpRoofline& r = group.roofline;
      r.kind = problem.kind;
      r.op = std::string(trace_.name(e));
      r.shapes = tensors_text(inputs, false);
      r.device = run.device;
      r.flops = problem.flops;
      r.bytes = problem.bytes;
      const auto typed = std::find_if(inputs.begin(), inputs.end(), [](const OpInput& input) {
        return !element_type(input.type).empty() && !input.is_list;
      });
      if (typed != inputs.end()) r.type = std::string(element_type(typed->type));
    }
    group.roofline.kernels += run.kernels;
    group.times_ns.push_back(run.ns);
  }

  OpRoofline finish(RooflineGroup& group) {
    OpRoofline& r = group.roofline;
    r.time = distribution(std::move(group.times_ns)).value_or(Distribution());
    r.kernel = std::string(trace_.name(trace_.events[group.kernel]));
    if (r.flops && *r.flops > 0 && r.bytes > 0) r.intensity = *r.flops / r.bytes;
    if (r.time.median_ns > 0) {
      const auto ns = static_cast<double>(r.time.median_ns);
      if (r.flops) r.tflops = *r.flops / ns * 1e-3;
      r.gb_per_s = r.bytes / ns;
    }
    if (const auto peaks = find_device_peaks(trace_, r.device)) add_peaks(r, *peaks);
    return std::move(r);
  }

  // f32 may run as TF32: the kernel's name says it, or nothing is known of the ceiling.
  std::optional<double> ceiling_of(const OpRoofline& r, const DevicePeaks& peaks) const {
    const bool is_product =
        r.kind == RooflineKind::convolution || r.kind == RooflineKind::attention;
    if (!is_product) return peaks.f32 > 0 ? std::optional(peaks.f32) : std::nullopt;
    std::string type = r.type;
    if (type == "f32") {
      const KernelName name = decode_kernel_name(r.kernel);
      type = name.gemm ? name.gemm->math_type : std::string();
    }
    return peak_tflops(peaks, type);
  }

  void add_peaks(OpRoofline& r, const DevicePeaks& peaks) const {
    r.peak_of = std::string(peaks.device) + ", " + std::string(peaks.source);
    r.peak_tflops = ceiling_of(r, peaks);
    if (peaks.memory_gb_per_s > 0) r.peak_gb_per_s = peaks.memory_gb_per_s;
    if (!r.gb_per_s || !r.peak_gb_per_s) return;
    const bool computes_little = !r.flops || *r.flops == 0;
    if (!computes_little && !r.peak_tflops) return;
    const double memory_ns = r.bytes / *r.peak_gb_per_s;
    const double compute_ns = computes_little ? 0 : *r.flops / *r.peak_tflops * 1e-3;
    r.side = compute_ns > memory_ns ? RooflineSide::compute : RooflineSide::memory;
    r.attainable_pct =
        std::max(compute_ns, memory_ns) / static_cast<double>(r.time.median_ns) * kPercent;
  }

  using Key = std::tuple<StringId, int32_t, double, std::string>;
  const Trace& trace_;
  const Links& links_;
  std::unordered_map<uint64_t, std::optional<OpProblem>> problems_;  // by name and arguments
  std::unordered_map<uint32_t, std::string> texts_;                  // by arguments
  std::unordered_map<uint32_t, OpRun> runs_;                         // by op
  std::vector<uint32_t> order_;
  std::map<Key, RooflineGroup> groups_;
};

}  // namespace

std::vector<OpRoofline> op_rooflines(const Trace& trace, const Links& links) {
  return RooflineCollector(trace, links).run();
}

}  // namespace epilogue::trace
