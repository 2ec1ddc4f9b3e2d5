// SPDX-License-Identifier: Apache-2.0
// Findings about runs without a device: what the host's time goes to.
#include <fmt/format.h>

#include <algorithm>

#include "explain/findings/host_shares.h"
#include "explain/findings/rules.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

constexpr size_t kMostCalled = 8;

std::string bytes_each(const HostLoss& loss) {
  const auto count = static_cast<double>(std::max<int64_t>(1, loss.count));
  return format_bytes(static_cast<double>(loss.bytes) / count) + " each";
}

void find_contention(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const std::vector<HostLoss>& ops = e.host->losses.stalled;
  const int64_t ns = total_of(ops);
  int64_t calls = 0;
  int64_t bytes = 0;
  for (const HostLoss& op : ops) {
    calls += op.count;
    bytes += op.bytes;
  }
  // A small op or two that another process interrupted are no habit of this one.
  constexpr int64_t kSomeCalls = 5;
  const bool is_one_long = calls < kSomeCalls && bytes < calls * kManyBytes;
  if (ops.empty() || is_one_long) return;
  // What small loops show is true of products as well, which take most of a run.
  constexpr double kEnoughOfLoops = 0.02;
  const bool is_shown =
      e.host->losses.are_loops_slow &&
      static_cast<double>(ns) >= kEnoughOfLoops * static_cast<double>(e.host->wall_ns);
  if (!is_shown && !is_notable(*e.host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "simple ops move {:.2f} GB/s, less than one core does: threads wait for each other or for "
      "busy cores",
      ops.front().gb_per_s());
  for (size_t i = 0; i < std::min(kHostFindings, ops.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {} in {}, {}, {:.2f} GB/s", ops[i].name,
                                     duration(ops[i].ns), counted(ops[i].count, "call", "calls"),
                                     bytes_each(ops[i]), ops[i].gb_per_s()));
  advise(f,
         "all other ops suffer as well: use no more threads than free cores (OMP_NUM_THREADS, "
         "torch.set_num_threads), one process per core, or an idle machine");
  f.cost_us = to_us(ns);
  out.push_back(std::move(f));
}

// oneDNN did not take the convolution.
void find_fallback_convolution(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  for (const HostOp& op : e.host->ops) {
    if (op.name.find("_slow_conv") == std::string::npos &&
        op.name.find("thnn_conv") == std::string::npos)
      continue;
    if (!is_notable(*e.host, op.self_ns)) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("{} takes {}: oneDNN did not take this convolution", op.name,
                          share(*e.host, op.self_ns));
    f.evidence.push_back(calls_text(op.count, op.self_ns));
    f.cost_us = to_us(op.self_ns);
    advise(f,
           "oneDNN takes no float64, bf16 and f16 only on CPUs with instructions for them, and "
           "nothing where torch.backends.mkldnn.enabled is False; PyTorch also keeps tiny float32 "
           "convolutions of one sample from it: run more samples at once");
    out.push_back(std::move(f));
  }
}

void find_host_data(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const int64_t ns = e.host->of(HostPart::data);
  if (!is_worth_it(e, to_us(ns))) return;
  Finding f;
  f.id = "data-loader";
  f.severity = Severity::warning;
  f.title = fmt::format("the data loader takes {}", share(*e.host, ns));
  for (size_t i = 0; i < std::min(kHostFindings, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  advise(f, loader_advice(e));
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

void find_between_ops(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  // What torch.compile and collectives take are findings of their own.
  const int64_t told_ns =
      e.compile.compile_ns + (host.collectives ? host.collectives->alone_ns : 0);
  const int64_t ns = std::max<int64_t>(0, host.of(HostPart::between_ops) - told_ns);
  if (!is_notable(host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("{} pass between ops: Python, or code that is not traced", share(host, ns));
  for (size_t i = 0; i < std::min(kHostFindings, host.functions.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}", host.functions[i].name,
                                     counted(host.functions[i].count, "call", "calls"),
                                     duration(host.functions[i].self_ns)));
  if (host.functions.empty()) {
    advise(f, "with_stack=True names the functions");
  } else {
    f.action =
        fmt::format("take {} out of the step, or make it cheaper", host.functions.front().name);
  }
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

void find_host_collectives(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host || !e.host->collectives) return;
  const HostCollectives& c = *e.host->collectives;
  if (!is_worth_it(e, to_us(c.alone_ns))) return;
  Finding f;
  f.id = "exposed-collectives";
  f.severity = Severity::warning;
  f.title =
      fmt::format("collectives run for {} in which no op does: the run most likely waits for them",
                  share(*e.host, c.alone_ns));
  f.evidence.push_back(times_line(c.name, counted(c.count, "collective", "collectives"), c.time));
  advise(f,
         "a rank that arrives early waits here: explain the folder with all ranks to see for whom; "
         "fewer bytes (gradients in bf16, no_sync() between micro-batches) shorten them");
  f.cost_us = to_us(c.alone_ns);
  out.push_back(std::move(f));
}

void find_dispatch(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  const int64_t ns = host.of(HostPart::dispatch);
  if (!is_notable(host, ns) || host.op_calls == 0) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("calling {} takes {}", counted(host.op_calls, "op", "ops"), share(host, ns));
  std::vector<const HostOp*> most;
  most.reserve(host.ops.size());
  for (const HostOp& op : host.ops) most.push_back(&op);
  std::stable_sort(most.begin(), most.end(),
                   [](const HostOp* a, const HostOp* b) { return a->count > b->count; });
  for (size_t i = 0; i < std::min(kHostFindings, most.size()); ++i)
    f.evidence.push_back(most[i]->name + ": " + calls_text(most[i]->count, most[i]->self_ns));
  const bool reads_numbers = std::any_of(
      most.begin(), most.begin() + static_cast<ptrdiff_t>(std::min(kMostCalled, most.size())),
      [](const HostOp* op) { return op->name == "aten::item"; });
  advise(f,
         reads_numbers
             ? "aten::item reads one number at a time: .tolist() reads all of a tensor, and sums "
               "and comparisons of whole tensors need no loop"
             : "fewer, larger ops help: batches instead of loops over elements, torch.compile; "
               "recording is left out");
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

// In GB/s, over the median.
double moved_gb_per_s(const HostProduct& p) {
  return p.flops_per_byte > 0 ? p.gflops / p.flops_per_byte : 0;
}

void find_bandwidth_products(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  // What moves fewer bytes than one core does waits for something else: threads, mostly.
  const auto waiting = products_that(host, [](const HostProduct& p) {
    return p.waits_for_memory && moved_gb_per_s(p) >= kContendedGbPerS;
  });
  const int64_t ns = total_of(waiting);
  if (waiting.empty() || !is_notable(host, ns)) return;
  const HostProduct& first = *waiting.front();
  const bool is_few_rows = first.shape.m <= std::min(first.shape.n, first.shape.k);
  Finding f;
  f.cost_us = to_us(ns);
  f.title = fmt::format("{} take {}: memory's bandwidth limits them",
                        is_few_rows ? "products of few rows" : "narrow products", share(host, ns));
  add_product_lines(host, waiting, f);
  f.evidence.push_back(
      fmt::format("{:.1f} FLOPs for each byte: the first reads and writes {:.1f} GB/s",
                  first.flops_per_byte, moved_gb_per_s(first)));
  advise(f, is_few_rows
                ? "more rows at once (batches), or weights of fewer bytes (bf16, int8), help"
                : "few columns or a short sum make them so: operands of fewer bytes (bf16) "
                  "help, larger batches do not");
  out.push_back(std::move(f));
}

// Memory that goes back to the system after each use comes back page by page.
void find_page_faults(const Explanation& e, std::vector<Finding>& out) {
  const std::vector<const HostLoss*> ops = ops_on_new_pages(e);
  if (ops.empty()) return;
  const HostLosses& losses = e.host->losses;
  double saved_ns = 0;
  int64_t ns = 0;
  std::vector<std::string> lines;
  for (const HostLoss* op : ops) {
    ns += op->ns;
    saved_ns += static_cast<double>(op->ns) * (1 - op->gb_per_s() / losses.warm_gb_per_s);
    if (lines.size() < kHostFindings)
      lines.push_back(fmt::format("{}: {} in {}, {}, {:.1f} GB/s", op->name, duration(op->ns),
                                  counted(op->count, "call", "calls"), bytes_each(*op),
                                  op->gb_per_s()));
  }
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("results of {} or more are written to new memory each time, which takes {}",
                  format_bytes(static_cast<double>(losses.least_fresh_bytes)), share(*e.host, ns));
  f.evidence = std::move(lines);
  f.evidence.push_back(fmt::format("ops on memory in use reach {:.1f} GB/s", losses.warm_gb_per_s));
  advise(f,
         "write in place or with out=, work in smaller blocks, or keep freed memory in the process "
         "(jemalloc or tcmalloc by LD_PRELOAD)");
  f.saving_us = saved_ns / kNsPerUs;
  f.cost_us = to_us(ns);
  out.push_back(std::move(f));
}

std::string_view copy_advice(std::string_view name) {
  if (name == "aten::cat" || name == "aten::stack")
    return "cat copies all that it joins: write into a tensor made beforehand (slices, "
           "index_copy_), "
           "and let a cache grow in blocks";
  if (name == "aten::to" || name == "aten::_to_copy" || name == "aten::float")
    return "casts: keep tensors in the type that the next op takes; autocast casts weights again "
           "in "
           "each step, model.bfloat16() once";
  return "keep tensors in the layout that the next op takes; a view (expand, as_strided) needs no "
         "copy";
}

void find_copies(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kCopyShare = 0.2;
  if (!e.host) return;
  const std::vector<HostLoss>& copies = e.host->losses.copies;
  const int64_t ns = total_of(copies);
  if (static_cast<double>(ns) < kCopyShare * static_cast<double>(e.host->wall_ns) || ns == 0)
    return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("copies take {}, most of it in {}", share(*e.host, ns), copies.front().name);
  for (size_t i = 0; i < std::min(kHostFindings, copies.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}", copies[i].name,
                                     counted(copies[i].count, "copy", "copies"),
                                     duration(copies[i].ns)));
  advise(f, copy_advice(copies.front().name));
  f.cost_us = to_us(ns);
  out.push_back(std::move(f));
}

void find_boolean_masks(const Explanation& e, std::vector<Finding>& out) {
  constexpr double kMaskShare = 0.05;
  if (!e.host) return;
  const std::vector<HostLoss>& masks = e.host->losses.masks;
  const int64_t ns = total_of(masks);
  if (ns == 0 || static_cast<double>(ns) < kMaskShare * static_cast<double>(e.host->wall_ns))
    return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("indexing by a boolean mask takes {}", share(*e.host, ns));
  for (size_t i = 0; i < std::min(kHostFindings, masks.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}, with aten::nonzero", masks[i].name,
                                     counted(masks[i].count, "call", "calls"),
                                     duration(masks[i].ns)));
  advise(
      f,
      "masked_fill and torch.where keep the size and need no search; (x * mask).sum() sums what is "
      "chosen");
  f.cost_us = to_us(ns);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kContentionRule = {"thread-contention", find_contention};
constinit const ExplanationRule kFallbackConvolutionRule = {"fallback-convolution",
                                                            find_fallback_convolution};
constinit const ExplanationRule kPageFaultsRule = {"page-faults", find_page_faults};
constinit const ExplanationRule kCopiesRule = {"copies", find_copies, Confidence::high};
constinit const ExplanationRule kBooleanMaskRule = {"boolean-mask", find_boolean_masks};
constinit const ExplanationRule kHostDataRule = {"", find_host_data, Confidence::high};
constinit const ExplanationRule kBetweenOpsRule = {"between-ops", find_between_ops,
                                                   Confidence::high};
constinit const ExplanationRule kHostCollectivesRule = {"", find_host_collectives};
constinit const ExplanationRule kDispatchRule = {"dispatch", find_dispatch};
constinit const ExplanationRule kBandwidthProductsRule = {"bandwidth-products",
                                                          find_bandwidth_products};

}  // namespace epilogue::trace
