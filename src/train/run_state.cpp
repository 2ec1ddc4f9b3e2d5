// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "epilogue/checkpoint.h"

namespace epilogue::train {
namespace {

uint64_t unsigned_of(const StateDict& part, const std::string& key) {
  const auto found = part.metadata.find(key);
  if (found == part.metadata.end())
    throw Error("[load_run_state] expected \"rng." + key + "\", got no such key");
  const std::string& text = found->second;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error("[load_run_state] expected a number for \"rng." + key + "\", got \"" + text + "\"");
  return value;
}

}  // namespace

StateDict run_state(const Run& run) {
  StateDict state;
  add_part(state, "model", {run.model.state_dict(), {}});
  add_part(state, "optimizer", run.optimizer.state_dict());
  if (run.schedule != nullptr) add_part(state, "schedule", run.schedule->state_dict());
  if (run.scaler != nullptr) add_part(state, "scaler", run.scaler->state_dict());
  const RngState rng = rng_state();
  add_part(state, "rng",
           {{}, {{"seed", std::to_string(rng.seed)}, {"offset", std::to_string(rng.offset)}}});
  return state;
}

void load_run_state(const Run& run, const StateDict& state) {
  const StateDict rng = part_of(state, "rng");
  const RngState random = {unsigned_of(rng, "seed"), unsigned_of(rng, "offset")};
  run.model.load_state_dict(part_of(state, "model").tensors);
  run.optimizer.load_state_dict(part_of(state, "optimizer"));
  if (run.scaler != nullptr) run.scaler->load_state_dict(part_of(state, "scaler"));
  // Last of these: it sets the optimizer's learning rate.
  if (run.schedule != nullptr) run.schedule->load_state_dict(part_of(state, "schedule"));
  set_rng_state(random);
}

}  // namespace epilogue::train
