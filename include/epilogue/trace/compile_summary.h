// SPDX-License-Identifier: Apache-2.0
// torch.compile in a run: its regions, graphs, cache lookups and Triton kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

struct CompiledRange {
  std::string name;  // "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph <hash> ##"
  int64_t count = 0;
  int64_t cpu_ns = 0;
  int64_t kernels = 0;    // launched inside
  int64_t device_ns = 0;  // the sum of the device work launched inside
};

struct TritonKernel {
  std::string name;
  std::vector<std::string> fused_ops;  // "gelu", "mul"; empty: not one of Inductor's
  // Recorded by Inductor with the op that launches it; "" or empty if not.
  std::string file;  // its Python source: "/tmp/torchinductor_me/mw/cmwj....py"
  // Different sources that have a kernel of this name; the other fields are the first one's.
  int64_t files = 0;
  std::string hash;
  std::string config;  // "XBLOCK=2,R0_BLOCK=2048"
  std::optional<int64_t> warps;
  std::optional<int64_t> stages;
  int64_t count = 0;
  int64_t device_ns = 0;
};

struct CompileSummary {
  std::vector<CompiledRange> regions;  // by CPU time
  std::vector<CompiledRange> graphs;   // by CPU time
  CompiledRange cache_lookups;         // "TorchDynamo Cache Lookup"
  int64_t compilations = 0;            // of frames, during the recording
  int64_t compile_ns = 0;              // what these took
  std::vector<TritonKernel> triton;    // by device time
  // Runs of regions over steps; empty without steps or regions. A region that is called several
  // times counts as often.
  std::optional<double> regions_per_step;
  // Runs of regions within another region. A frame whose graph breaks calls the frame that
  // continues behind the break, so that each of these runs follows a break; frames that resume in a
  // loop share a name.
  int64_t graph_breaks = 0;
  std::optional<double> graph_breaks_per_step;  // of steps, over steps; empty as regions_per_step
  int64_t outside_graphs_ns = 0;  // of outermost regions: in none of the graphs that they call
  // Different frames that the regions of a step are of ("0/0" is frame 0), the mean over steps. A
  // function without graph breaks is one; what comes behind a break is another. Empty if
  // regions_per_step is, and if a region does not name its frame (PyTorch before 2.2).
  std::optional<double> frames_per_step;

  bool is_compiled() const {
    return !regions.empty() || !graphs.empty() || !triton.empty() || cache_lookups.count > 0;
  }
};

// True for the range in which torch.compile compiles a frame.
bool is_compilation(std::string_view name);

CompileSummary compile_summary(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
