// SPDX-License-Identifier: Apache-2.0
// The host between launches: waits and copies, chains of ops, modules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Hot spots ----------------------------------------------------------------------------------
// Where the host waits for the device or for data, and what is copied.

// Calls in which the host waits, by name and place.
struct SyncSpot {
  std::string call;   // "cudaStreamSynchronize"; "cudaMemcpyAsync" if it returned after the copy
  std::string where;  // the outermost op around it, else the innermost annotation, else ""
  bool is_implied = false;  // inside an op (.item(), nonzero, to): nobody asked for it by name
  Distribution time;        // inside the call
};

// Copies and fills of the device, by name and place.
struct CopySpot {
  std::string name;              // "Memcpy HtoD (Pageable -> Device)"
  std::string where;             // as above
  bool is_pageable = false;      // from or to memory that is not pinned: slower, and it blocks
  Distribution time;             // on the device
  std::optional<int64_t> bytes;  // in all; empty if the trace does not say
  std::optional<double> bandwidth_gb_s;  // of these bytes over their time
};

// A data loader's annotations of one name, whether or not the device waited for them.
struct LoaderSpot {
  std::string name;  // "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
  Distribution time;
};

struct HotSpots {
  std::vector<SyncSpot> syncs;      // by total time
  std::vector<CopySpot> copies;     // by total time
  std::vector<LoaderSpot> loaders;  // by total time
};

HotSpots hot_spots(const Trace& trace, const Links& links);

// --- Dispatch chains ----------------------------------------------------------------------------
// Chains of ops before a kernel: linear -> t, addmm.

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
  std::vector<NoLaunchOp> no_launch;  // by self time; empty if no op launches: a CPU trace
};

DispatchChains dispatch_chains(const Trace& trace, const Links& links);

// Longer chains end in "...": a compiled region or a backward pass may hold thousands of ops.
inline constexpr int kMaxChainOps = 24;

// --- Modules ------------------------------------------------------------------------------------
// Time by nn.Module, if Python frames were recorded and read (PythonFrames::events).

struct ModuleTime {
  std::string path;  // "BertModel_0/BertEncoder_0/Linear_3"
  std::string name;  // its last part
  int depth = 0;     // 0: no module around it
  int64_t count = 0;
  int64_t cpu_ns = 0;
  int64_t self_cpu_ns = 0;  // not in modules below
  int64_t kernels = 0;      // launched inside, also by modules below
  int64_t device_ns = 0;    // the sum of that device work
  int64_t self_device_ns = 0;
};

// Parents before children, else in order of first appearance. Empty without module frames.
std::vector<ModuleTime> module_times(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
