// SPDX-License-Identifier: Apache-2.0
// The element types of the format: one table.
#include "io/safetensors_dtype.h"

#include <array>

namespace epilogue {
namespace {

struct DtypeRow {
  std::string_view name;
  int bits;
};

// In the order of the enum, which is the order of the reference implementation.
constexpr std::array<DtypeRow, 22> kRows = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};
static_assert(kRows.size() == static_cast<size_t>(SafetensorsDtype::u64) + 1);

}  // namespace

std::string_view safetensors_dtype_name(SafetensorsDtype dtype) {
  return kRows[static_cast<size_t>(dtype)].name;
}

int safetensors_dtype_bits(SafetensorsDtype dtype) {
  return kRows[static_cast<size_t>(dtype)].bits;
}

std::optional<SafetensorsDtype> io::parse_safetensors_dtype(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].name == name) return static_cast<SafetensorsDtype>(i);
  return std::nullopt;
}

std::optional<DType> io::engine_dtype(SafetensorsDtype dtype) {
  for (const DType candidate : kDTypes)
    if (format_dtype(candidate) == dtype) return candidate;
  return std::nullopt;
}

SafetensorsDtype io::format_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return SafetensorsDtype::f32;
    case DType::bf16: return SafetensorsDtype::bf16;
    case DType::f16: return SafetensorsDtype::f16;
    case DType::f64: return SafetensorsDtype::f64;
    case DType::i64: return SafetensorsDtype::i64;
    case DType::u8: return SafetensorsDtype::u8;
    case DType::boolean: break;
  }
  return SafetensorsDtype::boolean;
}

}  // namespace epilogue
