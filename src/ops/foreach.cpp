// SPDX-License-Identifier: Apache-2.0
// Ops over lists of gradients: norms, scaling, clamping, and GradScaler's check. One kernel each.
#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "ops/list_call.h"
#include "ops/ops.h"
#include "ops/reference.h"

namespace epilogue {
namespace {

// f64 norms stay f64; the others are f32, which has the range that bf16 sums need.
OutMetas infer_norm(const Call& call) {
  for (const Tensor& t : call.in) {
    require_floating(call.op, t);
    require_same_dtype(call.op, t, call.in[0]);
  }
  if (!(call.attr<double>(0) > 0))
    fail(call.op, "a positive order", std::to_string(call.attr<double>(0)));
  const DType dtype = call.in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
  return OutMeta{{static_cast<int64_t>(call.in.size())}, dtype};
}

// (sum |x|^p)^(1/p); the largest |x| for p = inf. NaN wins; 0 over nothing.
void norm_reference(const Call& call) {
  const double p = call.attr<double>(0);
  for (size_t i = 0; i < call.in.size(); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < call.in[i].numel(); ++j) {
      const double x = std::abs(Elements(call.in[i]).get(j));
      if (std::isinf(p)) {
        sum = std::isnan(x) || std::isnan(sum) ? NAN : std::max(sum, x);
      } else {
        sum += std::pow(x, p);
      }
    }
    Elements(call.out[0]).set(static_cast<int64_t>(i), std::isinf(p) ? sum : std::pow(sum, 1 / p));
  }
}

OutMetas infer_floating_list(const Call& call) {
  const ListCall lists(call);
  for (size_t i = 0; i < lists.size(); ++i) {
    require_floating(call.op, lists.at(0, i));
    require_writable(call.op, lists.at(0, i), lists.at(0, i));
  }
  return infer_like_first(call);
}

template <class F>
void map_list(const Call& call, F&& f) {
  const ListCall lists(call);
  for (size_t i = 0; i < lists.size(); ++i) {
    const Elements x(lists.at(0, i));
    for (int64_t j = 0; j < lists.at(0, i).numel(); ++j) x.set(j, f(x.get(j)));
  }
}

OutMetas infer_check(const Call& call) {
  const ListCall lists(call);
  for (size_t i = 0; i < call.op.singles; ++i) {
    const Tensor& t = lists.single(call.op, i);
    if (t.numel() != 1 || t.dtype() != DType::f32)
      fail(call.op, "found_inf and inv_scale of one f32 element", to_string(t));
  }
  return infer_floating_list(call);
}

void check_reference(const Call& call) {
  const ListCall lists(call);
  const Tensor& found = lists.single(call.op, 0);
  const double inverse = Elements(lists.single(call.op, 1)).get(0);
  map_list(call, [&](double x) {
    if (!std::isfinite(x)) Elements(found).set(0, 1);
    return x * inverse;
  });
}

double one_per_element(const Call& call) { return ListCall(call).elements(); }
double two_per_element(const Call& call) { return 2 * ListCall(call).elements(); }
// With an inverse scale of 1 gradients are only read. A device's scale is not read for this.
double check_bytes(const Call& call) {
  const ListCall lists(call);
  const double all = list_bytes(call);
  const Tensor& inverse = lists.single(call.op, 1);
  if (inverse.device().type != DeviceType::cpu ||
      load_element(inverse.dtype(), inverse.data(), 0) != 1)
    return all;
  double written = 0;
  for (size_t i = 0; i < lists.size(); ++i) written += static_cast<double>(lists.at(0, i).bytes());
  return all - written;
}

Sample list_sample(std::vector<Attr> attrs) {
  return {{{{33}}, {{3, 5}}, {{}}, {{4100}}}, std::move(attrs)};
}

template <bool kMin>
void clamp_reference(const Call& call) {
  const double bound = call.attr<double>(0);
  // Written so that NaN passes.
  map_list(call, [&](double x) { return (kMin ? x < bound : x > bound) ? bound : x; });
}

// Writes every element of a list, by its value and one number.
constexpr OpDef mapped_list_op(std::string_view name, std::string_view doc,
                               void (*reference)(const Call&), std::vector<Sample> (*samples)()) {
  return {.name = name,
          .schema = "(Tensor[] self, Scalar scalar)",
          .doc = doc,
          .kind = OpKind::inplace,
          .infer = infer_floating_list,
          .flops = one_per_element,
          .bytes = [](const Call& call) { return list_bytes(call); },
          .lists = 1,
          .reference = reference,
          .samples = samples};
}

}  // namespace

constinit const OpDef kForeachNorm{
    .name = "aten::_foreach_norm",
    .schema = "(Tensor[] self, Scalar ord)",
    .doc = "the norm of each tensor, as one vector",
    .infer = infer_norm,
    .flops = two_per_element,
    .bytes =
        [](const Call& call) {
          return list_bytes(call) + static_cast<double>(call.out[0].bytes());
        },
    .lists = 1,
    .reference = norm_reference,
    .samples =
        [] {
          return std::vector<Sample>{list_sample({2.0}), list_sample({1.0}),
                                     list_sample({HUGE_VAL}), list_sample({3.0})};
        }};

constinit const OpDef kForeachMul_ = mapped_list_op(
    "aten::_foreach_mul_", "every tensor *= scalar",
    [](const Call& call) {
      map_list(call, [f = call.attr<double>(0)](double x) { return x * f; });
    },
    [] { return std::vector<Sample>{list_sample({0.37})}; });

constinit const OpDef kForeachClampMin_ =
    mapped_list_op("aten::_foreach_clamp_min_", "every tensor = max(self, scalar); NaN stays",
                   clamp_reference<true>, [] { return std::vector<Sample>{list_sample({-0.5})}; });

constinit const OpDef kForeachClampMax_ =
    mapped_list_op("aten::_foreach_clamp_max_", "every tensor = min(self, scalar); NaN stays",
                   clamp_reference<false>, [] { return std::vector<Sample>{list_sample({0.5})}; });

constinit const OpDef kAmpNonFiniteCheckAndUnscale_{
    .name = "aten::_amp_foreach_non_finite_check_and_unscale_",
    .schema = "(Tensor[] self, Tensor found_inf, Tensor inv_scale)",
    .doc = "found_inf = 1 where an element is inf or NaN; every tensor *= inv_scale",
    .kind = OpKind::inplace,
    .infer = infer_check,
    .flops = two_per_element,
    .bytes = check_bytes,
    .lists = 1,
    .singles = 2,
    .writes = 1U | 2U,
    .reference = check_reference,
    .samples = [] {
      Sample s = list_sample({});
      s.in.push_back({.sizes = {}, .low = 0, .high = 0, .dtype = DType::f32});
      s.in.push_back({.sizes = {}, .low = 0.125, .high = 0.125, .dtype = DType::f32});
      return std::vector<Sample>{s};
    }};

}  // namespace epilogue
