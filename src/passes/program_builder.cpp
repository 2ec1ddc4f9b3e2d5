// SPDX-License-Identifier: Apache-2.0
#include "passes/program_builder.h"

#include <algorithm>

#include "core/element.h"
#include "core/kernel_list.h"
#include "fused/program.h"
#include "ops/pointwise/pointwise.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpCall;
using graph::Value;
using graph::ValueKind;

bool is_mask(DType dtype) { return dtype == DType::u8 || dtype == DType::boolean; }

bool is_number(const Value& value) {
  return value.kind == ValueKind::constant && value.tensor.numel() == 1;
}

float number_of(const Value& value) {
  return static_cast<float>(load_element(value.dtype, value.tensor.data(), 0));
}

// One step for one op. Constants are part of the step, tensors are inputs.
std::optional<BoundProgram> program_of_call(const Graph& graph, const OpCall& call, PointwiseFn fn,
                                            int result, std::string& reason) {
  BoundProgram bound;
  const PointwiseRow& row = pointwise_row(fn);
  PointwiseStep step;
  step.fn = fn;
  step.parameters = parameters_of(row, call.attrs);
  size_t constants = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Value& value = graph.value(call.inputs[i]);
    if (is_number(value)) {
      const float number = number_of(value);
      // A step has room for one constant.
      if (constants++ > 0 && number != step.constant) {
        reason = "a step has one constant at most";
        return std::nullopt;
      }
      step.constant = number;
      continue;
    }
    const auto known = std::find(bound.inputs.begin(), bound.inputs.end(), call.inputs[i]);
    step.operands[i] = static_cast<int>(known - bound.inputs.begin());
    if (known == bound.inputs.end()) bound.inputs.push_back(call.inputs[i]);
  }
  if (bound.inputs.empty()) {
    reason = "programs compute f32, bf16 and f16 tensors";
    return std::nullopt;
  }
  bound.program.inputs = static_cast<int>(bound.inputs.size());
  bound.program.steps = {step};
  bound.program.outputs = {bound.program.inputs};
  bound.results = {result};
  return bound;
}

}  // namespace

std::optional<BoundProgram> program_of(const Graph& graph, const Node& node, std::string& reason) {
  if (const fused::Program* p = node.as<fused::Program>())
    return BoundProgram{p->program, p->inputs, node.outputs, p->sizes};
  const OpCall* call = node.call();
  const std::optional<PointwiseFn> fn =
      call != nullptr ? pointwise_fn_of(*call->op, call->attrs) : std::nullopt;
  if (!fn) {
    reason = "it is no pointwise op that programs know";
    return std::nullopt;
  }
  std::optional<BoundProgram> bound = program_of_call(graph, *call, *fn, node.outputs[0], reason);
  if (!bound) return std::nullopt;
  bound->sizes = graph.value(node.outputs[0]).sizes;
  reason = reason_against_values(graph, *bound);
  if (!reason.empty()) return std::nullopt;
  return bound;
}

bool programs_read_masks(const Graph& graph) { return graph.capabilities.programs_read_masks; }

std::string reason_against_values(const Graph& graph, const BoundProgram& bound) {
  for (const int v : bound.results)
    if (const DType dtype = graph.value(v).dtype; !has_float_type(dtype) && dtype != DType::boolean)
      return "programs compute f32, bf16 and f16 tensors";
  for (const int v : bound.inputs) {
    const DType dtype = graph.value(v).dtype;
    if (!has_float_type(dtype) && !is_mask(dtype))
      return "programs read f32, bf16 and f16 tensors and masks";
    if (dtype == DType::u8 && !programs_read_masks(graph))
      return "programs on " + to_string(graph.device) + " read no masks";
    if (!graph::row_layout(graph.value(v), bound.sizes, graph.capabilities.programs_repeat_rows))
      return "an operand does not lie in rows";
  }
  return "";
}

BoundProgram last_program(const Node& chain) {
  const fused::ChainStage& stage = chain.as<fused::Chain>()->stages.back();
  BoundProgram bound{stage.epilogue, {}, {chain.outputs[0]}, {}};
  for (int i = 0; i < stage.products(); ++i) bound.inputs.push_back(product_input(i));
  bound.inputs.insert(bound.inputs.end(), stage.operands.begin(), stage.operands.end());
  bound.results.insert(bound.results.end(), stage.stores.begin(), stage.stores.end());
  return bound;
}

void set_last_program(Node& node, fused::Chain chain, const BoundProgram& bound) {
  fused::ChainStage& stage = chain.stages.back();
  stage.epilogue = bound.program;
  stage.operands.assign(bound.inputs.begin() + stage.products(), bound.inputs.end());
  stage.stores.assign(bound.results.begin() + 1, bound.results.end());
  node.outputs = chain.outputs(bound.results[0]);
  node.what = std::make_shared<fused::Chain>(std::move(chain));
}

int ProgramBuilder::input(int name) {
  const auto known = std::find(inputs_.begin(), inputs_.end(), name);
  if (known != inputs_.end()) return static_cast<int>(known - inputs_.begin());
  inputs_.push_back(name);
  return static_cast<int>(inputs_.size()) - 1;
}

ProgramBuilder::Operand ProgramBuilder::operand(int name) {
  const auto known = defined_.find(name);
  return known != defined_.end() ? known->second : Operand{false, input(name)};
}

void ProgramBuilder::append(const BoundProgram& bound) {
  std::vector<Operand> values;
  values.reserve(bound.inputs.size() + bound.program.steps.size());
  for (const int name : bound.inputs) values.push_back(operand(name));
  for (const PointwiseStep& step : bound.program.steps) {
    Step s{step, {}};
    for (size_t k = 0; k < step.values().size(); ++k)
      if (const int v = step.operands[k]; v != kConstantOperand)
        s.operands[k] = values[static_cast<size_t>(v)];
    const auto known = std::find_if(steps_.begin(), steps_.end(),
                                    [&](const Step& other) { return s.is_same(other); });
    values.push_back({true, static_cast<int>(known - steps_.begin())});
    if (known == steps_.end()) steps_.push_back(s);
  }
  for (size_t i = 0; i < bound.results.size(); ++i)
    defined_.insert_or_assign(bound.results[i],
                              values[static_cast<size_t>(bound.program.outputs[i])]);
}

int ProgramBuilder::number(Operand o) const {
  return o.is_step ? static_cast<int>(inputs_.size()) + o.index : o.index;
}

BoundProgram ProgramBuilder::finish(const std::vector<int>& results) const {
  BoundProgram bound = {.inputs = inputs_, .results = results};
  bound.program.inputs = static_cast<int>(inputs_.size());
  for (const Step& s : steps_) {
    PointwiseStep step = s.step;
    for (size_t k = 0; k < s.operands.size(); ++k)
      if (s.operands[k]) step.operands[k] = number(*s.operands[k]);
    bound.program.steps.push_back(step);
  }
  for (const int result : results) bound.program.outputs.push_back(number(defined_.at(result)));
  return bound;
}

}  // namespace epilogue::passes
