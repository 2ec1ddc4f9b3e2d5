// SPDX-License-Identifier: Apache-2.0
#include "analysis/fusion/host_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>

#include "analysis/fusion/op_rates.h"
#include "epilogue/trace/host.h"

namespace epilogue::trace {
namespace {

// What calling an op takes, whatever it does.
constexpr double kCallNs = 2'000;
constexpr double kShortestQuantile = 0.2;
constexpr double kFewBytesShare = 0.01;
// GB/s, reads before writes counted, that two cores of a server reach and one of a PC. Slower
// simple ops pay for something else, new pages mostly.
constexpr double kUsualRate = 20;
// Tensors whose sizes' powers of two are no further apart lie in the same cache, or in none.
constexpr size_t kLikePowers = 2;

// What a fused kernel computes in another way than the op, and how much longer that takes. Eager
// f32 takes some functions from MKL's vector math, as fast as memory; Inductor's kernels take
// SLEEF's, and elu is expm1 there. Eager gelu has a shorter exp. Norms take all sums in one pass.
// Measured on PyTorch 2.15 with AVX-512, tensors of 512 x 1024: the Inductor kernel of the op alone
// over the op.
struct OtherArithmetic {
  std::string_view name;
  double f32;
  double reduced;  // bf16, f16
};
constexpr std::array<OtherArithmetic, 6> kOtherArithmetic = {
    {{"aten::tanh", 5.0, 1.0},
     {"aten::elu", 6.1, 8.4},
     {"aten::log", 2.2, 1.0},
     {"aten::exp", 1.5, 1.0},
     {"aten::gelu", 1.5, 1.8},
     {"aten::native_layer_norm", 0.5, 0.7}}};
// From this factor on the op itself is as fast as memory, and its arithmetic as many times the time
// that its bytes take in a cache: GB/s of two cores, where the trace's simple ops show no better.
constexpr double kMemoryBound = 2;
constexpr double kUsualCacheRate = 60;
// The exact form of gelu takes less than so many times its bytes; the one with tanh, which traces
// do not tell apart, more.
constexpr double kExactGelu = 3;

// What computing takes of a run of `ns` that moves its bytes in `bytes_ns`, in a cache in
// `cached_ns`, in a fused kernel.
double computing_ns(std::string_view name, int64_t element_bytes, double ns, double bytes_ns,
                    double cached_ns) {
  const auto row = std::find_if(kOtherArithmetic.begin(), kOtherArithmetic.end(),
                                [&](const OtherArithmetic& o) { return o.name == name; });
  double factor = 1;
  if (row != kOtherArithmetic.end()) factor = element_bytes == 2 ? row->reduced : row->f32;
  if (name == "aten::gelu" && ns > kExactGelu * bytes_ns) factor = 1;
  if (factor >= kMemoryBound) return cached_ns * (factor - 1);
  return std::max(0.0, ns * factor - bytes_ns);
}

size_t power_of(double bytes) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(bytes)));
}

bool fits_a_product(const GroupBytes& bytes) {
  return bytes.from_one_product >= bytes.written_after;
}

// Comparisons, masks and choices are no faster in Inductor's kernels than as ops, however slow.
bool has_truth_values(const WorkOp& op) {
  const auto is_bool = [](const TensorShape& t) { return t.type == "bool"; };
  return (op.output != nullptr && is_bool(*op.output)) ||
         std::any_of(op.inputs.begin(), op.inputs.end(), is_bool);
}

double bytes_written(const WorkOp& op) {
  return op.output ? static_cast<double>(op.output->bytes().value_or(0)) : 0;
}

}  // namespace

HostModel::HostModel(const Trace& trace, const WorkOps& work) : trace_(trace), work_(work) {
  std::map<Key, std::vector<double>> runs;
  std::array<std::vector<double>, kPowers> rates;  // by power of two of the bytes written
  for (const WorkOp& op : work.ops) {
    if (!op.output) continue;
    const auto ns = static_cast<double>(op.device_ns);
    runs[{op.name, op.output->type, op.output->numel()}].push_back(ns);
    const double cost = cost_of_bytes(op);
    if (is_simple(op) && op.device_ns >= kMinTimedNs && cost > 0)
      rates[power_of(bytes_written(op))].push_back(cost / ns);
  }
  for (auto& [key, ns] : runs) shortest_ns_[key] = quantile(ns, kShortestQuantile);
  set_rates(rates);

  std::vector<double> page_ns;
  for (const WorkOp& op : work.ops) {
    const double written = bytes_written(op);
    if (written < double{kFreshBytes} || !is_simple(op) || is_op_in_place(op)) continue;
    const double moving_ns = cost_of_bytes(op) / rate_for(written);
    page_ns.push_back((static_cast<double>(op.device_ns) - moving_ns) / written);
  }
  new_page_ns_per_byte_ = std::max(0.0, quantile(page_ns, 0.5));
}

bool HostModel::is_op_in_place(const WorkOp& op) const {
  return is_in_place(trace_.strings[op.name]);
}

bool HostModel::is_simple(const WorkOp& op) const {
  return is_elementwise(op.op_class) && !op.is_transcendental && !op.is_transfer &&
         !has_truth_values(op);
}

// 0 where a shape is not known.
double HostModel::cost_of_bytes(const WorkOp& op) const {
  const std::optional<double> moved = moved_bytes(op);
  if (!moved) return 0;
  const bool has_read = is_op_in_place(op) && op.op_class != OpClass::copy;
  return *moved + (has_read ? 0 : bytes_written(op));
}

void HostModel::set_rates(const std::array<std::vector<double>, kPowers>& rates) {
  const auto between = [&](size_t first, size_t last) {
    std::vector<double> all;
    for (size_t i = first; i <= last; ++i) all.insert(all.end(), rates[i].begin(), rates[i].end());
    return quantile(all, kBandwidthQuantile);
  };
  measured_bytes_per_ns_ = between(0, kPowers - 1);
  const double usual = std::max(kUsualRate, measured_bytes_per_ns_);
  for (size_t i = 0; i < kPowers; ++i) {
    const double like =
        between(i - std::min(i, kLikePowers), std::min(i + kLikePowers, kPowers - 1));
    rate_of_power_[i] = like > 0 ? std::max(kUsualRate, like) : usual;
  }
}

double HostModel::rate_for(double written) const { return rate_of_power_[power_of(written)]; }

double HostModel::new_pages_ns(double written) const {
  return written >= double{kFreshBytes} ? written * new_page_ns_per_byte_ : 0;
}

// Reductions and simple ops are done when their bytes are read: eager sums of reduced dtypes cast
// them first, a fused kernel does not.
double HostModel::arithmetic_ns(const WorkOp& op) const {
  if (is_simple(op) || op.op_class == OpClass::reduction || !op.output) return 0;
  const double written = bytes_written(op);
  const double cost = cost_of_bytes(op);
  const double ns = shortest_ns_.at({op.name, op.output->type, op.output->numel()}) -
                    (is_op_in_place(op) ? 0 : new_pages_ns(written));
  return computing_ns(trace_.strings[op.name], element_bytes(op.output->type).value_or(0), ns,
                      cost / rate_for(written),
                      cost / std::max(kUsualCacheRate, measured_bytes_per_ns_));
}

double HostModel::fused_ns(const FusionGroup& group, const GroupBytes& bytes) const {
  double arithmetic = 0;
  double largest = 0;
  for (const uint32_t i : group.members) {
    arithmetic += arithmetic_ns(work_.ops[i]);
    largest = std::max(largest, bytes_written(work_.ops[i]));
  }
  const double cost = bytes.after + (fits_a_product(bytes) ? 0 : bytes.written_after);
  return std::max(kCallNs, cost / rate_for(largest) + arithmetic + pages_of_kernel_ns(bytes));
}

double HostModel::pages_of_kernel_ns(const GroupBytes& bytes) const {
  return fits_a_product(bytes) ? 0 : new_pages_ns(bytes.written_after);
}

double HostModel::saved_pages_ns(const FusionGroup& group, const GroupBytes& bytes) const {
  double now = 0;
  for (const uint32_t i : group.members)
    if (!is_op_in_place(work_.ops[i])) now += new_pages_ns(bytes_written(work_.ops[i]));
  return now - pages_of_kernel_ns(bytes);
}

HostModel::Saving HostModel::saving(const FusionGroup& group, const GroupBytes& bytes,
                                    double now_ns) const {
  Saving saving{now_ns - fused_ns(group, bytes)};
  // Where hardly a byte is saved, the time above the model's is not what fusing would save.
  const double saved_share = 1 - bytes.after / std::max(1.0, bytes.now);
  const bool is_by_element =
      std::all_of(group.members.begin(), group.members.end(),
                  [&](uint32_t i) { return is_elementwise(work_.ops[i].op_class); });
  if (is_by_element && saved_share < kFewBytesShare)
    saving.ns = std::min(saving.ns, 2 * saved_share * now_ns);
  saving.new_pages_ns = std::clamp(saved_pages_ns(group, bytes), 0.0, std::max(0.0, saving.ns));
  return saving;
}

}  // namespace epilogue::trace
