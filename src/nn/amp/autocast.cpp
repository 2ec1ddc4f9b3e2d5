// SPDX-License-Identifier: Apache-2.0
#include "ops/autocast.h"

#include "epilogue/amp.h"

namespace epilogue::amp {
namespace {

DType default_dtype(DeviceType device) {
  return device == DeviceType::cuda ? DType::f16 : DType::bf16;
}

AutocastState::Region region_of(const AutocastOptions& options) {
  const DType dtype = options.dtype.value_or(default_dtype(options.device));
  if (!is_low_precision(dtype))
    throw Error("[autocast] expected bf16 or f16, got " + std::string(dtype_name(dtype)));
  return {options.enabled, dtype};
}

}  // namespace

struct Autocast::Impl {
  AutocastScope scope;
};

Autocast::Autocast(AutocastOptions options)
    : impl_(new Impl{{options.device, region_of(options), options.cache_enabled}}) {}
Autocast::~Autocast() = default;

bool is_autocast_enabled(DeviceType device) {
  return autocast_state().regions[static_cast<size_t>(device)].enabled;
}
DType autocast_dtype(DeviceType device) {
  const AutocastState::Region& region = autocast_state().regions[static_cast<size_t>(device)];
  return region.enabled ? region.dtype : default_dtype(device);
}

}  // namespace epilogue::amp
