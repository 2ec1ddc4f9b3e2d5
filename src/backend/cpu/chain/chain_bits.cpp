// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/chain_bits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/panels/quantise_groups.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"
#include "epilogue/round_weight.h"

namespace epilogue::cpu {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error("[row chain] expected " + what); }

}  // namespace

simd::Rounding rounding_of(const Quantisation& bits) {
  if (bits.activations == ActivationBits::int8 && bits.weights == WeightBits::same)
    refuse("int8 or int4 weights with int8 activations, got others");
  switch (bits.weights) {
    case WeightBits::int8: return {simd::Precision::i8};
    case WeightBits::int4:
      if (bits.group != 32 && bits.group != 128)
        refuse("int4 weights in groups of 32 or 128, got " + std::to_string(bits.group));
      return {simd::Precision::i4, {bits.group, bits.zero_points}};
    case WeightBits::same: break;
  }
  return {};
}

simd::Rounding rounding_of(std::span<const Int4Weight> weights) {
  const bool has_bytes = weights[0].group == 0;
  simd::Rounding rounding = {simd::Precision::i8};
  if (!has_bytes) {
    require_int4_weight(weights[0], "row chain");
    rounding = {simd::Precision::i4, {128, false, float_type(weights[0].scales.dtype())}};
  }
  for (const Int4Weight& w : weights) {
    if ((w.group == 0) != has_bytes)
      refuse("weights of 4 bits or weights of 8, got some of either");
    if (has_bytes) {
      require_int8_weight({w.n, w.k, w.steps, w.scales}, "row chain");
      continue;
    }
    require_int4_weight(w, "row chain");
    if (w.order.defined())
      refuse("4-bit weights of inputs in their order, got an order of their own (desc_act)");
    if (float_type(w.scales.dtype()) != rounding.groups.scales)
      refuse("scales of one dtype, got " + to_string(w.scales));
    if (w.group % rounding.groups.size != 0) rounding.groups.size = 32;
    rounding.groups.has_zeros = rounding.groups.has_zeros || w.zeros.defined();
  }
  return rounding;
}

namespace {

// Rows at a time, whose values are one panel of their own: [k][rows].
constexpr int64_t kRoundedRows = 64;

thread_local simd::Scratch columns_scratch;

// Rows [first, first + count) of `weight` as columns [padded_k][count] of f32, zeros beyond k.
float* columns_of(const Tensor& weight, int64_t first, int64_t count, int64_t padded_k) {
  const int64_t k = weight.size(1);
  float* const out = columns_scratch.get(static_cast<size_t>(padded_k * count));
  const simd::GemmOperand rows = {weight.data(), float_type(weight.dtype()), weight.strides()[0],
                                  weight.strides()[1]};
  for (int64_t j = 0; j < k; ++j)
    for (int64_t i = 0; i < count; ++i)
      simd::to_f32(rows.type, simd::at(rows, first + i, j), out + j * count + i, 1);
  std::fill_n(out + k * count, (padded_k - k) * count, 0.0F);
  return out;
}

Int8Weight rounded_to_bytes(const Tensor& weight) {
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1);
  Int8Weight out{n, k, empty({n, k}, DType::u8), empty({n}, DType::f32)};
  auto* const steps = static_cast<int8_t*>(out.steps.data());
  auto* const scales = out.scales.data_as<float>();
  parallel_for(n, kRoundedRows, [&](int64_t begin, int64_t end) {
    std::vector<int8_t> columns;
    for (int64_t first = begin; first < end; first += kRoundedRows) {
      const int64_t count = std::min(kRoundedRows, end - first);
      const float* const values = columns_of(weight, first, count, k);
      columns.resize(static_cast<size_t>(k * count));
      simd::column_scales(values, k, count, scales + first);
      simd::to_i8(values, k, count, scales + first, columns.data());
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < k; ++j)
          steps[(first + i) * k + j] = columns[static_cast<size_t>(j * count + i)];
    }
  });
  return out;
}

Int4Weight rounded_to_nibbles(const Tensor& weight, const simd::GroupFormat& f) {
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1);
  const int64_t row_bytes = (k + 1) / 2;
  Int4Weight out{n, k, f.size, empty({n, row_bytes}, DType::u8), {}, {}, {}};
  const int64_t groups = (k + f.size - 1) / f.size;
  out.scales = empty({n, groups}, DType::bf16);
  if (f.has_zeros) out.zeros = empty({n, groups}, DType::u8);
  auto* const bytes = out.steps.data_as<uint8_t>();
  auto* const scales = static_cast<uint16_t*>(out.scales.data());
  auto* const zeros = f.has_zeros ? out.zeros.data_as<uint8_t>() : nullptr;
  parallel_for(n, kRoundedRows, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> steps(static_cast<size_t>(f.size * kRoundedRows));
    std::array<uint16_t, kRoundedRows> scale{};
    std::array<uint8_t, kRoundedRows> zero{};
    for (int64_t first = begin; first < end; first += kRoundedRows) {
      const int64_t count = std::min(kRoundedRows, end - first);
      const float* const values = columns_of(weight, first, count, groups * f.size);
      for (int64_t g = 0; g < groups; ++g) {
        simd::round_group(values + g * f.size * count, count, f,
                          {steps.data(), scale.data(), zero.data()});
        const int64_t filled = std::min(f.size, k - g * f.size);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = first + i;
          scales[row * groups + g] = scale[static_cast<size_t>(i)];
          if (zeros != nullptr) zeros[row * groups + g] = zero[static_cast<size_t>(i)];
          const auto step = [&](int64_t j) {
            return j < filled ? steps[static_cast<size_t>(j * count + i)] : uint8_t{0};
          };
          uint8_t* const to = bytes + row * row_bytes + g * f.size / 2;
          for (int64_t j = 0; j < filled; j += 2)
            to[j / 2] = static_cast<uint8_t>(step(j) | step(j + 1) << 4);
        }
      }
    }
  });
  return out;
}

}  // namespace

std::string bits_name(const simd::Rounding& rounding, bool has_integer_rows) {
  switch (rounding.to) {
    case simd::Precision::i8: return has_integer_rows ? "_w8a8" : "_i8";
    case simd::Precision::i4:
      return (has_integer_rows ? "_w4a8g" : "_i4g") + std::to_string(rounding.groups.size);
    case simd::Precision::same: break;
  }
  return "";
}

RoundedWeight rounded_for_kernels(const Tensor& weight, const Quantisation& bits) {
  const simd::Rounding rounding = rounding_of(bits);
  if (rounding.to == simd::Precision::i8) return rounded_to_bytes(weight);
  return rounded_to_nibbles(weight, rounding.groups);
}

}  // namespace epilogue::cpu

namespace epilogue {

RoundedWeight round_weight(const Tensor& weight, const Quantisation& bits) {
  if (!weight.defined() || weight.dim() != 2 || weight.numel() == 0 ||
      !has_float_type(weight.dtype()) || weight.device().type != DeviceType::cpu)
    throw Error("[round_weight] expected a weight [n, k] of f32, bf16 or f16 on the CPU, got " +
                to_string(weight));
  if (bits.weights == WeightBits::same)
    throw Error("[round_weight] expected WeightBits::int8 or int4, got WeightBits::same");
  return cpu::rounded_for_kernels(weight, bits);
}

}  // namespace epilogue
