// SPDX-License-Identifier: Apache-2.0
// The profiler over some of the first steps of a training session.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "epilogue/profiler.h"

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

}  // namespace epilogue::tool
