// SPDX-License-Identifier: Apache-2.0
// Checkpoints: all that a training run needs to go on as if it had never stopped.
//
//   train::CheckpointFolder folder("run");
//   folder.save(step, train::run_state({model, optimizer, &schedule, &scaler}));
//   ...
//   auto loaded = folder.load().value();            // the newest that is whole
//   train::load_run_state({model, optimizer, &schedule, &scaler}, loaded.state);
//
// A checkpoint is one safetensors file: tensors "model.<name>" and "optimizer.state.<i>.<name>",
// everything else as text in its metadata, and a CRC-32 over all of it. Between optimizer steps
// that is the whole state of a run; gradients are not part of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/amp.h"
#include "epilogue/base/result.h"
#include "epilogue/nn.h"
#include "epilogue/optim.h"

#pragma GCC visibility push(default)

namespace epilogue::train {

using optim::StateDict;

// Adds the entries of `part` to `whole`, as "prefix.name".
void add_part(StateDict& whole, std::string_view prefix, const StateDict& part);
// The entries "prefix.name", as "name". Tensors are shared.
StateDict part_of(const StateDict& whole, std::string_view prefix);

// The parts of a run. The optimizer is that of the model's parameters; schedule and scaler may be
// null.
struct Run {
  nn::Module& model;
  optim::Optimizer& optimizer;
  optim::LrScheduler* schedule = nullptr;
  amp::GradScaler* scaler = nullptr;
};
// The parts "model", "optimizer", "schedule", "scaler" and "rng" (the random generator's state).
// Tensors share memory with the run.
StateDict run_state(const Run& run);
// Puts them back; further parts are the caller's. Throws Error where one is missing or does not
// fit; the run is of no use then, as parts before it are loaded.
void load_run_state(const Run& run, const StateDict& state);

// Writes under a temporary name, fsyncs and renames. Codes: those of save_safetensors.
Status write_checkpoint(const std::string& path, const StateDict& state);
// Codes: those of SafetensorsFile, NotACheckpoint, CheckpointVersion, CheckpointCorrupt (the
// CRC-32 disagrees). Tensors keep the mapped file alive.
Result<StateDict> read_checkpoint(const std::string& path);

// A folder of checkpoints, DIR/checkpoint-000000042.safetensors, that one run writes to.
class CheckpointFolder {
 public:
  // Throws Error on keep < 1 and on an empty path. Touches no file.
  explicit CheckpointFolder(std::string path, size_t keep = 2);

  const std::string& path() const { return path_; }
  std::string file(int64_t step) const;  // throws Error on step < 0, as save() does
  // By step, the newest first; empty where there is no such folder.
  std::vector<std::string> files() const;

  // Writes the checkpoint of this step; once that is on the disk, older ones than the `keep` newest
  // go, and so do those of later steps (the run was taken back to an earlier one) and what a killed
  // process left half written.
  Status save(int64_t step, const StateDict& state) const;

  struct Loaded {
    StateDict state;
    std::string file;
    std::vector<Failure> refused;  // newer files that cannot be used
  };
  // The newest checkpoint that is whole. Codes: NoCheckpoint, or why the newest cannot be used.
  Result<Loaded> load() const;

 private:
  std::string path_;
  size_t keep_;
};

}  // namespace epilogue::train

#pragma GCC visibility pop
