// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <algorithm>

#include "base/clock.h"
#include "graph/print.h"

namespace epilogue::passes {

// Each is defined in the file of its name, which draws it.

// Casts of parameters become parameters.
void keep_casts(graph::Graph& graph, PassContext& context);
// Views of parameters become parameters; views around products become part of them.
void fold_views(graph::Graph& graph, PassContext& context);
// Ops on numbers alone are computed now.
void fold_constants(graph::Graph& graph, PassContext& context);
// addmm becomes a product that adds its bias.
void fuse_bias(graph::Graph& graph, PassContext& context);
// W2 (W1 x) becomes (W2 W1) x, where asked for.
void collapse_linears(graph::Graph& graph, PassContext& context);
// What the backward pass reads is saved, or computed again.
void recompute_saved(graph::Graph& graph, PassContext& context);
// Products, scale, mask and softmax become one kernel that holds no scores.
void fuse_attention(graph::Graph& graph, PassContext& context);
// Two products of the same rows that meet in one op (gate and up) become one.
void merge_gemms(graph::Graph& graph, PassContext& context);
// Pointwise ops and sums over columns join the product whose result they read.
void fuse_epilogues(graph::Graph& graph, PassContext& context);
// Two products of rows that one chain makes, and that are summed, become its last stage.
void stack_gemms(graph::Graph& graph, PassContext& context);
// Norms join the product that reads them; products that follow each other become one chain.
void form_row_chains(graph::Graph& graph, PassContext& context);
// Where products have a unit of their own, programs run while it multiplies for the next block.
void overlap_epilogues(graph::Graph& graph, PassContext& context);
// Chains of pointwise ops and of ops that reduce rows or columns become one program.
void fuse_pointwise(graph::Graph& graph, PassContext& context);
// What nobody reads is not computed.
void drop_dead(graph::Graph& graph, PassContext& context);
// Masks that programs alone read are bytes.
void narrow_draws(graph::Graph& graph, PassContext& context);

namespace {

constexpr Pass kPipeline[] = {
    {"keep_casts", keep_casts},
    {"fold_views", fold_views},
    {"fold_constants", fold_constants},
    {"fuse_bias", fuse_bias},
    {"collapse_linears", collapse_linears},
    {"recompute_saved", recompute_saved},
    {"fuse_attention", fuse_attention},
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
