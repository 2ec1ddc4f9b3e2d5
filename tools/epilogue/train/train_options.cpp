// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/train_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/text/nearest.h"
#include "epilogue/base/error.h"
#include "epilogue/compile_step.h"
#include "io/csv_records.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/train/train_words.h"

namespace epilogue::tool {
namespace {

// Enough for a small table to be learned; large data sets need fewer epochs than this makes.
constexpr int64_t kDefaultSteps = 3000;
constexpr int64_t kMinDefaultEpochs = 8;
constexpr int64_t kMaxDefaultEpochs = 400;

// Calls visit(flag, member, metavariable with default, doc) for all that defines a run.
template <class Run, class Visit>
void visit_run(Run& r, Visit&& visit) {
  visit("data-dir", r.data_dir, "DIR [/usr/share/datasets/fashion-mnist]",
        "folder of the Fashion-MNIST files");
  visit("max-images", r.max_images, "N [all]", "images per split: a shorter run");
  visit("target", r.target, "COLUMN [last]", "CSV: the column to be learned");
  visit("task", r.task, "TASK [auto]", "CSV: classification or regression");
  visit("ignore", r.ignore, "NAME",
        "CSV: leave a column out; repeat, or A,\"B, C\" as in a CSV line");
  visit("categorical", r.categorical, "NAME", "CSV: a column whose numbers are names; repeat");
  visit("max-categories", r.max_categories, "N [64]",
        "CSV: text of more different values is hashed to N inputs; else each value has one");
  visit("delimiter", r.delimiter, "CHAR [,]", "CSV: between cells; tab for a tab");
  visit("no-header", r.no_header, "", "CSV: the first line holds values");
  visit("held-out", r.held_out, "SHARE [0.2]", "CSV: rows for the test");
  visit("arch", r.arch, "ARCH [mlp]",
        "mlp: linear and gelu; geglu: residual blocks of RMSNorm and a gated MLP");
  visit("hidden", r.hidden, "N [512; CSV 64]", "hidden width");
  visit("layers", r.layers, "N [2]", "hidden layers or blocks");
  visit("dropout", r.dropout, "P [0]", "share of hidden values dropped while training");
  visit("epochs", r.epochs, "N [8; CSV for 3000 steps]", "passes over the data");
  visit("batch", r.batch, "N [256; CSV 32]", "examples per optimizer step");
  visit("accumulate", r.accumulate, "N [1]", "micro-batches of each batch");
  visit("amp", r.amp, "DTYPE [none]", "autocast: none, bf16 or f16 (with loss scaling)");
  visit("optimizer", r.optimizer, "NAME [adamw]", "adamw, adam or sgd (momentum 0.9)");
  visit("lr", r.lr, "LR [0.002; sgd 0.05]", "highest learning rate");
  visit("schedule", r.schedule, "NAME [cosine]", "constant, cosine or step (x0.1 each third)");
  visit("warmup", r.warmup, "STEPS [5 %; constant 0]",
        "first steps, in which the learning rate rises");
  visit("weight-decay", r.weight_decay, "W [adamw 0.01; else 0]", "");
  visit("clip", r.clip, "NORM [off]", "greatest norm of the gradients");
  visit("mode", r.mode, "MODE [eager]", "eager or compile");
  visit("tune", r.tune, "HOW [model]",
        "choice of compile's plan: model, or measure (times the plans at the first step)");
  visit("plan", r.plan, "NAME [by --tune]", "compile: the plan of an earlier run, by its name");
  visit("early-stop", r.early_stop, "N [off]",
        "stop after N epochs without a lower test loss; keep the best epoch's model");
  visit("seed", r.seed, "N [0]", "seed of weights, order, held-out rows and dropout");
}

std::string text_of(const std::string& value) { return value; }
std::string text_of(const std::vector<std::string>& value) { return io::csv_line(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
template <class Number>
std::string text_of(Number value) {
  return fmt::format("{}", value);  // the shortest that reads back
}
// Checkpoints know of no empty number: -1 stands for it.
constexpr const char* kEmptyText = "-1";
template <class Number>
std::string text_of(const std::optional<Number>& value) {
  return value ? text_of(*value) : kEmptyText;
}

void read(const std::string& text, std::string* value, const char*) { *value = text; }
void read(const std::string& text, std::vector<std::string>* value, const char*) {
  *value = io::csv_cells(text);
}
void read(const std::string& text, bool* value, const char*) { *value = text == "true"; }
template <class Number>
void read(const std::string& text, Number* value, const char* flag) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(fmt::format("[--{}] expected a number, got '{}'", flag, text));
}
template <class Number>
void read(const std::string& text, std::optional<Number>* value, const char* flag) {
  if (text == kEmptyText) {
    value->reset();
  } else {
    read(text, &value->emplace(), flag);
  }
}

template <class Value>
struct NumberOf {
  using type = Value;
};
template <class Value>
struct NumberOf<std::optional<Value>> {
  using type = Value;
};

void require(bool holds, const char* flag, const char* expected, const std::string& got) {
  if (!holds) throw Error(fmt::format("[--{}] expected {}, got {}", flag, expected, got));
}
template <class Number>
void require(bool holds, const char* flag, const char* expected, Number got) {
  require(holds, flag, expected, text_of(got));
}

bool is_one_of(const std::string& text, std::initializer_list<const char*> allowed) {
  return std::find(allowed.begin(), allowed.end(), text) != allowed.end();
}

// The words of a flag that takes one of few; check_choices() refuses others.
std::vector<std::string> words_of(const std::string& flag) {
  const std::map<std::string, std::vector<std::string>> words = {
      {"task", {"classification", "regression"}},
      {"delimiter", {"tab"}},
      {"arch", {"mlp", "geglu"}},
      {"amp", {"none", "bf16", "f16"}},
      {"optimizer", {"adamw", "adam", "sgd"}},
      {"schedule", {"constant", "cosine", "step"}},
      {"mode", {"eager", "compile"}},
      {"tune", {"model", "measure"}},
      {"plan", compiled_step_plan_names()}};
  const auto found = words.find(flag);
  return found == words.end() ? std::vector<std::string>() : found->second;
}

void require_word(const std::string& word, const char* flag) {
  const std::vector<std::string> allowed = words_of(flag);
  if (std::ranges::find(allowed, word) != allowed.end()) return;
  const auto before_last = std::span(allowed).first(allowed.size() - 1);
  throw Error(fmt::format("[--{}] expected {} or {}, got '{}'{}", flag,
                          fmt::join(before_last, ", "), allowed.back(), word,
                          did_you_mean(nearest(word, allowed))));
}

// The kind of value that a flag takes.
template <class Value>
void check_value(CLI::Option& option, std::string_view flag, const Value&) {
  using Number = typename NumberOf<Value>::type;
  if constexpr (std::is_integral_v<Number>) {
    option.check(whole_number(flag == "seed" || flag == "warmup" || flag == "early-stop" ? 0 : 1));
  } else if constexpr (std::is_floating_point_v<Number>) {
    option.check(flag == "lr" ? number_above(0) : number_from(0));
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    option.allow_extra_args(false);  // what follows is no further name
  } else if (flag == "amp") {
    option.transform(amp_value());
  }
}

void check_numbers(const TrainRun& r) {
  require(*r.hidden >= 1, "hidden", "1 or more", *r.hidden);
  require(*r.layers >= 1, "layers", "1 or more", *r.layers);
  require(r.dropout >= 0 && r.dropout < 1, "dropout", "0 or more, below 1", r.dropout);
  require(*r.epochs >= 1, "epochs", "1 or more", *r.epochs);
  require(*r.batch >= 1, "batch", "1 or more", *r.batch);
  require(r.accumulate >= 1 && r.accumulate <= *r.batch, "accumulate",
          "1 or more, and no more than the batch", r.accumulate);
  require(*r.lr > 0, "lr", "a positive number", *r.lr);
  require(*r.weight_decay >= 0, "weight-decay", "0 or more", *r.weight_decay);
  require(r.clip >= 0, "clip", "0 (off) or more", r.clip);
}

}  // namespace

void check_choices(const TrainRun& r) {
  const auto quoted = [](const std::string& s) { return "'" + s + "'"; };
  require(r.held_out > 0 && r.held_out < 1, "held-out", "a share between 0 and 1", r.held_out);
  if (r.task != "auto") require_word(r.task, "task");
  require(parse_delimiter(r.delimiter).has_value(), "delimiter", "one character or tab",
          quoted(r.delimiter));
  require_word(r.arch, "arch");
  require_word(r.amp, "amp");
  require_word(r.optimizer, "optimizer");
  require_word(r.schedule, "schedule");
  require_word(r.mode, "mode");
  require_word(r.tune, "tune");
  const std::vector<std::string> plans = compiled_step_plan_names();
  require(r.plan.empty() || std::find(plans.begin(), plans.end(), r.plan) != plans.end(), "plan",
          fmt::format("{}", fmt::join(plans, ", ")).c_str(), quoted(r.plan));
  require(r.mode == "compile" || (r.tune == "model" && r.plan.empty()), "tune",
          "--mode compile beside it", quoted(r.mode));
}

bool is_csv(const TrainRun& run) { return run.data != "fashion-mnist"; }
std::optional<char> parse_delimiter(const std::string& text) {
  if (text == "tab") return '\t';
  if (text.size() == 1) return text[0];
  return {};
}

void add_train_flags(CLI::App& app, TrainOptions& o) {
  app.add_option("DATA", o.run.data, "fashion-mnist, or a CSV file")
      ->check(choices({"fashion-mnist"}))
      ->option_text(" ");
  visit_run(o.run, [&](const char* flag, auto& member, const char* meta, const char* doc) {
    const std::string name = std::string("--") + flag;
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(member)>, bool>) {
      o.flags[flag] = app.add_flag(name, member, doc);
    } else {
      o.flags[flag] = app.add_option(name, member, doc)->option_text(meta);
      check_value(*o.flags[flag], flag, member);
      o.flags[flag]->check(choices(words_of(flag)));
    }
  });
  app.add_option("--resume", o.resume_dir, "go on from the newest checkpoint in DIR")
      ->option_text("DIR");
  app.add_option("-o,--out,--checkpoint-dir", o.checkpoint_dir,
                 "folder of checkpoints, metrics, curve and model; made if missing")
      ->check(path_name())
      ->option_text("DIR [runs/DATA]");
  app.add_option("--tag", o.tag, "name of the run's folder: in --out, else in runs")
      ->check(file_name())
      ->option_text("NAME [by the data]");
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "steps between checkpoints; 0: each epoch")
      ->check(whole_number(0))
      ->option_text("N [each epoch]");
  app.add_flag("--profile", o.profile,
               "profile some of the first steps; write their trace and table");
  add_device_flag(app, o.device);
  add_threads(app, o.threads);
  add_format(app, o.format);
}

std::map<std::string, std::string> to_text(const TrainRun& run) {
  std::map<std::string, std::string> text{{"data", run.data}};
  visit_run(run, [&](const char* flag, const auto& member, const char*, const char*) {
    text[flag] = text_of(member);
  });
  return text;
}

void from_text(const std::map<std::string, std::string>& text, TrainRun* run) {
  const auto value = [&](const char* key) {
    const auto found = text.find(key);
    if (found == text.end())
      throw Error(
          fmt::format("[--resume] expected the run's \"{}\" in the checkpoint, got none", key));
    return found->second;
  };
  run->data = value("data");
  visit_run(*run, [&](const char* flag, auto& member, const char*, const char*) {
    // Checkpoints of earlier versions do not have these: their runs had the default.
    if (is_one_of(flag, {"tune", "plan", "early-stop", "categorical", "max-categories"}) &&
        !text.contains(flag))
      return;
    read(value(flag), &member, flag);
  });
}

void require_same_run(const TrainOptions& o, const std::map<std::string, std::string>& kept) {
  const auto given = to_text(o.run);
  for (const auto& [flag, option] : o.flags) {
    const auto before = kept.find(flag);
    if (flag == "epochs" || flag == "early-stop") continue;
    if (option->count() == 0 || before == kept.end() || before->second == given.at(flag)) continue;
    throw Error(fmt::format("[--{}] expected '{}', as in the run that is resumed, got '{}'", flag,
                            before->second, given.at(flag)));
  }
  if (!o.run.data.empty() && kept.at("data") != o.run.data)
    throw Error(fmt::format("[--resume] expected the data '{}' of the run, got '{}'",
                            kept.at("data"), o.run.data));
}

void extend_run(const TrainOptions& o, TrainRun* run) {
  const auto is_given = [&](const char* flag) { return o.flags.at(flag)->count() > 0; };
  if (is_given("epochs")) {
    require(*o.run.epochs >= *run->epochs, "epochs",
            fmt::format("{} or more, as the run that is resumed has", *run->epochs).c_str(),
            *o.run.epochs);
    run->epochs = o.run.epochs;
  }
  if (is_given("early-stop")) run->early_stop = o.run.early_stop;
}

void resolve_run(TrainRun* run, int64_t examples) {
  TrainRun& r = *run;
  check_choices(r);
  const auto fill = [](auto& value, auto otherwise) {
    if (!value) value = otherwise;
  };
  fill(r.hidden, is_csv(r) ? 64 : 512);
  fill(r.layers, 2);
  fill(r.batch, is_csv(r) ? 32 : 256);
  const int64_t per_epoch =
      std::max<int64_t>(1, train::steps_per_epoch(examples, std::max<int64_t>(1, *r.batch)));
  fill(r.epochs, is_csv(r)
                     ? std::clamp(kDefaultSteps / per_epoch, kMinDefaultEpochs, kMaxDefaultEpochs)
                     : kMinDefaultEpochs);
  const train::TrainerOptions o = trainer_options(r, train::Task::classification, examples);
  r.lr = o.lr;
  r.weight_decay = o.weight_decay;
  check_numbers(r);
  r.warmup = o.warmup_steps;
  require(*r.warmup >= 0 && *r.warmup < o.total_steps, "warmup",
          fmt::format("fewer steps than the run's {}", o.total_steps).c_str(), *r.warmup);
}

train::TrainerOptions trainer_options(const TrainRun& r, train::Task task, int64_t examples) {
  using namespace train;
  TrainerOptions o;
  o.loss = task == Task::classification ? Loss::cross_entropy : Loss::mse;
  o.optimizer = kOptimizers.at(r.optimizer);
  o.lr = r.lr;
  o.weight_decay = r.weight_decay;
  o.schedule = kSchedules.at(r.schedule);
  o.total_steps = *r.epochs * steps_per_epoch(examples, std::max<int64_t>(1, *r.batch));
  o.warmup_steps = r.warmup;
  if (r.clip > 0) o.clip_norm = r.clip;
  o.accumulate = r.accumulate;
  o.precision = kPrecisions.at(r.amp);
  o.mode = kModes.at(r.mode);
  o.tune = kTunes.at(r.tune);
  o.plan = r.plan;
  return with_defaults(o);
}

}  // namespace epilogue::tool
