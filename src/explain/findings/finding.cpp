// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/finding.h"

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

std::string times_line(const std::string& name, const std::string& count,
                       const Distribution& time) {
  return name + ": " + count + ", median " + duration(time.median_ns) + ", in all " +
         duration(time.total_ns);
}

std::string share(const HostTime& host, int64_t ns) {
  const double pct =
      host.wall_ns > 0 ? 100.0 * static_cast<double>(ns) / static_cast<double>(host.wall_ns) : 0;
  return fmt::format("{} of {} ({:.0f} %)", duration(ns), duration(host.wall_ns), pct);
}

std::string calls_text(int64_t count, int64_t ns) {
  return fmt::format("{}, mean {}", counted(count, "call", "calls"), duration(ns / count));
}

void OpLosses::add(std::string_view name, int64_t ns, int64_t bytes, int64_t count) {
  OpLoss& loss = by_name_[name];
  loss.name = name;
  loss.count += count;
  loss.ns += ns;
  loss.bytes += bytes;
}

int64_t OpLosses::total_ns() const {
  int64_t ns = 0;
  for (const auto& [name, loss] : by_name_) ns += loss.ns;
  return ns;
}

std::vector<OpLoss> OpLosses::by_time() const {
  std::vector<OpLoss> list;
  list.reserve(by_name_.size());
  for (const auto& [name, loss] : by_name_) list.push_back(loss);
  std::ranges::stable_sort(list, std::ranges::greater{}, &OpLoss::ns);
  return list;
}

bool is_indexing_op(std::string_view name) {
  constexpr std::array<std::string_view, 7> kIndexing = {
      "aten::index",         "aten::index_put_",     "aten::_index_put_impl_", "aten::index_put",
      "aten::masked_select", "aten::masked_scatter", "aten::masked_scatter_"};
  return is_one_of(kIndexing, name);
}

std::string bytes_each(const OpLoss& loss) {
  const auto count = static_cast<double>(std::max<int64_t>(1, loss.count));
  return format_bytes(static_cast<double>(loss.bytes) / count) + " each";
}

std::optional<Finding> finding_of_op(const Explanation& e, const OpLosses& losses,
                                     fmt::format_string<std::string> title,
                                     std::string_view action) {
  if (losses.empty() || !is_notable(*e.host, losses.total_ns())) return std::nullopt;
  const OpLoss op = losses.by_time().front();
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(title, share(*e.host, op.ns));
  f.evidence.push_back(fmt::format("{}: {}", op.name, calls_text(op.count, op.ns)));
  advise(f, action);
  f.cost_us = to_us(op.ns);
  return f;
}

std::string product_text(const Gemm& g) {
  const std::string& name = g.op.empty() ? g.kernel : g.op;
  if (!g.shape) return name + " of unknown shape";
  const std::string batch =
      g.shape->batch > 1 ? fmt::format("{} x ", g.shape->batch) : std::string();
  return fmt::format("{} {}{} x {} x {}", name, batch, g.shape->m, g.shape->n, g.shape->k);
}

std::string gemm_line(const Gemm& g) {
  std::string line =
      fmt::format("{}: {}, {}", product_text(g), counted(g.time.count, "execution", "executions"),
                  duration(g.time.total_ns));
  if (g.tflops) line += fmt::format(", {:.1f} TFLOP/s", *g.tflops);
  if (g.peak_pct) line += fmt::format(" ({:.0f} % of the peak for {})", *g.peak_pct, g.math_type);
  return line;
}

int64_t total_of(const std::vector<const HostProduct*>& products) {
  int64_t ns = 0;
  for (const HostProduct* p : products) ns += p->time.total_ns;
  return ns;
}

void add_product_lines(const HostTime& host, const std::vector<const HostProduct*>& products,
                       Finding& f) {
  for (size_t i = 0; i < std::min(kHostFindings, products.size()); ++i)
    f.evidence.push_back(product_line(host, *products[i]));
  if (products.size() > kHostFindings)
    f.evidence.push_back(fmt::format("and {} more", products.size() - kHostFindings));
}

bool is_mostly_compiled(const Explanation& e) {
  const std::vector<CompiledRange>& ranges =
      e.compile.regions.empty() ? e.compile.graphs : e.compile.regions;
  int64_t kernels = 0;
  for (const CompiledRange& range : ranges) kernels += range.kernels;
  return kernels > 0 && 2 * kernels >= e.kernels;
}

const NoLaunchOp* longest_no_launch(const Explanation& e) {
  const auto longest = std::ranges::max_element(e.chains.no_launch, {}, &NoLaunchOp::max_self_ns);
  return longest == e.chains.no_launch.end() ? nullptr : &*longest;
}

}  // namespace epilogue::trace
