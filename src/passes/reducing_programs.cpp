// SPDX-License-Identifier: Apache-2.0
// Each op's formula is the one of its OpDef, in the order in which eager's kernel computes it.
#include "passes/reducing_programs.h"

#include <algorithm>

#include "ops/norms.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpCall;

// A program while it is written.
class Writer {
 public:
  explicit Writer(const OpCall& call) : call_(call) {}

  // Argument i of the op, as a value; an absent one is kConstantOperand.
  int argument(size_t i) {
    const int name = call_.inputs[i];
    if (name == graph::kNoValue) return kConstantOperand;
    const auto known = std::find(bound_.inputs.begin(), bound_.inputs.end(), name);
    if (known != bound_.inputs.end()) return static_cast<int>(known - bound_.inputs.begin());
    bound_.inputs.push_back(name);
    return bound_.program.inputs++;
  }
  // Steps may be written when all arguments are known.
  int step(PointwiseFn fn, int a, int b = kConstantOperand, float constant = 0) {
    bound_.program.steps.push_back({fn, a, b, constant});
    return bound_.program.values() - 1;
  }
  int times(int a, int b) { return b == kConstantOperand ? a : step(PointwiseFn::mul, a, b); }
  void give(int value, int result) {
    bound_.program.outputs.push_back(value);
    bound_.results.push_back(result);
  }
  BoundProgram finish(const Dims& sizes) {
    bound_.sizes = sizes;
    return std::move(bound_);
  }

 private:
  const OpCall& call_;
  BoundProgram bound_;
};

void write_softmax(Writer& w, const OpCall& call, const Node& node) {
  const int x = w.argument(0);
  const int shifted = w.step(PointwiseFn::sub, x, w.step(PointwiseFn::row_max, x));
  const int e = w.step(PointwiseFn::exp, shifted);
  const int sum = w.step(PointwiseFn::row_sum, e);
  if (call.op == &kLogSoftmaxUnit)
    return w.give(w.step(PointwiseFn::sub, shifted, w.step(PointwiseFn::log, sum)),
                  node.outputs[0]);
  const int factor = w.step(PointwiseFn::div, kConstantOperand, sum, 1);
  w.give(w.step(PointwiseFn::mul, e, factor), node.outputs[0]);
}

void write_softmax_backward(Writer& w, const OpCall& call, const Node& node) {
  const int dy = w.argument(0);
  const int y = w.argument(1);
  if (call.op == &kLogSoftmaxBackward) {
    const int sum = w.step(PointwiseFn::row_sum, dy);
    const int share = w.step(PointwiseFn::mul, w.step(PointwiseFn::exp, y), sum);
    return w.give(w.step(PointwiseFn::sub, dy, share), node.outputs[0]);
  }
  const int sum = w.step(PointwiseFn::row_sum, w.step(PointwiseFn::mul, dy, y));
  w.give(w.step(PointwiseFn::mul, y, w.step(PointwiseFn::sub, dy, sum)), node.outputs[0]);
}

void write_norm(Writer& w, const OpCall& call, const Node& node, double eps) {
  const bool is_layer = call.op == &kNativeLayerNorm;
  const int x = w.argument(0);
  const int weight = w.argument(1);
  const int bias = is_layer ? w.argument(2) : kConstantOperand;
  const int mean = is_layer ? w.step(PointwiseFn::row_mean, x) : kConstantOperand;
  const int centred = is_layer ? w.step(PointwiseFn::sub, x, mean) : x;
  const int squares = w.step(PointwiseFn::mul, centred, centred);
  const int variance = w.step(PointwiseFn::row_mean, squares);
  const int rstd = w.step(PointwiseFn::rsqrt, w.step(PointwiseFn::add, variance, kConstantOperand,
                                                     static_cast<float>(eps)));
  int y = w.times(w.step(PointwiseFn::mul, centred, rstd), weight);
  if (bias != kConstantOperand) y = w.step(PointwiseFn::add, y, bias);
  w.give(y, node.outputs[0]);
  if (is_layer) w.give(mean, node.outputs[1]);
  w.give(rstd, node.outputs.back());
}

// g = dy weight, h = (x - mean) rstd; dx = rstd (g - mean(g) - h mean(g h)), dweight the column
// sums of dy h, dbias those of dy. RMS norms have no mean.
void write_norm_backward(Writer& w, const OpCall& call, const Node& node) {
  const bool is_layer = call.op == &kNativeLayerNormBackward;
  const Dims& mask = std::get<Dims>(call.attrs[1]);
  const int dy = w.argument(0);
  const int x = w.argument(1);
  const int mean = is_layer ? w.argument(2) : kConstantOperand;
  const int rstd = w.argument(is_layer ? 3 : 2);
  const int weight = w.argument(is_layer ? 4 : 3);
  const int h = w.step(PointwiseFn::mul, is_layer ? w.step(PointwiseFn::sub, x, mean) : x, rstd);
  if (mask[0] != 0) {
    const int g = w.times(dy, weight);
    const int mean_gh = w.step(PointwiseFn::row_mean, w.step(PointwiseFn::mul, g, h));
    const int rest = is_layer ? w.step(PointwiseFn::sub, g, w.step(PointwiseFn::row_mean, g)) : g;
    const int centred = w.step(PointwiseFn::sub, rest, w.step(PointwiseFn::mul, h, mean_gh));
    w.give(w.step(PointwiseFn::mul, centred, rstd), node.outputs[0]);
  }
  if (mask[1] != 0)
    w.give(w.step(PointwiseFn::column_sum, w.step(PointwiseFn::mul, dy, h)), node.outputs[1]);
  if (is_layer && mask[2] != 0) w.give(w.step(PointwiseFn::column_sum, dy), node.outputs[2]);
}

// The reduction of a sum or mean over the last dimension, or a sum over all others.
std::optional<PointwiseFn> reduction_of(const OpCall& call, const Dims& sizes) {
  const Dims dims = normalize_dims(*call.op, std::get<Dims>(call.attrs[0]), sizes.rank());
  const bool has_last = !dims.empty() && dims[dims.rank() - 1] == sizes.rank() - 1;
  if (dims.rank() == 1 && has_last && sizes.rank() > 1)
    return call.op == &kMean ? PointwiseFn::row_mean : PointwiseFn::row_sum;
  if (dims.rank() == sizes.rank() - 1 && !has_last && !dims.empty() && call.op == &kSum)
    return PointwiseFn::column_sum;
  return std::nullopt;
}

// Writes the op's program; empty where that was done, else why it cannot be.
std::string write_op(Writer& w, const Graph& graph, const Node& node, const OpCall& call) {
  const OpDef* op = call.op;
  const Dims& sizes = graph.value(call.inputs[0]).sizes;
  constexpr const char* kNotAlongRows = "it does not work along rows";
  if (op == &kSoftmaxUnit || op == &kLogSoftmaxUnit || op == &kSoftmaxBackward ||
      op == &kLogSoftmaxBackward) {
    const int dim = normalize_dim(*op, std::get<int64_t>(call.attrs[0]), sizes.rank());
    if (dim != sizes.rank() - 1) return kNotAlongRows;
    const bool is_forward = op == &kSoftmaxUnit || op == &kLogSoftmaxUnit;
    is_forward ? write_softmax(w, call, node) : write_softmax_backward(w, call, node);
    return "";
  }
  const bool is_norm = op == &kFusedRmsNorm || op == &kNativeLayerNorm;
  if (is_norm || op == &kFusedRmsNormBackward || op == &kNativeLayerNormBackward) {
    if (std::get<Dims>(call.attrs[0]).rank() != 1) return "it normalises more than one dimension";
    is_norm ? write_norm(w, call, node, norm_eps(graph, call)) : write_norm_backward(w, call, node);
    return "";
  }
  if (op == &kSum || op == &kMean) {
    const std::optional<PointwiseFn> fn = reduction_of(call, sizes);
    if (!fn) return kNotAlongRows;
    w.give(w.step(*fn, w.argument(0)), node.outputs[0]);
    return "";
  }
  return "it is no op that programs know";
}

// One number per row: [..., 1], or [...] where the op kept no dimension.
bool are_rows(const Dims& sizes, const Dims& elements) {
  const bool is_kept = sizes.rank() == elements.rank() && sizes[sizes.rank() - 1] == 1;
  if (!is_kept && sizes.rank() + 1 != elements.rank()) return false;
  for (int d = 0; d + 1 < elements.rank(); ++d)
    if (sizes[d] != elements[d]) return false;
  return true;
}

bool are_columns(const Dims& sizes, const Dims& elements) {
  return sizes.rank() > 0 && sizes[sizes.rank() - 1] == elements[elements.rank() - 1] &&
         graph::row_count(sizes) == 1;
}

}  // namespace

double norm_eps(const Graph& graph, const OpCall& call) {
  if (call.op == &kNativeLayerNorm) return std::get<double>(call.attrs[1]);
  const Tensor input = graph::shape_only(graph.value(call.inputs[0]));
  return rms_norm_eps(Call{*call.op, {&input, 1}, call.attrs, {}});
}

bool fits(const Graph& graph, const BoundProgram& bound) {
  const std::vector<Extent> extent = output_extents(bound.program);
  for (size_t i = 0; i < bound.results.size(); ++i) {
    const Dims& sizes = graph.value(bound.results[i]).sizes;
    const Extent is = extent[i];
    const bool fit = is == Extent::element ? sizes == bound.sizes
                     : is == Extent::row   ? are_rows(sizes, bound.sizes)
                                           : are_columns(sizes, bound.sizes);
    if (!fit) return false;
  }
  return true;
}

std::optional<BoundProgram> any_program_of(const Graph& graph, const Node& node,
                                           std::string& reason) {
  if (std::optional<BoundProgram> bound = program_of(graph, node, reason)) return bound;
  const OpCall* call = node.call();
  if (call == nullptr || call->inputs.empty() || call->inputs[0] == graph::kNoValue)
    return std::nullopt;
  // What stands in its way as a pointwise op does so here.
  if (pointwise_fn_of(*call->op, call->attrs)) return std::nullopt;
  if (!graph.capabilities.programs_reduce) {
    reason = "programs on " + to_string(graph.device) + " reduce nothing";
    return std::nullopt;
  }
  const Dims& sizes = graph.value(call->inputs[0]).sizes;
  if (sizes.rank() == 0 || element_count(sizes) == 0) return std::nullopt;
  Writer writer(*call);
  reason = write_op(writer, graph, node, *call);
  if (!reason.empty()) return std::nullopt;
  BoundProgram bound = writer.finish(sizes);
  reason = reason_against_values(graph, bound);
  if (!reason.empty() || bound.results.empty()) return std::nullopt;
  return bound;
}

}  // namespace epilogue::passes
