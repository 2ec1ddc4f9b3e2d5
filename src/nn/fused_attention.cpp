// SPDX-License-Identifier: Apache-2.0
// attention(): checks, the kernel that a backend has for it, and what it stands for.
#include <algorithm>
#include <cmath>

#include "core/attention.h"
#include "core/backend.h"
#include "core/fused_call.h"
#include "core/tensor_impl.h"
#include "epilogue/fused.h"
#include "nn/inference_only.h"
#include "ops/ops.h"
#include "ops/overlap.h"

namespace epilogue {
namespace {

[[noreturn]] void fail_attention(const std::string& expected, const std::string& got) {
  throw Error("[attention] expected " + expected + ", got " + got);
}

// [batch, heads, rows, columns]
void require_operand(const Tensor& x, const Tensor& q, const char* what) {
  if (!x.defined() || x.dim() != 4)
    fail_attention(std::string(what) + " [batch, heads, rows, columns]", to_string(x));
  if (x.dtype() != q.dtype() || !(x.device() == q.device()))
    fail_attention(std::string(what) + " of q's dtype " + std::string(dtype_name(q.dtype())) +
                       " on its device",
                   to_string(x));
}

void require_call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                  const AttentionOptions& options) {
  require_operand(q, q, "q");
  require_operand(k, q, "k");
  require_operand(v, q, "v");
  if (q.dtype() != DType::f32 && q.dtype() != DType::bf16 && q.dtype() != DType::f16)
    fail_attention("q, k and v of f32, bf16 or f16", to_string(q));
  if (k.size(0) != q.size(0) || k.size(3) != q.size(3) || k.size(1) == 0 ||
      q.size(1) % k.size(1) != 0)
    fail_attention(
        "k of q's batch and columns, with heads that divide q's " + std::to_string(q.size(1)),
        to_string(k) + " with q " + to_string(q));
  if (v.size(0) != k.size(0) || v.size(1) != k.size(1) || v.size(2) != k.size(2))
    fail_attention("v of k's batch, heads and rows", to_string(v) + " with k " + to_string(k));
  if (options.scale && !std::isfinite(*options.scale))
    fail_attention("a finite scale", std::to_string(*options.scale));
  if (mask.defined()) {
    const Dims sizes{q.size(0), q.size(1), q.size(2), k.size(2)};
    bool fits =
        mask.dim() <= 4 && mask.device() == q.device() &&
        (mask.dtype() == DType::boolean || mask.dtype() == DType::f32 || mask.dtype() == q.dtype());
    for (int d = 1; d <= mask.dim() && fits; ++d)
      fits = mask.size(-d) == 1 || mask.size(-d) == sizes[4 - d];
    if (!fits)
      fail_attention(
          "a mask that broadcasts to " + to_string(sizes) + ", of booleans, f32 or q's dtype",
          to_string(mask));
  }
  nn::require_inference(fail_attention, [&] {
    return nn::wants_gradient(q) || nn::wants_gradient(k) || nn::wants_gradient(v) ||
           nn::wants_gradient(mask);
  });
}

// Rows of all heads of all items of the batch.
MatrixView rows_of(const Tensor& x) {
  const Dims& strides = x.strides();
  const int64_t rows = x.size(2);
  return {x.data(),
          x.dtype(),
          strides[2],
          strides[3],
          {RowLevel{rows, strides[1]}, RowLevel{rows * x.size(1), strides[0]}}};
}

MatrixView mask_rows(const Tensor& mask, const Tensor& q, int64_t keys) {
  const auto stride = [&](int from_last, int64_t size) -> int64_t {
    if (mask.dim() < from_last || (mask.size(-from_last) == 1 && size != 1)) return 0;
    return mask.strides()[mask.dim() - from_last];
  };
  const int64_t rows = q.size(2);
  return {mask.data(),
          mask.dtype(),
          stride(2, rows),
          stride(1, keys),
          {RowLevel{rows, stride(3, q.size(1))}, RowLevel{rows * q.size(1), stride(4, q.size(0))}}};
}

AttentionSpec spec_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      const AttentionOptions& options) {
  AttentionSpec spec;
  spec.dtype = q.dtype();
  spec.batch = q.size(0) * q.size(1);
  spec.queries = q.size(2);
  spec.keys = k.size(2);
  spec.depth = q.size(3);
  spec.values = v.size(3);
  spec.scale = static_cast<float>(
      options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(spec.depth, 1)))));
  spec.has_mask = mask.defined();
  spec.group = q.size(1) / k.size(1);
  spec.causal = options.causal;
  spec.empty_is_zero = true;
  return spec;
}

FusedKernelNotes notes_of(const AttentionSpec& s, const FusedKernel& kernel, double bytes) {
  static const FusedOps ops(
      std::vector<std::string_view>{kBmm.name, kMul.name, kSoftmaxUnit.name, kBmm.name});
  const double scores =
      static_cast<double>(s.batch) * static_cast<double>(s.queries) * static_cast<double>(s.keys);
  const double passes = 6;  // over scores: written and read by each op
  return {kernel.info(s.batch * s.queries, ops.short_names),
          2 * scores * static_cast<double>(s.depth + s.values), bytes,
          bytes + passes * scores * static_cast<double>(dtype_bytes(s.dtype)), ops.full_names};
}

}  // namespace

void attention_into(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                    const AttentionOptions& options, const Tensor& out) {
  require_call(q, k, v, mask, options);
  const Dims sizes{q.size(0), q.size(1), q.size(2), v.size(3)};
  if (!out.defined() || out.dtype() != q.dtype() || !(out.sizes() == sizes) ||
      (sizes[3] > 1 && out.strides()[3] != 1))
    fail_attention("an out of q's dtype and sizes " + to_string(sizes) + " with contiguous columns",
                   to_string(out));
  for (const Tensor* const t : {&q, &k, &v, &mask})
    if (t->defined() && extents_meet(*t, out))
      fail_attention("an out apart from the operands", to_string(out) + " that overlaps one");
  if (out.numel() == 0) return;
  const AttentionSpec spec = spec_of(q, k, v, mask, options);
  if (spec.keys == 0 || spec.depth == 0)
    fail_attention("at least one key and one column", to_string(k));
  const FusedKernelMaker* const maker = backend_of(q.device()).capabilities().maker_of(kAttention);
  if (maker == nullptr) fail_attention("tensors on the CPU", to_string(q.device()));
  const std::unique_ptr<FusedKernel> kernel = maker->make(spec);
  std::vector<MatrixView> operands = {rows_of(q), rows_of(k), rows_of(v)};
  if (mask.defined()) operands.push_back(mask_rows(mask, q, spec.keys));
  const MatrixView result = rows_of(out);
  const auto inputs = [&] {
    std::vector<Tensor> list = {q, k, v};
    if (mask.defined()) list.push_back(mask);
    return list;
  };
  const auto notes = [&] {
    return notes_of(spec, *kernel,
                    static_cast<double>(q.bytes() + k.bytes() + v.bytes() + out.bytes()));
  };
  run_fused({kAttention, inputs, notes}, {&out, 1}, [&] {
    kernel->run(spec.batch * spec.queries, operands, {&result, 1});
  });
  out.increment_version();
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                 const AttentionOptions& options) {
  require_call(q, k, v, mask, options);
  const Tensor out = empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype(), q.device());
  attention_into(q, k, v, mask, options, out);
  return out;
}

}  // namespace epilogue
