// SPDX-License-Identifier: Apache-2.0
// A session of `epilogue train`: a run from its start or a checkpoint to its end or Ctrl-C, with
// checkpoints, metrics, progress and a profile on the way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epilogue/checkpoint.h"
#include "epilogue/profiler.h"
#include "tools/epilogue/train/live_run.h"
#include "tools/epilogue/train/train_log.h"
#include "tools/epilogue/train/train_options.h"

namespace epilogue::tool {

class TrainProfile {
 public:
  // Steps that it takes to have a profile: the first ones are slower than the rest.
  static constexpr int64_t kSkipped = 3;
  static constexpr int64_t kActive = 3;
  static constexpr int64_t kSteps = kSkipped + 1 + kActive;

  struct Files {
    std::string trace;  // empty: no profile
    std::string table_file;
    std::string table;
  };

  // Where not `wanted` it does nothing. Files go to DIR/train-step.json.gz and .txt.
  TrainProfile(bool wanted, const std::string& dir);

  // Runs one step and gives its result.
  template <class Step>
  auto step(const Step& run) {
    if (!profile_) return run();
    const auto result = [&] {
      const profiler::RecordFunction range("train_step");
      return run();
    }();
    end_step();
    return result;
  }

  // Throws Error where a file could not be written.
  Files finish();

 private:
  void end_step();
  void keep(profiler::Profile& profile);

  std::string base_;
  std::unique_ptr<profiler::Profile> profile_;
  std::optional<Failure> failure_;
  Files files_;
};

struct SessionResult {
  int stop_signal = 0;    // 0: the run is done
  bool diverged = false;  // the loss left the finite numbers
  std::string folder;
  std::string last_checkpoint;
  std::string metrics_file;
  std::string curve_file;       // of a run that is over
  std::string model_file;       // likewise; with --early-stop it is there from the first epoch on
  TrainProfile::Files profile;  // with --profile
  double session_s = 0;
  int64_t patience = 0;    // of --early-stop
  int64_t best_epoch = 0;  // the model's epoch with --early-stop; 0: the last
  bool stopped_early = false;
  std::optional<double> images_per_s;  // of this session's steps, where it had some
  std::vector<EpochScore> epochs;
};

// The listeners of a session: each is one line for people.
struct SessionEvents {
  std::function<void(const std::string& line)> note;  // of unusual things
  std::function<void(const LiveRun& run)> begin;      // before the first step
  std::function<void(const LiveRun& run, const EpochScore& score)> epoch;
};

// "fashion-mnist", "iris.csv".
std::string data_name(const TrainRun& run);

// Throws Error on misuse and on files that cannot be used.
SessionResult run_session(const TrainOptions& options, const SessionEvents& events);

}  // namespace epilogue::tool
