// SPDX-License-Identifier: Apache-2.0
// softmax(q k^T * scale + mask) v as one kernel that holds no scores.
#include "base/cpu_features.h"
#include "epilogue/amp.h"
#include "epilogue/profiler.h"
#include "epilogue/runtime.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::attention_test {

using Function = std::function<Tensor(std::span<const Tensor>)>;

constexpr float kInf = std::numeric_limits<float>::infinity();

Compiled compile_one(const Function& f) {
  return compile([f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in)}; });
}

std::vector<Tensor> in_f64(const std::vector<Tensor>& list) {
  std::vector<Tensor> wide;
  for (const Tensor& t : list) wide.push_back(to(t, DType::f64));
  return wide;
}

// Of q, k, v [..., n, d] and a mask if there is a fourth.
Tensor attend(std::span<const Tensor> in) {
  Tensor scores = matmul(in[0], transpose(in[1], -2, -1)) * (1 / std::sqrt(in[0].size(-1)));
  if (in.size() > 3) scores = scores + in[3];
  return matmul(softmax(scores, -1), in[2]);
}

int64_t notes_of(const Compiled& compiled, bool done) {
  const std::vector<FusionNote> notes = compiled.notes();
  return std::ranges::count_if(notes, [&](const FusionNote& n) {
    return n.pass == "fuse_attention" && n.reason.empty() == done;
  });
}

// One kernel, no less accurate than eager's.
void expect_attention(const Function& f, const std::vector<Tensor>& in, const std::string& what,
                      int64_t kernels = 1) {
  const NoGrad no_grad;
  const Compiled compiled = compile_one(f);
  const Tensor got = compiled(in)[0];
  const Tensor eager = f(in);
  expect_no_less_accurate(got, eager, f(in_f64(in)).to_vector(), what);
  EXPECT_EQ(compiled.stats().kernels, kernels) << what << "\n" << compiled.explain();
  EXPECT_EQ(notes_of(compiled, true), 1) << what << "\n" << compiled.explain();
}

template <class Body>
void for_each_level(const Body& body) {
  const Isa before = active_isa();
  ASSERT_FALSE(available_isas().empty());
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    body(std::string(isa_name(isa)));
  }
  set_active_isa(before);
}

struct Sizes {
  int64_t batch, queries, keys, depth, values;
};

std::string text_of(const Sizes& s, DType dtype) {
  return std::string(dtype_name(dtype)) + " " + std::to_string(s.batch) + "x" +
         std::to_string(s.queries) + "x" + std::to_string(s.keys) + "x" + std::to_string(s.depth) +
         "x" + std::to_string(s.values);
}

// Whole and ragged blocks, panels and vectors; one key, one column; several blocks of keys.
// Small ones in a batch: an error of few elements says nothing.
const std::vector<Sizes> kSizes = {
    {60, 9, 1, 1, 1},    {50, 11, 3, 4, 1},    {40, 9, 16, 16, 16},  {3, 33, 31, 17, 65},
    {1, 96, 256, 64, 8}, {2, 97, 257, 33, 7},  {1, 70, 385, 5, 130}, {2, 100, 520, 80, 64},
    {5, 95, 63, 128, 6}, {1, 200, 64, 300, 9}, {4, 40, 1, 20, 12},   {1, 193, 1030, 12, 3},
};

TEST(Attention, IsExactAtEverySizeDtypeAndLevel) {
  for_each_level([](const std::string& level) {
    manual_seed(3);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Sizes& s : kSizes) {
        const std::vector<Tensor> in = {randn({s.batch, s.queries, s.depth}, dtype),
                                        randn({s.batch, s.keys, s.depth}, dtype),
                                        randn({s.batch, s.keys, s.values}, dtype)};
        expect_attention(attend, in, level + " " + text_of(s, dtype));
      }
  });
}

TEST(Attention, IsExactWithMasksThatBroadcast) {
  for_each_level([](const std::string& level) {
    manual_seed(4);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Dims& mask :
           {Dims{70, 300}, Dims{2, 1, 70, 300}, Dims{1, 3, 1, 300}, Dims{2, 3, 70, 1}, Dims{300}}) {
        const std::vector<Tensor> in = {randn({2, 3, 70, 24}, dtype), randn({2, 3, 300, 24}, dtype),
                                        randn({2, 3, 300, 40}, dtype), randn(mask, dtype)};
        expect_attention(attend, in, level + " mask " + to_string(mask));
      }
  });
}

// Large scores: what was summed before a larger one came is made small.
TEST(Attention, IsExactWhereTheMaximumGrows) {
  for_each_level([](const std::string& level) {
    manual_seed(5);
    const Tensor q = randn({2, 60, 32}) * 6.0;
    const Tensor k = randn({2, 900, 32});
    for (int64_t j = 0; j < 900; ++j)
      mul_(slice(k, 1, j, j + 1), scalar(0.2 + static_cast<double>(j) / 300));
    expect_attention(attend, {q, k, randn({2, 900, 16})}, level);
  });
}

TEST(Attention, TakesTwoMatrices) {
  expect_attention(attend, {randn({50, 9}), randn({70, 9}), randn({70, 11})}, "2-D");
  expect_attention(attend, {randn({50, 9}), randn({70, 9}), randn({70, 11}), randn({50, 70})},
                   "2-D, masked");
  expect_attention(
      [](std::span<const Tensor> in) {
        return matmul(softmax(matmul(in[0], t(in[1])), -1), in[2]);
      },
      {randn({50, 9}), randn({70, 9}), randn({70, 11})}, "no scale");
  expect_attention(
      [](std::span<const Tensor> in) {
        return matmul(softmax(in[3] + matmul(in[0], t(in[1])) / 3.0, 1), in[2]);
      },
      {randn({50, 9}), randn({70, 9}), randn({70, 11}), randn({70})}, "a quotient, a mask before");
}

// q, k and v of one projection, heads between rows and columns, a result of rows: no copy is left.
TEST(Attention, ReadsHeadsWhereTheyLie) {
  const auto heads = [](const Tensor& x, int64_t n) {
    return transpose(reshape(x, {x.size(0), x.size(1), n, x.size(2) / n}), 1, 2);
  };
  const Function packed = [&](std::span<const Tensor> in) {
    const Tensor q = heads(slice(in[0], 2, 0, 48), 4);
    const Tensor k = heads(slice(in[0], 2, 48, 96), 4);
    const Tensor v = heads(slice(in[0], 2, 96, 144), 4);
    const Tensor all[] = {q, k, v, in[1]};
    return reshape(transpose(attend(all), 1, 2), {in[0].size(0), in[0].size(1), 48});
  };
  expect_attention(packed, {randn({2, 37, 144}), randn({37, 37})}, "one projection");
  // Four query heads for each head of keys.
  const Function grouped = [&](std::span<const Tensor> in) {
    const auto repeated = [](const Tensor& x) {
      const Tensor each = expand(unsqueeze(x, 2), {x.size(0), 2, 4, x.size(2), x.size(3)});
      return reshape(each, {x.size(0), 8, x.size(2), x.size(3)});
    };
    const Tensor all[] = {heads(in[0], 8), repeated(heads(in[1], 2)), repeated(heads(in[2], 2))};
    return attend(all);
  };
  expect_attention(grouped, {randn({1, 30, 64}), randn({1, 41, 16}), randn({1, 41, 16})},
                   "keys of groups");
  // More strides than rows may have: keys and values are copied as eager copies them.
  expect_attention(grouped, {randn({2, 30, 64}), randn({2, 41, 16}), randn({2, 41, 16})},
                   "keys of groups in a batch", 3);
}

// As eager: a row whose scores are all -inf, or one of which is NaN or +inf, is NaN, others are
// not.
TEST(Attention, GivesNanWhereSoftmaxDoes) {
  const NoGrad no_grad;
  for_each_level([&](const std::string& level) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      manual_seed(6);
      const Tensor causal = zeros({40, 600});
      for (int64_t i = 0; i < 40; ++i)
        fill_(slice(slice(causal, 0, i, i + 1), 1, i + 1, 600), -kInf);
      fill_(slice(causal, 0, 7, 8), -kInf);                     // nothing to look at
      fill_(slice(slice(causal, 0, 9, 10), 1, 0, 590), -kInf);  // blocks of nothing first
      fill_(slice(slice(causal, 0, 9, 10), 1, 590, 600), 0);
      fill_(slice(slice(causal, 0, 11, 12), 1, 3, 4), kInf);
      fill_(slice(slice(causal, 0, 13, 14), 1, 5, 6), std::nanf(""));
      const std::vector<Tensor> in = {randn({2, 40, 8}, dtype), randn({2, 600, 8}, dtype),
                                      randn({2, 600, 8}, dtype), to(causal, dtype)};
      const Compiled compiled = compile_one(attend);
      const std::vector<double> got = compiled(in)[0].to_vector();
      const std::vector<double> eager = attend(in).to_vector();
      EXPECT_EQ(notes_of(compiled, true), 1);
      ASSERT_EQ(got.size(), eager.size());
      size_t nan = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(std::isnan(got[i]), std::isnan(eager[i])) << level << " at " << i;
        nan += std::isnan(eager[i]) ? 1U : 0U;
        if (std::isnan(eager[i])) continue;
        EXPECT_NEAR(got[i], eager[i], dtype == DType::f32 ? 1e-5 : 0.05) << level << " at " << i;
      }
      EXPECT_EQ(nan, 2U * 3U * 8U);
    }
  });
}

TEST(Attention, BitsDoNotDependOnThreads) {
  const NoGrad no_grad;
  const int before = num_threads();
  for (const Sizes& s : {Sizes{1, 1000, 300, 64, 64}, Sizes{12, 128, 128, 32, 32}}) {
    const std::vector<Tensor> in = {randn({s.batch, s.queries, s.depth}),
                                    randn({s.batch, s.keys, s.depth}),
                                    randn({s.batch, s.keys, s.values})};
    Tensor first;
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      const Compiled compiled = compile_one(attend);
      const Tensor got = compiled(in)[0];
      if (!first.defined()) first = got;
      ASSERT_EQ(notes_of(compiled, true), 1);
      EXPECT_EQ(std::memcmp(got.data(), first.data(), got.bytes()), 0) << threads << " threads";
    }
  }
  set_num_threads(before);
}

class SelfAttention final : public nn::Module {
 public:
  SelfAttention(int64_t dim, int64_t heads)
      : Module("SelfAttention"),
        heads_(heads),
        q_(dim, dim),
        k_(dim, dim),
        v_(dim, dim),
        out_(dim, dim) {
    register_module("q", q_);
    register_module("k", k_);
    register_module("v", v_);
    register_module("out", out_);
  }
  Tensor forward(const Tensor& x) const override {
    const auto split = [&](const Tensor& y) {
      return transpose(view(y, {y.size(0), y.size(1), heads_, y.size(2) / heads_}), 1, 2);
    };
    const Tensor all[] = {split(q_.forward(x)), split(k_.forward(x)), split(v_.forward(x))};
    return out_.forward(reshape(transpose(attend(all), 1, 2), x.sizes()));
  }

 private:
  int64_t heads_;
  nn::Linear q_, k_, v_, out_;
};

TEST(Attention, ServesAModule) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    manual_seed(8);
    SelfAttention module(48, 4);
    module.to(dtype);
    const Compiled compiled = compile(module);
    for (const int64_t rows : {60, 25, 60}) {
      const Tensor x = randn({3, rows, 48}, dtype);
      expect_no_less_accurate(compiled(x), module(x), exact_result(module, x), to_string(x));
    }
    // q, k, v, attention, out.
    EXPECT_EQ(compiled.stats().kernels, 5) << compiled.explain();
    const std::string text = compiled.explain();
    EXPECT_HAS(text, "_attention, 12 x ");
    EXPECT_HAS(text, "fuse_attention: aten::bmm %");
    EXPECT_HAS(text, "as attention, whose scores stay in the cache: saves ");
    EXPECT_HAS(compiled.dump(CompiledDump::plan), ": 12 x [60, 60] scores * 0.288675");
  }
}

TEST(Attention, HoldsNoScores) {
  const NoGrad no_grad;
  const int before = num_threads();
  set_num_threads(2);
  const std::vector<Tensor> in = {randn({1500, 8}), randn({1500, 8}), randn({1500, 8})};
  const Compiled compiled = compile_one(attend);
  compiled(in);
  const CompileStats stats = compiled.stats();
  const int64_t scores = 1500 * 1500 * 4;
  EXPECT_GT(stats.scratch_bytes, 0);
  EXPECT_LT(4 * (stats.intermediate_bytes + stats.scratch_bytes), scores);
  set_num_threads(before);
}

TEST(Attention, ItsEventNamesTheOps) {
  const NoGrad no_grad;
  const std::vector<Tensor> in = {randn({2, 40, 8}), randn({2, 50, 8}), randn({2, 50, 8}),
                                  randn({40, 50})};
  const Compiled compiled = compile_one(attend);
  compiled(in);
  trace::Trace result;
  profiler::ProfileOptions options;
  options.on_trace_ready = [&](profiler::Profile& p) {
    result = std::move(const_cast<trace::Trace&>(p.trace()));
  };
  profiler::Profile profile(options);
  profile.start();
  compiled(in);
  profile.stop();
  ASSERT_EQ(result.kernels.size(), 1U);
  const trace::KernelArgs& kernel = result.kernels[0];
  EXPECT_EQ(result.strings[kernel.fused_ops],
            "aten::bmm, aten::mul, aten::add, aten::_softmax, aten::bmm");
  // q, k, v, mask and the result once.
  EXPECT_EQ(kernel.bytes, (2 * (2 * 40 * 8 + 2 * 50 * 8) + 40 * 50) * 4);
  EXPECT_GT(kernel.unfused_bytes, 6 * 2 * 40 * 50 * 4);
  std::string name;
  for (const trace::Event& e : result.events)
    if (e.category == trace::Category::kernel) name = result.name(e);
  EXPECT_HAS(name, "_attention_bmm_mul_add__softmax_bmm_f32");
}

// The backward pass reads the probabilities: eager's ops, fused as before.
TEST(Attention, GradientsAreEagers) {
  const auto run = [](const Function& f) {
    manual_seed(9);
    std::vector<Tensor> in = {randn({2, 30, 8}), randn({2, 40, 8}), randn({2, 40, 8})};
    for (Tensor& t : in) t.set_requires_grad(true);
    const Tensor total = sum(f(in));
    backward({&total, 1});
    std::vector<std::vector<double>> gradients;
    for (const Tensor& t : in) gradients.push_back(t.grad().to_vector());
    return gradients;
  };
  const Compiled compiled = compile_one(attend);
  const auto ours = run([&](std::span<const Tensor> in) { return compiled(in)[0]; });
  const auto eager = run(attend);
  EXPECT_EQ(notes_of(compiled, true) + notes_of(compiled, false), 1) << compiled.explain();
  ASSERT_EQ(ours.size(), eager.size());
  for (size_t i = 0; i < ours.size(); ++i)
    for (size_t j = 0; j < ours[i].size(); ++j) EXPECT_NEAR(ours[i][j], eager[i][j], 1e-5);
}

// Autocast's casts around the softmax go: arithmetic is f32 in between.
TEST(Attention, TakesAutocastsCasts) {
  const NoGrad no_grad;
  const Function f = [](std::span<const Tensor> in) {
    const amp::Autocast autocast({.dtype = DType::bf16});
    return attend(in);
  };
  const std::vector<Tensor> in = {randn({2, 40, 16}, DType::bf16), randn({2, 50, 16}, DType::bf16),
                                  randn({2, 50, 16}, DType::bf16)};
  const Compiled compiled = compile_one(f);
  expect_no_less_accurate(compiled(in)[0], f(in), attend(in_f64(in)).to_vector(), "autocast");
  EXPECT_EQ(compiled.stats().kernels, 1) << compiled.explain();
}

TEST(Attention, MeasuringKeepsTheBestAmongPlansThatAgree) {
  const NoGrad no_grad;
  const std::vector<Tensor> in = {randn({2, 64, 8}), randn({2, 64, 8}), randn({2, 64, 8})};
  for (const char* choice : {"row-chains", "eager-products", "one-thread"}) {
    const Compiled compiled =
        compile([](std::span<const Tensor> x) { return std::vector<Tensor>{attend(x)}; },
                {.choice = choice});
    const Tensor got = compiled(in)[0];
    EXPECT_LE(relative_l2(got, attend(in_f64(in)).to_vector()), 1e-6) << choice;
    EXPECT_EQ(notes_of(compiled, true), choice != std::string("eager-products") ? 1 : 0);
  }
}

}  // namespace epilogue::testing::attention_test
