// SPDX-License-Identifier: Apache-2.0
// Digest of one rank's trace, for the comparison of ranks. It holds no trace, so that ranks can be
// read one after the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "epilogue/trace/event.h"
#include "epilogue/trace/ranks.h"
#include "epilogue/trace/time.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// Which rank of a distributed run a trace is of.
struct RankInfo {
  std::optional<int64_t> rank;  // as distributedInfo says, else the number in a file name "rank7"
  std::optional<int64_t> world_size;  // as distributedInfo says
};
RankInfo rank_info(const Trace& trace);

// Which rank of which run a trace is of.
struct RankIdentity {
  std::string path;
  std::optional<int64_t> rank;
  std::optional<int64_t> world_size;
  // If the trace does not say its rank: the names of its ops, sorted, each once, and when its
  // events ran on the clock that all traces share.
  std::vector<StringId> ops;
  Interval window;
};

// Collectives that are matched with each other: of one kind, in one process group.
struct CollectiveKey {
  std::string name;
  std::string group_name;  // as recorded, or ""
  std::string group;       // its ranks as recorded, "[0, 1]", or ""
  auto operator<=>(const CollectiveKey&) const = default;
};
struct CollectiveRun {
  int64_t dur_ns = 0;
  int64_t message_bytes = -1;  // -1: not known
  int64_t exposed_ns = 0;      // of the duration, beside no other kernel
  int64_t step = -1;           // N of the ProfilerStep#N that launched it; -1: none
};
struct CollectiveRuns {
  std::optional<int64_t> group_ranks;
  std::vector<CollectiveRun> runs;  // in their order
};

struct RankKernel {
  StringId name = 0;  // in RankDigests::names
  RankWork work = RankWork::memory;
  int64_t count = 0;
  int64_t total_ns = 0;
};

// A process group as distributedInfo names it. Texts are in RankDigests::names, since all ranks
// have the same.
struct ProcessGroup {
  StringId description = 0;  // "mesh_tp", "default_pg"; "": none
  StringId ranks = 0;        // "[0, 1]"
  int64_t size = 0;
};

// A finding of one rank's trace, without what refers to the trace. Numbers are those of the
// enumerations of explain.h.
struct RankFinding {
  std::string id;
  int64_t severity = 0;
  std::string title;
  std::vector<std::string> evidence;
  std::optional<double> saving_us;
  std::optional<double> cost_us;
  std::optional<int64_t> confidence;
  std::string action;
  std::optional<int64_t> where;
};

struct RankDigest {
  RankIdentity identity;
  bool is_truncated = false;
  bool has_kernels = false;
  std::optional<Bound> bound;  // empty: the trace ends before any device work
  std::optional<double> busy_pct;
  RankCollectives collectives;  // its rank is 0 unless the trace says it
  std::map<CollectiveKey, CollectiveRuns> runs;
  // How long each step takes, by number: on the host, or what it launched if that takes longer.
  std::map<int64_t, int64_t> step_ns;
  std::optional<DeviceTime> time;
  std::vector<RankKernel> kernels;  // each name once
  // Of a run without a device: what its main thread spends on ranges and Python functions between
  // ops, and on ops themselves.
  std::map<std::string, int64_t> host_ns;
  std::map<std::string, ProcessGroup> groups;  // by name, "0"
  // Findings in the traces of some ranks alone (findings/rank_findings.h).
  bool is_explained = false;
  std::vector<RankFinding> findings;
};

// Calls visit(StringId&) for each name in the digest.
template <class Visit>
void visit_names(RankDigest& digest, Visit visit) {
  for (StringId& id : digest.identity.ops) visit(id);
  for (RankKernel& kernel : digest.kernels) visit(kernel.name);
  for (auto& [name, group] : digest.groups) {
    visit(group.description);
    visit(group.ranks);
  }
}

// The ranks in the order in which they were added.
struct RankDigests {
  StringPool names;  // of all ranks
  std::vector<RankDigest> ranks;

  void add(const RankTrace& rank);
};

RankIdentity rank_identity(const Trace& trace, StringPool& names);
// "[0, 1, 2]" -> 0, 1, 2. Empty if it is no whole list.
std::vector<int64_t> ranks_of_group(std::string_view text);
// Fills in RankDigest::groups. Names go to `names`.
void add_process_groups(const Trace& trace, StringPool& names, RankDigest& digest);
// Fills in Collectives::groups and pipeline. Precondition: all else of it is there.
void add_group_times(const RankDigests& digests, Collectives& result);
std::string why_not_ranks(std::span<const RankIdentity> ranks);
std::string why_not_ranks(const RankDigests& digests);
Collectives collectives(const RankDigests& digests);

// Device time of one rank by kind of work and by kernel; kernels over ranks.

// Fills in RankDigest::time and kernels. Names go to `names`.
void add_kernels(const RankTrace& rank, const Timeline& time, StringPool& names,
                 RankDigest& digest);

// Over the ranks whose traces are whole and have kernels; the largest first. `rank_numbers` are by
// position.
std::vector<KernelOverRanks> kernels_over_ranks(const RankDigests& digests,
                                                const std::vector<int64_t>& rank_numbers);

// The collectives of one rank, summed by kind.

// Fills in RankDigest::collectives and runs. `span_ns`: of the whole trace.
void add_collectives(const RankTrace& rank, int64_t span_ns, RankDigest& digest);

}  // namespace epilogue::trace
