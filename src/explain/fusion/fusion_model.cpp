// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/fusion_model.h"

#include <algorithm>

#include "explain/fusion/host_model.h"

namespace epilogue::trace {
namespace {

// GB/s that any machine's memory gives: where a trace has nothing but ops that compute more than
// they move, their rate says nothing of it.
constexpr double kLeastHostRate = 5;
constexpr double kLeastDeviceRate = 100;
constexpr double kFloorQuantile = 0.05;

}  // namespace

std::optional<double> moved_bytes(const WorkOp& op) {
  if (!op.output || op.inputs.empty()) return std::nullopt;
  const std::optional<int64_t> written = op.output->bytes();
  if (!written) return std::nullopt;
  auto sum = static_cast<double>(*written);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!reads_input(op, i)) continue;
    const std::optional<int64_t> read = op.inputs[i].bytes();
    if (!read) return std::nullopt;
    sum += static_cast<double>(*read);
  }
  return sum;
}

FusionModel::FusionModel(const Trace& trace, const WorkOps& work, const FusionOptions& options)
    : work_(work), profiler_ns_per_op_(options.profiler_ns_per_op) {
  std::vector<double> rates;
  std::vector<double> durations;
  bool has_simple = false;
  for (const WorkOp& op : work.ops) {
    if (!is_elementwise(op.op_class) || op.is_transfer || op.device_ns <= 0) continue;
    durations.push_back(static_cast<double>(op.device_ns));
    const std::optional<double> bytes = moved_bytes(op);
    if (!bytes || op.device_ns < kMinTimedNs) continue;
    rates.push_back(*bytes / static_cast<double>(op.device_ns));
    has_simple = has_simple || !op.is_transcendental;
  }
  bytes_per_ns_ = quantile(rates, kBandwidthQuantile);
  if (!rates.empty() && !has_simple)
    bytes_per_ns_ =
        std::max(bytes_per_ns_, work.has_device_work ? kLeastDeviceRate : kLeastHostRate);
  floor_ns_ = quantile(durations, kFloorQuantile);
  if (work.has_device_work || work.is_synchronous) return;
  host_.emplace(trace, work);
  bytes_per_ns_ = std::max(bytes_per_ns_, host_->measured_bytes_per_ns());
}

double FusionModel::traffic_ns(double bytes) const {
  return bytes_per_ns_ > 0 ? bytes / bytes_per_ns_ : 0;
}

double FusionModel::member_saving_ns(const WorkOp& op, double saved_bytes) const {
  const std::optional<double> bytes = moved_bytes(op);
  if (op.is_transcendental || !is_elementwise(op.op_class) || !bytes || *bytes <= 0)
    return traffic_ns(saved_bytes);
  return static_cast<double>(op.device_ns) * saved_bytes / *bytes;
}

Prediction FusionModel::sums(const std::vector<uint32_t>& ops) const {
  Prediction p;
  for (const uint32_t i : ops) {
    p.kernels_now += work_.ops[i].kernels;
    p.time_ns += static_cast<double>(work_.ops[i].device_ns);
    if (work_.has_device_work) p.host_ns += own_host_ns(work_.ops[i]);
  }
  return p;
}

double FusionModel::own_host_ns(const WorkOp& op) const {
  const int64_t in_kernels = work_.is_synchronous ? op.device_ns : 0;
  return std::max(0.0, static_cast<double>(op.host_ns - in_kernels) -
                           profiler_ns_per_op_ * static_cast<double>(op.host_ops));
}

// All ops but the slowest one go away. Without device work the host's time is the work's: an op
// that goes away saves what remains of its calls, which is not known apart.
double FusionModel::host_saving(const std::vector<uint32_t>& ops) const {
  if (!work_.has_device_work) return 0;
  double sum = 0;
  double longest = 0;
  for (const uint32_t i : ops) {
    const double own = own_host_ns(work_.ops[i]);
    sum += own;
    longest = std::max(longest, own);
  }
  return sum - longest;
}

Prediction FusionModel::chain(const FusionGroup& group,
                              const std::optional<GroupBytes>& bytes) const {
  Prediction p = sums(group.members);
  p.kernels_after = work_.has_device_work ? 1 : 0;
  p.host_saving_ns = host_saving(group.members);
  double longest = floor_ns_;
  for (const uint32_t i : group.members)
    longest = std::max(longest, static_cast<double>(work_.ops[i].device_ns));
  const double most = std::max(0.0, p.time_ns - longest);
  if (bytes) {
    p.bytes_now = bytes->now;
    p.bytes_after = bytes->after;
    if (host_) {
      const HostModel::Saving saving = host_->saving(group, *bytes, p.time_ns);
      p.device_saving_ns = saving.ns;
      p.new_pages_ns = saving.new_pages_ns;
      return p;
    }
    double saving = 0;
    for (size_t i = 0; i < group.members.size(); ++i)
      saving += member_saving_ns(work_.ops[group.members[i]], bytes->saved[i]);
    p.device_saving_ns = std::clamp(saving, 0.0, std::max(0.0, p.time_ns - floor_ns_));
  } else {
    p.device_saving_ns = most;
  }
  return p;
}

Prediction FusionModel::epilogue(const FusionGroup& group, const GroupBytes& bytes) const {
  const Prediction fused = chain(group, bytes);
  Prediction p = sums(group.products);
  const double chain_ns = fused.time_ns - fused.device_saving_ns;
  p.kernels_after = p.kernels_now;
  p.kernels_now += group.members.size() > 1 ? fused.kernels_after : fused.kernels_now;
  p.time_ns += chain_ns;
  // Every product is written once. The one whose kernel takes the epilogue is neither written nor
  // read again; the others stay kernels of their own.
  p.bytes_now = bytes.after + bytes.from_products;
  p.bytes_after = p.bytes_now - 2 * bytes.from_one_product;
  p.device_saving_ns = std::min(traffic_ns(p.bytes_now - p.bytes_after), chain_ns);
  double longest = 0;
  for (const uint32_t i : group.members) longest = std::max(longest, own_host_ns(work_.ops[i]));
  p.host_saving_ns = work_.has_device_work ? longest : 0;
  p.host_ns += p.host_saving_ns;
  return p;
}

Prediction FusionModel::merged(const std::vector<uint32_t>& gemms, double bytes_read_again) const {
  Prediction p = sums(gemms);
  bool has_bytes = true;
  for (const uint32_t i : gemms) {
    // One that splits its sum and adds the parts in a second kernel does so merged, too.
    p.kernels_after = std::max<int64_t>(p.kernels_after, work_.ops[i].kernels);
    const std::optional<double> bytes = moved_bytes(work_.ops[i]);
    has_bytes = has_bytes && bytes;
    p.bytes_now += bytes.value_or(0);
  }
  p.bytes_now = has_bytes ? p.bytes_now : 0;
  p.bytes_after = has_bytes ? p.bytes_now - bytes_read_again : 0;
  p.host_saving_ns = host_saving(gemms);
  p.device_saving_ns = std::min(traffic_ns(bytes_read_again), p.time_ns / 2);
  return p;
}

Prediction FusionModel::row_chain(const RowChainGroup& group,
                                  std::optional<double> chain_ns) const {
  Prediction p = sums(group.members);
  p.kernels_after = 1;
  double host_ns = 0;
  double products_ns = 0;
  double arithmetic_ns = 0;  // of what is no product, and stays
  for (const uint32_t i : group.members) {
    const WorkOp& op = work_.ops[i];
    const auto device_ns = static_cast<double>(op.device_ns);
    const double bytes = moved_bytes(op).value_or(0);
    host_ns += own_host_ns(op);
    p.bytes_now += bytes;
    if (op.op_class == OpClass::gemm) {
      products_ns += device_ns;
    } else {
      arithmetic_ns += std::max(0.0, device_ns - member_saving_ns(op, bytes));
    }
  }
  p.bytes_after = group.work.bytes;
  const double after = chain_ns.value_or(products_ns) + arithmetic_ns;
  // Its dispatch is part of the measured overhead; else it is an op's like those before.
  const auto ops = static_cast<double>(group.members.size());
  p.host_saving_ns = chain_ns ? host_ns : host_ns * (1 - 1 / ops);
  p.device_saving_ns = p.time_ns - after;
  return p;
}

}  // namespace epilogue::trace
