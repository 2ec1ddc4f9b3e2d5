// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <map>

#include "explain/index/op_tree.h"

namespace epilogue::trace {
namespace {

// An op or annotation by name; 0 (the empty string): none.
struct Place {
  StringId name = 0;
  bool is_op = false;
  auto operator<=>(const Place&) const = default;
};

class SpotPlaces {
 public:
  SpotPlaces(const Trace& trace, const Links& links, const std::vector<uint32_t>& calls)
      : trace_(trace), links_(links) {
    std::vector<uint32_t> annotations;
    for (uint32_t i = 0; i < trace.events.size(); ++i)
      if (trace.events[i].category == Category::user_annotation) annotations.push_back(i);
    std::vector<Moment> moments;
    for (const uint32_t i : calls) {
      const Event& e = trace.events[i];
      moments.push_back({e.pid, e.tid, e.ts_ns});
    }
    const std::vector<uint32_t> around = innermost_at(trace, std::move(annotations), moments);
    for (size_t i = 0; i < calls.size(); ++i) annotation_of_[calls[i]] = around[i];
  }

  // The place of a call; the outermost op is the one in the user's code.
  Place of(uint32_t call) const {
    if (call == kNone) return {};
    if (links_.parent[call] != kNone) return outermost(links_.parent[call]);
    const auto found = annotation_of_.find(call);
    if (found == annotation_of_.end() || found->second == kNone) return {};
    return {trace_.events[found->second].name, false};
  }
  Place outermost(uint32_t op) const {
    while (links_.parent[op] != kNone) op = links_.parent[op];
    return {trace_.events[op].name, true};
  }

 private:
  const Trace& trace_;
  const Links& links_;
  std::map<uint32_t, uint32_t> annotation_of_;  // few: only calls that wait or copy
};

struct CopySums {
  std::vector<int64_t> times_ns;
  int64_t bytes = 0;
  bool has_bytes = true;
};

using SpotKey = std::pair<StringId, Place>;

std::vector<SyncSpot> sync_spots(const Trace& trace, const SpotPlaces& places,
                                 const std::vector<uint32_t>& waits) {
  std::map<SpotKey, std::vector<int64_t>> spots;
  for (const uint32_t i : waits)
    spots[{trace.events[i].name, places.of(i)}].push_back(trace.events[i].dur_ns);
  std::vector<SyncSpot> list;
  list.reserve(spots.size());
  for (auto& [key, times_ns] : spots)
    list.push_back({std::string(trace.strings[key.first]),
                    std::string(trace.strings[key.second.name]), key.second.is_op,
                    *distribution(std::move(times_ns))});
  std::stable_sort(list.begin(), list.end(), [](const SyncSpot& a, const SyncSpot& b) {
    return a.time.total_ns > b.time.total_ns;
  });
  return list;
}

CopySpot copy_spot(const Trace& trace, const SpotKey& key, CopySums sums) {
  CopySpot spot;
  spot.name = std::string(trace.strings[key.first]);
  spot.where = std::string(trace.strings[key.second.name]);
  spot.is_pageable = spot.name.find("Pageable") != std::string::npos;
  spot.time = *distribution(std::move(sums.times_ns));
  if (!sums.has_bytes) return spot;
  spot.bytes = sums.bytes;
  if (spot.time.total_ns > 0)  // bytes per ns are GB per s
    spot.bandwidth_gb_s = static_cast<double>(sums.bytes) / static_cast<double>(spot.time.total_ns);
  return spot;
}

// HIP writes the size to the call, CUDA to the copy. Negative: not known.
int64_t bytes_of_copy(const Trace& trace, const Links& links, uint32_t copy) {
  const KernelArgs* args = trace.kernel_args(trace.events[copy]);
  if (args != nullptr && args->bytes >= 0) return args->bytes;
  if (links.launch[copy] == kNone) return -1;
  const uint32_t call_args = trace.events[links.launch[copy]].args;
  return call_args < trace.runtime_calls.size() ? trace.runtime_calls[call_args].bytes : -1;
}

std::vector<CopySpot> copy_spots(const Trace& trace, const Links& links, const SpotPlaces& places,
                                 const std::vector<uint32_t>& copies) {
  std::map<SpotKey, CopySums> spots;
  for (const uint32_t i : copies) {
    const Event& e = trace.events[i];
    Place place = places.of(links.launch[i]);
    if (links.launch[i] == kNone && links.op[i] != kNone) place = places.outermost(links.op[i]);
    CopySums& sums = spots[{e.name, place}];
    sums.times_ns.push_back(e.dur_ns);
    const int64_t bytes = bytes_of_copy(trace, links, i);
    sums.has_bytes = sums.has_bytes && bytes >= 0;
    sums.bytes += bytes;
  }
  std::vector<CopySpot> list;
  list.reserve(spots.size());
  for (auto& [key, sums] : spots) list.push_back(copy_spot(trace, key, std::move(sums)));
  std::stable_sort(list.begin(), list.end(), [](const CopySpot& a, const CopySpot& b) {
    return a.time.total_ns > b.time.total_ns;
  });
  return list;
}

std::vector<LoaderSpot> loader_spots(const Trace& trace) {
  std::map<StringId, std::vector<int64_t>> times_ns;
  for (const Event& e : trace.events)
    if (is_data_loading(trace, e)) times_ns[e.name].push_back(e.dur_ns);
  std::vector<LoaderSpot> list;
  list.reserve(times_ns.size());
  for (auto& [name, times] : times_ns)
    list.push_back({std::string(trace.strings[name]), *distribution(std::move(times))});
  std::stable_sort(list.begin(), list.end(), [](const LoaderSpot& a, const LoaderSpot& b) {
    return a.time.total_ns > b.time.total_ns;
  });
  return list;
}

}  // namespace

HotSpots hot_spots(const Trace& trace, const Links& links) {
  std::vector<uint32_t> waits;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (is_launch_category(e.category) && is_sync_call_name(trace.name(e))) waits.push_back(i);
  }
  std::vector<uint32_t> calls = waits;
  std::vector<uint32_t> copies;
  for (const uint32_t i : links.device_work) {
    const Event& work = trace.events[i];
    if (work.category == Category::kernel) continue;
    copies.push_back(i);
    const uint32_t call = links.launch[i];
    if (call == kNone) continue;
    calls.push_back(call);
    if (is_blocking_copy(trace, work, trace.events[call])) waits.push_back(call);
  }
  const SpotPlaces places(trace, links, calls);
  return {sync_spots(trace, places, waits), copy_spots(trace, links, places, copies),
          loader_spots(trace)};
}

}  // namespace epilogue::trace
