// SPDX-License-Identifier: Apache-2.0
// Conversions against the definition: all 65,536 values up, ties and edges down, on every ISA.
#include "backend/cpu/simd/convert.h"

#include "backend/simd/simd_testing.h"
#include "support/test.h"

namespace epilogue::simd::convert_test {

constexpr FloatType kHalves[] = {FloatType::bf16, FloatType::f16};

// The value of a 16-bit pattern by the format's definition.
double value_of(FloatType type, uint16_t bits) {
  const int fraction_bits = type == FloatType::bf16 ? 7 : 10;
  const int top = type == FloatType::bf16 ? 255 : 31;
  const int bias = top / 2;
  const int exponent = (bits >> fraction_bits) & top;
  const double fraction = std::ldexp(bits & ((1 << fraction_bits) - 1), -fraction_bits);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == top) return fraction == 0.0 ? sign * INFINITY : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1.0 + fraction, exponent - bias);
}

// Nearest by search among the finite patterns, ties to the even pattern; beyond the midpoint to the
// next power of two, infinity.
uint16_t nearest(FloatType type, float x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::abs(static_cast<double>(x));
  const uint16_t infinity = type == FloatType::bf16 ? 0x7F80 : 0x7C00;
  uint16_t low = 0;
  uint16_t high = infinity;  // value_of(low) <= magnitude < "value" of high
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (value_of(type, middle) <= magnitude ? low : high) = middle;
  }
  const double below = value_of(type, low);
  const double above =
      high == infinity ? std::ldexp(1.0, type == FloatType::bf16 ? 128 : 16) : value_of(type, high);
  const bool up = magnitude - below > above - magnitude ||
                  (magnitude - below == above - magnitude && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

void widen(FloatType type, const uint16_t* in, float* out, size_t n) {
  const ConvertKernels& k = convert_kernels();
  (type == FloatType::bf16 ? k.bf16_to_f32 : k.f16_to_f32)(in, out, n);
}
void narrow(FloatType type, const float* in, uint16_t* out, size_t n) {
  const ConvertKernels& k = convert_kernels();
  (type == FloatType::bf16 ? k.f32_to_bf16 : k.f32_to_f16)(in, out, n);
}

TEST(Convert, EveryPatternWidensExactlyAndComesBack) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for_each_isa([&](Isa) {
    for (FloatType type : kHalves) {
      std::vector<float> wide(all.size());
      std::vector<uint16_t> back(all.size());
      widen(type, all.data(), wide.data(), all.size());
      narrow(type, wide.data(), back.data(), all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        const double want = value_of(type, all[i]);
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(wide[i])) << i;
          ASSERT_TRUE(std::isnan(value_of(type, back[i]))) << i;
        } else {
          ASSERT_EQ(wide[i], want) << i;
          ASSERT_EQ(std::signbit(wide[i]), (i & 0x8000) != 0) << i;
          ASSERT_EQ(back[i], all[i]);
        }
      }
    }
  });
}

// Around every midpoint between neighbours: exactly on it, and one float to either side.
TEST(Convert, TiesGoToEven) {
  for_each_isa([](Isa) {
    for (FloatType type : kHalves) {
      std::vector<float> inputs;
      const uint16_t infinity = type == FloatType::bf16 ? 0x7F80 : 0x7C00;
      for (uint16_t bits = 0; bits + 1 < infinity; bits = static_cast<uint16_t>(bits + 3)) {
        const auto next = static_cast<uint16_t>(bits + 1);
        const auto middle = static_cast<float>((value_of(type, bits) + value_of(type, next)) / 2);
        for (float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, INFINITY)})
          for (float s : {x, -x}) inputs.push_back(s);
      }
      std::vector<uint16_t> got(inputs.size());
      narrow(type, inputs.data(), got.data(), inputs.size());
      for (size_t i = 0; i < inputs.size(); ++i)
        ASSERT_EQ(got[i], nearest(type, inputs[i])) << std::hexfloat << inputs[i];
    }
  });
}

TEST(Convert, EdgesOfTheRange) {
  const float max = std::numeric_limits<float>::max();
  const std::vector<float> inputs = {0.0F,     -0.0F,     INFINITY, -INFINITY, max,
                                     -max,     65504.0F,  65519.0F, 65520.0F,  65536.0F,
                                     1e10F,    0x1p-24F,  0x1p-25F, 0x1p-26F,  6e-8F,
                                     0x1p-14F, 0x1p-149F, 1e-39F,   -0x1p-25F, -1e-45F};
  for_each_isa([&](Isa) {
    for (FloatType type : kHalves) {
      std::vector<uint16_t> got(inputs.size());
      narrow(type, inputs.data(), got.data(), inputs.size());
      for (size_t i = 0; i < inputs.size(); ++i)
        EXPECT_EQ(got[i], nearest(type, inputs[i])) << std::hexfloat << inputs[i];
    }
  });
}

// NaNs whose upper mantissa bits are all zero or all one are where rounding in integers goes wrong.
TEST(Convert, NanStaysNan) {
  std::vector<float> nans;
  for (uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU, 0x7FC00000U}) {
    float x = 0.0F;
    std::memcpy(&x, &bits, sizeof x);
    for (int i = 0; i < 7; ++i) nans.push_back(x);
  }
  for_each_isa([&](Isa) {
    for (FloatType type : kHalves) {
      std::vector<uint16_t> got(nans.size());
      narrow(type, nans.data(), got.data(), nans.size());
      for (uint16_t bits : got) EXPECT_TRUE(std::isnan(value_of(type, bits))) << bits;
    }
  });
}

TEST(Convert, AnySizeAndAlignmentWithoutTouchingNeighbours) {
  for_each_isa([](Isa) {
    for (FloatType type : kHalves)
      for (size_t n : awkward_sizes())
        for (size_t offset : {0U, 1U, 3U}) {
          const std::vector<float> values = uniform(n, -3.0F, 3.0F, 7);
          Guarded<float> in(n, offset);
          std::copy(values.begin(), values.end(), in.data());
          Guarded<uint16_t> half(n, offset);
          Guarded<float> out(n, offset);
          narrow(type, in.data(), half.data(), n);
          widen(type, half.data(), out.data(), n);
          half.expect_guards_intact();
          out.expect_guards_intact();
          for (size_t i = 0; i < n; ++i) ASSERT_EQ(half[i], nearest(type, values[i])) << n;
        }
  });
}

TEST(Convert, ByTypeAgreesWithTheTables) {
  const std::vector<float> values = uniform(100, -3.0F, 3.0F, 7);
  std::vector<float> out(100);
  to_f32(FloatType::f32, values.data(), out.data(), 100);
  EXPECT_EQ(out, values);
  for (FloatType type : kHalves) {
    std::vector<uint16_t> a(100);
    std::vector<uint16_t> b(100);
    from_f32(type, values.data(), a.data(), 100);
    narrow(type, values.data(), b.data(), 100);
    EXPECT_EQ(a, b);
  }
}

}  // namespace epilogue::simd::convert_test
