// SPDX-License-Identifier: Apache-2.0
// FusedExperts beside the loop over experts that models run, both against the loop in f64.
#include "base/cpu_features.h"
#include "epilogue/fused.h"
#include "epilogue/runtime.h"
#include "nn/activation.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::fused_experts_test {

struct Sizes {
  int64_t experts, k, hidden, n;
};

struct Mixture {
  Mixture(const Sizes& sizes, DType dtype, nn::Activation act, bool biases = false)
      : s(sizes), activation(act) {
    const bool gated = nn::is_gated(act);
    for (int64_t e = 0; e < s.experts; ++e) {
      Expert x;
      const auto weight = [&](int64_t out, int64_t in) {
        return to(randn({out, in}) * (1 / std::sqrt(static_cast<double>(in))), dtype);
      };
      const auto bias = [&](int64_t n) { return biases ? randn({n}, dtype) : Tensor(); };
      if (gated) {
        x.gate = weight(s.hidden, s.k);
        x.gate_bias = bias(s.hidden);
      }
      x.up = weight(s.hidden, s.k);
      x.up_bias = bias(s.hidden);
      x.down = weight(s.n, s.hidden);
      x.down_bias = bias(s.n);
      experts.push_back(x);
    }
  }

  // As transformers' loops do it: each op rounds to x's dtype, results are added expert by expert.
  Tensor loop(const Tensor& x, const Tensor& index, const Tensor& weights) const {
    const auto like = [&](const Tensor& t) { return t.defined() ? to(t, x.dtype()) : t; };
    Tensor y = zeros({x.size(0), s.n}, x.dtype());
    for (int64_t e = 0; e < s.experts; ++e) {
      const Expert& expert = experts[static_cast<size_t>(e)];
      Tensor h = linear(x, like(expert.up), like(expert.up_bias));
      if (nn::is_gated(activation)) {
        h = nn::gate(linear(x, like(expert.gate), like(expert.gate_bias)), h, activation);
      } else {
        h = nn::activate(h, activation);
      }
      const Tensor out = linear(h, like(expert.down), like(expert.down_bias));
      // Of an expert that a token chose twice, the sum of both weights.
      const Tensor chosen = eq(index, static_cast<double>(e));
      const Tensor w = sum(where(chosen, to(weights, DType::f64), 0.0), {1}, true);
      const Tensor wide = x.dtype() == DType::f64 ? w : to(w, weights.dtype());
      y = y + to(out * wide, x.dtype());
    }
    return y;
  }

  FusedExperts fused() const { return FusedExperts(experts, activation); }

  Sizes s;
  nn::Activation activation;
  std::vector<Expert> experts;
};

// Distinct experts for each token, as top-k gives them, where there are so many.
Tensor random_index(int64_t tokens, int64_t choices, int64_t experts, Random& random) {
  std::vector<int64_t> index;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int64_t> all(static_cast<size_t>(std::max(experts, choices)));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i) % experts;
    std::shuffle(all.begin(), all.end(), random);
    index.insert(index.end(), all.begin(), all.begin() + choices);
  }
  return from_values(std::span<const int64_t>(index), {tokens, choices}, DType::i64);
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

std::string text_of(const Mixture& m, const Tensor& x, const Tensor& index) {
  return std::string(nn::activation_name(m.activation)) + " " + to_string(x) + " index " +
         to_string(index.sizes()) + ", " + std::to_string(m.s.experts) + " experts of " +
         std::to_string(m.s.k) + " x " + std::to_string(m.s.hidden) + " x " + std::to_string(m.s.n);
}

// Squared errors of all cases, relative to their results: small cases alone are mostly luck.
struct Errors {
  double ours = 0;
  double eager = 0;
};

void expect_exact(const Mixture& m, const FusedExperts& fused, const Tensor& x, const Tensor& index,
                  const Tensor& weights, const std::string& what, Errors* errors = nullptr) {
  const Tensor got = fused(x, index, weights);
  const Tensor eager = m.loop(x, index, weights);
  const std::vector<double> exact = m.loop(to(x, DType::f64), index, weights).to_vector();
  expect_accurate(got, eager, exact, what + " " + text_of(m, x, index));
  if (errors == nullptr) return;
  errors->ours += std::pow(relative_l2(got, exact), 2);
  errors->eager += std::pow(relative_l2(eager, exact), 2);
}

class FusedExpertsTest : public ::testing::Test {
 protected:
  FusedExpertsTest() { manual_seed(11); }
  NoGrad no_grad_;
  Random random_{5};
};

// Tokens and choices of each.
constexpr std::pair<int64_t, int64_t> kCalls[] = {{1, 1},  {1, 4},  {1, 8},   {3, 2},  {3, 8},
                                                  {64, 1}, {64, 4}, {517, 2}, {517, 8}};

// Panels and vectors whole and ragged, one column, odd depths.
TEST_F(FusedExpertsTest, AreExactAtEverySizeDtypeAndLevel) {
  for_each_level([&](const std::string& level) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Errors errors;
      for (const Sizes& s : {Sizes{5, 33, 17, 33}, Sizes{8, 64, 48, 64}, Sizes{3, 130, 70, 31},
                             Sizes{4, 1, 1, 1}, Sizes{6, 96, 129, 96}}) {
        const Mixture m(s, dtype, nn::Activation::swiglu);
        const FusedExperts fused = m.fused();
        for (const auto& [tokens, choices] : kCalls) {
          const Tensor x = randn({tokens, s.k}, dtype);
          const Tensor weights = uniform({tokens, choices}, 0.1, 1);
          const Tensor index = random_index(tokens, choices, s.experts, random_);
          const Tensor used = choices == 2 ? to(weights, dtype) : weights;
          if (s.n > 1) {
            expect_exact(m, fused, x, index, used, level, &errors);
          } else {  // one number, of terms that may cancel
            const Tensor exact = m.loop(to(x, DType::f64), index, used);
            expect_close(fused(x, index, used), to(exact, dtype), dtype == DType::f32 ? 1e-5 : 4e-2,
                         level + " one column");
          }
        }
        EXPECT_EQ(
            fused(randn({0, s.k}, dtype), random_index(0, 2, s.experts, random_), zeros({0, 2}))
                .sizes(),
            (Dims{0, s.n}));
      }
      EXPECT_LE(std::sqrt(errors.ours), 1.05 * std::sqrt(errors.eager))
          << level << " " << dtype_name(dtype);
    }
  });
}

// The sizes at which libraries' sums are best.
TEST_F(FusedExpertsTest, AreExactAtSizesOfModels) {
  for_each_level([&](const std::string& level) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Mixture m({4, 384, 256, 384}, dtype, nn::Activation::swiglu);
      const FusedExperts fused = m.fused();
      for (const int64_t tokens : {1, 2, 9, 70}) {
        const Tensor x = randn({tokens, 384}, dtype);
        const Tensor index = random_index(tokens, 2, 4, random_);
        const Tensor weights = uniform({tokens, 2}, 0.1, 1);
        const std::vector<double> exact = m.loop(to(x, DType::f64), index, weights).to_vector();
        expect_no_less_accurate(fused(x, index, weights), m.loop(x, index, weights), exact,
                                level + " " + text_of(m, x, index));
      }
    }
  });
}

TEST_F(FusedExpertsTest, EveryActivationWithBiasesAndWithout) {
  for_each_level([&](const std::string& level) {
    for (size_t a = 0; a < nn::kActivations; ++a)
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool biases : {false, true}) {
          const Mixture m({4, 40, 24, 36}, dtype, nn::Activation(a), biases);
          const FusedExperts fused = m.fused();
          for (const int64_t tokens : {1, 50}) {
            const Tensor x = randn({tokens, 40}, dtype) * 3.0;
            expect_exact(m, fused, x, random_index(tokens, 2, 4, random_),
                         uniform({tokens, 2}, 0.1, 1), level);
          }
        }
  });
}

TEST_F(FusedExpertsTest, ClampedSwiGluTakesItsAlphaAndLimit) {
  const Mixture m({2, 20, 12, 20}, DType::f32, nn::Activation::clamped_swiglu, true);
  const nn::SwiGluClamp clamp{.alpha = 1.3, .limit = 0.5};
  const FusedExperts fused(m.experts, m.activation, clamp);
  const Tensor x = randn({9, 20});
  const Tensor index = full({9, 1}, 1, DType::i64);
  const Expert& e = m.experts[1];
  const Tensor h =
      nn::gate(linear(x, e.gate, e.gate_bias), linear(x, e.up, e.up_bias), m.activation, clamp);
  expect_close(fused(x, index, ones({9, 1})), linear(h, e.down, e.down_bias), 1e-5, "clamped");
}

// The loads that routers give: one expert has all tokens, some have none, one has nearly all.
TEST_F(FusedExpertsTest, AreExactForEveryLoad) {
  for_each_level([&](const std::string& level) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Mixture m({6, 72, 56, 72}, dtype, nn::Activation::geglu);
      const FusedExperts fused = m.fused();
      const int64_t tokens = 517;
      const Tensor x = randn({tokens, 72}, dtype);
      const Tensor weights = uniform({tokens, 2}, 0.1, 1);
      expect_exact(m, fused, x, full({tokens, 2}, 3, DType::i64), weights, level + " one expert");
      std::vector<int64_t> skewed;
      for (int64_t t = 0; t < tokens; ++t) {
        skewed.push_back(t % 100 == 7 ? 0 : 4);
        skewed.push_back(t % 3 == 0 ? 4 : 1);
      }
      expect_exact(m, fused, x,
                   from_values(std::span<const int64_t>(skewed), {tokens, 2}, DType::i64), weights,
                   level + " skewed");
    }
  });
}

// Groups of tokens: their pairs' results take more than a call keeps.
TEST_F(FusedExpertsTest, ManyTokensRunInGroups) {
  const Mixture m({3, 8, 4, 9000}, DType::f32, nn::Activation::swiglu);
  const int64_t tokens = 2100;
  const FusedExperts fused = m.fused();
  const Tensor x = randn({tokens, 8});
  const Tensor index = random_index(tokens, 2, 3, random_);
  const Tensor weights = uniform({tokens, 2}, 0.1, 1);
  const Tensor y = fused(x, index, weights);
  for (const int64_t first : {0, 700, 1400}) {
    const auto some = [&](const Tensor& t) { return contiguous(slice(t, 0, first, first + 700)); };
    expect_close(fused(some(x), some(index), some(weights)), some(y), 1e-5, "groups");
  }
}

TEST_F(FusedExpertsTest, AnIndexOfNoExpertAddsNothing) {
  const Mixture m({4, 24, 16, 24}, DType::bf16, nn::Activation::swiglu);
  const Tensor x = randn({5, 24}, DType::bf16);
  const Tensor index = from_values({0, 4, 4, 4, 1, 2, 4, 3, 4, 4}, {5, 2}, DType::i64);  // 4: none
  const Tensor weights = uniform({5, 2}, 0.1, 1);
  expect_exact(m, m.fused(), x, index, weights, "none");
  const Tensor y = m.fused()(x, index, weights);
  for (const int64_t row : {1, 4})
    for (const double v : slice(y, 0, row, row + 1).to_vector()) EXPECT_EQ(v, 0);
}

TEST_F(FusedExpertsTest, BitsDoNotDependOnThreadsOrRuns) {
  for_each_level([&](const std::string& level) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Mixture m({8, 96, 80, 96}, dtype, nn::Activation::swiglu);
      const FusedExperts fused = m.fused();
      for (const int64_t tokens : {1, 16, 700}) {
        const Tensor x = randn({tokens, 96}, dtype);
        const Tensor index = random_index(tokens, 4, 8, random_);
        const Tensor weights = uniform({tokens, 4}, 0.1, 1);
        const Tensor want = fused(x, index, weights);
        for (const int threads : {1, 2, 3, 5, 5}) {
          const test::ThreadScope scope(threads);
          const Tensor got = fused(x, index, weights);
          EXPECT_EQ(std::memcmp(got.data(), want.data(), want.bytes()), 0)
              << level << " " << threads << " threads, " << tokens << " tokens";
        }
      }
    }
  });
}

TEST_F(FusedExpertsTest, ManyThreadsCallAtOnce) {
  const Mixture m({8, 48, 32, 48}, DType::f32, nn::Activation::swiglu);
  const FusedExperts fused = m.fused();
  const Tensor x = randn({40, 48});
  const Tensor index = random_index(40, 2, 8, random_);
  const Tensor weights = uniform({40, 2}, 0.1, 1);
  const Tensor want = m.fused()(x, index, weights);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const NoGrad no_grad;
      for (int call = 0; call < 20; ++call) {
        const Tensor got = fused(x, index, weights);
        wrong += static_cast<int>(std::memcmp(got.data(), want.data(), want.bytes()) != 0);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Tensors of all experts, as models hold them.
TEST_F(FusedExpertsTest, SplitReadsEveryLayout) {
  const Tensor x = randn({7, 20});
  const Tensor index = random_index(7, 2, 3, random_);
  const Tensor weights = uniform({7, 2}, 0.1, 1);
  for (const bool gated : {true, false})
    for (const bool interleaved : {false, true})
      for (const bool transposed : {false, true}) {
        if (interleaved && !gated) continue;
        const int64_t rows = gated ? 24 : 12;
        const Tensor up = randn({3, rows, 20});
        const Tensor down = randn({3, 16, 12});
        const Tensor up_bias = randn({3, rows});
        const Tensor down_bias = randn({3, 16});
        Mixture want({3, 20, 12, 16}, DType::f32,
                     gated ? nn::Activation::swiglu : nn::Activation::gelu);
        const auto row_range = [&](const Tensor& t, int64_t e, bool is_up) {
          const Tensor one =
              reshape(slice(t, 0, e, e + 1), t.dim() == 3 ? Dims{rows, 20} : Dims{rows});
          if (!gated) return one;
          return interleaved ? slice(one, 0, is_up ? 1 : 0, rows, 2)
                             : slice(one, 0, is_up ? 12 : 0, is_up ? 24 : 12);
        };
        for (int64_t e = 0; e < 3; ++e) {
          Expert& expert = want.experts[static_cast<size_t>(e)];
          if (gated) {
            expert.gate = row_range(up, e, false);
            expert.gate_bias = row_range(up_bias, e, false);
          }
          expert.up = row_range(up, e, true);
          expert.up_bias = row_range(up_bias, e, true);
          expert.down = reshape(slice(down, 0, e, e + 1), {16, 12});
          expert.down_bias = reshape(slice(down_bias, 0, e, e + 1), {16});
        }
        const auto stored = [&](const Tensor& t) {
          return transposed ? contiguous(transpose(t, 1, 2)) : t;
        };
        const FusedExperts fused(
            split_experts(stored(up), stored(down), {gated, interleaved, transposed}, up_bias,
                          down_bias),
            want.activation);
        expect_exact(want, fused, x, index, weights,
                     "layout " + std::to_string(interleaved) + std::to_string(transposed));
      }
}

TEST_F(FusedExpertsTest, WrittenWeightsArePackedAgain) {
  const Mixture m({4, 24, 16, 24}, DType::f32, nn::Activation::swiglu);
  const FusedExperts fused = m.fused();
  const Tensor x = randn({6, 24});
  const Tensor index = random_index(6, 2, 4, random_);
  const Tensor weights = uniform({6, 2}, 0.1, 1);
  fused(x, index, weights);
  const int64_t packed = memory_stats().packed_bytes;
  for (const Expert& e : m.experts)
    for (const Tensor& w : {e.gate, e.up, e.down}) {
      mul_(w, scalar(-0.7));
      expect_exact(m, fused, x, index, weights, "written");
    }
  EXPECT_EQ(memory_stats().packed_bytes, packed);
}

TEST_F(FusedExpertsTest, PackedBytesAreThoseOfTheExpertsThatWereChosen) {
  const int64_t before = memory_stats().packed_bytes;
  {
    const Mixture m({8, 64, 32, 64}, DType::bf16, nn::Activation::swiglu);
    const FusedExperts fused = m.fused();
    EXPECT_EQ(memory_stats().packed_bytes, before);
    const int64_t weights = 8 * 3 * 64 * 32 * 2;
    EXPECT_EQ(fused.packed_bytes(), weights);  // sizes of whole panels on every level
    const Tensor x = randn({1, 64}, DType::bf16);
    fused(x, from_values({2, 5}, {1, 2}, DType::i64), ones({1, 2}));
    EXPECT_EQ(memory_stats().packed_bytes - before, weights / 4);
    fused(x, from_values({0, 1, 2, 3, 4, 5, 6, 7}, {1, 8}, DType::i64), ones({1, 8}));
    EXPECT_EQ(memory_stats().packed_bytes - before, weights);
  }
  EXPECT_EQ(memory_stats().packed_bytes, before);
}

TEST_F(FusedExpertsTest, ResultsGoToTheCallersMemory) {
  const Mixture m({4, 24, 16, 24}, DType::f32, nn::Activation::swiglu);
  const FusedExperts fused = m.fused();
  const Tensor x = transpose(randn({24, 9}), 0, 1);  // any strides
  const Tensor index = transpose(contiguous(transpose(random_index(9, 2, 4, random_), 0, 1)), 0, 1);
  const Tensor weights = slice(uniform({9, 4}, 0.1, 1), 1, 0, 4, 2);
  const Tensor out = full({9, 24}, 3);
  fused.run_into(x, index, weights, out);
  expect_close(out, m.loop(x, index, weights), 1e-5, "into");
  const int64_t allocations = memory_stats().allocations;
  const Tensor rows = contiguous(x);
  const int64_t copied = memory_stats().allocations;
  EXPECT_EQ(copied, allocations + 1);
  for (int i = 0; i < 10; ++i) fused.run_into(rows, index, weights, out);
  EXPECT_EQ(memory_stats().allocations, copied);
}

// 0 * inf is NaN in a loop too, and a NaN stays in its token.
TEST_F(FusedExpertsTest, NaNStaysInItsToken) {
  const Mixture m({4, 24, 16, 24}, DType::f32, nn::Activation::swiglu);
  Tensor x = randn({40, 24});
  x.data_as<float>()[3 * 24 + 5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> y =
      m.fused()(x, random_index(40, 2, 4, random_), ones({40, 2})).to_vector();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 24 == 3) << i;
}

TEST_F(FusedExpertsTest, ErrorsNameWhatWasExpected) {
  const Mixture m({4, 24, 16, 24}, DType::f32, nn::Activation::swiglu);
  const FusedExperts fused = m.fused();
  const Tensor x = randn({3, 24});
  const Tensor index = zeros({3, 2}, DType::i64);
  const Tensor weights = ones({3, 2});
  const auto call = [&](const Tensor& a, const Tensor& i, const Tensor& w) {
    return error_of([&] { fused(a, i, w); });
  };
  EXPECT_EQ(
      call(randn({3, 23}), index, weights),
      "[fused_experts] expected x [tokens, 24] of the experts' dtype f32 on their device, got "
      "f32[3, 23]");
  EXPECT_EQ(call(to(x, DType::bf16), index, weights).find("[fused_experts] expected x"), 0U);
  EXPECT_EQ(call(x, zeros({2, 2}, DType::i64), weights),
            "[fused_experts] expected an index [3, choices] of i64, got i64[2, 2]");
  EXPECT_EQ(call(x, zeros({3, 2}), weights),
            "[fused_experts] expected an index [3, choices] of i64, got f32[3, 2]");
  EXPECT_EQ(call(x, index, ones({3, 1})),
            "[fused_experts] expected weights [3, 2] of f32 or x's dtype, got f32[3, 1]");
  EXPECT_EQ(call(x, index, ones({3, 2}, DType::f64)),
            "[fused_experts] expected weights [3, 2] of f32 or x's dtype, got f64[3, 2]");
  for (const int64_t wrong : {-1, 5}) {
    const Tensor out = full({3, 24}, 7);
    EXPECT_ERROR(fused.run_into(
                     x, from_values(std::vector<int64_t>{0, 1, 2, 3, wrong, 0}, {3, 2}, DType::i64),
                     weights, out),
                 "[fused_experts] expected indices of experts from 0 to 3, or 4 for none, got " +
                     std::to_string(wrong));
    for (const double v : out.to_vector()) EXPECT_EQ(v, 7);
  }
  EXPECT_EQ(error_of([&] {
              fused.run_into(x, index, weights, x);
            }).find("[fused_experts] expected an out apart from x"),
            0U);
  EXPECT_ERROR(fused.run_into(x, index, weights, zeros({3, 23})),
               "[fused_experts] expected a contiguous out of x's dtype and sizes [3, 24], got "
               "f32[3, 23]");
}

TEST_F(FusedExpertsTest, ErrorsOfExpertsNameWhatWasExpected) {
  const auto made = [](std::vector<Expert> experts, nn::Activation activation) {
    return error_of([&] { FusedExperts(std::move(experts), activation); });
  };
  const Mixture m({2, 24, 16, 24}, DType::f32, nn::Activation::swiglu);
  EXPECT_EQ(made({}, nn::Activation::swiglu),
            "[fused_experts] expected at least one expert, got none");
  EXPECT_EQ(
      made(m.experts, nn::Activation::silu),
      "[fused_experts] expected no gate in an expert, of a plain activation, got f32[16, 24]");
  std::vector<Expert> changed = m.experts;
  changed[1].down = randn({24, 15});
  EXPECT_EQ(made(changed, nn::Activation::swiglu),
            "[fused_experts] expected down [24, 16] of f32 on one device, got f32[24, 15]");
  changed = m.experts;
  changed[1].up_bias = randn({16});
  EXPECT_EQ(made(changed, nn::Activation::swiglu),
            "[fused_experts] expected an up's bias in all experts or in none, got f32[16]");
  changed = m.experts;
  changed[0].gate = {};
  EXPECT_EQ(made(changed, nn::Activation::swiglu),
            "[fused_experts] expected a gate in each expert, of a gated activation, got undefined");
  EXPECT_ERROR(
      split_experts(randn({2, 5, 4}), randn({2, 4, 2})),
      "[fused_experts] expected up with an even number of rows, for gate and up, got f32[2, 5, 4]");
  EXPECT_ERROR(split_experts(randn({2, 4}), randn({2, 4, 2})),
               "[fused_experts] expected up [experts, out, in], got f32[2, 4]");
  EXPECT_ERROR(split_experts(randn({2, 4, 4}), randn({3, 4, 2})),
               "[fused_experts] expected down [2, out, in], got f32[3, 4, 2]");
  EXPECT_ERROR(split_experts(randn({2, 4, 4}), randn({2, 4, 2}), {}, randn({2, 3})),
               "[fused_experts] expected biases of up [2, 4], got f32[2, 3]");
}

TEST(FusedExpertsErrors, GradientsAreRefused) {
  const Mixture m({2, 24, 16, 24}, DType::f32, nn::Activation::swiglu);
  Tensor x = randn({3, 24});
  x.set_requires_grad(true);
  EXPECT_ERROR(m.fused()(x, zeros({3, 1}, DType::i64), ones({3, 1})),
               "[fused_experts] expected no_grad: there is no backward pass, got a tensor that "
               "requires a gradient");
}

}  // namespace epilogue::testing::fused_experts_test
