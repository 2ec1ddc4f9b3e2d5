// SPDX-License-Identifier: Apache-2.0
// Ops that could be one kernel, and the saving; kernels that are fused already.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- What could be fused ------------------------------------------------------------------------
// Ops that could be one kernel, and the saving.
//
// A trace does not say which op reads which tensor. It is inferred from the order of the ops and
// the shapes of their inputs; every finding says how sure that is.

enum class FusionKind : uint8_t {
  pointwise_chain,  // elementwise ops (and row-wise ones among them) become one kernel
  gemm_epilogue,    // such a chain, or a single op, moves into the write-back of the GEMM before it
  merged_gemms,     // GEMMs that read the same input become one
  row_chain,        // products and the ops around them, depth first: a whole MLP as one kernel
};
std::string_view fusion_kind_name(FusionKind kind);  // "pointwise-chain", ...

enum class Confidence : uint8_t { low, medium, high };
std::string_view confidence_name(Confidence confidence);  // "low", ...

// All occurrences of one pattern: the same ops on the same shapes. Savings are sums over them.
// Those of kGemmEpilogue come on top of the chain's own; those of kRowChain hold the others' of the
// same ops.
struct Fusion {
  FusionKind kind = FusionKind::pointwise_chain;
  std::vector<std::string> ops;  // in the order in which they run
  // Distinct; of an op without a kernel its copy or fill; empty in a trace without device work.
  std::vector<std::string> kernels;
  std::string shape;  // of the chain's result: "[8192, 3072] c10::BFloat16"; "" unknown
  int64_t count = 0;
  int64_t kernels_now = 0;  // launched by all occurrences, copies and fills not counted
  int64_t kernels_after = 0;
  double time_us = 0;     // on the device (without device work: on the host)
  double host_us = 0;     // dispatch and launch of the ops, where there is device work
  double pattern_us = 0;  // of that, of ops that belong to a Pattern: its remedy goes first
  // Of time_us, what the device's saving is taken from, by the op's name: not the products into
  // whose kernel the others move.
  std::map<std::string, double, std::less<>> op_us;
  // The part of the device's saving in a CPU trace that is new pages. If a
  // finding is about those, its remedy goes first, too.
  double new_pages_us = 0;
  double bytes_now = 0;  // read and written; 0: shapes were not recorded
  double bytes_after = 0;
  double device_saving_us = 0;
  double host_saving_us = 0;  // dispatch and launch of the ops that go away
  // The part that shortens the run: the host's saving if the device waits for the host, the
  // device's saving if the host waits; both if the launch call runs the kernel.
  double predicted_saving_us = 0;
  double predicted_cost_us = 0;  // what that is taken from: device's time, host's, or both
  Confidence confidence = Confidence::low;
  std::string assumption;  // one line
};

struct FusionOptions {
  // The device mostly waits for the host: only the host's savings count.
  bool is_host_bound = false;
  // Cost of recording one op on the host: durations contain it, and it is subtracted.
  double profiler_ns_per_op = 0;
};

// Ops that a kernel of PyTorch's own does in one go, by what to call instead.
enum class PatternKind : uint8_t {
  attention,   // bmm, softmax, bmm: scaled_dot_product_attention
  optimizer,   // an optimizer's step of pointwise or foreach ops: fused=True
  rms_norm,    // pow, mean, rsqrt, mul: F.rms_norm
  layer_norm,  // sub, pow, mean, sqrt, div: F.layer_norm
  gelu,        // pow, tanh, mul: F.gelu(approximate="tanh")
  rotary,      // mul, neg, cat, mul, add: rotary position embeddings
};

struct Pattern {
  PatternKind kind = PatternKind::attention;
  std::string name;      // "aten::bmm + aten::div + aten::_softmax + aten::bmm"; "AdamW"
  int64_t count = 0;     // occurrences; of an optimizer its steps
  int64_t ops = 0;       // that do work, in all
  double time_us = 0;    // as Fusion::time_us
  double saving_us = 0;  // never above time_us
  double host_us = 0;    // of an optimizer: its steps on the host
  // Of time_us, what the saving is taken from, by the op's name.
  std::map<std::string, double, std::less<>> op_us;
};

struct FusionFindings {
  std::vector<Pattern> patterns;  // by saving
  std::vector<Fusion> fusions;    // by predicted saving, largest first
  // The assumed rate of memory traffic: the 90th percentile over the trace's own elementwise
  // kernels. 0: none was large enough to tell.
  double bandwidth_gb_per_s = 0;
  bool has_shapes = false;
};

FusionFindings find_fusions(const Trace& trace, const Links& links,
                            const FusionOptions& options = {});

// --- What is fused ------------------------------------------------------------------------------
// Kernels that run several ATen ops at once, as far as the trace says so itself: those of compiled
// and fused functions of this project.

// All executions of one kernel for one list of ops.
struct FusedKernel {
  std::string kernel;
  std::vector<std::string> ops;  // "aten::mm", ...: in their order, repeated as often as they run
  int64_t count = 0;
  int64_t total_ns = 0;
  int64_t bytes = 0;          // read and written by all executions; -1: unknown
  int64_t unfused_bytes = 0;  // what the ops would read and write one by one; -1: unknown
};

// By total time, the longest first.
std::vector<FusedKernel> fused_kernels(const Trace& trace);

// KernelArgs::fused_ops taken apart; empty for "". The views refer to the text.
std::vector<std::string_view> fused_op_names(std::string_view fused_ops);

}  // namespace epilogue::trace

#pragma GCC visibility pop
