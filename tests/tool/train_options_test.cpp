// SPDX-License-Identifier: Apache-2.0
// The flags of a training run: defaults, what checkpoints keep, what trainers get.
#include "tools/epilogue/train/train_options.h"

#include "errors/message_of.h"
#include "support/test.h"
#include "tool/parse.h"

namespace epilogue::tool::train_options_test {

TrainOptions parsed(const std::vector<std::string>& arguments) {
  CLI::App app;
  TrainOptions o;
  add_train_flags(app, o);
  EXPECT_EQ(parse(app, arguments), "");
  o.flags.clear();  // they go with the app
  return o;
}

TrainRun resolved(const std::vector<std::string>& arguments, int64_t examples = 1000) {
  TrainRun run = parsed(arguments).run;
  resolve_run(&run, examples);
  return run;
}

std::string refused(const std::vector<std::string>& arguments, int64_t examples = 1000) {
  TrainRun run = parsed(arguments).run;
  return test::message_of([&] { resolve_run(&run, examples); });
}

TEST(ResolveRun, FillsInWhatTheFlagsLeftOpen) {
  const TrainRun images = resolved({"fashion-mnist"}, 60000);
  EXPECT_EQ(images.hidden, 512);
  EXPECT_EQ(images.layers, 2);
  EXPECT_EQ(images.batch, 256);
  EXPECT_EQ(images.epochs, 8);
  EXPECT_EQ(images.lr, 0.002);
  EXPECT_EQ(images.weight_decay, 0.01);
  EXPECT_EQ(images.warmup, 8 * 235 / 20);
  EXPECT_FALSE(images.max_images.has_value());

  const TrainRun table = resolved({"t.csv", "--optimizer", "sgd", "--schedule", "constant"}, 320);
  EXPECT_EQ(table.hidden, 64);
  EXPECT_EQ(table.batch, 32);
  EXPECT_EQ(table.epochs, 300);  // of 10 steps
  EXPECT_EQ(table.lr, 0.05);
  EXPECT_EQ(table.weight_decay, 0);
  EXPECT_EQ(table.warmup, 0);
  EXPECT_EQ(resolved({"t.csv"}, 1).epochs, 400);
  EXPECT_EQ(resolved({"t.csv"}, 1'000'000).epochs, 8);
}

TEST(ResolveRun, KeepsWhatWasSaid) {
  const TrainRun run = resolved({"t.csv", "--hidden", "7", "--lr", "0.5", "--warmup", "0",
                                 "--weight-decay", "0", "--epochs", "3", "--batch", "10"});
  EXPECT_EQ(run.hidden, 7);
  EXPECT_EQ(run.lr, 0.5);
  EXPECT_EQ(run.warmup, 0);
  EXPECT_EQ(run.weight_decay, 0);
  EXPECT_EQ(run.epochs, 3);
  EXPECT_EQ(run.batch, 10);
}

TEST(ResolveRun, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refused({"t.csv", "--optimizer", "lion"}),
            "[--optimizer] expected adamw, adam or sgd, got 'lion'");
  EXPECT_EQ(refused({"t.csv", "--schedule", "none"}),
            "[--schedule] expected constant, cosine or step, got 'none'");
  EXPECT_EQ(refused({"t.csv", "--mode", "fast"}), "[--mode] expected eager or compile, got 'fast'");
  EXPECT_EQ(refused({"t.csv", "--tune", "measure"}),
            "[--tune] expected --mode compile beside it, got 'eager'");
  EXPECT_EQ(refused({"t.csv", "--arch", "cnn"}), "[--arch] expected mlp or geglu, got 'cnn'");
  EXPECT_EQ(refused({"t.csv", "--task", "guess"}),
            "[--task] expected classification or regression, got 'guess'");
  EXPECT_EQ(refused({"t.csv", "--delimiter", "ab"}),
            "[--delimiter] expected one character or tab, got 'ab'");
  EXPECT_EQ(refused({"t.csv", "--held-out", "1"}),
            "[--held-out] expected a share between 0 and 1, got 1");
  EXPECT_EQ(refused({"t.csv", "--dropout", "1"}), "[--dropout] expected 0 or more, below 1, got 1");
  EXPECT_EQ(refused({"t.csv", "--accumulate", "33"}),
            "[--accumulate] expected 1 or more, and no more than the batch, got 33");
  EXPECT_EQ(refused({"t.csv", "--epochs", "1", "--warmup", "32"}),
            "[--warmup] expected fewer steps than the run's 32, got 32");
}

// Numbers of hostile checkpoints reach it without the flags' own checks.
TEST(ResolveRun, RefusesNumbersThatNoFlagTakes) {
  const auto with = [](auto set) {
    TrainRun run = parsed({"t.csv"}).run;
    set(run);
    return test::message_of([&] { resolve_run(&run, 1000); });
  };
  EXPECT_EQ(with([](TrainRun& r) { r.batch = 0; }), "[--batch] expected 1 or more, got 0");
  EXPECT_EQ(with([](TrainRun& r) { r.hidden = -5; }), "[--hidden] expected 1 or more, got -5");
  EXPECT_EQ(with([](TrainRun& r) { r.epochs = -2; }), "[--epochs] expected 1 or more, got -2");
  EXPECT_EQ(with([](TrainRun& r) { r.lr = 0; }), "[--lr] expected a positive number, got 0");
  EXPECT_EQ(with([](TrainRun& r) { r.warmup = -3; }),
            "[--warmup] expected fewer steps than the run's 2976, got -3");
  EXPECT_EQ(with([](TrainRun& r) { r.amp = "f8"; }),
            "[--amp] expected none, bf16 or f16, got 'f8'");
}

TEST(RunText, ReadsBack) {
  const TrainRun run = resolved({"t.csv", "--amp", "bf16", "--lr", "0.1", "--no-header", "--clip",
                                 "0.5", "--seed", "9223372036854775807", "--target", "y"});
  const auto text = to_text(run);
  EXPECT_EQ(text.at("lr"), "0.1");
  EXPECT_EQ(text.at("no-header"), "true");
  EXPECT_EQ(text.at("seed"), "9223372036854775807");
  EXPECT_EQ(text.at("max-images"), "-1");  // all
  TrainRun read;
  from_text(text, &read);
  EXPECT_EQ(to_text(read), text);
  EXPECT_FALSE(read.max_images.has_value());
  EXPECT_EQ(read.lr, 0.1);
  EXPECT_TRUE(read.no_header);
}

TEST(RunText, RefusesWhatIsMissingOrNoNumber) {
  const auto text = to_text(resolved({"t.csv"}));
  const auto read = [](const std::map<std::string, std::string>& from) {
    return test::message_of([&] {
      TrainRun run;
      from_text(from, &run);
    });
  };
  auto other = text;
  other.erase("lr");
  EXPECT_EQ(read(other), "[--resume] expected the run's \"lr\" in the checkpoint, got none");
  for (const char* bad : {"", "x", "1x", "1e999"}) {
    other = text;
    other["lr"] = bad;
    EXPECT_EQ(read(other), std::string("[--lr] expected a number, got '") + bad + "'");
  }
  other = text;
  other.erase("tune");  // checkpoints of earlier versions
  other.erase("plan");
  EXPECT_EQ(read(other), "(no error)");
}

TEST(RequireSameRun, NamesTheFlagThatDiffers) {
  const auto kept = to_text(resolved({"t.csv"}));
  const auto said = [&](const std::vector<std::string>& arguments) {
    CLI::App app;
    TrainOptions o;
    add_train_flags(app, o);
    EXPECT_EQ(parse(app, arguments), "");
    return test::message_of([&] { require_same_run(o, kept); });
  };
  EXPECT_EQ(said({}), "(no error)");
  EXPECT_EQ(said({"t.csv", "--hidden", "64", "--lr", "2e-3"}), "(no error)");
  EXPECT_EQ(said({"--hidden", "32"}),
            "[--hidden] expected '64', as in the run that is resumed, got '32'");
  EXPECT_EQ(said({"u.csv"}), "[--resume] expected the data 't.csv' of the run, got 'u.csv'");
}

TEST(TrainerOptions, AreWhatTheFlagsSay) {
  const TrainRun run = resolved({"t.csv", "--optimizer", "sgd", "--schedule", "step", "--amp",
                                 "f16", "--mode", "compile", "--tune", "measure", "--clip", "2",
                                 "--accumulate", "4", "--epochs", "2"});
  const train::TrainerOptions o = trainer_options(run, train::Task::regression, 1000);
  EXPECT_EQ(o.loss, train::Loss::mse);
  EXPECT_EQ(o.optimizer, train::Optimizer::sgd);
  EXPECT_EQ(o.momentum, 0.9);
  EXPECT_EQ(o.schedule, train::Schedule::step);
  EXPECT_EQ(o.precision, train::Precision::f16);
  EXPECT_EQ(o.mode, train::Mode::compile);
  EXPECT_EQ(o.tune, Tune::measure);
  EXPECT_EQ(o.clip_norm, 2);
  EXPECT_EQ(o.accumulate, 4);
  EXPECT_EQ(o.total_steps, 64);
  EXPECT_TRUE(o.reads_loss);
  const train::TrainerOptions plain =
      trainer_options(resolved({"t.csv"}), train::Task::classification, 1000);
  EXPECT_EQ(plain.loss, train::Loss::cross_entropy);
  EXPECT_FALSE(plain.clip_norm.has_value());
}

}  // namespace epilogue::tool::train_options_test
