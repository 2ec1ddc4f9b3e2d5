// SPDX-License-Identifier: Apache-2.0
// Who takes part in `epilogue bench`: our three modes, oneDNN, PyTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/model.h"
#include "bench/torch_peer.h"
#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

struct BenchContender {
  bench::Contender timed;
  Tensor result;
  std::optional<int64_t> peak_intermediate_bytes;  // besides the result; empty: unknown
  // Relative L2 error that rounding to fewer bits explains, against double; empty: the dtype's.
  std::optional<double> allowed_error = {};
};

struct SkippedContender {
  std::string name;
  std::string reason;
  bool operator==(const SkippedContender&) const = default;
};

struct BenchContenders {
  std::vector<BenchContender> present;  // epilogue.eager comes first
  std::vector<SkippedContender> skipped;
  int64_t scratch_bytes = 0;  // that compile's kernels work in
};

// PyTorch's process, or why there is none.
struct TorchChoice {
  std::optional<bench::TorchPeer> peer;
  std::string reason;
};
// `python` empty: the variable EPILOGUE_PYTHON; where that is not set either, PyTorch takes no
// part.
TorchChoice choose_torch(const std::string& python);

// The options without fewer bits.
WorkloadOptions exact_options(WorkloadOptions options);

// A workload as peers see it.
bench::Model model_of(const Workload& workload);

// Eager, compile, where there is one, fused, and compile with the options' fewer bits.
BenchContenders make_own_contenders(const Workload& workload, const WorkloadOptions& options);
// Those and the peers.
// Each computes the workload once (or is left out, with the reason). `workload` is eager and must
// outlive the result. Where PyTorch's process fails, `torch` has no peer afterwards.
BenchContenders make_contenders(const Workload& workload, const bench::Model& model,
                                const WorkloadOptions& options, TorchChoice& torch,
                                const std::function<void(const std::string&)>& progress);

}  // namespace epilogue::tool
