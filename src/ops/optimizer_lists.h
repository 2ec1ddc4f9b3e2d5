// SPDX-License-Identifier: Apache-2.0
// Which list of an optimizer's op is which. Plain numbers: device code reads them too.
#pragma once

#include <cstddef>

namespace epilogue {

// aten::_fused_adam_ and aten::_fused_adamw_.
enum AdamList : size_t {
  kAdamParams,
  kAdamGrads,
  kAdamExpAvgs,
  kAdamExpAvgSqs,
  kAdamMaxExpAvgSqs,  // absent without amsgrad
  kAdamSteps,         // 0-dim f32: steps taken so far
  kAdamCopies,        // 16-bit copies of the parameters, or absent
  kAdamLists
};

// aten::_fused_sgd_.
enum SgdList : size_t {
  kSgdParams,
  kSgdGrads,
  kSgdMomentumBuffers,  // absent without momentum
  kSgdCopies,
  kSgdLists
};

}  // namespace epilogue
