// SPDX-License-Identifier: Apache-2.0
// Ops as pointwise functions: which row of the table a call is, and its parameters.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "core/kernel_list.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue {

// A number of any type; nothing where the attribute is absent or no number.
inline std::optional<double> number_of(const Attr& attr) {
  if (const auto* x = std::get_if<double>(&attr)) return *x;
  if (const auto* x = std::get_if<int64_t>(&attr)) return static_cast<double>(*x);
  if (const auto* x = std::get_if<bool>(&attr)) return *x ? 1 : 0;
  return std::nullopt;
}

// Whether a call of the row's op has the row's form.
inline bool has_form(const PointwiseRow& row, std::span<const Attr> attrs) {
  return row.form.attribute < 0 ||
         number_of(attrs[static_cast<size_t>(row.form.attribute)]) == row.form.value;
}

// Attribute i where it is there, else the table's value.
inline PointwiseParameters parameters_of(const PointwiseRow& row, std::span<const Attr> attrs) {
  PointwiseParameters values = default_parameters(row.fn);
  for (size_t i = 0; i < parameter_count(row) && i < attrs.size(); ++i)
    if (const auto number = number_of(attrs[i])) values[i] = static_cast<float>(*number);
  return values;
}

// The function that a call of `op` is; nothing where programs know none.
std::optional<PointwiseFn> pointwise_fn_of(const OpDef& op, std::span<const Attr> attrs);
// A backend's kernels for all ops of the table: kernels_of() gives an op's, in their order.
// In-place forms run the kernels of what gives the same as a new tensor.
class PointwiseKernelLists {
 public:
  explicit PointwiseKernelLists(std::vector<Kernel> (*kernels_of)(const OpDef&));
  std::span<const KernelList> span() const { return lists_; }

 private:
  std::vector<std::vector<Kernel>> kernels_;
  std::vector<KernelList> lists_;
};

// The op of a row, or nullptr where it has none.
const OpDef* pointwise_op_of(PointwiseFn fn);
// The function by its op, in its form: of one that needs no other attributes.
Tensor apply_pointwise(PointwiseFn fn, std::initializer_list<Tensor> in);

}  // namespace epilogue
