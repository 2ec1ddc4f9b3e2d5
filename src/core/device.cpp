// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "core/backend.h"
#include "epilogue/base/error.h"

namespace epilogue {

Device parse_device(std::string_view name) {
  if (name == "cpu") return {};
  if (name == "cuda" || name == "cuda:0") return {DeviceType::cuda, 0};
  throw Error("[device] expected cpu, cuda or cuda:0, got '" + std::string(name) + "'");
}

namespace {

std::atomic<bool> in_use{false};

}  // namespace

bool cuda_is_in_use() { return in_use.load(std::memory_order_relaxed); }

Backend& device_backend(Device device) {
  Backend* const cuda = cuda_backend();
  if (cuda == nullptr) throw Error("[device] " + cuda_status());
  if (device.index != 0)
    throw Error("[device] expected cuda:0 (CUDA_VISIBLE_DEVICES chooses), got " +
                to_string(device));
  in_use.store(true, std::memory_order_relaxed);
  return *cuda;
}

}  // namespace epilogue
