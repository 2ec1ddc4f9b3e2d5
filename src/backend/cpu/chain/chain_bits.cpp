// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/chain_bits.h"

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/integer_rows.h"
#include "backend/cpu/simd/scratch.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {
namespace {

thread_local simd::Scratch integer_scratch;

[[noreturn]] void refuse(const std::string& what) { throw Error("[row chain] expected " + what); }

}  // namespace

simd::Rounding rounding_of(const Quantisation& bits) {
  if (bits.activations == ActivationBits::int8 && bits.weights != WeightBits::int8)
    refuse("int8 weights with int8 activations, got others");
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
  simd::Rounding rounding = {
      simd::Precision::i4,
      {128, weights[0].zeros.defined(), float_type(weights[0].scales.dtype())}};
  for (const Int4Weight& w : weights) {
    require_int4_weight(w, "row chain");
    if (w.order.defined())
      refuse("4-bit weights of inputs in their order, got an order of their own (desc_act)");
    if (w.scales.dtype() != weights[0].scales.dtype())
      refuse("scales of one dtype, got " + to_string(w.scales));
    if (w.group % rounding.groups.size != 0) rounding.groups.size = 32;
    rounding.groups.has_zeros = rounding.groups.has_zeros || w.zeros.defined();
  }
  return rounding;
}

std::string bits_name(const simd::Rounding& rounding, bool has_integer_rows) {
  switch (rounding.to) {
    case simd::Precision::i8: return has_integer_rows ? "_w8a8" : "_i8";
    case simd::Precision::i4: return "_i4g" + std::to_string(rounding.groups.size);
    case simd::Precision::same: break;
  }
  return "";
}

StageRows rows_for_kernel(const StageCall& stage, const StageRows& rows, int64_t m) {
  const simd::PanelLayout& layout = stage.kernel->layout;
  if (layout.quantise_rows == nullptr) return rows;
  const int64_t stride = stage.padded_k;
  const int64_t unit = layout.has_groups ? stage.weights->k_unit() : layout.sum_unit;
  const int64_t sums_stride = unit > 0 ? stride / unit + 1 : 0;
  // Rows first: they begin at a cache line.
  const int64_t row_floats = (stride * m * layout.row_bytes + 3) / int64_t{sizeof(float)};
  float* const out = integer_scratch.get(static_cast<size_t>(row_floats + m + sums_stride * m));
  float* const scales = out + row_floats;
  layout.quantise_rows(static_cast<const float*>(rows.data), rows.stride, m, stage.stage->k(),
                       stride, out, stride, scales);
  if (unit == 0) return {out, stride, scales};
  auto* const sums = reinterpret_cast<int32_t*>(scales + m);
  if (layout.row_bytes == 1) {
    simd::running_sums(reinterpret_cast<const int8_t*>(out), stride, m, stride, unit, sums);
  } else {
    simd::running_sums(reinterpret_cast<const int16_t*>(out), stride, m, stride, unit, sums);
  }
  return {out, stride, scales, sums, sums_stride, unit};
}

}  // namespace epilogue::cpu
