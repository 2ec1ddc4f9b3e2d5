// SPDX-License-Identifier: Apache-2.0
#include "epilogue/dtype.h"
#include "core/dtype_names.h"

#include <string>

#include "epilogue/base/error.h"

namespace epilogue {
namespace {
constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "f64", "i64", "u8", "bool"};
constexpr std::string_view kTraceNames[] = {"float",    "c10::BFloat16", "c10::Half", "double",
                                            "long int", "unsigned char", "bool"};
// Each with "torch." before it too. A type's own name comes first.
constexpr std::pair<std::string_view, DType> kTorchNames[] = {
    {"float32", DType::f32}, {"float", DType::f32},   {"bfloat16", DType::bf16},
    {"float16", DType::f16}, {"half", DType::f16},    {"float64", DType::f64},
    {"double", DType::f64},  {"int64", DType::i64},   {"long", DType::i64},
    {"uint8", DType::u8},    {"bool", DType::boolean}};
}  // namespace

std::string_view torch_dtype_name(DType dtype) {
  for (const auto& [name, named] : kTorchNames)
    if (named == dtype) return name;
  return "";
}

std::string_view dtype_name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }
std::string_view dtype_trace_name(DType dtype) { return kTraceNames[static_cast<size_t>(dtype)]; }

DType parse_dtype(std::string_view name) {
  std::string_view bare = name;
  if (bare.starts_with("torch.")) bare.remove_prefix(std::string_view("torch.").size());
  for (const DType dtype : kDTypes)
    if (name == dtype_name(dtype)) return dtype;
  for (const auto& [alias, dtype] : kTorchNames)
    if (bare == alias) return dtype;
  throw Error(
      "[dtype] expected f32, bf16, f16, f64, i64, u8, bool or a name of PyTorch's (float32, float, "
      "bfloat16, float16, half, float64, double, int64, long, uint8), got '" +
      std::string(name) + "'");
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  // Rank within PyTorch's lattice; the two 16-bit types are siblings that meet at f32.
  constexpr int kRank[] = {4, 3, 3, 5, 2, 1, 0};
  const int ra = kRank[static_cast<size_t>(a)];
  const int rb = kRank[static_cast<size_t>(b)];
  if (ra == rb) return DType::f32;
  return ra > rb ? a : b;
}

Half::Half(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN: keep it quiet, keep the top payload bits
    bits = static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x1ffU));
  } else if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    bits = static_cast<uint16_t>(sign | 0x7c00U);
  } else if (magnitude < 0x38800000U) {  // below 2^-14: denormal; adding 0.5 aligns and rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000U));
  } else {
    const uint32_t odd = (magnitude >> 13) & 1U;
    bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xfffU + odd) >> 13));
  }
}

Half::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float denormal = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(denormal));
}

}  // namespace epilogue
