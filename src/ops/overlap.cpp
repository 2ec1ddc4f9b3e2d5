// SPDX-License-Identifier: Apache-2.0
#include "ops/overlap.h"

#include "ops/shape.h"

namespace epilogue {
namespace {

struct ByteExtent {
  const std::byte* begin;
  const std::byte* end;
};
ByteExtent extent_of(const Tensor& t) {
  int64_t last = 0;
  for (int d = 0; d < t.dim(); ++d) last += (t.sizes()[d] - 1) * t.strides()[d];
  const auto* begin = static_cast<const std::byte*>(t.data());
  return {begin, begin + (last + 1) * static_cast<int64_t>(dtype_bytes(t.dtype()))};
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

// As many addresses as elements between the first and the last.
bool is_dense(const Tensor& t) {
  const ByteExtent e = extent_of(t);
  return e.end - e.begin == static_cast<int64_t>(t.bytes());
}

}  // namespace

bool extents_meet(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const ByteExtent x = extent_of(a);
  const ByteExtent y = extent_of(b);
  return x.begin < y.end && y.begin < x.end;
}

void require_writable(const OpDef& op, const Tensor& self, const Tensor& source) {
  if (self.numel() == 0) return;
  for (int d = 0; d < self.dim(); ++d)
    if (self.strides()[d] == 0 && self.sizes()[d] > 1)
      fail(op, "a tensor to write whose elements do not share memory (clone it first)",
           to_string(self) + " with strides " + to_string(self.strides()));
  if (source.numel() == 0 || self.is_same(source) || same_view(self, source)) return;
  // Two views with gaps may interleave without touching; only dense ones are sure to meet.
  if (extents_meet(self, source) && is_dense(self) && is_dense(source))
    fail(op, "a source that does not share memory with what is written (clone it first)",
         to_string(source) + " with strides " + to_string(source.strides()));
}

}  // namespace epilogue
