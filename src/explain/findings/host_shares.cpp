// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/host_shares.h"

#include <fmt/format.h>

#include <algorithm>

namespace epilogue::trace {
namespace {

std::string product_line(const HostTime& host, const HostProduct& p) {
  const std::string batch = p.shape.batch > 1 ? fmt::format("{} x ", p.shape.batch) : "";
  std::string line =
      fmt::format("{} {}{} x {} x {} {}: {}, {} in all, {:.1f} GFLOP/s", p.op, batch, p.shape.m,
                  p.shape.n, p.shape.k, p.type, counted(p.time.count, "execution", "executions"),
                  duration(p.time.total_ns), p.gflops);
  if (p.peak_pct && !is_peak_too_low(host))
    line += fmt::format(" ({:.0f} % of the {}peak for {})", *p.peak_pct,
                        host.peaks->is_estimate ? "estimated " : "",
                        host.peaks->lacks(p.type) ? "f32" : p.type);
  return line;
}

}  // namespace

std::string share(const HostTime& host, int64_t ns) {
  const double pct =
      host.wall_ns > 0 ? 100.0 * static_cast<double>(ns) / static_cast<double>(host.wall_ns) : 0;
  return fmt::format("{} of {} ({:.0f} %)", duration(ns), duration(host.wall_ns), pct);
}

std::string calls_text(int64_t count, int64_t ns) {
  return fmt::format("{}, mean {}", counted(count, "call", "calls"), duration(ns / count));
}

int64_t total_of(const std::vector<const HostProduct*>& products) {
  int64_t ns = 0;
  for (const HostProduct* p : products) ns += p->time.total_ns;
  return ns;
}

int64_t total_of(const std::vector<HostLoss>& losses) {
  int64_t ns = 0;
  for (const HostLoss& loss : losses) ns += loss.ns;
  return ns;
}

std::vector<const HostLoss*> ops_on_new_pages(const Explanation& e) {
  constexpr double kMuchFaster = 2;
  std::vector<const HostLoss*> ops;
  if (!e.host) return ops;
  const HostLosses& losses = e.host->losses;
  int64_t ns = 0;
  for (const HostLoss& op : losses.fresh) {
    if (op.gb_per_s() * kMuchFaster >= losses.warm_gb_per_s) continue;
    ops.push_back(&op);
    ns += op.ns;
  }
  if (!is_notable(*e.host, ns)) ops.clear();
  return ops;
}

void add_product_lines(const HostTime& host, const std::vector<const HostProduct*>& products,
                       Finding& f) {
  for (size_t i = 0; i < std::min(kHostFindings, products.size()); ++i)
    f.evidence.push_back(product_line(host, *products[i]));
  if (products.size() > kHostFindings)
    f.evidence.push_back(fmt::format("and {} more", products.size() - kHostFindings));
}

std::string_view loader_advice(const Explanation& e) {
  const bool is_single = std::ranges::any_of(e.hot_spots.loaders, [](const LoaderSpot& spot) {
    return spot.name.find("SingleProcess") != std::string::npos;
  });
  return is_single
             ? "it loads in the training process: num_workers > 0 loads beside the model, "
               "persistent_workers keeps the workers; cheaper decoding helps in any case"
             : "more loader workers (num_workers), fetching ahead (prefetch_factor) or cheaper "
               "decoding help";
}

}  // namespace epilogue::trace
