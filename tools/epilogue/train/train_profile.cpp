// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_profile.h"

#include "base/file.h"

namespace epilogue::tool {

TrainProfile::TrainProfile(bool wanted, const std::string& dir) : base_(dir + "/train-step") {
  if (!wanted) return;
  profiler::ProfileOptions options;
  options.schedule =
      profiler::schedule({.warmup = 1, .active = kActive, .repeat = 1, .skip_first = kSkipped});
  options.record_shapes = true;
  options.profile_memory = true;
  options.on_trace_ready = [this](profiler::Profile& p) { keep(p); };
  profile_ = std::make_unique<profiler::Profile>(options);
  profile_->start();
}

void TrainProfile::keep(profiler::Profile& profile) {
  files_.trace = base_ + ".json.gz";
  files_.table_file = base_ + ".txt";
  trace::TableOptions table;
  table.row_limit = 15;
  files_.table = trace::format_table(profile.key_averages(), table);
  if (auto s = profile.export_chrome_trace(files_.trace); !s) failure_ = s.failure();
  if (auto s = write_file(files_.table_file, files_.table); !s) failure_ = s.failure();
}

void TrainProfile::end_step() {
  profile_->step();
  if (!files_.trace.empty()) {
    profile_->stop();
    profile_.reset();
  }
}

TrainProfile::Files TrainProfile::finish() {
  profile_.reset();
  if (failure_) throw Error("[--profile] " + failure_->message);
  return files_;
}

}  // namespace epilogue::tool
