// SPDX-License-Identifier: Apache-2.0
// Ops that one kernel could run together, found on the inferred dataflow.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epilogue/trace/fusion.h"
#include "explain/fusion/dataflow.h"
#include "explain/fusion/work_ops.h"

namespace epilogue::trace {

struct FusionGroup {
  std::vector<uint32_t> members;   // indices into WorkOps::ops, ascending
  std::vector<uint32_t> products;  // GEMMs whose only reader is this group
};

// Maximal chains of elementwise and row-wise ops of one step in which each reads what another
// wrote; without shapes, runs of elementwise ops. Groups of one are kept where a GEMM feeds them
// alone.
std::vector<FusionGroup> chain_groups(const Trace& trace, const WorkOps& work,
                                      const Dataflow& flow);

// GEMMs that follow each other and read the same left operand: the gate and up projections of an
// MLP, the queries, keys and values of attention.
std::vector<std::vector<uint32_t>> mergeable_gemms(const Trace& trace, const WorkOps& work,
                                                   const Dataflow& flow);

// The left operand's position among a GEMM's tensor inputs: 1 where a bias comes first.
size_t left_operand(const Trace& trace, const WorkOp& gemm);

// Bytes that the members move now, each its inputs and output, and that one kernel would move.
// Nothing where a shape is not known.
struct GroupBytes {
  double now = 0;
  double after = 0;
  double written_after = 0;   // of `after`: results
  std::vector<double> saved;  // per member: of `now`, what it would no longer read or write
  double from_products = 0;   // of `after`: reads of the products
  // The most of them from one product: an epilogue has the output of its own GEMM at hand only.
  double from_one_product = 0;
  double reusable = 0;  // the largest product that the group alone reads: a result may lie there
  // Per member: it reads such a product of two matrices (mm: batches and biases are none).
  std::vector<bool> reads_plain_product;
};
std::optional<GroupBytes> group_bytes(const FusionGroup& group, const WorkOps& work,
                                      const Dataflow& flow);

// Ops that a kernel of PyTorch's own does in one go.

// By saving. The ops of optimizers are taken out of further fusion: their remedy is another one.
std::vector<Pattern> find_patterns(const Trace& trace, WorkOps& work);

}  // namespace epilogue::trace
