// SPDX-License-Identifier: Apache-2.0
// Weights to a safetensors file and back.
#include <epilogue/epilogue.h>

#include <cstdio>

int main() {
  using namespace epilogue;
  const nn::Linear trained(8, 4);
  if (!save_safetensors("consumer.safetensors", trained.state_dict()).ok()) return 1;
  auto file = SafetensorsFile::open("consumer.safetensors");
  if (!file.ok()) return 1;
  nn::Linear loaded(8, 4);
  NamedTensors state;
  for (const auto& [name, old] : loaded.state_dict()) {
    auto tensor = file.value().tensor(name);
    if (!tensor.ok()) return 1;
    state.emplace_back(name, std::move(tensor).value());
  }
  loaded.load_state_dict(state);
  std::remove("consumer.safetensors");
  return loaded.weight.to_vector() == trained.weight.to_vector() ? 0 : 1;
}
