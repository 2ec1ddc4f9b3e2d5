// SPDX-License-Identifier: Apache-2.0

#include "tools/epilogue/train/train_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/units.h"
#include "epilogue/base/error.h"
#include "epilogue/checkpoint.h"
#include "epilogue/io.h"
#include "epilogue/predictor.h"
#include "epilogue/runtime.h"
#include "nn/optim/options_text.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/workload.h"
#include "tools/epilogue/train/live_run.h"

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

namespace {

class EarlyStop {
 public:
  // 0: the run never ends early, and no epoch counts as the best.
  explicit EarlyStop(int64_t patience) : patience_(patience) {}

  int64_t patience() const { return patience_; }
  // True where the epoch is the best so far.
  bool add(int64_t epoch, double test_loss);
  bool is_over() const { return patience_ > 0 && waited_ >= patience_; }
  int64_t best_epoch() const { return best_epoch_; }  // 0: none
  int64_t waited() const { return waited_; }          // evaluations since the best

  // For checkpoints. load() of a state without it begins anew.
  train::StateDict state() const;
  void load(const train::StateDict& state);

 private:
  int64_t patience_;
  int64_t best_epoch_ = 0;
  double best_loss_ = std::numeric_limits<double>::infinity();
  int64_t waited_ = 0;
};

// Holds the folder's lock while it lives. The kernel drops the lock when the process ends, however
// it ends.
class RunFolder {
 public:
  // Makes the folder where it is missing. Throws Error where it cannot be made, or where another
  // process works in it. `flag` is for messages.
  static RunFolder open(const std::string& path, const char* flag);
  // Empty where another process works in it.
  static std::optional<RunFolder> try_open(const std::string& path, const char* flag);

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }
  // Throws Error where the path is no longer this folder: somebody removed or moved it.
  void require_there() const;

 private:
  RunFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

constexpr const char* kBestEpoch = "best_epoch";
constexpr const char* kBestLoss = "best_loss";
constexpr const char* kWaited = "waited";

bool EarlyStop::add(int64_t epoch, double test_loss) {
  if (patience_ == 0) return false;
  const bool is_best = test_loss < best_loss_;
  if (!is_best) {
    ++waited_;
    return false;
  }
  best_epoch_ = epoch;
  best_loss_ = test_loss;
  waited_ = 0;
  return true;
}

train::StateDict EarlyStop::state() const {
  if (best_epoch_ == 0) return {};
  return {{},
          {{kBestEpoch, optim::number_text(best_epoch_)},
           {kBestLoss, optim::number_text(best_loss_)},
           {kWaited, optim::number_text(waited_)}}};
}

void EarlyStop::load(const train::StateDict& state) {
  if (!state.metadata.contains(kBestEpoch)) return;
  best_epoch_ = optim::integer_of(state.metadata, kBestEpoch);
  best_loss_ = optim::number_of(state.metadata, kBestLoss);
  waited_ = optim::integer_of(state.metadata, kWaited);
}

std::optional<RunFolder> RunFolder::try_open(const std::string& path, const char* flag) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw Error(fmt::format("[{}] {}: cannot create folder: {}", flag, path, error.message()));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw Error(fmt::format("[{}] {}", flag, file_failure("open", path).message));
  // File systems without locks have none to wait for.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    return {};
  }
  return RunFolder(path, fd);
}

RunFolder RunFolder::open(const std::string& path, const char* flag) {
  auto folder = try_open(path, flag);
  if (!folder)
    throw Error(fmt::format(
        "[{}] expected a folder that no other run writes to, got {}: another epilogue train is at "
        "work there",
        flag, path));
  return std::move(*folder);
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RunFolder::~RunFolder() {
  if (fd_ >= 0) ::close(fd_);
}

void RunFolder::require_there() const {
  struct stat held {};
  struct stat named {};
  const bool is_there = ::fstat(fd_, &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                        held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  if (!is_there)
    throw Error(fmt::format(
        "[train] expected the run's folder {} to stay, got none there: it was removed or moved "
        "while the run went on",
        path_));
}

train::ModelDescription description_of(const LiveRun& run) {
  const TrainRun& r = run.run();
  const TrainData& data = run.data();
  train::ModelDescription d{.network = network_options(r, data.train.width(), data.outputs),
                            .task = data.task,
                            .table = data.meaning,
                            .pixels = {},
                            .delimiter = parse_delimiter(r.delimiter).value(),
                            .has_header = !r.no_header};
  if (!data.meaning) {
    const FashionMnistOptions images;
    d.pixels = train::PixelMeaning{.mean = images.mean, .std = images.std};
  }
  return d;
}

// train::save_model() of the run, with the flags as a JSON object under "run". The same run gives
// the same bytes. Throws Error where the file cannot be written.
void export_model(const LiveRun& run, const std::string& path) {
  using nlohmann::json;
  // Names that are not UTF-8 must not stop an export.
  const std::string flags = json_text_of_names(json(to_text(run.recorded_run())));
  if (auto s = train::save_model(path, run.network(), description_of(run), {{"run", flags}}); !s)
    throw Error("[train] " + s.failure().message);
}

namespace fs = std::filesystem;
using train::CheckpointFolder;
using train::StateDict;

constexpr const char* kEarlyStopPart = "early_stop";

// Step lines in metrics.jsonl, about.
constexpr int64_t kLoggedSteps = 500;

volatile std::sig_atomic_t stop_signal = 0;

// While it lives the first Ctrl-C (or SIGTERM) asks the run to stop; a second one ends the process.
class StopSignals {
 public:
  StopSignals() {
    stop_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int signal) { stop_signal = signal; };
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    ::sigaction(SIGINT, &action, &interrupt_before_);
    ::sigaction(SIGTERM, &action, &terminate_before_);
  }
  ~StopSignals() {
    ::sigaction(SIGINT, &interrupt_before_, nullptr);
    ::sigaction(SIGTERM, &terminate_before_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
};

bool has_checkpoints(const std::string& dir) { return !CheckpointFolder(dir).files().empty(); }

void require_no_checkpoints(const std::string& dir) {
  if (has_checkpoints(dir))
    throw Error(
        fmt::format("[--checkpoint-dir] expected a folder without checkpoints, got {0}: "
                    "go on with --resume {0}, or name another folder",
                    dir));
}

// The folder of a run that starts: the one asked for, or one that no other run has used.
RunFolder new_folder(const TrainOptions& o) {
  if (!o.checkpoint_dir.empty()) {
    RunFolder folder = RunFolder::open(o.checkpoint_dir, "--checkpoint-dir");
    require_no_checkpoints(o.checkpoint_dir);
    return folder;
  }
  const std::string base = "runs/" + fs::path(o.run.data).stem().string();
  std::string dir = base;
  for (int i = 2;; ++i) {
    if (!has_checkpoints(dir))
      if (auto folder = RunFolder::try_open(dir, "train"); folder && !has_checkpoints(dir))
        return std::move(*folder);
    dir = fmt::format("{}-{}", base, i);
  }
}

std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal(); }

struct Start {
  TrainRun run;
  std::optional<RunFolder> folder;  // of a run that goes on
  StateDict state;                  // empty: from the beginning
};

// Only a folder that exists is locked: a wrong name must not become one.
std::optional<RunFolder> folder_of_run(const std::string& dir) {
  if (!has_checkpoints(dir)) return {};
  return RunFolder::open(dir, "--resume");
}

Start resumed(const TrainOptions& o, const SessionEvents& events) {
  if (!o.checkpoint_dir.empty() && absolute(o.checkpoint_dir) != absolute(o.resume_dir))
    throw Error(fmt::format("[--checkpoint-dir] expected the folder of --resume ({}), got {}",
                            o.resume_dir, o.checkpoint_dir));
  Start start;
  if (auto folder = folder_of_run(o.resume_dir)) start.folder.emplace(std::move(*folder));
  auto loaded = CheckpointFolder(o.resume_dir).load();
  if (!loaded) throw Error("[--resume] " + loaded.failure().message);
  for (const Failure& f : loaded.value().refused)
    events.note(fmt::format("{}; going on from {}", f.message, loaded.value().file));
  start.state = std::move(loaded.value().state);
  const auto config = train::part_of(start.state, "config").metadata;
  from_text(config, &start.run);
  require_same_run(o, config);
  extend_run(o, &start.run);
  return start;
}

Start prepared(TrainOptions o, const SessionEvents& events) {
  if (o.threads != 0) set_num_threads(o.threads);
  if (!o.run.data.empty() && is_csv(o.run)) o.run.data = absolute(o.run.data);
  o.run.data_dir = absolute(o.run.data_dir);
  check_choices(o.run);
  require_device(o.device);
  if (!o.resume_dir.empty()) return resumed(o, events);
  if (o.run.data.empty())
    throw Error("[train] expected fashion-mnist or a CSV file (or --resume DIR), got neither");
  if (!o.checkpoint_dir.empty()) require_no_checkpoints(o.checkpoint_dir);
  return {o.run, {}, {}};
}

LiveRun live_run_of(TrainRun run, Device device) {
  TrainData data = load_train_data(run);
  resolve_run(&run, data.train.size());
  return {std::move(run), std::move(data), device};
}

// Takes a run to its end and keeps its folder up to date.
class Session {
 public:
  Session(const TrainOptions& o, const SessionEvents& events, Start start)
      : o_(o),
        events_(events),
        run_(live_run_of(start.run, parse_device(o.device))),
        home_(start.folder ? std::move(*start.folder) : new_folder(o)),
        folder_(home_.path()),
        early_(run_.run().early_stop) {
    is_new_ = start.state.metadata.empty();
    if (!is_new_) resume(start.state);
    first_step_ = at().step;
    saved_step_ = is_new_ ? -1 : first_step_;
    result_.folder = home_.path();
    result_.metrics_file = home_.path() + "/metrics.jsonl";
    result_.model_file = home_.path() + "/model.safetensors";
    log_.emplace(result_.metrics_file, first_step_);
    logged_.step_s = at().in_steps.count();
  }

  SessionResult run() {
    const int64_t start_ns = monotonic_ns();
    const double step_s_before = at().in_steps.count();
    if (is_new_) save();
    events_.begin(run_);
    if (is_over()) events_.note(how_to_extend());
    {
      const StopSignals signals;
      train();
      if (!is_over()) result_.stop_signal = stop_signal;
    }
    if (saved_step_ != at().step && !result_.diverged) save();
    if (is_over()) finish();
    home_.require_there();
    result_.patience = early_.patience();
    result_.best_epoch = early_.best_epoch();
    result_.stopped_early = early_.is_over() && !run_.epochs().is_done();
    result_.last_checkpoint = folder_.file(saved_step_);
    result_.epochs = log_->epochs();
    result_.session_s = static_cast<double>(monotonic_ns() - start_ns) * 1e-9;
    const double step_s = at().in_steps.count() - step_s_before;
    if (step_s > 0) result_.images_per_s = rate(examples_, step_s);
    return result_;
  }

 private:
  const train::Position& at() const { return run_.epochs().position(); }

  bool is_over() const { return run_.epochs().is_done() || early_.is_over(); }

  std::string how_to_extend() const {
    const int64_t epochs = at().epoch;
    if (run_.epochs().is_done())
      return fmt::format(
          "the run is done after {1} epochs; go on with: epilogue train --resume {0} --epochs N, "
          "where N is above {1}",
          home_.path(), epochs);
    return fmt::format(
        "--early-stop {2} ended the run after {1} epochs; go on with: epilogue train --resume {0} "
        "--early-stop N, where N is above {2} (0: off)",
        home_.path(), epochs, early_.patience());
  }

  static double rate(int64_t examples, double seconds) {
    return seconds > 0 ? static_cast<double>(examples) / seconds : 0;
  }

  void resume(const StateDict& state) {
    run_.load(state);
    if (early_.patience() > 0) early_.load(train::part_of(state, kEarlyStopPart));
    const auto before = state.metadata.find(kMachineKey);
    const std::string now = device_description(run_.device());
    if (before != state.metadata.end() && before->second != now)
      events_.note(
          fmt::format("the run began with {}; with {} the last bits of its results may differ",
                      before->second, now));
  }

  void save() {
    const int64_t step = at().step;
    StateDict state = run_.state();
    train::add_part(state, kEarlyStopPart, early_.state());
    home_.require_there();
    const Status saved = folder_.save(step, state);
    home_.require_there();  // more to the point than what a write into nowhere says
    if (!saved) throw Error("[train] " + saved.failure().message);
    saved_step_ = step;
  }

  void train() {
    TrainProfile profile(o_.profile, folder_.path());
    ProgressBar bar("training", run_.epochs().total_steps() - first_step_);
    while (!is_over() && stop_signal == 0) {
      const train::StepReport report = profile.step([&] { return run_.epochs().step(); });
      if (report.diverged) {
        result_.diverged = true;
        break;
      }
      after_step(report, &bar);
    }
    bar.finish();
    result_.profile = profile.finish();
    if (o_.profile && result_.profile.trace.empty())
      events_.note(fmt::format("expected {} steps or more to profile, got {}", TrainProfile::kSteps,
                               at().step - first_step_));
  }

  void after_step(const train::StepReport& report, ProgressBar* bar) {
    const train::Position done = at();
    examples_ += report.examples;
    logged_.examples += report.examples;
    const int64_t log_every = std::max<int64_t>(1, run_.epochs().total_steps() / kLoggedSteps);
    if (done.step % log_every == 0) {
      images_per_s_ = rate(logged_.examples, done.in_steps.count() - logged_.step_s);
      log_->add(run_, report, images_per_s_);
      logged_ = {done.in_steps.count(), 0};
      home_.require_there();
    }
    const bool ends_epoch = run_.epochs().ends_epoch();
    bar->update(done.step - first_step_, note(done));
    if (ends_epoch) {
      const EpochScore epoch = score_of(run_.epochs().end_epoch(), run_.data());
      log_->add(run_, epoch);
      bar->finish();
      events_.epoch(run_, epoch);
      if (early_.add(epoch.epoch, epoch.test_loss)) export_best();
    }
    const bool is_due = o_.checkpoint_every > 0 ? done.step % o_.checkpoint_every == 0 : ends_epoch;
    if (is_due) save();
  }

  // "epoch 2/8  loss 0.412  accuracy 86.1 %  41,200 images/s".
  std::string note(const train::Position& at) const {
    const auto seen = static_cast<double>(std::max<int64_t>(1, at.seen));
    std::string text = fmt::format("epoch {}/{}  loss {:.4g}", at.epoch + 1, *run_.run().epochs,
                                   at.loss_sum / seen);
    if (run_.data().task == train::Task::classification && at.correct)
      text += fmt::format("  accuracy {:.1f} %", 100 * static_cast<double>(*at.correct) / seen);
    if (images_per_s_ > 0)
      text += fmt::format("  {} images/s", format_count(std::llround(images_per_s_)));
    return text;
  }

  // The model's file is that of the best epoch from now on.
  void export_best() {
    home_.require_there();
    export_model(run_, result_.model_file);
  }

  void finish() {
    home_.require_there();
    result_.curve_file = folder_.path() + "/curve.svg";
    const std::string svg = learning_curve_svg(
        log_->epochs(), fmt::format("{} on {}", run_.run().arch, data_name(run_.run())),
        run_.data().task);
    if (auto s = write_file(result_.curve_file, svg); !s)
      throw Error("[train] " + s.failure().message);
    if (early_.best_epoch() == 0) {
      export_model(run_, result_.model_file);
    } else if (!fs::exists(result_.model_file)) {
      throw Error(fmt::format("[--early-stop] expected {}, the model of epoch {}, got none there",
                              result_.model_file, early_.best_epoch()));
    }
  }

  const TrainOptions& o_;
  const SessionEvents& events_;
  LiveRun run_;
  RunFolder home_;
  CheckpointFolder folder_;
  EarlyStop early_;
  std::optional<MetricsLog> log_;
  bool is_new_ = true;
  int64_t first_step_ = 0;
  int64_t saved_step_ = -1;
  int64_t examples_ = 0;  // trained on in this session
  double images_per_s_ = 0;
  struct {
    double step_s = 0;
    int64_t examples = 0;
  } logged_;  // since the last step line
  SessionResult result_;
};

}  // namespace

std::string data_name(const TrainRun& run) {
  return is_csv(run) ? fs::path(run.data).filename().string() : run.data;
}

SessionResult run_session(const TrainOptions& options, const SessionEvents& events) {
  return Session(options, events, prepared(options, events)).run();
}

}  // namespace epilogue::tool
