// SPDX-License-Identifier: Apache-2.0
// CPU kernels of max, min, argmax and argmin: the extremum of a piece, then where it is.
#include <cmath>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/lines/row_parts.h"
#include "backend/cpu/simd/reduce.h"
#include "core/element.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

// The value of a row's extremum and where it is.
struct Part {
  float value;
  int64_t at;
};

bool gives_index_alone(const Call& call) { return &call.op == &kArgmax || &call.op == &kArgmin; }
bool is_largest(const Call& call) { return &call.op == &kMax || &call.op == &kArgmax; }

const char* decline_extrema(const Call& call) {
  return has_float_type(call.in[0].dtype()) ? nullptr : kNeedsFloatType;
}

// All elements in row-major order are one row where no dimension is named.
Rows rows_of_extrema(const Call& call) {
  const Tensor& self = call.in[0];
  Dims inner;
  for (int d = 0; d < self.dim(); ++d)
    if (!call.has_attr(0) || d == named_dim(call, self.dim())) inner.push_back(d);
  return {self, inner};
}

void run_extrema(const Call& call) {
  const Rows x = rows_of_extrema(call);
  const bool largest = is_largest(call);
  const auto& kernels = simd::row_kernels();
  const auto extremum = largest ? kernels.max : kernels.min;
  const Tensor* const values = gives_index_alone(call) ? nullptr : &call.out[0];
  const Tensor& last = call.out[call.out.size() - 1];
  auto* const indices = last.dtype() == DType::i64 ? static_cast<int64_t*>(last.data()) : nullptr;
  const auto make = [&](const float* row, int64_t begin, int64_t n) -> Part {
    const float value = extremum(row, static_cast<size_t>(n));
    if (indices == nullptr) return {value, 0};
    return {value, begin + static_cast<int64_t>(kernels.find(row, value, static_cast<size_t>(n)))};
  };
  // The first one of equal ones stays; the first NaN stays, whatever follows.
  const auto join = [largest](Part& total, const Part& part) {
    if (std::isnan(total.value)) return;
    const bool wins = largest ? part.value > total.value : part.value < total.value;
    if (wins || std::isnan(part.value)) total = part;
  };
  reduce_rows(x, make, join, [&](int64_t row, const Part& part) {
    if (values != nullptr)
      store_element(values->dtype(), values->data(), row, static_cast<double>(part.value));
    if (indices != nullptr) indices[row] = part.at;
  });
}

template <const char* kName>
void describe_extrema(const Call& call, KernelInfo& info) {
  info.name = kernel_name(kName, call.in[0].dtype());
  describe_rows(rows_of_extrema(call), info);
}

constexpr char kMaxName[] = "max";
constexpr char kMinName[] = "min";
constexpr char kArgmaxName[] = "argmax";
constexpr char kArgminName[] = "argmin";
constexpr Kernel kMaxKernels[] = {
    {"rows", decline_extrema, run_extrema, describe_extrema<kMaxName>}};
constexpr Kernel kMinKernels[] = {
    {"rows", decline_extrema, run_extrema, describe_extrema<kMinName>}};
constexpr Kernel kArgmaxKernels[] = {
    {"rows", decline_extrema, run_extrema, describe_extrema<kArgmaxName>}};
constexpr Kernel kArgminKernels[] = {
    {"rows", decline_extrema, run_extrema, describe_extrema<kArgminName>}};
constexpr KernelList kExtremaLists[] = {{&kMax, kMaxKernels},
                                        {&kMin, kMinKernels},
                                        {&kArgmax, kArgmaxKernels},
                                        {&kArgmin, kArgminKernels}};

}  // namespace

std::span<const KernelList> extremum_lists() { return kExtremaLists; }

}  // namespace epilogue::cpu
