// SPDX-License-Identifier: Apache-2.0
// Element types, their 16-bit storage forms and PyTorch's promotion rules.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)

namespace epilogue {

enum class DType : uint8_t { f32, bf16, f16, f64, i64, u8, boolean };
inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16,    DType::f64,
                                    DType::i64, DType::u8,   DType::boolean};

// "f32", "bf16", "f16", "f64", "i64", "u8", "bool".
std::string_view dtype_name(DType dtype);
// The name in PyTorch traces: "float", "c10::BFloat16", "c10::Half", "double", "long int", ...
std::string_view dtype_trace_name(DType dtype);
// By our name or one of PyTorch's, with "torch." or without: "bf16", "bfloat16", "torch.bfloat16",
// "float32", "float", "half", "double", "int64", "long", "uint8", "bool". Throws Error on others.
DType parse_dtype(std::string_view name);

constexpr size_t dtype_bytes(DType dtype) {
  constexpr size_t kBytes[] = {4, 2, 2, 8, 8, 1, 1};
  return kBytes[static_cast<size_t>(dtype)];
}
constexpr bool is_floating(DType dtype) { return dtype <= DType::f64; }
constexpr bool is_low_precision(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

// torch.promote_types: the smallest type that both convert to; bf16 with f16 gives f32.
DType promote_types(DType a, DType b);

// The upper half of an IEEE binary32. Conversion from float rounds to nearest, ties to even;
// NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40U);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE binary16. Conversion from float rounds to nearest, ties to even; overflow gives infinity.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
};

namespace detail {
template <DType kDType>
struct DTypeIs {
  static constexpr DType value = kDType;
};
}  // namespace detail
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : detail::DTypeIs<DType::f32> {};
template <>
struct DTypeOf<BFloat16> : detail::DTypeIs<DType::bf16> {};
template <>
struct DTypeOf<Half> : detail::DTypeIs<DType::f16> {};
template <>
struct DTypeOf<double> : detail::DTypeIs<DType::f64> {};
template <>
struct DTypeOf<int64_t> : detail::DTypeIs<DType::i64> {};
template <>
struct DTypeOf<uint8_t> : detail::DTypeIs<DType::u8> {};
template <>
struct DTypeOf<bool> : detail::DTypeIs<DType::boolean> {};

// Calls body.template operator()<T>() with the C++ type of `dtype`: the one dtype switch.
template <class Body>
decltype(auto) dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::bf16: return std::forward<Body>(body).template operator()<BFloat16>();
    case DType::f16: return std::forward<Body>(body).template operator()<Half>();
    case DType::f64: return std::forward<Body>(body).template operator()<double>();
    case DType::i64: return std::forward<Body>(body).template operator()<int64_t>();
    case DType::u8: return std::forward<Body>(body).template operator()<uint8_t>();
    case DType::boolean: return std::forward<Body>(body).template operator()<bool>();
    case DType::f32: break;
  }
  return std::forward<Body>(body).template operator()<float>();
}

}  // namespace epilogue

#pragma GCC visibility pop
