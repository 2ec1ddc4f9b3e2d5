// SPDX-License-Identifier: Apache-2.0
// Tensors: shapes, dtypes, views and ops.
#include <cstdio>

#include "epilogue/ops.h"
#include "epilogue/tensor.h"

using namespace epilogue;

void show(const char* name, const Tensor& t) {
  std::printf("%s = %s {", name, to_string(t).c_str());
  for (const double value : t.to_vector()) std::printf(" %.4g", value);
  std::printf(" }\n");
}

int main() {
  manual_seed(0);
  const Tensor x = randn({2, 3});           // f32, drawn from N(0, 1)
  const Tensor w = full({2, 3}, 0.5);       // as nn.Linear holds weights: [out, in]
  const Tensor y = mm(x, t(w));             // t() is a view: it moves nothing
  const Tensor row = slice(y, 0, 1, 2, 1);  // y[1:2], a view too
  show("x", x);
  show("y", y);
  show("y in bf16", to(y, DType::bf16));  // rounded to nearest even
  add_(row, full({1, 2}, 1.0));           // writes into y through the view
  show("y after adding 1 to row 1", y);
  return row.data() == static_cast<const float*>(y.data()) + 2 ? 0 : 1;
}
