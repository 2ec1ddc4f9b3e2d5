// SPDX-License-Identifier: Apache-2.0
// The 16-bit formats: every pattern, and rounding around every pair of neighbours.
#include "epilogue/dtype.h"

#include "core/element.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::dtype_test {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
};
template <class T>
Format format_of();
template <>
Format format_of<BFloat16>() {
  return {8, 7};
}
template <>
Format format_of<Half>() {
  return {5, 10};
}

// The value of a finite pattern, from the definition of the format. The pattern of infinity stands
// for the next power of two: what rounding compares with.
double value_of(Format format, uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int scale = 1 - format.bias() - format.mantissa_bits;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, scale)
                    : std::ldexp((1 << format.mantissa_bits) + mantissa, scale + exponent - 1);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
uint16_t bits_of(T value) {
  return value.bits;
}

template <class T>
class SixteenBits : public testing::Test {};
using Formats = testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(SixteenBits, Formats);

TYPED_TEST(SixteenBits, EveryPatternWidensExactlyAndComesBack) {
  const Format format = format_of<TypeParam>();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    TypeParam value;
    value.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    const auto magnitude = static_cast<uint16_t>(bits & 0x7fff);
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    if (magnitude > format.infinity()) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      const TypeParam back(wide);
      ASSERT_GT(back.bits & 0x7fff, format.infinity()) << bits;
      ASSERT_EQ(back.bits & 0x8000, bits & 0x8000) << bits;
    } else {
      if (magnitude == format.infinity()) {
        ASSERT_TRUE(std::isinf(wide)) << bits;
      } else {
        ASSERT_EQ(static_cast<double>(wide), value_of(format, value.bits)) << bits;
      }
      ASSERT_EQ(TypeParam(wide).bits, bits);
    }
  }
}

// Checks a number between the patterns `lower` and `lower + 1` in both signs.
template <class T, class Number>
void expect_rounds(Number value, uint16_t expected) {
  ASSERT_EQ(bits_of(round_from_double<T>(static_cast<double>(value))), expected) << value;
  ASSERT_EQ(bits_of(round_from_double<T>(-static_cast<double>(value))), expected | 0x8000) << value;
  if constexpr (std::is_same_v<Number, float>) {
    ASSERT_EQ(bits_of(T(value)), expected) << value;
    ASSERT_EQ(bits_of(T(-value)), expected | 0x8000) << value;
  }
}

// From zero through the denormals to the overflow to infinity: the tie goes to the even pattern,
// its next neighbours in float and in double do not. The doubles are the cases in which rounding
// by way of float would round twice.
TYPED_TEST(SixteenBits, RoundsToNearestEvenBetweenAllNeighbours) {
  const Format format = format_of<TypeParam>();
  for (uint16_t lower = 0; lower < format.infinity(); ++lower) {
    const auto upper = static_cast<uint16_t>(lower + 1);
    const double tie = (value_of(format, lower) + value_of(format, upper)) / 2;
    const auto even = static_cast<uint16_t>(lower + (lower & 1));
    expect_rounds<TypeParam>(tie, even);
    expect_rounds<TypeParam>(std::nextafter(tie, 0.0), lower);
    expect_rounds<TypeParam>(std::nextafter(tie, 1e300), upper);
    const auto float_tie = static_cast<float>(tie);
    if (static_cast<double>(float_tie) != tie) continue;  // half of the smallest denormal of bf16
    expect_rounds<TypeParam>(float_tie, even);
    expect_rounds<TypeParam>(std::nextafter(float_tie, 0.0F), lower);
    expect_rounds<TypeParam>(std::nextafter(float_tie, std::numeric_limits<float>::infinity()),
                             upper);
  }
}

TYPED_TEST(SixteenBits, ExtremesOfFloatAndDouble) {
  const Format format = format_of<TypeParam>();
  expect_rounds<TypeParam>(std::numeric_limits<float>::max(), format.infinity());
  expect_rounds<TypeParam>(std::numeric_limits<float>::infinity(), format.infinity());
  expect_rounds<TypeParam>(std::numeric_limits<double>::infinity(), format.infinity());
  expect_rounds<TypeParam>(1e-300, 0);
  expect_rounds<TypeParam>(0.0F, 0);
}

// A payload in the low bits only must not be cut off to the pattern of infinity.
TYPED_TEST(SixteenBits, NanStaysNan) {
  const Format format = format_of<TypeParam>();
  for (int bit = 0; bit < 23; ++bit) {
    for (const uint32_t sign : {0U, 0x80000000U}) {
      const TypeParam value(std::bit_cast<float>(sign | 0x7f800000U | (1U << bit)));
      EXPECT_GT(value.bits & 0x7fff, format.infinity()) << bit;
      EXPECT_EQ((value.bits & 0x8000) != 0, sign != 0) << bit;
    }
  }
  const auto from_double = round_from_double<TypeParam>(std::numeric_limits<double>::quiet_NaN());
  EXPECT_GT(from_double.bits & 0x7fff, format.infinity());
}

TEST(DTypeTest, NamesParseBack) {
  for (const DType dtype : kDTypes) EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_EQ(dtype_trace_name(DType::bf16), "c10::BFloat16");
  EXPECT_EQ(dtype_trace_name(DType::i64), "long int");
  EXPECT_ERROR(
      parse_dtype("float8"),
      "[dtype] expected f32, bf16, f16, f64, i64, u8, bool or a name of PyTorch's (float32, "
      "float, bfloat16, float16, half, float64, double, int64, long, uint8), got 'float8'");
  EXPECT_NE(test::message_of([] { parse_dtype("torch.f32"); }), "(no error)");
}

TEST(DTypeTest, NamesOfPyTorchAreKnown) {
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_EQ(parse_dtype("torch.float32"), DType::f32);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("torch.bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("half"), DType::f16);
  EXPECT_EQ(parse_dtype("torch.float16"), DType::f16);
  EXPECT_EQ(parse_dtype("double"), DType::f64);
  EXPECT_EQ(parse_dtype("torch.int64"), DType::i64);
  EXPECT_EQ(parse_dtype("long"), DType::i64);
  EXPECT_EQ(parse_dtype("uint8"), DType::u8);
  EXPECT_EQ(parse_dtype("torch.bool"), DType::boolean);
}

TEST(DTypeTest, DispatchGivesTheTypeOfEveryDType) {
  for (const DType dtype : kDTypes) {
    dispatch(dtype, [dtype]<class T>() {
      EXPECT_EQ(DTypeOf<T>::value, dtype);
      EXPECT_EQ(sizeof(T), dtype_bytes(dtype));
    });
  }
}

}  // namespace epilogue::dtype_test
