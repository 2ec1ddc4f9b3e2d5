// SPDX-License-Identifier: Apache-2.0
// One checkpoint as a file: safetensors with a check sum.
#include "epilogue/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/host_elements.h"
#include "epilogue/io.h"
#include "epilogue/ops.h"
#include "io/checksum.h"
#include "io/message.h"

namespace epilogue::train {
namespace {

constexpr const char* kVersionKey = "epilogue.checkpoint";
constexpr const char* kVersion = "1";
constexpr const char* kSumKey = "epilogue.crc32";

// The checksum of names, shapes, dtypes and bytes of the tensors, by name, then of all metadata but
// the sum.
std::string check_sum(NamedTensors tensors, const Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  uint32_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) continue;  // the writer refuses it
    const Tensor whole = contiguous(tensor);
    sum = io::crc32(fmt::format("{}={}\n", name, to_string(whole)), sum);
    const HostElements host(whole);
    sum = io::crc32({static_cast<const std::byte*>(host.data()), whole.bytes()}, sum);
  }
  for (const auto& [key, value] : metadata)
    if (key != kSumKey) sum = io::crc32(fmt::format("{}={}\n", key, value), sum);
  return fmt::format("{:08x}", sum);
}

}  // namespace

void add_part(StateDict& whole, std::string_view prefix, const StateDict& part) {
  const std::string start = std::string(prefix) + ".";
  for (const auto& [name, tensor] : part.tensors) whole.tensors.emplace_back(start + name, tensor);
  for (const auto& [key, value] : part.metadata) whole.metadata[start + key] = value;
}

StateDict part_of(const StateDict& whole, std::string_view prefix) {
  const std::string start = std::string(prefix) + ".";
  StateDict part;
  for (const auto& [name, tensor] : whole.tensors)
    if (name.starts_with(start)) part.tensors.emplace_back(name.substr(start.size()), tensor);
  for (const auto& [key, value] : whole.metadata)
    if (key.starts_with(start)) part.metadata[key.substr(start.size())] = value;
  return part;
}

Status write_checkpoint(const std::string& path, const StateDict& state) {
  Metadata metadata = state.metadata;
  metadata[kVersionKey] = kVersion;
  metadata[kSumKey] = check_sum(state.tensors, metadata);
  return save_safetensors(path, state.tensors, metadata);
}

Result<StateDict> read_checkpoint(const std::string& path) {
  auto opened = SafetensorsFile::open(path);
  if (!opened) return opened.failure();
  const SafetensorsFile& file = opened.value();
  StateDict state{{}, file.metadata()};
  const auto version = state.metadata.find(kVersionKey);
  if (version == state.metadata.end())
    return io::io_failure(path, FailureCode::not_a_checkpoint,
                          fmt::format("expected a checkpoint of a training run (metadata '{}'), "
                                      "got a safetensors file of {} tensors without it",
                                      kVersionKey, file.names().size()));
  if (version->second != kVersion)
    return io::io_failure(path, FailureCode::checkpoint_version,
                          fmt::format("expected a checkpoint of version {}, got {}", kVersion,
                                      io::in_quotes(version->second)));
  for (const std::string& name : file.names()) {
    auto tensor = file.tensor(name);
    if (!tensor) return tensor.failure();
    state.tensors.emplace_back(name, tensor.value());
  }
  const std::string sum = check_sum(state.tensors, state.metadata);
  if (state.metadata[kSumKey] != sum)
    return io::io_failure(path, FailureCode::checkpoint_corrupt,
                          fmt::format("expected the CRC-32 {}, got {}: the file is damaged",
                                      io::in_quotes(state.metadata[kSumKey]), sum));
  state.metadata.erase(kVersionKey);
  state.metadata.erase(kSumKey);
  return state;
}

}  // namespace epilogue::train
