// SPDX-License-Identifier: Apache-2.0
// A recorded run: ops, launches, kernels, links, shapes, memory, threads.
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/profiler.h"
#include "profile/op_inputs.h"
#include "profile/recording.h"
#include "support/test.h"

namespace epilogue::profiler::profile_test {

using trace::Category;
using trace::Event;
using trace::Trace;

std::vector<const Event*> of(const Trace& t, Category category) {
  std::vector<const Event*> events;
  for (const Event& e : t.events)
    if (e.category == category) events.push_back(&e);
  std::sort(events.begin(), events.end(), [](auto* a, auto* b) {
    return a->ts_ns != b->ts_ns ? a->ts_ns < b->ts_ns : a->dur_ns > b->dur_ns;
  });
  return events;
}

std::vector<std::string> names(const Trace& t, Category category) {
  std::vector<std::string> result;
  for (const Event* e : of(t, category)) result.emplace_back(t.name(*e));
  return result;
}

const Event* by_external_id(const Trace& t, int64_t id) {
  for (const Event& e : t.events)
    if (e.external_id == id && e.category == Category::cpu_op) return &e;
  return nullptr;
}

TEST(Recording, LinearWithBiasIsOneKernel) {
  const NoGrad no_grad;
  const Tensor x = randn({4, 8});
  const Tensor w = randn({3, 8});
  const Tensor b = randn({3});
  const Trace t = record([&] { linear(x, w, b); });
  EXPECT_EQ(names(t, Category::cpu_op),
            std::vector<std::string>(
                {"aten::linear", "aten::t", "aten::transpose", "aten::as_strided", "aten::addmm"}));
  const auto kernels = of(t, Category::kernel);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_HAS(t.name(*kernels[0]), "_bias");
  EXPECT_EQ(t.name(*by_external_id(t, kernels[0]->external_id)), "aten::addmm");
}

TEST(Recording, GegluMlpHasFiveKernelsAndViewsWithout) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(16, 32);
  const Tensor x = randn({2, 3, 16});
  const Trace t = record([&] { mlp(x); });
  const auto ops = names(t, Category::cpu_op);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "aten::linear"), 3);
  std::map<std::string, int> kernels_of;
  for (const Event* k : of(t, Category::kernel))
    ++kernels_of[std::string(t.name(*by_external_id(t, k->external_id)))];
  EXPECT_EQ(kernels_of,
            (std::map<std::string, int>{{"aten::mm", 3}, {"aten::gelu", 1}, {"aten::mul", 1}}));
  EXPECT_GE(std::count(ops.begin(), ops.end(), "aten::_unsafe_view"), 3);
}

TEST(Recording, EveryKernelHasALaunchInsideItsOp) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(16, 32);
  const Tensor x = randn({4, 16});
  const Trace t = record([&] { mlp(x); });
  std::map<int64_t, const Event*> launches;
  for (const Event* e : of(t, Category::cuda_runtime)) {
    EXPECT_EQ(t.name(*e), "epiLaunchKernel");
    EXPECT_TRUE(launches.emplace(e->correlation, e).second) << "correlations are unique";
  }
  const auto kernels = of(t, Category::kernel);
  ASSERT_EQ(kernels.size(), launches.size());
  for (const Event* k : kernels) {
    ASSERT_TRUE(launches.contains(k->correlation));
    const Event* launch = launches[k->correlation];
    EXPECT_EQ(launch->ts_ns, k->ts_ns);
    EXPECT_EQ(launch->dur_ns, k->dur_ns);
    const Event& op = test::found(by_external_id(t, k->external_id));
    EXPECT_LE(op.ts_ns, launch->ts_ns);
    EXPECT_GE(op.end_ns(), launch->end_ns());
    EXPECT_EQ(op.tid, launch->tid);
    const trace::KernelArgs& args = test::found(t.kernel_args(*k));
    EXPECT_GT(args.bytes, 0);
    EXPECT_GE(args.threads, 1);
    EXPECT_GE(args.grid[0] * args.grid[1] * args.grid[2], 1);
  }
}

TEST(Recording, EventsNestStrictlyPerThread) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(16, 32);
  const Tensor x = randn({4, 16});
  const Trace t = record([&] {
    for (int i = 0; i < 20; ++i) {
      const RecordFunction range("mlp_fwd");
      mlp(x);
    }
  });
  std::vector<const Event*> open;
  std::vector<const Event*> all;
  for (const Event& e : t.events)
    if (e.category == Category::cpu_op || e.category == Category::user_annotation)
      all.push_back(&e);
  std::stable_sort(all.begin(), all.end(), [](auto* a, auto* b) {
    return a->ts_ns != b->ts_ns ? a->ts_ns < b->ts_ns : a->dur_ns > b->dur_ns;
  });
  for (const Event* e : all) {
    while (!open.empty() && open.back()->end_ns() <= e->ts_ns) open.pop_back();
    if (!open.empty()) {
      EXPECT_GE(open.back()->end_ns(), e->end_ns());
    }
    open.push_back(e);
  }
  EXPECT_EQ(names(t, Category::user_annotation).size(), 20U);
}

TEST(Recording, ShapesFollowTheSchema) {
  const NoGrad no_grad;
  const Trace t = record(
      [&] {
        addmm(ones({3}), ones({2, 5}, DType::f32), ones({5, 3}));
      },
      {.record_shapes = true});
  const Event* op = of(t, Category::cpu_op).at(0);
  const trace::OpArgs* args = t.op_args(*op);
  ASSERT_NE(args->inputs, trace::kNone);
  const auto inputs = t.inputs[args->inputs];
  ASSERT_EQ(inputs.size(), 5U);
  EXPECT_EQ(inputs[0].dims, std::vector<int64_t>({3}));
  EXPECT_EQ(inputs[1].dims, std::vector<int64_t>({2, 5}));
  EXPECT_EQ(inputs[1].strides, std::vector<int64_t>({5, 1}));
  EXPECT_EQ(inputs[2].type, "float");
  EXPECT_EQ(inputs[3].type, "Scalar");
  EXPECT_EQ(inputs[3].concrete, "1.");
}

TEST(Recording, SchemasAreUnderstood) {
  using enum ArgKind;
  EXPECT_EQ(schema_args("(Tensor self, *, Scalar alpha=1)"), std::vector<ArgKind>({tensor, other}));
  EXPECT_EQ(schema_args("(Tensor[] tensors, int dim=0)"),
            std::vector<ArgKind>({tensor_list, other}));
  EXPECT_EQ(schema_args("(Tensor input, Tensor? bias=None)"),
            std::vector<ArgKind>({tensor, tensor}));
  EXPECT_TRUE(schema_args("()").empty());
}

TEST(Recording, MemoryBalances) {
  const NoGrad no_grad;
  const Tensor a = ones({256});
  const Trace t = record([&] { mul(add(a, a), a); }, {.profile_memory = true});
  int64_t live = 0;
  int64_t allocated = 0;
  for (const trace::MemoryEvent& m : t.memory) {
    live += m.bytes;
    if (m.bytes > 0) allocated += m.bytes;
    EXPECT_NE(m.addr, 0U);
  }
  EXPECT_EQ(live, 0);
  EXPECT_EQ(allocated, 2 * 1024);
}

TEST(Recording, EveryThreadHasItsLane) {
  const Tensor a = ones({64});
  const Trace t = record([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        const NoGrad no_grad;
        for (int k = 0; k < 200; ++k) add(a, a);
      });
    for (std::thread& thread : threads) thread.join();
  });
  std::map<int64_t, int> ops_per_thread;
  for (const Event* e : of(t, Category::cpu_op)) ++ops_per_thread[e->tid];
  ASSERT_EQ(ops_per_thread.size(), 3U);
  for (const auto& [tid, count] : ops_per_thread) EXPECT_EQ(count, 200);
  // Kernels of different threads lie on different streams: none overlaps another of its stream.
  std::map<int64_t, int64_t> end_of_stream;
  for (const Event* k : of(t, Category::kernel)) {
    EXPECT_GE(k->ts_ns, end_of_stream[k->tid]);
    end_of_stream[k->tid] = k->end_ns();
  }
  EXPECT_EQ(end_of_stream.size(), 3U);
  std::set<int64_t> ids;
  for (const Event* e : of(t, Category::cpu_op)) EXPECT_TRUE(ids.insert(e->external_id).second);
}

TEST(Recording, BackwardIsLinkedToForward) {
  nn::Linear layer(8, 4);
  const Tensor x = randn({2, 8});
  const Trace t = record([&] { sum(layer(x)).backward(); });
  const auto ops = names(t, Category::cpu_op);
  for (const char* name : {"autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0",
                           "TBackward0", "torch::autograd::AccumulateGrad", "SumBackward0"})
    EXPECT_NE(std::find(ops.begin(), ops.end(), name), ops.end()) << name;
  EXPECT_GE(t.flows.size(), 3U);  // sum, addmm, t
  std::map<std::string, int64_t> sequence;
  for (const Event* e : of(t, Category::cpu_op))
    if (t.op_args(*e)->sequence_number >= 0)
      sequence.try_emplace(std::string(t.name(*e)), t.op_args(*e)->sequence_number);
  EXPECT_EQ(sequence["aten::addmm"], sequence["AddmmBackward0"]);
  EXPECT_EQ(sequence["aten::t"], sequence["TBackward0"]);
}

TEST(Recording, ProfiledEqualsUnprofiled) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(32, 64);
  const Tensor x = randn({5, 32});
  const std::vector<double> plain = mlp(x).to_vector();
  std::vector<double> profiled;
  record([&] { profiled = mlp(x).to_vector(); },
         {.record_shapes = true, .profile_memory = true, .with_stack = true});
  EXPECT_EQ(plain, profiled);
}

TEST(Recording, StacksNameTheLibrary) {
  const NoGrad no_grad;
  const Trace t = record([&] { add(ones({2}), ones({2})); }, {.with_stack = true});
  const Event* op = of(t, Category::cpu_op).at(0);
  EXPECT_NE(t.op_args(*op)->stack, 0U);
}

TEST(Recording, KernelActivityAlone) {
  const NoGrad no_grad;
  const Trace t = record([&] { add(ones({2}), ones({2})); }, {.cpu_activity = false});
  EXPECT_TRUE(of(t, Category::cpu_op).empty());
  EXPECT_EQ(of(t, Category::kernel).size(), 1U);
}

TEST(Recording, CostIsMeasuredAndStated) {
  Profile prof;
  prof.start();
  const NoGrad no_grad;
  add(ones({2}), ones({2}));
  prof.stop();
  EXPECT_GT(prof.recorder_cost().ns_per_op, 0);
  EXPECT_GE(prof.recorder_cost().ns_per_kernel,
            0);  // a difference of timings: beside a busy neighbour it may be 0
  EXPECT_GT(prof.recorder_overhead_ns(), 0);
  const auto& metadata = prof.trace().metadata;
  EXPECT_TRUE(std::any_of(metadata.begin(), metadata.end(),
                          [](const auto& m) { return m.first == "epilogue_recorder"; }));
}

}  // namespace epilogue::profiler::profile_test
