// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/pointwise.h"

#include <array>

#include "ops/ops.h"
#include "ops/pointwise/pointwise_op.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

const std::array<const OpDef*, kPointwiseFns>& ops_of_rows() {
  static const auto ops = [] {
    std::array<const OpDef*, kPointwiseFns> found = {};
    for (size_t i = 0; i < kPointwiseFns; ++i)
      for (const OpDef* op : kOps)
        if (op->name == kPointwiseTable[i].op) found[i] = op;
    return found;
  }();
  return ops;
}

}  // namespace

const OpDef* pointwise_op_of(PointwiseFn fn) { return ops_of_rows()[static_cast<size_t>(fn)]; }

Tensor apply_pointwise(PointwiseFn fn, std::initializer_list<Tensor> in) {
  const PointwiseForm& form = pointwise_row(fn).form;
  if (form.attribute < 0) return run_op(*pointwise_op_of(fn), in);
  return run_op(*pointwise_op_of(fn), in, {static_cast<int64_t>(form.value)});
}

PointwiseKernelLists::PointwiseKernelLists(std::vector<Kernel> (*kernels_of)(const OpDef&)) {
  kernels_.reserve(kOps.size());  // lists point into it
  for (const OpDef* op : kOps) {
    std::vector<Kernel> kernels = kernels_of(op->functional != nullptr ? *op->functional : *op);
    if (kernels.empty()) continue;
    kernels_.push_back(std::move(kernels));
    lists_.push_back({op, kernels_.back()});
  }
}

std::optional<PointwiseFn> pointwise_fn_of(const OpDef& op, std::span<const Attr> attrs) {
  for (size_t i = 0; i < kPointwiseFns; ++i)
    if (ops_of_rows()[i] == &op && has_form(kPointwiseTable[i], attrs))
      return kPointwiseTable[i].fn;
  return std::nullopt;
}

std::vector<Sample> unary_samples(const std::vector<Attr>& attrs, SampleRange x) {
  std::vector<Sample> samples;
  for (const Dims& sizes : {Dims{3, 5}, Dims{}, Dims{67}, Dims{0, 3}})
    samples.push_back({{{sizes, x.low, x.high}}, attrs});
  return samples;
}
std::vector<Sample> binary_samples(const std::vector<Attr>& attrs, SampleRange b) {
  const std::pair<Dims, Dims> shapes[] = {{{3, 5}, {3, 5}}, {{67}, {67}}, {{}, {}},
                                          {{2, 3, 4}, {4}}, {{37}, {}},   {{0, 3}, {3}}};
  std::vector<Sample> samples;
  for (const auto& [x, y] : shapes) samples.push_back({{{x}, {y, b.low, b.high}}, attrs});
  return samples;
}

}  // namespace epilogue
