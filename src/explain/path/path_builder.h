// SPDX-License-Identifier: Apache-2.0
// Makes the graph of a run: who had to wait for whom.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "explain/path/path_graph.h"

namespace epilogue::trace {

// Clocks of host and device agree to this.
inline constexpr int64_t kPathClockErrorNs = 2'000;

class PathBuilder {
 public:
  PathBuilder(const Trace& trace, const Links& links);

  // Without moments if no work was started on a device.
  PathGraph build();
  int64_t stream_waits() const { return stream_waits_; }
  int64_t inferred_waits() const { return inferred_waits_; }

 private:
  using LaneKey = std::pair<int32_t, int64_t>;  // pid and tid of a thread, device and stream
  struct Work {
    uint32_t event = 0;
    // When the call began. Unknown: as the work before it on the stream, else long ago.
    int64_t launch_ns = INT64_MIN / 2;
    uint32_t start = kNone;  // moments
    uint32_t end = kNone;
  };
  struct Call {
    uint32_t event = 0;
    uint32_t start = kNone;  // moments
    uint32_t end = kNone;
  };
  // Where no op or call of the thread runs for long.
  struct Pause {
    LaneKey thread;
    uint32_t before = kNone;  // kNone: the thread begins
    uint32_t after = kNone;
  };

  void release();
  void find_syncs();
  void find_threads();
  void find_work();
  void estimate_latencies();
  uint32_t outermost_op(uint32_t op) const;

  void add_threads();
  void add_thread(const LaneKey& thread, std::vector<uint32_t> spans);
  const Call* call_of(uint32_t event) const;
  void add_host_edge(uint32_t from, uint32_t to, uint32_t span);
  void add_pauses();
  void add_work();
  void add_work_edges(const std::vector<Work>& stream, size_t at);
  void add_stream_waits();
  void infer_stream_waits(bool are_recorded);
  void infer_stream_wait(const LaneKey& stream, const std::vector<Work>& list, size_t at,
                         int64_t wait_ns);
  void add_sync_calls();
  bool is_wait(uint32_t call) const;
  const Work* awaited_by(uint32_t call) const;
  static const Work* last_launched(const std::vector<Work>& stream, int64_t before_ns);

  const Trace& trace_;
  const Links& links_;
  PathGraph graph_;
  std::vector<bool> starts_work_;                       // by event
  std::map<LaneKey, std::vector<uint32_t>> threads_;    // ops and calls, by start
  std::map<LaneKey, std::vector<Work>> streams_;        // by start
  std::vector<Call> calls_;                             // by event
  std::unordered_map<uint32_t, uint32_t> copies_of_;    // by call: the copy that it waits for
  std::unordered_map<int64_t, uint32_t> syncs_;         // cuda_sync events by correlation
  std::unordered_map<int64_t, int64_t> call_times_;     // of syncs_: start by correlation
  std::map<LaneKey, std::vector<uint32_t>> idle_from_;  // moments in which a thread is done
  std::vector<Pause> pauses_;
  int64_t launch_latency_ns_ = 0;
  int64_t device_gap_ns_ = 0;
  int64_t stream_waits_ = 0;
  int64_t inferred_waits_ = 0;
};

}  // namespace epilogue::trace
