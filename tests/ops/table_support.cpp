// SPDX-License-Identifier: Apache-2.0
#include "ops/table_support.h"

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/element.h"
#include "core/tensor_impl.h"
#include "support/test.h"

namespace epilogue::test {
namespace {

// A small generator of the tests' own: inputs do not change with the library's.
class Numbers {
 public:
  double next() {  // [0, 1)
    state_ += 0x9e3779b97f4a7c15U;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_ = kSeed;
};

// Memory for `sizes` in the wanted order; gaps of `spread` are never written.
Tensor with_layout(const Dims& sizes, DType dtype, Layout layout) {
  if (layout == Layout::contiguous || sizes.empty()) return empty(sizes, dtype);
  Dims strides = detail::contiguous_strides(sizes);
  int64_t step = layout == Layout::spread ? 2 : 1;
  if (layout == Layout::transposed) {
    for (int d = 0; d < sizes.rank(); ++d) {
      strides[d] = step;
      step *= std::max<int64_t>(1, sizes[d]);
    }
  } else {
    for (int d = 0; d < sizes.rank(); ++d) strides[d] *= 2;
  }
  const Tensor memory = zeros({2 * element_count(sizes) + 1}, dtype);
  return detail::make_view(memory, sizes, strides, 1);  // offset 1: not aligned
}

void copy_values(const Tensor& from, const Tensor& to) {
  const std::vector<double> values = from.to_vector();
  size_t i = 0;
  for_each_offset(to.sizes(), to.strides(),
                  [&](int64_t o) { store_element(to.dtype(), to.data(), o, values[i++]); });
}

std::string attr_text(const Attr& attr) {
  struct Text {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return std::to_string(v); }
    std::string operator()(DType v) const { return std::string(dtype_name(v)); }
    std::string operator()(const Dims& v) const { return to_string(v); }
  };
  return std::visit(Text{}, attr);
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 0x1p-7;
    case DType::f16: return 0x1p-10;
    case DType::f32: return 0x1p-23;
    case DType::f64: return 0x1p-52;
    default: return 0;
  }
}

}  // namespace

std::vector<Tensor> make_inputs(const Sample& sample, DType dtype, Layout layout) {
  Numbers numbers;
  std::vector<Tensor> in;
  for (const SampleInput& s : sample.in) {
    if (s.undefined) {
      in.emplace_back();
      continue;
    }
    const DType own = s.dtype.value_or(dtype);
    const Tensor t = with_layout(s.sizes, own, layout);
    const double low = own == DType::u8 || own == DType::boolean ? std::max(0.0, s.low) : s.low;
    const double high = own == DType::boolean ? 2 : std::max(s.high, low + 1);
    for_each_offset(t.sizes(), t.strides(), [&](int64_t o) {
      double v = low + (is_floating(own) ? s.high - s.low : high - low) * numbers.next();
      if (!is_floating(own)) v = std::floor(v);
      store_element(own, t.data(), o, v);
    });
    in.push_back(t);
  }
  return in;
}

Tensor contiguous_copy(const Tensor& t) {
  if (!t.defined()) return t;
  Tensor copy = empty(t.sizes(), t.dtype());
  copy_values(t, copy);
  copy.impl()->is_wrapped_number = t.impl()->is_wrapped_number;
  return copy;
}

Tensor strided_copy(const Tensor& t) {
  if (!t.defined() || t.is_contiguous()) return contiguous_copy(t);
  int64_t span = 1;
  for (int d = 0; d < t.dim(); ++d) span += (t.sizes()[d] - 1) * t.strides()[d];
  const Tensor copy =
      detail::make_view(zeros({std::max<int64_t>(1, span)}, t.dtype()), t.sizes(), t.strides());
  copy_values(t, copy);
  return copy;
}

std::vector<Tensor> written_inputs(const OpDef& op, std::span<const Tensor> in) {
  std::vector<Tensor> written;
  for (size_t i = 0; op.kind == OpKind::inplace && i < in.size(); ++i)
    if ((op.writes >> op.argument_of(i, in.size()) & 1U) != 0 && in[i].defined())
      written.push_back(in[i]);
  return written;
}

std::vector<Tensor> with_copies_to_write(const OpDef& op, std::span<const Tensor> in) {
  std::vector<Tensor> inputs(in.begin(), in.end());
  for (size_t i = 0; op.kind == OpKind::inplace && i < in.size(); ++i)
    if ((op.writes >> op.argument_of(i, in.size()) & 1U) != 0 && in[i].defined())
      inputs[i] = strided_copy(in[i]);
  return inputs;
}

std::vector<Tensor> results_like(std::span<const Tensor> like, double value) {
  std::vector<Tensor> out;
  for (const Tensor& t : like) {
    out.push_back(empty(t.sizes(), t.dtype()));
    for (int64_t i = 0; i < t.numel(); ++i) store_element(t.dtype(), out.back().data(), i, value);
  }
  return out;
}

std::vector<Tensor> reference_results(const OpDef& op, std::span<const Tensor> in,
                                      std::span<const Attr> attrs, std::span<const Tensor> like) {
  std::vector<Tensor> inputs;
  for (const Tensor& t : in) inputs.push_back(contiguous_copy(t));
  std::vector<Tensor> out = op.kind == OpKind::inplace
                                ? std::vector<Tensor>{inputs[0]}
                                : results_like(like, std::numeric_limits<double>::quiet_NaN());
  manual_seed(kSeed);
  op.reference(Call{op, inputs, attrs, out});
  return op.kind == OpKind::inplace ? written_inputs(op, inputs) : out;
}

Tolerance tolerance_for(const OpDef& op, std::span<const Tensor> in, const Tensor& expected) {
  const DType dtype = expected.dtype();
  if (!is_floating(dtype)) return {0, 0};
  double magnitude = 1;
  double length = 1;
  double eps = std::max(epsilon(DType::f64), dtype == DType::f64 ? 0 : epsilon(DType::f32));
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    for (const double v : t.to_vector())
      if (std::isfinite(v)) magnitude = std::max(magnitude, std::abs(v));
    length = std::max(length, static_cast<double>(t.numel()) /
                                  static_cast<double>(std::max<int64_t>(1, expected.numel())));
    // Arithmetic is in f32 unless everything is f64.
    if (is_floating(t.dtype()) && t.dtype() != DType::f64) eps = epsilon(DType::f32);
    // A composite rounds to its dtype between the parts.
    if (op.kind == OpKind::composite) eps = std::max(eps, epsilon(t.dtype()));
  }
  for (const double v : expected.to_vector())
    if (std::isfinite(v)) magnitude = std::max(magnitude, std::abs(v));
  return {epsilon(dtype), 16 * eps * magnitude * std::sqrt(length)};
}

std::string difference(const Tensor& got, const Tensor& expected, Tolerance tolerance) {
  if (!(got.sizes() == expected.sizes()) || got.dtype() != expected.dtype())
    return "expected " + to_string(expected) + ", got " + to_string(got);
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = expected.to_vector();
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(b[i]);
    const double error = std::abs(a[i] - b[i]);
    const double excess = std::isfinite(error) ? error / allowed : HUGE_VAL;
    if (excess > 1 && excess > worst) {
      worst = excess;
      at = i;
    }
  }
  if (worst < 0) return "";
  return "worst of " + to_string(got) + ": element " + std::to_string(at) + " expected " +
         std::to_string(b[at]) + ", got " + std::to_string(a[at]) + ", " + std::to_string(worst) +
         " times the tolerance";
}

Tensor numbers(Dims sizes, DType dtype) {
  const Sample sample{{{sizes}}};
  return make_inputs(sample, dtype, Layout::contiguous)[0];
}

void expect_near(const Tensor& t, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = t.to_vector();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << i;
}

std::string describe(std::span<const Tensor> in, std::span<const Attr> attrs) {
  std::string text;
  for (const Tensor& t : in) text += (t.defined() ? to_string(t) : "undefined") + " ";
  for (const Attr& a : attrs) text += "; " + attr_text(a);
  return text;
}

IsaScope::IsaScope() : before_(active_isa()) {}
IsaScope::~IsaScope() { set_active_isa(before_); }

ThreadScope::ThreadScope() : before_(num_threads()) {}
ThreadScope::ThreadScope(int threads) : ThreadScope() { set_num_threads(threads); }
ThreadScope::~ThreadScope() { set_num_threads(before_); }

}  // namespace epilogue::test
