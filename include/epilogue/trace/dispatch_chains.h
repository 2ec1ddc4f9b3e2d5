// SPDX-License-Identifier: Apache-2.0
// What an op goes through before a kernel runs: linear -> t, addmm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

namespace epilogue::trace {

// Outermost ops whose trees of ops are the same, name by name.
struct DispatchChain {
  std::string text;  // "aten::linear(aten::t(aten::transpose(aten::as_strided)), aten::addmm)"
  std::string op;    // the outermost
  int64_t count = 0;
  int64_t ops = 0;      // of one chain
  int64_t kernels = 0;  // over all, as the times
  int64_t cpu_ns = 0;
  int64_t device_ns = 0;      // the sum of the device work that it launched
  int64_t no_launch_ops = 0;  // of one chain: ops that start no device work, nor do those they call
  int64_t no_launch_ns = 0;   // what these cost the host themselves, over all
};

// An op that starts no device work (views, mostly), by name.
struct NoLaunchOp {
  std::string name;
  int64_t count = 0;
  int64_t self_ns = 0;      // of all
  int64_t max_self_ns = 0;  // of the longest
};

struct DispatchChains {
  std::vector<DispatchChain> chains;  // by CPU time, the costliest first
  std::vector<NoLaunchOp> no_launch;  // by self time; empty where no op launches: a CPU trace
};

DispatchChains dispatch_chains(const Trace& trace, const Links& links);

// Longer chains end in "...": a compiled region or a backward pass may hold thousands of ops.
inline constexpr int kMaxChainOps = 24;

}  // namespace epilogue::trace
