// SPDX-License-Identifier: Apache-2.0
// How long a row chain (core/row_chain.h) takes, from rates that were measured on the machine and
// lie in the trace's metadata (epilogue profile --measure).
//
//   time = overhead + max(sum of the products' FLOPs / rate(dtype, rows), bytes / read rate(bytes))
//
// over the bytes of weights, input and result; what fits into a cache is read at its rate.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

struct ChainWork {
  std::string type;  // "f32", "bf16", "f16"
  double rows = 0;
  double flops = 0;  // of the products
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

  std::map<std::string, Rates> gflops_;  // by dtype
  Rates read_gb_per_s_;                  // may be empty: not known
  double overhead_ns_ = 0;
};

}  // namespace epilogue::trace
