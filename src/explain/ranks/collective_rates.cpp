// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/collective_rates.h"

namespace epilogue::trace {
namespace {

std::optional<int64_t> times(std::optional<int64_t> bytes, std::optional<int64_t> ranks) {
  int64_t product = 0;
  if (!bytes || !ranks || __builtin_mul_overflow(*bytes, *ranks, &product)) return std::nullopt;
  return product;
}

// `all` is what `part` is a rank's share of.
std::optional<int64_t> whole_of(std::optional<int64_t> all, std::optional<int64_t> part,
                                std::optional<int64_t> ranks) {
  const std::optional<int64_t> sum = times(part, ranks);
  if (all && sum && *all != *sum) return std::nullopt;
  return all ? all : sum;
}

}  // namespace

std::optional<int64_t> message_bytes(std::string_view name, const CollectiveSizes& sizes) {
  if (name == "all_gather" || name == "gather")
    return whole_of(sizes.out_bytes, sizes.in_bytes, sizes.ranks);
  if (name == "reduce_scatter") return whole_of(sizes.in_bytes, sizes.out_bytes, sizes.ranks);
  if (name == "barrier" || name == "other") return std::nullopt;
  return sizes.in_bytes;
}

std::optional<double> bus_factor(std::string_view name, int64_t ranks) {
  if (ranks < 1) return std::nullopt;
  const auto n = static_cast<double>(ranks);
  if (name == "all_reduce") return 2 * (n - 1) / n;
  if (name == "all_gather" || name == "reduce_scatter" || name == "all_to_all" || name == "gather")
    return (n - 1) / n;
  if (name == "broadcast" || name == "reduce" || name == "send_recv") return 1;
  return std::nullopt;
}

void CollectiveRateSum::add(std::optional<int64_t> bytes, std::optional<double> factor,
                            int64_t dur_ns) {
  if (!bytes || *bytes <= 0 || dur_ns <= 0) return;
  const auto size = static_cast<double>(*bytes);
  ++count_;
  ns_ += dur_ns;
  bytes_ += size;
  bus_bytes_ += size * factor.value_or(0);
  has_factors_ = has_factors_ && factor.has_value();
}

std::optional<CollectiveRates> CollectiveRateSum::rates() const {
  if (count_ == 0) return std::nullopt;
  const auto ns = static_cast<double>(ns_);  // bytes per ns are GB/s
  CollectiveRates rates = {count_, bytes_ / ns, std::nullopt};
  if (has_factors_) rates.busbw_gb_s = bus_bytes_ / ns;
  return rates;
}

}  // namespace epilogue::trace
