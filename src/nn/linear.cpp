// SPDX-License-Identifier: Apache-2.0
// Linear and Dropout.
#include <cmath>

#include "core/observer.h"
#include "epilogue/nn.h"

namespace epilogue::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) : Module("Linear") {
  if (in_features < 0 || out_features < 0)
    throw Error("[Linear] expected sizes of at least 0, got " + std::to_string(in_features) +
                " in, " + std::to_string(out_features) + " out");
  weight = empty({out_features, in_features});
  kaiming_uniform_(weight, std::sqrt(5.0));  // the bound becomes 1/sqrt(in)
  if (with_bias) {
    bias = empty({out_features});
    const double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0;
    uniform_(bias, -bound, bound);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

// Where autocast is on, it makes the dtypes one.
Tensor Linear::forward(const Tensor& x) const {
  const bool differs = x.defined() && weight.defined() && x.dtype() != weight.dtype();
  if (differs && thread_state().autocast == nullptr) [[unlikely]]
    throw Error("[Linear] expected input of dtype " + std::string(dtype_name(weight.dtype())) +
                ", got " + std::string(dtype_name(x.dtype())));
  return linear(x, weight, bias);
}

Dropout::Dropout(double p) : Module("Dropout"), p_(p) {
  if (!(p >= 0 && p <= 1))
    throw Error("[Dropout] expected a probability in [0, 1], got " + std::to_string(p));
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

}  // namespace epilogue::nn
