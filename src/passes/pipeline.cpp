// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <algorithm>

#include "base/clock.h"
#include "graph/print.h"
#include "passes/passes.h"

namespace epilogue::passes {
namespace {

constexpr Pass kPipeline[] = {
    {"keep_casts", keep_casts},
    {"fold_views", fold_views},
    {"fold_constants", fold_constants},
    {"fuse_bias", fuse_bias},
    {"collapse_linears", collapse_linears},
    {"recompute_saved", recompute_saved},
    {"merge_gemms", merge_gemms},
    {"fuse_epilogues", fuse_epilogues},
    {"stack_gemms", stack_gemms},
    {"form_row_chains", form_row_chains},
    {"overlap_epilogues", overlap_epilogues},
    {"fuse_pointwise", fuse_pointwise},  // what chains took no part of: norms too
    {"drop_dead", drop_dead},
    {"narrow_draws", narrow_draws},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

void require_known_names(const std::vector<std::string>& skip) {
  const auto unknown = std::ranges::find_if(skip, [](const std::string& name) {
    return std::ranges::find(kPipeline, name, &Pass::name) == std::end(kPipeline);
  });
  if (unknown == skip.end()) return;
  std::string known;
  for (const Pass& pass : kPipeline) {
    if (!known.empty()) known += ", ";
    known += pass.name;
  }
  throw Error("[compile] expected a pass to skip (" + known + "), got '" + *unknown + "'");
}

PipelineResult run_pipeline(graph::Graph& graph, const PipelineOptions& options) {
  require_known_names(options.skip);
  PipelineResult result;
  for (const Pass& pass : kPipeline) {
    PassRecord& record = result.passes.emplace_back();
    record.name = pass.name;
    record.skipped =
        std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end();
    if (record.skipped) continue;
    const int64_t begin = monotonic_ns();
    PassContext context(pass.name, options, result.notes);
    pass.run(graph, context);
    graph::verify(graph);
    record.ns = monotonic_ns() - begin;
    if (options.keep_texts) record.text = graph::to_text(graph);
  }
  return result;
}

}  // namespace epilogue::passes
