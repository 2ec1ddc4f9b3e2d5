// SPDX-License-Identifier: Apache-2.0
// A profiled training step: names, links, lists of tensors, and who held which memory.
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "epilogue/profiler.h"
#include "epilogue/trace/file.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/memory.h"
#include "profile/recording.h"
#include "support/test.h"

namespace epilogue::profiler::training_test {

using trace::Category;
using trace::MemoryCategory;
using trace::Trace;

constexpr int64_t kDim = 32;
constexpr int64_t kHidden = 64;
constexpr int64_t kParameterBytes = 3 * kDim * kHidden * 4;

struct Training {
  nn::GatedMLP model{kDim, kHidden};
  optim::AdamW optimizer{model.parameters()};
  Tensor x;
  Tensor y;

  explicit Training(int64_t rows) : x(randn({rows, kDim})), y(randn({rows, kDim})) {
    epilogue::set_memory_category(x, epilogue::MemoryCategory::input);
    epilogue::set_memory_category(y, epilogue::MemoryCategory::input);
  }
  void step(int64_t parts = 1) {
    optimizer.zero_grad();
    for (const optim::MicroBatch& part : optim::micro_batches(x.size(0), parts)) {
      const Tensor out = model(slice(x, 0, part.begin, part.end));
      mul(mse_loss(out, slice(y, 0, part.begin, part.end)), part.share).backward();
    }
    optimizer.step();
  }
};

trace::DeviceMemory memory_of(const Trace& t) {
  return trace::memory_profile(t, trace::link(t)).at(0);
}
int64_t at(const trace::CategoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<size_t>(category)];
}

TEST(TrainingTrace, ShowsForwardBackwardAndOptimizer) {
  Training training(8);
  training.step();
  const Trace t = record([&] { training.step(); }, {.record_shapes = true});
  std::set<std::string> names;
  int64_t optimizer_kernels = 0;
  for (const trace::Event& e : t.events) {
    names.emplace(t.name(e));
    if (e.category == Category::kernel)
      optimizer_kernels += t.name(e).find("fused_adamw") != std::string_view::npos ? 1 : 0;
    if (t.name(e) == "Optimizer.step#AdamW.step") {
      EXPECT_EQ(e.category, Category::user_annotation);
    }
  }
  for (const char* name :
       {"aten::linear", "aten::mse_loss", "autograd::engine::evaluate_function: MmBackward0",
        "MseLossBackward0", "torch::autograd::AccumulateGrad", "Optimizer.step#AdamW.step",
        "Optimizer.zero_grad#AdamW.zero_grad", "aten::_fused_adamw_"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(optimizer_kernels, 1);
  EXPECT_GE(t.flows.size(), 5U);
}

TEST(TrainingTrace, ListsAreListsOfTheirOwnTensors) {
  Training training(8);
  const Trace t = record([&] { training.step(); }, {.record_shapes = true});
  for (const trace::Event& e : t.events) {
    if (t.name(e) != "aten::_fused_adamw_" || e.category != Category::cpu_op) continue;
    const auto& inputs = t.inputs[t.op_args(e)->inputs];
    ASSERT_GE(inputs.size(), 9U);
    for (const size_t list : {0, 1, 2, 3}) {  // parameters, gradients, both moments
      EXPECT_EQ(inputs[list].type, "TensorList");
      ASSERT_EQ(inputs[list].list.size(), 3U);
      EXPECT_EQ(inputs[list].list[0].dims, (std::vector<int64_t>{kHidden, kDim}));
      EXPECT_EQ(inputs[list].list[2].dims, (std::vector<int64_t>{kDim, kHidden}));
    }
    EXPECT_TRUE(inputs[4].list.empty()) << "no amsgrad";
    EXPECT_EQ(inputs[5].list.size(), 3U) << "steps";
    EXPECT_TRUE(inputs[6].list.empty()) << "no copies";
    EXPECT_EQ(inputs[7].concrete, "0.001") << "lr";
    return;
  }
  FAIL() << "no aten::_fused_adamw_";
}

// Memory from before the window is found where ops use it.
TEST(TrainingMemory, HasPyTorchsCategories) {
  Training training(128);
  training.step();
  training.step();
  const int64_t before = memory_stats().allocated_bytes;
  const Trace t = record([&] { training.step(); }, {.profile_memory = true});
  const trace::DeviceMemory m = memory_of(t);
  ASSERT_FALSE(m.category_totals.empty());
  EXPECT_EQ(at(m.category_at_peak, MemoryCategory::parameter), kParameterBytes);
  // Two moments and three counts.
  EXPECT_EQ(at(m.category_at_peak, MemoryCategory::optimizer_state), 2 * kParameterBytes + 3 * 4);
  EXPECT_EQ(at(m.category_at_peak, MemoryCategory::input), 2 * 128 * kDim * 4);
  EXPECT_EQ(at(m.category_peak, MemoryCategory::gradient), kParameterBytes);
  // gate, up, act(gate), their product and the output, at least.
  EXPECT_GE(at(m.category_peak, MemoryCategory::activation), 128 * (4 * kHidden + kDim) * 4);
  EXPECT_GT(at(m.category_peak, MemoryCategory::autograd_detail), 0);
  // At the end: the gradients of this step took the place of the last ones.
  const trace::CategoryBytes& end = m.category_totals.back();
  EXPECT_EQ(at(end, MemoryCategory::activation), 0);
  EXPECT_EQ(at(end, MemoryCategory::autograd_detail), 0);
  EXPECT_EQ(at(end, MemoryCategory::temporary), 0);
  EXPECT_EQ(at(end, MemoryCategory::gradient), kParameterBytes);
  EXPECT_EQ(m.totals.back().allocated_bytes, before);
}

TEST(TrainingMemory, FirstStepMakesGradientsAndState) {
  Training training(8);
  const Trace t = record([&] { training.step(); }, {.profile_memory = true});
  const trace::CategoryBytes end = memory_of(t).category_totals.back();
  EXPECT_EQ(at(end, MemoryCategory::parameter), kParameterBytes);
  EXPECT_EQ(at(end, MemoryCategory::optimizer_state), 2 * kParameterBytes + 3 * 4);
  EXPECT_EQ(at(end, MemoryCategory::gradient), kParameterBytes);
}

TEST(TrainingMemory, OfAccumulationIsThatOfOneMicroBatch) {
  const auto activations = [](int64_t rows, int64_t parts) {
    Training training(rows);
    training.step(parts);
    const Trace t = record([&] { training.step(parts); }, {.profile_memory = true});
    return at(memory_of(t).category_peak, MemoryCategory::activation);
  };
  const int64_t whole = activations(512, 1);
  EXPECT_EQ(activations(512, 8), activations(64, 1));
  EXPECT_LT(activations(512, 8) * 7, whole);
}

TEST(TrainingMemory, SurvivesTheFile) {
  Training training(8);
  training.step();
  const std::string path = ::testing::TempDir() + "epilogue_training_memory.json.gz";
  trace::CategoryBytes written{};
  ProfileOptions options{.profile_memory = true};
  options.on_trace_ready = [&](Profile& p) {
    written = memory_of(p.trace()).category_at_peak;
    ASSERT_TRUE(p.export_chrome_trace(path));
  };
  Profile prof(options);
  prof.start();
  training.step();
  prof.stop();
  const auto read = trace::read_trace(path);
  ASSERT_TRUE(read) << read.failure().message;
  EXPECT_EQ(memory_of(read.value()).category_at_peak, written);
  std::remove(path.c_str());
}

}  // namespace epilogue::profiler::training_test
