// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/device_option.h"

#include "core/backend.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

void add_device_flag(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu or cuda")
      ->check(choices({"cpu", "cuda"}))
      ->option_text("DEVICE [cpu]");
}

Device require_device(const std::string& name) {
  if (name != "cpu" && name != "cuda")
    throw Error("[--device] expected cpu or cuda, got '" + name + "'");
  if (name == "cuda" && cuda_backend() == nullptr) throw Error("[--device] " + cuda_status());
  return parse_device(name);
}

std::string device_description(Device device) {
  return device.type == DeviceType::cpu ? machine_description() : cuda_devices().at(0).name;
}

}  // namespace epilogue::tool
