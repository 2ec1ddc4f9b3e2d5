// SPDX-License-Identifier: Apache-2.0
// split and chunk, which are slices, and stack, which is cat of unsqueezed tensors.
#include <algorithm>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "ops/shape.h"
#include "ops/strided_view.h"

namespace epilogue {
namespace {

[[noreturn]] void fail(const char* op, const std::string& expected, const std::string& got) {
  throw Error("[aten::" + std::string(op) + "] expected " + expected + ", got " + got);
}

int checked_dim(const char* op, const Tensor& self, int64_t dim) {
  if (!self.defined()) fail(op, "a tensor for 'self'", "undefined");
  const int64_t rank = self.dim();
  if (rank == 0) fail(op, "at least one dimension", to_string(self));
  if (dim < -rank || dim >= rank)
    fail(op, "a dimension in [" + std::to_string(-rank) + ", " + std::to_string(rank - 1) + "]",
         std::to_string(dim));
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

// Parts of `size` each; the last one is the rest. An empty dimension gives one empty part.
std::vector<Tensor> parts_of(const Tensor& self, int dim, int64_t size) {
  const int64_t n = self.sizes()[dim];
  std::vector<Tensor> parts;
  int64_t begin = 0;
  do {
    const int64_t end = n - begin > size ? begin + size : n;
    parts.push_back(slice(self, dim, begin, end));
    begin = end;
  } while (begin < n);
  return parts;
}

Outputs compose_stack(const Call& call) {
  const Tensor& model = call.in[0];
  const int dim = named_dim(call, model.dim() + 1);
  std::vector<Tensor> with_dim;
  for (const Tensor& t : call.in) {
    if (!(t.sizes() == model.sizes()))
      epilogue::fail(call.op, "tensors of one shape", to_string(model) + " and " + to_string(t));
    with_dim.push_back(unsqueeze(t, dim));
  }
  return cat(with_dim, dim);
}

void stack_reference(const Call& call) {
  const Tensor& out = call.out[0];
  const int dim = named_dim(call, out.dim());
  int64_t inner = 1;
  for (int d = dim + 1; d < out.dim(); ++d) inner *= out.sizes()[d];
  const auto count = static_cast<int64_t>(call.in.size());
  const Elements to(out);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const Elements from(call.in[static_cast<size_t>(i / inner % count)]);
    const int64_t at = i / (inner * count) * inner + i % inner;
    to.copy(i, from, at);
  }
}

}  // namespace

constinit const OpDef kStack{
    .name = "aten::stack",
    .schema = "(Tensor[] tensors, int dim=0)",
    .doc = "tensors of one shape joined in a new dimension",
    .kind = OpKind::composite,
    .compose = compose_stack,
    .flops = flops_per_element<0>,
    .reference = stack_reference,
    .samples = [] {
      return std::vector<Sample>{
          {.in = {{.sizes = {2, 3}}, {.sizes = {2, 3}}}, .attrs = {int64_t{0}}},
          {.in = {{.sizes = {2, 3}}, {.sizes = {2, 3}}, {.sizes = {2, 3}}}, .attrs = {int64_t{1}}},
          {.in = {{.sizes = {4}}, {.sizes = {4}}}, .attrs = {int64_t{-1}}},
          {.in = {{.sizes = {}}, {.sizes = {}}}, .attrs = {int64_t{0}}}};
    }};

Tensor stack(std::span<const Tensor> tensors, int64_t dim) {
  if (tensors.empty()) epilogue::fail(kStack, "at least one tensor", "none");
  const Attr attr = dim;
  return run_op(kStack, tensors, {&attr, 1})[0];
}
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim) {
  return stack(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}

std::vector<Tensor> split(const Tensor& self, int64_t split_size, int64_t dim) {
  const int d = checked_dim("split", self, dim);
  if (split_size < 0 || (split_size == 0 && self.sizes()[d] != 0))
    fail("split", "a split_size of 1 or more", std::to_string(split_size));
  return parts_of(self, d, split_size);
}

std::vector<Tensor> split(const Tensor& self, std::span<const int64_t> split_sizes, int64_t dim) {
  const int d = checked_dim("split", self, dim);
  int64_t total = 0;
  for (const int64_t size : split_sizes) {
    if (size < 0) fail("split", "sizes of 0 or more", std::to_string(size));
    if (__builtin_add_overflow(total, size, &total)) fail("split", "sizes below 2^63", "more");
  }
  if (total != self.sizes()[d])
    fail("split", "sizes that add up to " + std::to_string(self.sizes()[d]), std::to_string(total));
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : split_sizes) {
    parts.push_back(slice(self, d, begin, begin + size));
    begin += size;
  }
  return parts;
}
std::vector<Tensor> split(const Tensor& self, std::initializer_list<int64_t> split_sizes,
                          int64_t dim) {
  return split(self, std::span<const int64_t>(split_sizes.begin(), split_sizes.size()), dim);
}

std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  const int d = checked_dim("chunk", self, dim);
  if (chunks < 1) fail("chunk", "1 or more chunks", std::to_string(chunks));
  const int64_t n = self.sizes()[d];
  if (n == 0) return std::vector<Tensor>(static_cast<size_t>(chunks), slice(self, d, 0, 0));
  return parts_of(self, d, n / chunks + (n % chunks != 0 ? 1 : 0));
}

}  // namespace epilogue
