// SPDX-License-Identifier: Apache-2.0
// A device's activities as events of a trace.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/backend.h"
#include "epilogue/trace/event.h"
#include "profile/device_tracer.h"

namespace epilogue::profiler {

// Kineto's: devices below the host's threads.
inline constexpr int64_t kDeviceSortIndex = 5'000'000;

// Lanes and properties of the devices: a process per device, a thread per stream.
void add_devices(trace::Trace& trace, std::span<const DeviceInfo> devices,
                 std::span<const DeviceActivity> activities);

// `external_id`: of the op that push_op() was given. Only host calls where `host_calls` is set.
void add_activities(trace::Trace& trace, std::span<const DeviceActivity> activities,
                    const std::function<int64_t(uint64_t op)>& external_id, bool host_calls);

}  // namespace epilogue::profiler
