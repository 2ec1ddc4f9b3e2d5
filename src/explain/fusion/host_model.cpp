// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/host_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "epilogue/trace/host.h"

namespace epilogue::trace {
namespace {

// Arithmetic that Inductor's kernels do differently from eager's ops on a CPU.

// One run of an op: its time, and the time to move its bytes from memory and from a cache.
struct TimedRun {
  std::string_view name;  // "aten::gelu"
  int64_t element_bytes = 0;
  double ns = 0;
  double bytes_ns = 0;
  double cached_ns = 0;
};

// Time that such a run computes in a fused kernel, without its bytes.
double fused_arithmetic_ns(const TimedRun& run);

// How many times as long as the op Inductor's kernel of it alone takes, where that is not about 1.
struct Factor {
  std::string_view name;
  double f32;
  double reduced;  // bf16, f16
};

// Measured with PyTorch 2.15 on CPUs of Intel and AMD with AVX-512, tensors of 512 x 1024. Eager
// gelu has a shorter exp.
constexpr std::array<Factor, 1> kFactors = {{{"aten::gelu", 1.5, 1.8}}};

// Ops that are as fast as memory, or slower for another reason: eager f32 takes these from MKL's
// vector math, whose speed depends on the CPU's maker, and its elu works on whole vectors.
// Inductor's kernels take SLEEF's and, for elu, expm1. Their arithmetic, as a multiple of what
// moving the op's bytes in a cache takes, is about the same on the CPUs above. 0: as the op's.
constexpr std::array<Factor, 8> kMultiplesOfBytes = {{{"aten::tanh", 4.0, 0},
                                                      {"aten::elu", 5.1, 7.4},
                                                      {"aten::log", 1.2, 0},
                                                      {"aten::exp", 0.5, 0},
                                                      {"aten::erf", 1.5, 0},
                                                      {"aten::sin", 0.6, 0},
                                                      {"aten::cos", 0.6, 0},
                                                      {"aten::sqrt", 0.1, 0}}};

// The exact form of gelu takes less than so many times its bytes; the one with tanh, which traces
// do not tell apart, more, and as long in either kernel.
constexpr double kExactGelu = 3;

// The table's number for the op; 0 without one.
template <size_t N>
double number_of(const std::array<Factor, N>& table, const TimedRun& run) {
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Factor& f) { return f.name == run.name; });
  if (row == table.end()) return 0;
  return run.element_bytes == 2 ? row->reduced : row->f32;
}

// On a CPU without AVX-512 they take about as long as eager's. No trace tells which it was: so much
// of what eager's op computes is sure to stay.
constexpr double kOwnShare = 0.7;

double fused_arithmetic_ns(const TimedRun& run) {
  if (const double multiple = number_of(kMultiplesOfBytes, run); multiple > 0)
    return std::max(run.cached_ns * multiple, kOwnShare * (run.ns - run.bytes_ns));
  double factor = number_of(kFactors, run);
  const bool has_tanh = run.name == "aten::gelu" && run.ns > kExactGelu * run.bytes_ns;
  if (factor == 0 || has_tanh) factor = 1;
  return std::max(0.0, run.ns * factor - run.bytes_ns);
}

// Cost of calling an op, whatever it does.
constexpr double kCallNs = 2'000;
constexpr double kShortestQuantile = 0.2;
constexpr double kTypicalQuantile = 0.5;
// A softmax that is fused takes so many times as long as eager's alone, and a reduction that much
// of its time: it reads rows from the cache once more than eager's op does. Measured with PyTorch
// 2.15 on an AMD EPYC with AVX2, one thread (bench/hard_chains.py).
constexpr double kRowsTimes = 1.15;
constexpr double kReductionShare = 0.25;
constexpr double kFewBytesShare = 0.01;
// GB/s, reads before writes counted: what two cores of a server reach, where the trace does not
// tell it, and what one core of a PC does. Slower ops pay for something else, new pages mostly.
constexpr double kUsualRate = 40;
constexpr double kLeastRate = 20;
// Tensors whose sizes' powers of two are no further apart lie in the same cache, or in none.
constexpr size_t kLikePowers = 2;

// GB/s of two cores from a cache, where the trace's simple ops show no better.
constexpr double kUsualCacheRate = 60;
// Most that a kernel writes beside a result that lies in a product: sums of rows.
constexpr double kSumsShare = 0.05;

size_t power_of(double bytes) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(bytes)));
}

bool is_softmax(std::string_view name) { return name.find("softmax") != std::string_view::npos; }

// Comparisons, masks and choices are no faster in Inductor's kernels than as ops, however slow.
bool has_truth_values(const WorkOp& op) {
  const auto is_bool = [](const TensorShape& t) { return t.type == "bool"; };
  return (op.output != nullptr && is_bool(*op.output)) ||
         std::any_of(op.inputs.begin(), op.inputs.end(), is_bool);
}

bool is_scaling(std::string_view name) { return name == "aten::mul" || name == "aten::div"; }

double tensor_bytes(const TensorShape& tensor) {
  return static_cast<double>(tensor.bytes().value_or(0));
}

double bytes_written(const WorkOp& op) { return op.output ? tensor_bytes(*op.output) : 0; }

// Bytes of the largest tensor that the op reads or writes.
double largest_bytes(const WorkOp& op) {
  double largest = bytes_written(op);
  for (const TensorShape& input : op.inputs) largest = std::max(largest, tensor_bytes(input));
  return largest;
}

}  // namespace

HostModel::HostModel(const Trace& trace, const WorkOps& work) : trace_(trace), work_(work) {
  std::map<Key, std::vector<double>> runs;
  RatesOfPowers rates;
  RatesOfPowers least_rates;
  for (const WorkOp& op : work.ops) {
    if (!op.output) continue;
    const auto ns = static_cast<double>(op.device_ns);
    runs[{op.name, op.output->type, op.output->numel()}].push_back(ns);
    const double cost = cost_of_bytes(op);
    if (op.op_class == OpClass::gemm || op.device_ns < kMinTimedNs || cost <= 0) continue;
    const bool does_no_more = is_simple(op) || op.op_class == OpClass::reduction;
    RatesOfPowers& kind = does_no_more && !meets_new_pages(op) ? rates : least_rates;
    kind[power_of(largest_bytes(op))].push_back(cost / ns);
  }
  for (auto& [key, ns] : runs) {
    shortest_ns_[key] = quantile(ns, kShortestQuantile);
    typical_ns_[key] = quantile(ns, kTypicalQuantile);
  }
  set_rates(rates, least_rates);

  std::vector<double> page_ns;
  for (const WorkOp& op : work.ops) {
    if (!is_simple(op) || !meets_new_pages(op)) continue;
    const double written = bytes_written(op);
    const double moving_ns = cost_of_bytes(op) / rate_for(largest_bytes(op));
    page_ns.push_back((static_cast<double>(op.device_ns) - moving_ns) / written);
  }
  new_page_ns_per_byte_ = std::max(0.0, quantile(page_ns, 0.5));
}

double HostModel::time_of(const std::map<Key, double>& times, const WorkOp& op) const {
  return op.output ? times.at({op.name, op.output->type, op.output->numel()})
                   : static_cast<double>(op.device_ns);
}

bool HostModel::is_op_in_place(const WorkOp& op) const {
  return is_in_place(trace_.strings[op.name]);
}

bool HostModel::is_simple(const WorkOp& op) const {
  return is_elementwise(op.op_class) && !op.is_transcendental && !op.is_transfer &&
         !has_truth_values(op);
}

bool HostModel::meets_new_pages(const WorkOp& op) const {
  return bytes_written(op) >= double{kFreshBytes} && !is_op_in_place(op);
}

// 0 where a shape is not known.
double HostModel::cost_of_bytes(const WorkOp& op) const {
  const std::optional<double> moved = moved_bytes(op);
  if (!moved) return 0;
  const bool has_read = is_op_in_place(op) && op.op_class != OpClass::copy;
  return *moved + (has_read ? 0 : bytes_written(op));
}

void HostModel::set_rates(const RatesOfPowers& rates, const RatesOfPowers& least_rates) {
  const auto between = [](const RatesOfPowers& from, size_t first, size_t last) {
    std::vector<double> all;
    for (size_t i = first; i <= last; ++i) all.insert(all.end(), from[i].begin(), from[i].end());
    return quantile(all, kBandwidthQuantile);
  };
  measured_bytes_per_ns_ =
      std::max(between(rates, 0, kPowers - 1), between(least_rates, 0, kPowers - 1));
  for (size_t i = 0; i < kPowers; ++i) {
    const size_t first = i - std::min(i, kLikePowers);
    const size_t last = std::min(i + kLikePowers, kPowers - 1);
    const double like = between(rates, first, last);
    const double least_like = between(least_rates, first, last);
    const bool is_known = like + least_like > 0;
    rate_of_power_[i] = std::max(
        {like > 0 ? kLeastRate : kUsualRate, like, is_known ? least_like : measured_bytes_per_ns_});
  }
}

double HostModel::rate_for(double bytes) const { return rate_of_power_[power_of(bytes)]; }

double HostModel::new_pages_ns(double written) const {
  return written >= double{kFreshBytes} ? written * new_page_ns_per_byte_ : 0;
}

// Simple ops are done when their bytes are read; eager sums of reduced dtypes cast them first, a
// fused kernel does not.
double HostModel::arithmetic_ns(const WorkOp& op) const {
  if (is_simple(op) || !op.output) return 0;
  const double written = bytes_written(op);
  if (op.op_class == OpClass::reduction) {
    const bool casts = !op.inputs.empty() && element_bytes(op.inputs[0].type).value_or(0) == 2;
    return casts ? 0 : kReductionShare * time_of(shortest_ns_, op);
  }
  if (op.fuses == OpFuses::rows)
    return std::max(0.0, kRowsTimes * (time_of(shortest_ns_, op) - new_pages_ns(written)));
  const double cost = cost_of_bytes(op);
  const double ns = time_of(shortest_ns_, op) - (is_op_in_place(op) ? 0 : new_pages_ns(written));
  return fused_arithmetic_ns(
      {.name = trace_.strings[op.name],
       .element_bytes = element_bytes(op.output->type).value_or(0),
       .ns = ns,
       .bytes_ns = cost / rate_for(largest_bytes(op)),
       .cached_ns = cost / std::max(kUsualCacheRate, measured_bytes_per_ns_)});
}

// The kernel writes where it last read: of a softmax's rows it reads copies in the end. Sums of
// rows beside the result are few.
bool HostModel::is_in_place_of_product(const FusionGroup& group, const GroupBytes& bytes) const {
  return bytes.reusable >= (1 - kSumsShare) * bytes.written_after &&
         std::none_of(group.members.begin(), group.members.end(),
                      [&](uint32_t i) { return is_softmax(trace_.strings[work_.ops[i].name]); });
}

// Inductor makes an addmm of a product and its sum with another tensor: that copies the tensor, and
// adds to the copy.
bool HostModel::is_sum_in_product(const FusionGroup& group, const GroupBytes& bytes,
                                  size_t member) const {
  const WorkOp& op = work_.ops[group.members[member]];
  const std::string_view name = trace_.strings[op.name];
  return bytes.reads_plain_product[member] && (name == "aten::add" || name == "aten::add_") &&
         op.inputs.size() >= 2 && op.inputs[0].dims == op.inputs[1].dims;
}

HostModel::Passes HostModel::passes(const FusionGroup& group, const GroupBytes& bytes) const {
  const bool is_in_place = is_in_place_of_product(group, bytes);
  Passes sum{.cost = bytes.after + (is_in_place ? 0 : bytes.written_after),
             .pages_ns = is_in_place ? 0 : new_pages_ns(bytes.written_after)};
  bool has_computed = false;
  const WorkOp* before = nullptr;
  for (size_t m = 0; m < group.members.size(); ++m) {
    const WorkOp& op = work_.ops[group.members[m]];
    const double first = op.inputs.empty() ? 0 : tensor_bytes(op.inputs.front());
    if (is_sum_in_product(group, bytes, m)) {
      // The copy reads once and writes twice; one term less is read after.
      sum.cost += 2 * first;
      sum.pages_ns += new_pages_ns(bytes_written(op));
    } else if (op.op_class == OpClass::rowwise && has_computed) {
      // A costly value that is read more than once is written by a kernel of its own.
      sum.cost += (is_in_place ? 2 : 3) * first;
    } else if (before != nullptr && is_softmax(trace_.strings[op.name]) &&
               is_scaling(trace_.strings[before->name])) {
      sum.cost += cost_of_bytes(*before);  // x * scale is tested for infinities first
    }
    has_computed = has_computed || (op.is_transcendental && is_elementwise(op.op_class));
    before = &op;
  }
  return sum;
}

HostModel::Saving HostModel::saving(const FusionGroup& group, const GroupBytes& bytes,
                                    double now_ns) const {
  const Passes after = passes(group, bytes);
  double arithmetic = 0;
  double largest = 0;
  double pages_now_ns = 0;
  double rows_cost = 0;  // bytes within the time of a softmax
  double typical_ns = 0;
  for (const uint32_t i : group.members) {
    const WorkOp& op = work_.ops[i];
    arithmetic += arithmetic_ns(op);
    if (op.fuses == OpFuses::rows) rows_cost += cost_of_bytes(op);
    // What the machine did meanwhile is no saving.
    typical_ns += std::min(static_cast<double>(op.device_ns), time_of(typical_ns_, op));
    largest = std::max(largest, largest_bytes(op));
    if (!is_op_in_place(op)) pages_now_ns += new_pages_ns(bytes_written(op));
  }
  const double cost = std::max(0.0, after.cost - rows_cost);
  now_ns = std::min(now_ns, typical_ns);
  Saving saving{now_ns - std::max(kCallNs, cost / rate_for(largest) + arithmetic + after.pages_ns)};
  // Where hardly a byte is saved, the time above the model's is not what fusing would save.
  const double saved_share = 1 - bytes.after / std::max(1.0, bytes.now);
  const bool is_by_element =
      std::all_of(group.members.begin(), group.members.end(),
                  [&](uint32_t i) { return is_elementwise(work_.ops[i].op_class); });
  if (is_by_element && saved_share < kFewBytesShare)
    saving.ns = std::min(saving.ns, 2 * saved_share * now_ns);
  saving.new_pages_ns = std::clamp(pages_now_ns - after.pages_ns, 0.0, std::max(0.0, saving.ns));
  return saving;
}

}  // namespace epilogue::trace
