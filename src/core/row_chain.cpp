// SPDX-License-Identifier: Apache-2.0
#include "core/row_chain.h"

#include <utility>

namespace epilogue {

RowChainSpec::Stage& add_stage(RowChainSpec& spec, std::vector<Tensor> weights,
                               PointwiseProgram epilogue, size_t operands, size_t stores) {
  int operand = 0;
  int output = 1;  // 0 is the chain's result
  for (const RowChainSpec::Stage& before : spec.stages) {
    operand += static_cast<int>(before.operands.size());
    output += static_cast<int>(before.stores.size());
  }
  RowChainSpec::Stage& stage = spec.stages.emplace_back();
  stage.weights = std::move(weights);
  stage.epilogue = std::move(epilogue);
  for (size_t i = 0; i < operands; ++i) stage.operands.push_back(operand++);
  for (size_t i = 0; i < stores; ++i) stage.stores.push_back(output++);
  return stage;
}

}  // namespace epilogue
