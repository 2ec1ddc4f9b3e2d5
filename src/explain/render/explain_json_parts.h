// SPDX-License-Identifier: Apache-2.0
// The parts of an explanation for scripts that several files make.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// A list of objects, one per element.
template <class List, class F>
nlohmann::ordered_json array_of(const List& list, F&& make) {
  auto array = nlohmann::ordered_json::array();
  for (const auto& element : list) array.push_back(make(element));
  return array;
}

// The same for lists that grow with the trace: the first `limit` elements. What is cut is counted
// under the list's path.
class JsonLists {
 public:
  explicit JsonLists(size_t limit) : limit_(limit) {}

  template <class List, class F>
  nlohmann::ordered_json of(const std::string& path, const List& list, F&& make) {
    if (list.size() > limit_) left_out_[path] = list.size() - limit_;
    return array_of(std::span(list).first(std::min(limit_, list.size())), make);
  }
  nlohmann::ordered_json left_out() && { return std::move(left_out_); }

 private:
  size_t limit_;
  nlohmann::ordered_json left_out_ = nlohmann::ordered_json::object();
};

nlohmann::ordered_json distribution_json(const Distribution& d);

// Of a run without a device; null of others.
nlohmann::ordered_json host_json(const std::optional<HostTime>& host, JsonLists& lists);
// Its ops by their own time; of other runs empty.
nlohmann::ordered_json top_ops_json(const std::optional<HostTime>& host, JsonLists& lists);
// The products of the host or the device in one form, as far as their sizes are known.
nlohmann::ordered_json products_json(const Explanation& e, JsonLists& lists);

nlohmann::ordered_json critical_path_json(const std::optional<CriticalPath>& path,
                                          JsonLists& lists);

nlohmann::ordered_json launches_json(const LaunchStats& launches, JsonLists& lists);
nlohmann::ordered_json hot_spots_json(const HotSpots& spots, JsonLists& lists);
nlohmann::ordered_json queues_json(const std::vector<StreamQueue>& queues, JsonLists& lists);
nlohmann::ordered_json device_ranges_json(const std::vector<DeviceRange>& ranges, JsonLists& lists);
nlohmann::ordered_json compile_json(const CompileSummary& compile, JsonLists& lists);
nlohmann::ordered_json occupancies_json(const std::vector<KernelOccupancy>& kernels,
                                        JsonLists& lists);
nlohmann::ordered_json memory_json(const std::vector<DeviceMemory>& devices, JsonLists& lists);

}  // namespace epilogue::trace
