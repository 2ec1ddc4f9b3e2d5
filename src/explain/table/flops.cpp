// SPDX-License-Identifier: Apache-2.0
#include "explain/table/flops.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace epilogue::trace {
namespace {

using Dims = std::span<const int64_t>;

// Shapes come from a file: nothing about them may be taken for granted.
bool is_size_list(Dims dims) {
  return std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; });
}

uint64_t product_of(Dims dims) {
  uint64_t n = 1;
  for (const int64_t d : dims) n *= static_cast<uint64_t>(d);
  return n;
}

// The shape of tensor argument i; empty when it is no tensor.
Dims dims_of(std::span<const OpInput> inputs, size_t i) {
  if (i >= inputs.size() || inputs[i].is_list || !is_size_list(inputs[i].dims)) return {};
  return inputs[i].dims;
}

// 2 M N K = 2 (M K / K) (K N), batches included: mat1 is [B, M, K] or [M, K].
uint64_t matmul_flops(Dims mat1, Dims mat2) {
  if (mat1.empty() || mat1.back() == 0) return 0;
  const uint64_t batch = mat1.size() == 3 ? static_cast<uint64_t>(mat1[0]) : 1;
  if (batch == 0) return 0;
  return 2 * (product_of(mat1) / static_cast<uint64_t>(mat1.back()) / batch) * product_of(mat2);
}

// "[1, 2]" or "1" -> both spatial values; nothing when it is neither.
std::optional<std::array<int64_t, 2>> parse_pair(std::string_view text) {
  std::array<int64_t, 2> values{};
  size_t n = 0;
  while (!text.empty() && n < values.size()) {
    if (std::string_view("[], ").find(text.front()) != std::string_view::npos) {
      text.remove_prefix(1);
      continue;
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), values[n]);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    ++n;
  }
  if (n == 0) return std::nullopt;
  if (n == 1) values[1] = values[0];
  return values;
}

// conv2d(input, weight, bias, stride, padding, dilation, groups), input [N, C, H, W], weight
// [O, C / groups, kh, kw]: 2 N Hout Wout kh kw C O / groups.
uint64_t conv2d_flops(std::span<const OpInput> inputs) {
  if (inputs.size() < 7) return 0;
  const Dims input = dims_of(inputs, 0);
  const Dims weight = dims_of(inputs, 1);
  if (input.size() != 4 || weight.size() != 4) return 0;
  const auto stride = parse_pair(inputs[3].concrete);
  const auto padding = parse_pair(inputs[4].concrete);
  const auto dilation = parse_pair(inputs[5].concrete);
  const auto groups = parse_pair(inputs[6].concrete);
  if (!stride || !padding || !dilation || !groups || (*groups)[0] <= 0) return 0;
  uint64_t flops = 2 * static_cast<uint64_t>(input[0]) * product_of(weight.subspan(2)) *
                   static_cast<uint64_t>(input[1]) * static_cast<uint64_t>(weight[0]) /
                   static_cast<uint64_t>((*groups)[0]);
  for (size_t i = 0; i < 2; ++i) {
    if ((*stride)[i] <= 0) return 0;
    // Unsigned: hostile values wrap instead of overflowing.
    const uint64_t padded =
        static_cast<uint64_t>(input[2 + i]) + 2 * static_cast<uint64_t>((*padding)[i]);
    const uint64_t reach =
        static_cast<uint64_t>((*dilation)[i]) * (static_cast<uint64_t>(weight[2 + i]) - 1) + 1;
    if (padded < reach) return 0;
    flops *= (padded - reach) / static_cast<uint64_t>((*stride)[i]) + 1;
  }
  return flops;
}

}  // namespace

uint64_t torch_flops(std::string_view op, std::span<const OpInput> inputs) {
  if (op == "aten::mm" || op == "aten::bmm")
    return matmul_flops(dims_of(inputs, 0), dims_of(inputs, 1));
  if (op == "aten::addmm" || op == "aten::baddbmm")
    return matmul_flops(dims_of(inputs, 1), dims_of(inputs, 2));
  if (op == "aten::conv2d") return conv2d_flops(inputs);
  if ((op == "aten::mul" || op == "aten::add") && !inputs.empty())
    return is_size_list(inputs[0].dims) && !inputs[0].is_list ? product_of(inputs[0].dims) : 0;
  return 0;
}

}  // namespace epilogue::trace
