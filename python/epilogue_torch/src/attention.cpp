// SPDX-License-Identifier: Apache-2.0
// Attention as one op of torch.
#include <epilogue/fused.h>
#include <torch/csrc/stable/library.h>

#include <optional>
#include <stdexcept>

#include "tensors.h"
#include "torch_threads.h"

namespace epilogue_torch {
namespace {

// q [batch, heads, queries, depth], k and v of as many heads or fewer -> [batch, queries, heads,
// values]: the order in which the projection that follows reads it.
Torch attention(Torch q, Torch k, Torch v, std::optional<Torch> mask, bool causal,
                std::optional<double> scale) {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const epilogue::Tensor queries = view_of(q, "q");
  const epilogue::Tensor values = view_of(v, "v");
  if (queries.dim() != 4 || values.dim() != 4)
    throw std::runtime_error("expected q, k and v of 4 dimensions, but got " + describe(q) + ", " +
                             describe(k) + " and " + describe(v));
  const epilogue::Dims sizes{queries.size(0), queries.size(2), queries.size(1), values.size(3)};
  Torch out = empty_like_rows(q, sizes);
  epilogue::attention_into(
      queries, view_of(k, "k"), values, mask ? mask_of(*mask, "mask") : epilogue::Tensor(),
      {.scale = scale, .causal = causal}, epilogue::transpose(view_of(out, "out"), 1, 2));
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float? scale) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) { m.impl("attention", TORCH_BOX(&attention)); }

}  // namespace epilogue_torch
