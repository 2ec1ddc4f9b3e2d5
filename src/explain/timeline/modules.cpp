// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <unordered_map>

#include "explain/index/op_tree.h"

namespace epilogue::trace {
namespace {

// A module at one place of the tree of modules.
struct Node {
  uint32_t parent = kNone;  // position of the node around it
  ModuleTime time;
};

class Modules {
 public:
  Modules(const Trace& trace, const Links& links) : trace_(trace) {
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const Event& e = trace.events[i];
      if (e.category == Category::python_function && trace.name(e).starts_with(kModulePrefix))
        frames_.push_back(i);
    }
    std::sort(frames_.begin(), frames_.end(), [&](uint32_t a, uint32_t b) {
      const Event& x = trace.events[a];
      const Event& y = trace.events[b];
      if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
      return x.dur_ns != y.dur_ns ? x.dur_ns > y.dur_ns : a < b;
    });
    add_frames();
    add_device_work(links);
  }

  std::vector<ModuleTime> take() {
    // Children follow their parents in nodes_: sums go up backwards.
    for (size_t i = nodes_.size(); i-- > 0;) {
      ModuleTime& time = nodes_[i].time;
      time.device_ns += time.self_device_ns;
      if (nodes_[i].parent == kNone) continue;
      ModuleTime& parent = nodes_[nodes_[i].parent].time;
      parent.kernels += time.kernels;
      parent.device_ns += time.device_ns;
      parent.self_cpu_ns -= time.cpu_ns;
    }
    std::vector<ModuleTime> list;
    list.reserve(nodes_.size());
    for (Node& node : nodes_) list.push_back(std::move(node.time));
    return list;
  }

 private:
  void add_frames() {
    struct Open {
      int64_t end_ns;
      uint32_t node;
    };
    std::unordered_map<int64_t, std::vector<Open>> open_by_thread;
    for (const uint32_t i : frames_) {
      const Event& e = trace_.events[i];
      // A number per thread: frames of threads that were there before the profiler have pid 0.
      std::vector<Open>& open = open_by_thread[e.tid];
      while (!open.empty() && open.back().end_ns <= e.ts_ns) open.pop_back();
      const uint32_t node = node_of(open.empty() ? kNone : open.back().node, e.name);
      ModuleTime& time = nodes_[node].time;
      ++time.count;
      time.cpu_ns += e.dur_ns;
      time.self_cpu_ns += e.dur_ns;
      node_of_frame_[i] = node;
      open.push_back({e.end_ns(), node});
    }
  }

  uint32_t node_of(uint32_t parent, StringId name) {
    const uint64_t key = uint64_t{parent} << 32 | name;
    const auto [place, is_new] = places_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
    if (!is_new) return place->second;
    Node node;
    node.parent = parent;
    node.time.name = std::string(trace_.strings[name].substr(kModulePrefix.size()));
    node.time.path = node.time.name;
    if (parent != kNone) {
      node.time.path = nodes_[parent].time.path + "/" + node.time.name;
      node.time.depth = nodes_[parent].time.depth + 1;
    }
    nodes_.push_back(std::move(node));
    return place->second;
  }

  void add_device_work(const Links& links) {
    std::vector<Moment> launches;
    std::vector<uint32_t> work;
    for (const uint32_t i : links.device_work) {
      if (links.launch[i] == kNone) continue;
      const Event& call = trace_.events[links.launch[i]];
      launches.push_back({call.pid, call.tid, call.ts_ns});
      work.push_back(i);
    }
    const std::vector<uint32_t> around = innermost_at(trace_, frames_, launches);
    for (size_t i = 0; i < work.size(); ++i) {
      if (around[i] == kNone) continue;
      ModuleTime& time = nodes_[node_of_frame_[around[i]]].time;
      const Event& e = trace_.events[work[i]];
      if (e.category == Category::kernel) ++time.kernels;
      time.self_device_ns += e.dur_ns;
    }
  }

  const Trace& trace_;
  std::vector<uint32_t> frames_;  // by start
  std::unordered_map<uint32_t, uint32_t> node_of_frame_;
  std::unordered_map<uint64_t, uint32_t> places_;  // by parent and name
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<ModuleTime> module_times(const Trace& trace, const Links& links) {
  return Modules(trace, links).take();
}

}  // namespace epilogue::trace
