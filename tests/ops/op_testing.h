// SPDX-License-Identifier: Apache-2.0
// Shared by the op tests: tensors of every layout, the reference's answer, comparison, call trees.
#pragma once

#include "core/observer.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "support/test.h"

namespace epilogue::testing {

using test::error_of;

using Random = std::mt19937;

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

enum class Layout { contiguous, transposed, stepped, offset, broadcast };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::stepped,
                                      Layout::offset, Layout::broadcast};

// Random elements behind a view: last dimensions swapped, every second element, a start inside the
// storage, or stride 0 in the first dimension.
inline Tensor make_tensor(Dims sizes, DType dtype, Layout layout, double low = -2,
                          double high = 2) {
  const int rank = sizes.rank();
  if (rank == 0) return to(uniform(sizes, low, high, DType::f64), dtype);
  Dims stored = sizes;
  if (layout == Layout::transposed && rank >= 2) std::swap(stored[rank - 1], stored[rank - 2]);
  if (layout == Layout::stepped) stored[rank - 1] *= 2;
  if (layout == Layout::offset) stored[rank - 1] += 3;
  if (layout == Layout::broadcast) stored[0] = 1;
  const Tensor base = to(uniform(stored, low, high, DType::f64), dtype);
  if (layout == Layout::transposed && rank >= 2) return transpose(base, -1, -2);
  if (layout == Layout::stepped) return slice(base, -1, 1, INT64_MAX, 2);
  if (layout == Layout::offset) return slice(base, -1, 3, INT64_MAX);
  if (layout == Layout::broadcast) return expand(base, sizes);
  return base;
}

// The op's reference on the same inputs; `out` gives sizes and dtype of the result.
inline Tensor reference_of(const OpDef& op, std::vector<Tensor> in, std::vector<Attr> attrs,
                           const Tensor& out) {
  Tensor want = empty(out.sizes(), out.dtype());
  op.reference(Call{op, in, attrs, {&want, 1}});
  return want;
}

// A result that was computed in f32 (f64 for f64) with an error of a few ulps: narrow types may
// round to the neighbour.
inline double relative_error_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 0x1p-7;
    case DType::f16: return 0x1p-10;
    case DType::f64: return 0x1p-50;
    case DType::f32: return 0x1p-19;
    default: return 0;
  }
}

inline void expect_close(const Tensor& got, const Tensor& want, double absolute,
                         const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = want.to_vector();
  const double relative = relative_error_of(want.dtype());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    ASSERT_LE(std::abs(a[i] - b[i]), absolute + relative * std::abs(b[i]))
        << what << ", element " << i << ": got " << a[i] << ", want " << b[i];
  }
}
inline void expect_equal(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  ASSERT_EQ(got.to_vector(), want.to_vector()) << what;
}

// While alive: the ops and kernels that run, as "aten::t(aten::transpose(aten::as_strided))";
// a kernel is a "*" behind its op.
class CallTree final : public RunObserver {
 public:
  CallTree() { set_run_observer(this); }
  ~CallTree() override { set_run_observer(nullptr); }
  std::string text;

  void op_begin(const OpDef& op, std::span<const Tensor>, std::span<const Attr>, int64_t) override {
    if (!text.empty() && text.back() != '(') text += ' ';
    text += op.name;
    text += '(';
  }
  void op_end() override {
    if (text.back() == '(') {
      text.pop_back();
    } else {
      text += ')';
    }
  }
  void kernel_ran(const KernelRun&) override { text += '*'; }
  void range_begin(std::string_view, RangeKind, int64_t, uint64_t) override {}
  void range_end() override {}
};

// While alive: what the kernel that ran last says of itself.
class LastKernel final : public RunObserver {
 public:
  LastKernel() { set_run_observer(this); }
  ~LastKernel() override { set_run_observer(nullptr); }
  KernelInfo info;

  void op_begin(const OpDef&, std::span<const Tensor>, std::span<const Attr>, int64_t) override {}
  void op_end() override {}
  void kernel_ran(const KernelRun& run) override { run.kernel->describe(run.call, info); }
  void range_begin(std::string_view, RangeKind, int64_t, uint64_t) override {}
  void range_end() override {}
};

}  // namespace epilogue::testing
