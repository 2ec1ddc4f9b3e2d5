// SPDX-License-Identifier: Apache-2.0
// A run that is saved, thrown away and loaded again ends with the same bits as one that never
// stopped.
#include "epilogue/autograd.h"
#include "epilogue/checkpoint.h"
#include "epilogue/data.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"
#include "train/same_bits.h"

namespace epilogue::train::resume_test {

using io_test::TempFolder;

constexpr int64_t kRows = 37;  // the last batch of an epoch is short
constexpr int64_t kBatch = 8;
constexpr int64_t kSteps = 23;  // 4 epochs and 3 batches

enum class Method { sgd, adam, adamw };

struct Setup {
  Method method = Method::adamw;
  std::optional<DType> amp;
  const char* name = "";
};
void PrintTo(const Setup& s, std::ostream* out) { *out << s.name; }

Examples some_examples() {
  manual_seed(3);
  const Tensor x = randn({kRows, 6});
  return {x, randint(0, 4, {kRows})};
}

std::unique_ptr<optim::Optimizer> optimizer_of(Method method, const nn::Module& model) {
  if (method == Method::sgd)
    return std::make_unique<optim::SGD>(model.parameters(),
                                        optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
  if (method == Method::adam)
    return std::make_unique<optim::Adam>(model.parameters(),
                                         optim::AdamOptions{.lr = 0.01, .amsgrad = true});
  return std::make_unique<optim::AdamW>(model.parameters(), optim::AdamWOptions{.lr = 0.01});
}

// One process's share of a run: everything is made anew, as after a restart.
class Process {
 public:
  Process(const Setup& setup, uint64_t seed) : setup_(setup), data_(some_examples()) {
    manual_seed(seed);
    model_.emplace<nn::Linear>(6, 16);
    model_.emplace<nn::GELU>();
    model_.emplace<nn::Dropout>(0.25);  // draws random numbers: the generator's state matters
    model_.emplace<nn::Block>(16, nn::Norm::rms, std::make_shared<nn::GatedMLP>(16, 24));
    model_.emplace<nn::Linear>(16, 4);
    optimizer_ = optimizer_of(setup.method, model_);
    schedule_.emplace(*optimizer_, optim::cosine_lr(kSteps, 3));
    // So high that f16 overflows at first and steps are skipped, then it grows again.
    scaler_.emplace(amp::GradScalerOptions{
        .init_scale = 0x1p24, .growth_interval = 4, .enabled = setup.amp == DType::f16});
    if (setup.amp) optimizer_->keep_low_precision_copies(*setup.amp);
  }

  void steps(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      const int64_t per_epoch = (kRows + kBatch - 1) / kBatch;
      const EpochBatches batches(data_, kBatch, 5, step / per_epoch);
      const Examples b = batches.batch(step % per_epoch);
      optimizer_->zero_grad();
      Tensor loss;
      {
        std::optional<amp::Autocast> autocast;
        if (setup_.amp) autocast.emplace(amp::AutocastOptions{.dtype = setup_.amp});
        loss = cross_entropy(model_(b.inputs), b.targets);
      }
      scaler_->scale(loss).backward();
      skipped_ += scaler_->step(*optimizer_) ? 0 : 1;
      scaler_->update();
      schedule_->step();
    }
  }

  Run run() { return {model_, *optimizer_, &*schedule_, &*scaler_}; }
  StateDict state() { return run_state(run()); }
  int skipped() const { return skipped_; }

 private:
  Setup setup_;
  Examples data_;
  nn::Sequential model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LrScheduler> schedule_;
  std::optional<amp::GradScaler> scaler_;
  int skipped_ = 0;
};

void expect_same_bits(const StateDict& a, const StateDict& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  expect_same_tensors(a.tensors, b.tensors);
}

class Resume : public testing::TestWithParam<Setup> {};

TEST_P(Resume, EndsWithTheSameBits) {
  Process whole(GetParam(), 1);
  whole.steps(0, kSteps);
  if (GetParam().amp == DType::f16) {
    EXPECT_GT(whole.skipped(), 0);
  }
  const StateDict expected = whole.state();

  for (const int64_t stop : {0, 1, 7, 22, 23}) {
    SCOPED_TRACE(stop);
    const TempFolder folder;
    const CheckpointFolder checkpoints(folder.path());
    {
      Process first(GetParam(), 1);
      first.steps(0, stop);
      ASSERT_TRUE(checkpoints.save(stop, first.state()).ok());
    }
    Process second(GetParam(), 2);  // other weights and another generator until it has loaded
    load_run_state(second.run(), checkpoints.load().value().state);
    second.steps(stop, kSteps);
    expect_same_bits(second.state(), expected);
  }
}

// The test above could not see this if all states were the same.
TEST_P(Resume, AnotherSeedEndsElsewhere) {
  Process a(GetParam(), 1), b(GetParam(), 2);
  a.steps(0, 1);
  b.steps(0, 1);
  const StateDict x = a.state(), y = b.state();
  EXPECT_NE(std::memcmp(x.tensors[0].second.data(), y.tensors[0].second.data(),
                        x.tensors[0].second.bytes()),
            0);
}

INSTANTIATE_TEST_SUITE_P(All, Resume,
                         testing::Values(Setup{Method::adamw, {}, "adamw"},
                                         Setup{Method::adam, {}, "adam"},
                                         Setup{Method::sgd, {}, "sgd"},
                                         Setup{Method::adamw, DType::bf16, "adamw_bf16"},
                                         Setup{Method::sgd, DType::f16, "sgd_f16"},
                                         Setup{Method::adamw, DType::f16, "adamw_f16"}),
                         [](const auto& mode) { return std::string(mode.param.name); });

TEST(LoadRunState, RefusesTheStateOfAnotherRun) {
  Process adamw({Method::adamw}, 1), sgd({Method::sgd}, 1);
  EXPECT_THROW(load_run_state(sgd.run(), adamw.state()), Error);
  StateDict state = adamw.state();
  state.metadata.erase("rng.seed");
  EXPECT_ERROR(load_run_state(adamw.run(), state),
               "[load_run_state] expected \"rng.seed\", got no such key");
  state = adamw.state();
  state.metadata["rng.seed"] = "x";
  EXPECT_ERROR(load_run_state(adamw.run(), state),
               "[load_run_state] expected a number for \"rng.seed\", got \"x\"");
  state = adamw.state();
  state.tensors.erase(state.tensors.begin());
  EXPECT_THROW(load_run_state(adamw.run(), state), Error);
}

}  // namespace epilogue::train::resume_test
