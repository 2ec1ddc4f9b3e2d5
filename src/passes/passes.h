// SPDX-License-Identifier: Apache-2.0
// The index of all passes: one file each. The order is pipeline.cpp's.
#pragma once

#include "passes/pipeline.h"

namespace epilogue::passes {

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

}  // namespace epilogue::passes
