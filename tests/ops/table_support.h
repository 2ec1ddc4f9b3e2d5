// SPDX-License-Identifier: Apache-2.0
// Shared by the op-table tests: inputs from samples, reference results, comparison.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "core/op.h"

namespace epilogue::test {

// The name of an op's test: "add_" of aten::add_.
inline std::string op_test_name(const ::testing::TestParamInfo<const OpDef*>& info) {
  return std::string(info.param->name.substr(std::string_view("aten::").size()));
}

// How the elements of an input lie in memory.
enum class Layout { contiguous, transposed, spread };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::spread};

// The sample's inputs in `dtype` (where the sample does not name one), always the same numbers.
std::vector<Tensor> make_inputs(const Sample& sample, DType dtype, Layout layout);
// The same values at new addresses, contiguous / in the tensor's own strides.
Tensor contiguous_copy(const Tensor& t);
Tensor strided_copy(const Tensor& t);

// The inputs that an in-place op writes: one tensor, or those of its lists.
std::vector<Tensor> written_inputs(const OpDef& op, std::span<const Tensor> in);
// The inputs, with copies of those that the op writes.
std::vector<Tensor> with_copies_to_write(const OpDef& op, std::span<const Tensor> in);

// Fresh results like `like`, every element set to `value`.
std::vector<Tensor> results_like(std::span<const Tensor> like, double value);

// The op's results by its reference kernel on contiguous inputs; `like` gives sizes and dtypes.
// Random ops draw from the seed that every run of a test starts with.
std::vector<Tensor> reference_results(const OpDef& op, std::span<const Tensor> in,
                                      std::span<const Attr> attrs, std::span<const Tensor> like);
inline constexpr uint64_t kSeed = 42;

// Room for rounding: 1 ulp of the result, plus what f32 (f64) sums of the call's length lose.
struct Tolerance {
  double relative;
  double absolute;
};
Tolerance tolerance_for(const OpDef& op, std::span<const Tensor> in, const Tensor& expected);

// Empty if equal within the tolerance (NaN equals NaN), else the worst element.
std::string difference(const Tensor& got, const Tensor& expected, Tolerance tolerance);

// Fixed numbers in [-2, 2).
Tensor numbers(Dims sizes, DType dtype = DType::f32);
// Every element within `tolerance` of its expected value.
void expect_near(const Tensor& t, const std::vector<double>& expected, double tolerance);

// "f32[3, 5], bf16[5], undefined; attrs ..." for failure messages.
std::string describe(std::span<const Tensor> in, std::span<const Attr> attrs);

// Restores the ISA level at the end of a scope.
class IsaScope {
 public:
  IsaScope();
  ~IsaScope();
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  Isa before_;
};

// Restores the number of threads at the end of a scope.
class ThreadScope {
 public:
  ThreadScope();
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace epilogue::test
