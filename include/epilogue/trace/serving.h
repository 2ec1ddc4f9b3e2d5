// SPDX-License-Identifier: Apache-2.0
// What servers of language models do: kernels of replayed CUDA and HIP graphs with the op, module
// and Python frame that captured them; the steps of vLLM and SGLang by phase.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/fusion.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Graphs -------------------------------------------------------------------------------------

// The order of kernels of a run that recorded who launched each: an eager run, a profile of the
// capture, or another trace with annotations. Holds no trace.
class GraphReference {
 public:
  // `trace` with its frames as events (PythonFrames::events), if it has any.
  GraphReference(const Trace& trace, const Links& links);
  ~GraphReference();
  GraphReference(GraphReference&&) noexcept;
  GraphReference(const GraphReference&) = delete;

  struct Contents;
  const Contents& contents() const { return *contents_; }

 private:
  std::unique_ptr<Contents> contents_;
};

// What names a graph's kernel.
enum class GraphSource : uint8_t {
  annotation,   // the trace's own: torch.cuda.graph(enable_annotations=True)
  capture,      // the order of kernels of the trace given beside it
  same_trace,   // the order of kernels that this trace has outside graphs
  kernel_name,  // the kernel's name alone: a kind of work, or the ops that Inductor fused
  none,
};
std::string_view graph_source_name(GraphSource source);  // "annotation", "capture", ...

// Kernels of graphs of one origin. Texts are "" where it is not known.
struct GraphOwner {
  std::string op;      // "aten::mm"; of GraphSource::kernel_name the kind of work: "gemm"
  std::string module;  // "LlamaModel_0/LlamaDecoderLayer_3/LlamaMLP_0"
  std::string frame;   // "model.py(17): forward"
  GraphSource source = GraphSource::none;
  std::optional<Confidence> confidence;  // empty: none
  int64_t kernels = 0;                   // kernels, copies and fills, over all replays
  int64_t device_ns = 0;
  std::string kernel;  // the one that takes most of it
};

struct GraphReport {
  int64_t launches = 0;   // calls that replay a graph and have work
  int64_t sequences = 0;  // different orders of kernels among them
  int64_t kernels = 0;    // work of graphs: kernels, copies, fills
  int64_t device_ns = 0;  // their time, added up
  // Of that, by GraphSource.
  std::array<int64_t, 5> source_ns = {};
  int64_t all_device_ns = 0;  // all device work of the trace, added up
  // All device work that has an op, a module or a frame.
  int64_t named_ns = 0;
  bool has_capture = false;        // a reference was given
  std::vector<GraphOwner> owners;  // the largest first

  bool is_empty() const { return launches == 0; }
};

// Empty if the trace replays no graph. A kernel takes what its annotation says. Else the order of
// kernel names of a replay is aligned with `capture`, then with what the trace runs outside graphs
// (the longest common subsequence, Myers 1986; a run of other names between two matches takes the
// names of a run of the same length): high confidence if 95 % of the kernels match, medium from
// 70 % on, none below. A capture on CUDA names no kernels: there the number of launches between
// cudaStreamBeginCapture and cudaStreamEndCapture decides, with medium confidence.
GraphReport graph_report(const Trace& trace, const Links& links,
                         const GraphReference* capture = nullptr);

// The ops that captured a trace's graphs, as graph_report() tells them by annotation, capture and
// the same trace; a kernel's name alone is no op.
CapturedOps captured_ops(const Trace& trace, const Links& links,
                         const GraphReference* capture = nullptr);

// --- Serving ------------------------------------------------------------------------------------

enum class ServingPhase : uint8_t { prefill, decode, mixed, other };
inline constexpr size_t kServingPhases = 4;
std::string_view serving_phase_name(ServingPhase phase);  // "prefill"

// Kinds of device work of a server, by the kernel's name, the ops and annotations around its
// launch.
enum class ServingPart : uint8_t { attention, products, experts, collectives, sampling, other };
inline constexpr size_t kServingParts = 6;
std::string_view serving_part_name(ServingPart part);  // "attention"

// What an annotation of a server's step says.
struct StepLabel {
  std::string_view server = {};  // "vLLM", "SGLang"
  ServingPhase phase = ServingPhase::other;
  std::optional<int64_t> requests = {};        // in the batch
  std::optional<int64_t> prefill_tokens = {};  // new tokens of prompts
  std::optional<int64_t> decode_tokens = {};   // new tokens of requests that generate
  std::optional<int64_t> context_tokens = {};  // tokens whose keys and values are read
};
// Reads vLLM's "execute_context_1(888)_generation_32(32)", its forms with sums of squares and of
// keys ("sq32sk55086..."), "execute_new_1_cached_3", and SGLang's "step[DECODE bs=32]",
// "step[prefill bs=2 toks=512]", "step[mixed bs=4 ext=256 dec=3]". Empty for other names.
std::optional<StepLabel> parse_step_label(std::string_view name);

struct ServingStep {
  std::string name = {};  // "" where it is inferred
  StepLabel label = {};
  int64_t start_ns = 0;  // of the host's annotation; inferred: of the first launch
  int64_t host_ns = 0;   // length of the annotation; inferred: from first launch to the copy's call
  // Of the device's work that was launched from this step's start to the next one's.
  int64_t device_start_ns = 0;
  int64_t device_ns = 0;  // from its first work to the end of its last
  int64_t busy_ns = 0;
  int64_t kernels = 0;
  int64_t graph_launches = 0;
  std::array<int64_t, kServingParts> part_ns = {};  // added up: overlapping kernels count each
  std::optional<int64_t> gap_ns = {};  // the device without work before it, since the step before

  bool has_device() const { return kernels > 0; }
};

struct ServingPhaseTime {
  ServingPhase phase = ServingPhase::other;
  int64_t count = 0;
  std::optional<double> requests = {};  // median, as the two below
  std::optional<double> tokens = {};    // new ones
  std::optional<double> context_tokens = {};
  int64_t median_ns = 0;  // of ServingStep::device_ns
  int64_t p99_ns = 0;     // the nearest rank
  int64_t total_ns = 0;
  double busy_pct = 0;  // of total_ns
  std::array<int64_t, kServingParts> part_ns = {};
  std::optional<int64_t> gap_ns = {};  // median before a step
  int64_t gaps_ns = 0;                 // in all
  std::string limit = {};              // "host", "collectives", or the part that takes most
  std::string reason = {};             // one sentence
  std::string change = {};             // from the first to the last third of its steps; "": none
};

// Tokens of an expert, from the shapes that routing ops recorded.
struct ExpertLoad {
  std::string op;
  int64_t calls = 0;
  int64_t experts = 0;
  std::optional<int64_t> per_token = {};  // experts of each token; empty: not in the shapes
  double tokens = 0;                      // median over the calls
  // Median, if every expert took the same number. Empty without per_token.
  std::optional<double> tokens_per_expert = {};
};

// How uneven the tokens of experts are, of layers whose products tell it: a loop over experts, or a
// call with a list of them. Shapes of grouped products with offsets, and of experts on other ranks,
// do not tell.
struct ExpertImbalance {
  ServingPhase phase = ServingPhase::other;
  std::string op;      // of the experts' products
  int64_t layers = 0;  // routed layers, over all steps of the phase
  int64_t experts = 0;
  int64_t per_token = 0;  // experts of each token
  double tokens = 0;      // median over the layers
  // Tokens of the expert that has most, over the mean of all experts: 1 is balanced.
  double max_over_mean = 0;  // median over the layers
  double worst_max_over_mean = 0;
  int64_t device_ns = 0;  // of the experts' products
  // Of that, what the expert with most tokens holds, in each layer; empty: one kernel has all.
  std::optional<int64_t> largest_ns = {};
};

struct ServingReport {
  std::string server;  // "vLLM", "SGLang"; "" if the steps are inferred
  bool is_inferred = false;
  std::vector<ServingStep> steps;        // by start
  std::vector<ServingPhaseTime> phases;  // in the order of ServingPhase, those that occur
  std::vector<ExpertLoad> experts;
  std::vector<ExpertImbalance> imbalance;  // empty: shapes do not tell it

  bool is_empty() const { return steps.empty(); }
};

// Empty if the trace has no annotation of a server's step and no rhythm of one: kernels that read a
// paged cache of keys and values, and a copy to the host after each step.
ServingReport serving_report(const Trace& trace, const Links& links);

}  // namespace epilogue::trace

#pragma GCC visibility pop
