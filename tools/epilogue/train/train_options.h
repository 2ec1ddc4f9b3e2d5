// SPDX-License-Identifier: Apache-2.0
// The flags of `epilogue train`: what defines a run (kept in its checkpoints) and what does not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/train.h"
#include "tools/epilogue/command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace epilogue::tool {

// The flags that the weights of a run depend on. resolve_run() fills in the
// numbers that are empty, but for max_images.
struct TrainRun {
  std::string data;  // "fashion-mnist", or a CSV file as an absolute path
  std::string data_dir = "/usr/share/datasets/fashion-mnist";
  std::optional<int64_t> max_images;  // per split; empty: all
  std::string target;
  std::string task = "auto";
  std::vector<std::string> ignore;  // each a name, or several as a CSV record
  std::vector<std::string> categorical;
  int64_t max_categories = 64;
  std::string delimiter = ",";
  bool no_header = false;
  double held_out = 0.2;

  std::string arch = "mlp";
  std::optional<int64_t> hidden;
  std::optional<int64_t> layers;
  double dropout = 0;

  std::optional<int64_t> epochs;
  std::optional<int64_t> batch;
  int64_t accumulate = 1;
  std::string amp = "none";
  std::string optimizer = "adamw";
  std::optional<double> lr;
  std::string schedule = "cosine";
  std::optional<int64_t> warmup;  // steps
  std::optional<double> weight_decay;
  double clip = 0;  // as the flag takes it: 0 is off
  std::string mode = "eager";
  std::string tune = "model";
  std::string plan;        // of compile, by name; empty until the first step where it is measured
  int64_t early_stop = 0;  // evaluations without a lower test loss; 0: off
  uint64_t seed = 0;
};

struct TrainOptions {
  TrainRun run;
  std::string resume_dir;
  std::string checkpoint_dir;
  std::string tag;  // of a folder in checkpoint_dir, or in runs; empty: checkpoint_dir itself
  int64_t checkpoint_every = 0;  // steps; 0: after each epoch
  bool profile = false;
  std::string device = "cpu";  // a run may go on where it did not begin
  int threads = 0;
  Format format = Format::text;
  // The run's flags that were given: the others have their defaults.
  std::map<std::string, CLI::Option*> flags;
};

void add_train_flags(CLI::App& app, TrainOptions& options);

// The run as text by flag name, and back. from_text throws Error on a value that cannot be read.
std::map<std::string, std::string> to_text(const TrainRun& run);
void from_text(const std::map<std::string, std::string>& text, TrainRun* run);

// Throws Error where a flag that was given says another thing than `kept`, a checkpoint's run, and
// is none that extend_run() takes.
void require_same_run(const TrainOptions& options, const std::map<std::string, std::string>& kept);

// The options that a run may change when it goes on: more epochs, another patience. Throws Error on
// fewer epochs than it has.
void extend_run(const TrainOptions& options, TrainRun* run);

// Throws Error where a flag names a choice that does not exist.
void check_choices(const TrainRun& run);

// Fills in what the flags left open, for that many training examples, and checks every value.
// Throws Error on misuse.
void resolve_run(TrainRun* run, int64_t examples);

// The trainer's options of a resolved run, for that many training examples.
train::TrainerOptions trainer_options(const TrainRun& run, train::Task task, int64_t examples);

bool is_csv(const TrainRun& run);
// The meaning of --delimiter; empty where it is neither one character nor "tab".
std::optional<char> parse_delimiter(const std::string& text);

}  // namespace epilogue::tool
