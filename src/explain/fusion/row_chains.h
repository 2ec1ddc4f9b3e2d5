// SPDX-License-Identifier: Apache-2.0
// Row chains: which ops compile() would run depth first, and how long that takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/trace/event.h"
#include "explain/fusion/dataflow.h"

namespace epilogue::trace {

// How long a row chain (core/row_chain.h) takes, from rates that were measured on the machine and
// lie in the trace's metadata (epilogue profile --measure).
//
//   time = overhead + max(FLOPs / rate(dtype, rows) + elements x cost(dtype), bytes / read
//   rate(bytes))
//
// over FLOPs and result elements of all products, and the bytes of weights, input and result; what
// fits into a cache is read at its rate.

struct ChainWork {
  std::string type;  // "f32", "bf16", "f16"
  double rows = 0;
  double flops = 0;     // of the products
  double elements = 0;  // of their results
  double bytes = 0;
};

class ChainModel {
 public:
  // Empty where the trace does not carry the rates.
  static std::optional<ChainModel> of(const Trace& trace);

  // Empty for a dtype without rates.
  std::optional<double> time_ns(const ChainWork& work) const;

 private:
  using Rates = std::vector<std::pair<double, double>>;  // by the first: rows or bytes

  // Costs of one dtype.
  struct Cost {
    Rates gflops;  // by rows
    double ns_per_element = 0;
  };
  std::map<std::string, Cost> costs_;
  Rates read_gb_per_s_;  // may be empty: not known
  double overhead_ns_ = 0;
};

// Ops that compile() would run depth first: products with parameters, and the norms and pointwise
// ops before, between and behind them.

struct RowChainGroup {
  std::vector<uint32_t> members;  // indices into WorkOps::ops, ascending
  ChainWork work;
};

// Connected ops of one step, with at least one product, that ran without gradients. Groups whose
// dtype or sizes are not known, or differ in their rows, are left out.
std::vector<RowChainGroup> row_chain_groups(const Trace& trace, const WorkOps& work,
                                            const Dataflow& flow);

}  // namespace epilogue::trace
