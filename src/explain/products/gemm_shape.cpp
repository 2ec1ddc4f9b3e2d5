// SPDX-License-Identifier: Apache-2.0
#include "explain/products/gemm_shape.h"

#include <algorithm>
#include <array>
#include <utility>

#include "explain/kernel_name/text.h"
#include "explain/products/grid.h"

namespace epilogue::trace {
namespace {

using Dims = std::span<const int64_t>;

enum class Form : uint8_t {
  matmul,  // [..., M, K] x [..., K, N], with vectors
  linear,  // [..., K] x [N, K]
};

struct GemmOp {
  std::string_view name;
  size_t a;  // which argument A is; B is the next
  Form form;
};
constexpr GemmOp kGemmOps[] = {
    {"aten::mm", 0, Form::matmul},         {"aten::bmm", 0, Form::matmul},
    {"aten::mv", 0, Form::matmul},         {"aten::dot", 0, Form::matmul},
    {"aten::matmul", 0, Form::matmul},     {"aten::_int_mm", 0, Form::matmul},
    {"aten::_scaled_mm", 0, Form::matmul}, {"aten::addmm", 1, Form::matmul},
    {"aten::addmm_", 1, Form::matmul},     {"aten::_addmm_activation", 1, Form::matmul},
    {"aten::addmv", 1, Form::matmul},      {"aten::addmv_", 1, Form::matmul},
    {"aten::baddbmm", 1, Form::matmul},    {"aten::baddbmm_", 1, Form::matmul},
    {"aten::linear", 0, Form::linear},
};

const GemmOp* find_op(std::string_view name) {
  const auto* const it = std::find_if(std::begin(kGemmOps), std::end(kGemmOps),
                                      [&](const GemmOp& op) { return op.name == name; });
  return it == std::end(kGemmOps) ? nullptr : it;
}

std::optional<GemmShape> linear_shape(Dims x, Dims weight) {
  if (x.empty() || weight.size() != 2 || x.back() != weight[1]) return std::nullopt;
  const std::optional<int64_t> rows = product(x.first(x.size() - 1));
  if (!rows) return std::nullopt;
  return GemmShape{*rows, weight[0], weight[1], 1};
}

// Leading dimensions broadcast, as torch.matmul does it.
std::optional<int64_t> broadcast_batch(Dims a, Dims b) {
  int64_t batch = 1;
  for (size_t i = 1; i <= std::max(a.size(), b.size()); ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    const int64_t size = x == 1 ? y : x;
    if (size < 0 || __builtin_mul_overflow(batch, size, &batch)) return std::nullopt;
  }
  return batch;
}

std::optional<GemmShape> matmul_shape(Dims a, Dims b) {
  if (a.empty() || b.empty()) return std::nullopt;
  GemmShape shape;
  shape.k = a.back();
  shape.m = a.size() == 1 ? 1 : a[a.size() - 2];
  shape.n = b.size() == 1 ? 1 : b.back();
  if (shape.k != (b.size() == 1 ? b[0] : b[b.size() - 2])) return std::nullopt;
  const Dims a_batch = a.size() > 2 ? a.first(a.size() - 2) : Dims();
  const Dims b_batch = b.size() > 2 ? b.first(b.size() - 2) : Dims();
  if (b_batch.empty() && !a_batch.empty()) {
    // One matrix for all rows: torch folds the batch into M.
    const std::optional<int64_t> rows = product(a.first(a.size() - 1));
    if (!rows) return std::nullopt;
    shape.m = *rows;
    return shape;
  }
  const std::optional<int64_t> batch = broadcast_batch(a_batch, b_batch);
  if (!batch) return std::nullopt;
  shape.batch = *batch;
  return shape;
}

}  // namespace

bool is_gemm_op(std::string_view op) { return find_op(op) != nullptr; }

bool hides_gemms(std::string_view op) {
  return contains(op, "convolution") || contains(op, "::conv") ||
         contains(op, "ConvolutionBackward") || contains(op, "_rnn") || contains(op, "lstm");
}

std::optional<GemmProblem> gemm_problem(std::string_view op, std::span<const OpInput> inputs) {
  const GemmOp* found = find_op(op);
  if (found == nullptr || inputs.size() < found->a + 2) return std::nullopt;
  const OpInput& a = inputs[found->a];
  const OpInput& b = inputs[found->a + 1];
  if (a.is_list || b.is_list) return std::nullopt;
  const std::optional<GemmShape> shape =
      found->form == Form::linear ? linear_shape(a.dims, b.dims) : matmul_shape(a.dims, b.dims);
  if (!shape || shape->m <= 0 || shape->n <= 0 || shape->k <= 0 || shape->batch <= 0)
    return std::nullopt;
  return GemmProblem{*shape, std::string(element_type(a.type)), std::string(element_type(b.type))};
}

std::optional<int64_t> element_bytes_x2(std::string_view type) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"f64", 16},  {"c64", 16},       {"c128", 32},      {"i64", 16}, {"f32", 8},
      {"tf32", 8},  {"i32", 8},        {"f16", 4},        {"bf16", 4}, {"e4m3", 2},
      {"e5m2", 2},  {"i8", 2},         {"u8", 2},         {"bool", 2}, {"e2m1", 1},
      {"mxfp4", 1}, {"mxfp8_e4m3", 2}, {"mxfp8_e5m2", 2}, {"nvfp4", 1}};
  for (const auto& [name, size] : kSizes)
    if (name == type) return size;
  return std::nullopt;
}

}  // namespace epilogue::trace
