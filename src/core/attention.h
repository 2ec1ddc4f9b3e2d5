// SPDX-License-Identifier: Apache-2.0
// Attention as one fused kernel: the pattern (passes/fuse_attention.cpp) describes it, a backend
// that has it lists a maker of kAttention.
#pragma once

#include "core/fused_kernel.h"

namespace epilogue {

inline constexpr OpDef kAttention{.name = "epilogue::attention",
                                  .schema = "(Tensor q, Tensor k, Tensor v, Tensor? mask)",
                                  .doc = "softmax(q k^T * scale + mask) v, no scores in memory"};

// `batch` times:  out [queries, values] = softmax(q k^T * scale + mask) v
//
// Operands of the kernel: q [batch * queries, depth], k [batch / group * keys, depth],
// v [batch / group * keys, values], with a mask [batch * queries, keys], of floats that are added
// or of booleans, false where a query does not see a key; its result is [batch * queries, values]
// with contiguous columns. All sizes are above 0. The rows of one item of the batch have one
// stride. Arithmetic between q, k, v and the result is f32.
struct AttentionSpec final : FusedSpec {
  DType dtype = DType::f32;  // of q, k, v and the result: f32, bf16 or f16
  int64_t batch = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t depth = 0;
  int64_t values = 0;
  float scale = 1;
  bool divides = false;  // by `scale`; else the scores are multiplied by it
  bool has_mask = false;
  int64_t group = 1;           // so many items in a row share keys and values
  bool causal = false;         // query i sees keys 0 to i
  bool empty_is_zero = false;  // what a query that sees no key gets; else NaN
};

}  // namespace epilogue
