// SPDX-License-Identifier: Apache-2.0
#include "trace/read/document_members.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trace/read/json/number_text.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::json;

// The first of the keys that holds a whole number that fits; 0 without one.
template <class Int>
Int integer(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) continue;
    const ExactNumber number = parse_integer(found->dump());
    const bool fits = number.ok() && number.value >= std::numeric_limits<Int>::min() &&
                      number.value <= std::numeric_limits<Int>::max();
    return fits ? static_cast<Int>(number.value) : Int{0};
  }
  return 0;
}

DeviceProperties device(const Json& object) {
  DeviceProperties d;
  d.id = integer<int32_t>(object, {"id"});
  if (const auto name = object.find("name"); name != object.end() && name->is_string())
    d.name = name->get<std::string>();
  d.total_global_mem_bytes = integer<int64_t>(object, {"totalGlobalMem"});
  // computeProperties of 2021 have short names.
  d.compute_major = integer<int32_t>(object, {"computeMajor", "major"});
  d.compute_minor = integer<int32_t>(object, {"computeMinor", "minor"});
  d.max_threads_per_block = integer<int32_t>(object, {"maxThreadsPerBlock"});
  d.max_threads_per_multiprocessor = integer<int32_t>(object, {"maxThreadsPerMultiprocessor"});
  d.regs_per_block = integer<int32_t>(object, {"regsPerBlock"});
  d.warp_size = integer<int32_t>(object, {"warpSize"});
  d.shared_mem_per_block_bytes = integer<int64_t>(object, {"sharedMemPerBlock"});
  d.num_sms = integer<int32_t>(object, {"numSms", "multiProcessorCount"});
  d.regs_per_multiprocessor = integer<int32_t>(object, {"regsPerMultiprocessor"});
  d.shared_mem_per_block_optin_bytes = integer<int64_t>(object, {"sharedMemPerBlockOptin"});
  d.shared_mem_per_multiprocessor_bytes =
      integer<int64_t>(object, {"sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"});
  return d;
}

void apply_devices(Trace& trace, const std::string& json) {
  const Json list = Json::parse(json, nullptr, false);
  if (!list.is_array() || !trace.devices.empty()) return;
  for (const Json& entry : list)
    if (entry.is_object()) trace.devices.push_back(device(entry));
}

bool* flag(Recorded& recorded, std::string_view key) {
  if (key == "record_shapes") return &recorded.record_shapes;
  if (key == "profile_memory") return &recorded.profile_memory;
  if (key == "with_stack") return &recorded.with_stack;
  if (key == "with_flops") return &recorded.with_flops;
  if (key == "with_modules") return &recorded.with_modules;
  return nullptr;
}

}  // namespace

void apply_member(Trace& trace, const std::string& key, const std::string& json) {
  if (key == "schemaVersion" || key == "displayTimeUnit" || key == "traceName") return;
  if (key == "deviceProperties" || key == "computeProperties") {
    apply_devices(trace, json);
  } else if (key == "baseTimeNanoseconds") {
    trace.base_time_ns = parse_integer(json).value;
  } else if (bool* const recorded = flag(trace.recorded, key)) {
    *recorded = json != "0" && json != "false" && json != "null";
  } else if (key != "traceEvents") {
    trace.metadata.emplace_back(key, json);
  }
}

}  // namespace epilogue::trace
