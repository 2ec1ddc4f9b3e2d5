// SPDX-License-Identifier: Apache-2.0
#include "ops/shape.h"

#include <algorithm>
#include <optional>

#include "ops/overlap.h"

namespace epilogue {
namespace {

enum class Category { boolean, integer, floating };
Category category(DType t) {
  if (is_floating(t)) return Category::floating;
  return t == DType::boolean ? Category::boolean : Category::integer;
}

std::optional<DType> join(std::optional<DType> a, DType b) { return a ? promote_types(*a, b) : b; }

// The lower-priority group counts only where its category is higher.
std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || category(*higher) >= category(*lower)) return higher;
  return promote_types(*higher, *lower);
}

}  // namespace

void fail(const OpDef& op, const std::string& expected, const std::string& got) {
  throw Error("[" + std::string(op.name) + "] expected " + expected + ", got " + got);
}

Dims broadcast_sizes(const OpDef& op, const Dims& a, const Dims& b) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  Dims sizes = Dims::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail(op, "shapes that broadcast", to_string(a) + " and " + to_string(b));
    sizes[rank - i] = x == 1 ? y : x;
  }
  return sizes;
}

DType result_dtype(std::span<const Tensor> in) {
  bool same = true;
  for (const Tensor& t : in)
    same = same && t.defined() && t.dtype() == in[0].dtype() && !t.impl()->is_wrapped_number;
  if (same) [[likely]]
    return in[0].dtype();
  std::optional<DType> with_dims;
  std::optional<DType> zero_dim;
  std::optional<DType> wrapped;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (t.impl()->is_wrapped_number) {
      wrapped = join(wrapped, is_floating(t.dtype()) ? DType::f32 : t.dtype());
    } else {
      auto& group = t.dim() == 0 ? zero_dim : with_dims;
      group = join(group, t.dtype());
    }
  }
  return combine(combine(with_dims, zero_dim), wrapped).value();
}

DType floating_result_dtype(std::span<const Tensor> in) {
  const DType dtype = result_dtype(in);
  return is_floating(dtype) ? dtype : DType::f32;
}

int normalize_dim(const OpDef& op, int64_t dim, int rank) {
  const int64_t n = std::max(rank, 1);
  if (dim < -n || dim >= n)
    fail(op, "a dimension in [" + std::to_string(-n) + ", " + std::to_string(n - 1) + "]",
         std::to_string(dim));
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

Dims normalize_dims(const OpDef& op, const Dims& dims, int rank) {
  std::array<bool, kMaxRank> chosen{};
  for (const int64_t d : dims) {
    const auto i = static_cast<size_t>(normalize_dim(op, d, rank));
    if (chosen[i]) fail(op, "each dimension once", to_string(dims));
    chosen[i] = true;
  }
  Dims result;
  for (int i = 0; i < rank; ++i)
    if (dims.empty() || chosen[static_cast<size_t>(i)]) result.push_back(i);
  return result;
}

Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keepdim) {
  Dims result;
  for (int i = 0; i < sizes.rank(); ++i) {
    const bool reduced = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (!reduced) result.push_back(sizes[i]);
    if (reduced && keepdim) result.push_back(1);
  }
  return result;
}

Dims broadcast_strides(const Tensor& t, const Dims& sizes) {
  Dims strides = Dims::filled(sizes.rank(), 0);
  const int shift = sizes.rank() - t.dim();
  for (int i = 0; i < t.dim(); ++i)
    strides[i + shift] = t.sizes()[i] == 1 && sizes[i + shift] != 1 ? 0 : t.strides()[i];
  return strides;
}

void require_same_dtype(const OpDef& op, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype())
    fail(op, "tensors of one dtype", to_string(a) + " and " + to_string(b));
}

void require_floating(const OpDef& op, const Tensor& t) {
  if (!is_floating(t.dtype())) fail(op, "a floating tensor", to_string(t));
}

OutMetas infer_unary(const Call& call) { return OutMeta{call.in[0].sizes(), call.in[0].dtype()}; }

OutMetas infer_unary_floating(const Call& call) {
  return OutMeta{call.in[0].sizes(), floating_result_dtype(call.in.first(1))};
}

OutMetas infer_binary(const Call& call) {
  const detail::TensorImpl& a = *call.in[0].impl();
  const detail::TensorImpl& b = *call.in[1].impl();
  const bool alike =
      a.dtype == b.dtype && a.sizes == b.sizes && !a.is_wrapped_number && !b.is_wrapped_number;
  if (alike) [[likely]]
    return OutMeta{a.sizes, a.dtype};
  return OutMeta{broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes()),
                 result_dtype(call.in)};
}

OutMetas infer_like_first(const Call& call) {
  return OutMeta{call.in[0].sizes(), call.in[0].dtype()};
}

OutMetas infer_inplace(const Call& call) {
  const Tensor& self = call.in[0];
  for (const Tensor& t : call.in.subspan(1)) {
    if (!(broadcast_sizes(call.op, self.sizes(), t.sizes()) == self.sizes()))
      fail(call.op, "an argument that broadcasts to " + to_string(self.sizes()), to_string(t));
    if (is_floating(t.dtype()) && !is_floating(self.dtype()))
      fail(call.op, "a floating tensor to write floating values to", to_string(self));
    if (self.dtype() == DType::boolean && t.dtype() != DType::boolean)
      fail(call.op, "bool values to write to a bool tensor", to_string(t));
    require_writable(call.op, self, t);
  }
  return OutMeta{self.sizes(), self.dtype()};
}

}  // namespace epilogue
