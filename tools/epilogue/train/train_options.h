// SPDX-License-Identifier: Apache-2.0
// The flags of `epilogue train`: what defines a run (kept in its checkpoints) and what does not.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/epilogue/command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace epilogue::tool {

// What the weights of a run depend on. A number of 0 or below and an empty text leave the choice to
// resolve_run(), where the flag's doc says so.
struct TrainRun {
  std::string data;  // "fashion-mnist", or a CSV file as an absolute path
  std::string data_dir = "/usr/share/datasets/fashion-mnist";
  int64_t max_images = -1;  // per split; negative: all
  std::string target;
  std::string task = "auto";
  std::string ignore;  // names, separated by commas
  std::string delimiter = ",";
  bool no_header = false;
  double held_out = 0.2;

  std::string arch = "mlp";
  int64_t hidden = 0;
  int64_t layers = 0;
  double dropout = 0;

  int64_t epochs = 0;
  int64_t batch = 0;
  int64_t accumulate = 1;
  std::string amp = "none";
  std::string optimizer = "adamw";
  double lr = 0;
  std::string schedule = "cosine";
  int64_t warmup = -1;  // steps
  double weight_decay = -1;
  double clip = 0;  // 0: off
  std::string mode = "eager";
  std::string tune = "model";
  std::string plan;  // of compile, by name; empty until the first step where it is measured
  uint64_t seed = 0;
};

struct TrainOptions {
  TrainRun run;
  std::string resume_dir;
  std::string checkpoint_dir;
  int64_t checkpoint_every = 0;  // steps; 0: after each epoch
  bool profile = false;
  std::string device = "cpu";  // a run may go on where it did not begin
  int threads = 0;
  Format format = Format::text;
  // Of the run's flags: to tell what was said from what is a default.
  std::map<std::string, CLI::Option*> flags;
};

void add_train_flags(CLI::App& app, TrainOptions& options);

// The run as text by flag name, and back. from_text throws Error on a value that cannot be read.
std::map<std::string, std::string> to_text(const TrainRun& run);
void from_text(const std::map<std::string, std::string>& text, TrainRun* run);

// Throws Error where a flag that was given says another thing than `kept`, a checkpoint's run.
void require_same_run(const TrainOptions& options, const std::map<std::string, std::string>& kept);

// Throws Error where a flag names a choice that does not exist.
void check_choices(const TrainRun& run);

// Fills in what the flags left open, for that many training examples, and checks every value.
// Throws Error on misuse.
void resolve_run(TrainRun* run, int64_t examples);

int64_t steps_per_epoch(const TrainRun& run, int64_t examples);
bool is_csv(const TrainRun& run);

}  // namespace epilogue::tool
