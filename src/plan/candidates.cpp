// SPDX-License-Identifier: Apache-2.0
#include "plan/candidates.h"

#include <algorithm>

namespace epilogue::plan {
namespace {

using Split = KernelTuning::Split;

// Some may be the same plan for a call; then they take the same time.
std::vector<Candidate> of_inference() {
  return {
      {.name = "row-chains", .what = "blocks of rows through all products"},
      {.name = "separate-products",
       .what = "each product a kernel with its epilogue",
       .skip = {"form_row_chains"}},
      {.name = "eager-products",
       .what = "products as eager runs them, pointwise ops fused",
       .packed = Packed::never},
      {.name = "wide-panels",
       .what = "row chains over bf16 weights widened to f32",
       .tuning = {.widens = true}},
      {.name = "no-prefetch",
       .what = "row chains that fetch no panel ahead",
       .tuning = {.prefetches = false}},
      {.name = "one-thread", .what = "row chains on one thread", .tuning = {.threads = 1}},
      {.name = "shared-columns",
       .what = "row chains whose threads share columns",
       .tuning = {.split = Split::columns}},
      {.name = "shared-hidden",
       .what = "row chains whose threads share hidden columns",
       .tuning = {.split = Split::hidden}},
      {.name = "shared-rows",
       .what = "row chains whose threads share rows",
       .tuning = {.split = Split::rows}},
      {.name = "small-blocks",
       .what = "row chains over 48 rows at a time",
       .tuning = {.block_rows = kKernelBlockRows / 2}},
      {.name = "large-blocks",
       .what = "row chains over 192 rows at a time",
       .tuning = {.block_rows = 2 * kKernelBlockRows}},
  };
}

std::vector<Candidate> of_training() {
  return {
      {.name = "automatic", .what = "packed where rows pay for it, saved or computed again"},
      {.name = "packed", .what = "every product on packed weights", .packed = Packed::always},
      {.name = "eager-products",
       .what = "products as eager runs them, pointwise ops fused",
       .packed = Packed::never},
      {.name = "save", .what = "saves all that the backward pass reads", .saved = Saved::save},
      {.name = "recompute",
       .what = "computes again what the backward pass reads",
       .saved = Saved::recompute},
  };
}

}  // namespace

std::vector<Candidate> candidates(bool trains) { return trains ? of_training() : of_inference(); }

Candidate candidate_of(const std::string& name, bool trains) {
  std::string known;
  for (Candidate& c : candidates(trains)) {
    if (c.name == name) return std::move(c);
    known += (known.empty() ? "" : ", ") + c.name;
  }
  throw Error("[compile] expected a choice among " + known + ", got '" + name + "'");
}

passes::PipelineOptions pipeline_options(const CompileOptions& options,
                                         const Candidate& candidate) {
  passes::PipelineOptions o;
  o.skip = options.skip;
  for (const std::string& pass : candidate.skip)
    if (std::ranges::find(o.skip, pass) == o.skip.end()) o.skip.push_back(pass);
  o.collapse_linears = options.collapse_linears;
  o.saved = options.saved == Saved::automatic ? candidate.saved : options.saved;
  o.packed = options.packed == Packed::automatic ? candidate.packed : options.packed;
  return o;
}

}  // namespace epilogue::plan
