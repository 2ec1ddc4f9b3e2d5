// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// In GB/s, over the median.
double moved_gb_per_s(const HostProduct& p) {
  return p.flops_per_byte > 0 ? p.gflops / p.flops_per_byte : 0;
}

void find_bandwidth_products(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  // Products that move fewer bytes than one core does wait for something else: threads, mostly.
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
  claim_products(f, waiting);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kBandwidthProductsRule = {
    .id = "bandwidth-products",
    .says = "which products of a run without a device wait for memory",
    .said_if =
        [] {
          return fmt::format(
              "they compute fewer than {} FLOPs for each byte, move {} GB/s or more, and take {}",
              kLeastFlopsPerByte, kContendedGbPerS, share_of_wall());
        },
    .find = find_bandwidth_products};

}  // namespace epilogue::trace
