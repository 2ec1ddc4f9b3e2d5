// SPDX-License-Identifier: Apache-2.0
// Communication between ranks: how long, how much, hidden behind computation or not, and who waited
// for whom.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/distribution.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// Bandwidths in GB/s (10^9 bytes) as nccl-tests defines them, over the calls whose size is
// recorded. algbw is the collective's size by its time. busbw is what a link between ranks carried
// in that time: algbw times 2(n-1)/n for all_reduce of n ranks, (n-1)/n for all_gather,
// reduce_scatter, all_to_all and gather, 1 for broadcast, reduce and send_recv.
struct CollectiveRates {
  int64_t count = 0;  // calls with a size
  double algbw_gb_s = 0;
  std::optional<double> busbw_gb_s;  // empty if the number of ranks is not recorded
};

// All collectives of one kind on one rank.
struct CollectiveStats {
  std::string name;              // "all_reduce", "all_gather", "reduce_scatter", "all_to_all", ...
  std::optional<int64_t> bytes;  // sent per rank, in all; empty if one of them is not known
  Distribution time;             // of the kernels
  int64_t overlap_ns = 0;        // time beside other kernels of the device
  int64_t exposed_ns = 0;        // time in which nothing else ran
  // By the kernels' time, waiting for late ranks included. Empty if no size is recorded.
  std::optional<CollectiveRates> rates = {};
};

struct RankCollectives {
  int64_t rank = 0;                    // as the trace says, else its position in the list
  std::vector<CollectiveStats> kinds;  // by total time
  int64_t communication_ns = 0;        // union over all collectives
  int64_t overlap_ns = 0;              // of that, beside other kernels
  int64_t span_ns = 0;
  // Forward passes of DistributedDataParallel, each with an all_reduce before the next, and steps
  // of optimizers; by their annotations.
  int64_t ddp_forwards = 0;
  int64_t optimizer_steps = 0;
  // All_reduces between a step of the optimizer and the next forward pass of
  // DistributedDataParallel, which reduces in the backward pass.
  int64_t reduces_after_steps = 0;
  int64_t after_steps_ns = 0;
};

// The n-th collective of a kind and group is the same one on all ranks of the group. The rank that
// arrives last needs the transfer alone; the other ranks wait for the rest of their time. A rank of
// the run that is not among those matched may have arrived later: then transfers are at most and
// waits at least this.
struct CollectiveWaits {
  std::string name;
  int64_t count = 0;        // matched on all ranks whose traces are whole
  int64_t transfer_ns = 0;  // the sum of the shortest durations
  // By position of the rank; empty if its trace ends early: nobody knows which collectives it
  // lost.
  std::vector<std::optional<int64_t>> wait_ns;
  // The ranks that take part, "[0, 1]", if they are recorded and not all that are here.
  std::string group = {};
  std::optional<CollectiveRates> rates = {};  // by the transfers alone
  std::string group_name = {};                // of its process group, as recorded
};

// The process groups of one description ("mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP"), which divide
// the ranks in one way.
struct GroupTime {
  std::string name;         // the description; if there is none, "groups of 4 ranks"
  std::string parallelism;  // "tensor", "pipeline", "data", "expert", "context"; "": not told
  std::vector<std::string> members;      // "[0, 1]", each group with collectives once
  int64_t size = 0;                      // ranks of the largest
  std::vector<std::string> collectives;  // "all_reduce", by time
  int64_t count = 0;                     // on all ranks together
  // Sums over their kernels, the mean over the ranks that ran any. Of the wait those are left out
  // that are not matched.
  int64_t total_ns = 0;
  int64_t exposed_ns = 0;
  std::optional<int64_t> wait_ns;
};

// The ranks at one place of their pipeline. Times are means over them.
struct PipelineStage {
  int64_t stage = 0;  // place in the process group of the pipeline, from 0
  std::vector<int64_t> ranks;
  int64_t span_ns = 0;
  int64_t work_ns = 0;       // compute and memory
  int64_t send_recv_ns = 0;  // sends and receives that nothing hides: waits for other stages
  int64_t idle_ns = 0;
};

struct Pipeline {
  std::vector<PipelineStage> stages;  // two or more, by number
  // Idle time and exposed sends and receives of all ranks by their spans. Idle time has other
  // causes too, so that bubbles are this at most.
  double bubble_pct = 0;
};

// Who was waited for in one step. Collectives that not all ranks launched in the same step are
// left out. A wait is lost as far as no other kernel runs beside it.
struct StepWaits {
  int64_t step = 0;  // N of ProfilerStep#N
  // The longest over ranks: of the step on the host, or of what it launched if that takes longer.
  int64_t span_ns = 0;
  int64_t count = 0;  // collectives
  // In each collective the ranks that wait lose the mean of their waits to the rank that arrives
  // last. Here: the rank to which most is lost, and what is lost to it. Empty if nothing is lost.
  std::optional<int64_t> last_rank;
  int64_t lost_ns = 0;
  std::vector<std::optional<int64_t>> wait_ns;  // as CollectiveWaits::wait_ns, lost or not
};

// Over the steps in which one rank is StepWaits::last_rank.
struct Straggler {
  int64_t rank = 0;
  int64_t steps = 0;
  int64_t lost_ns = 0;
};

struct Collectives {
  std::vector<RankCollectives> ranks;
  // Over the ranks whose traces are whole; both are empty if these are fewer than two.
  std::vector<CollectiveWaits> waits;  // kinds that all of them ran equally often
  std::vector<std::string> unmatched;  // the others, "all_reduce", "all_reduce [0, 1]"
  std::vector<StepWaits> steps;        // by number
  std::vector<Straggler> stragglers;   // to which most is lost first
  std::vector<GroupTime> groups;       // of which collectives take most first
  std::optional<Pipeline> pipeline;    // empty: no group of stages is known
};

// Kinds of device work, by their limit when they run alone.
enum class RankWork : uint8_t { compute, memory, communication };
inline constexpr size_t kRankWorks = 3;
std::string_view rank_work_name(RankWork work);  // "compute"

// The span of one rank on its busiest device; the four parts add up to it.
struct DeviceTime {
  int64_t compute_ns = 0;        // products, convolutions, attention
  int64_t memory_ns = 0;         // the other kernels, copies and fills, where none of these runs
  int64_t communication_ns = 0;  // collectives that nothing else hides
  int64_t idle_ns = 0;
};

// One kernel on the ranks whose traces are whole and have kernels.
struct KernelOverRanks {
  std::string name;
  RankWork work = RankWork::memory;
  int64_t count = 0;     // on all ranks together
  int64_t ranks = 0;     // that ran it
  int64_t total_ns = 0;  // on all ranks together
  // Over the ranks' times; a rank that did not run it counts as 0.
  int64_t mean_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  std::optional<int64_t> min_rank;  // the rank of which min_ns is; empty if some did not run it
  int64_t max_rank = 0;
};

struct RankTrace {
  const Trace& trace;
  const Links& links;
};

Collectives collectives(std::span<const RankTrace> ranks);

// Why the traces are not the ranks of one run, in one line that names files; empty if they are.
// They are if each names a rank of its own, in distributedInfo (all with one world size) or by a
// file name such as "rank7.json". If no trace names a rank, all must have run the same ops at the
// same time.
std::string why_not_ranks(std::span<const RankTrace> traces);

}  // namespace epilogue::trace

#pragma GCC visibility pop
