// SPDX-License-Identifier: Apache-2.0
// FusedMlp: biases, views, results in the caller's memory, norms of every form.
#include "epilogue/autograd.h"
#include "epilogue/fused.h"
#include "ops/op_testing.h"
#include "plan_testing.h"

namespace epilogue::testing::fused_mlp_test {

struct Weights {
  explicit Weights(DType dtype) {
    for (Tensor* const t : {&gate, &up, &down, &gate_bias, &up_bias, &down_bias, &norm, &post})
      *t = to(*t, dtype);
  }
  Tensor gate = randn({40, 16}) * 0.2;
  Tensor up = randn({40, 16}) * 0.2;
  Tensor down = randn({16, 40}) * 0.2;
  Tensor gate_bias = randn({40});
  Tensor up_bias = randn({40});
  Tensor down_bias = randn({16});
  Tensor norm = uniform({16}, 0.5, 1.5);
  Tensor post = uniform({16}, 0.5, 1.5);
};

Tensor rms(const Tensor& x, const Tensor& weight, NormWeight form, double eps) {
  const DType dtype = x.dtype();
  const Tensor wide = to(x, DType::f32);
  const Tensor plain = wide / sqrt(mean(wide * wide, {-1}, true) + eps);
  const Tensor w = to(weight, DType::f32);
  if (form == NormWeight::rounded) return to(to(to(plain, dtype), DType::f32) * w, dtype);
  return to(plain * (form == NormWeight::one_plus ? w + 1.0 : w), dtype);
}

Tensor gated(const Weights& w, const Tensor& x) {
  const Tensor g = linear(x, w.gate, w.gate_bias);
  const Tensor u = linear(x, w.up, w.up_bias);
  return linear(silu(g) * u, w.down, w.down_bias);
}

class FusedMlps : public ::testing::TestWithParam<DType> {
 protected:
  double tolerance() const { return GetParam() == DType::f32 ? 1e-5 : 4e-2; }
  NoGrad no_grad_;
  Weights w_{GetParam()};
  Tensor x_ = to(randn({2, 5, 16}), GetParam());
};

TEST_P(FusedMlps, GatedWithBiases) {
  const Tensor biases[] = {w_.gate_bias, w_.up_bias, w_.down_bias};
  const FusedMlp mlp =
      FusedMlp::gated(w_.gate, w_.up, w_.down, nn::Activation::swiglu, {.residual = true}, biases);
  expect_close(mlp(x_), x_ + gated(w_, x_), tolerance(), "biases and residual");
  const Tensor some[] = {Tensor(), w_.up_bias, Tensor()};
  expect_close(fused_gated_mlp(x_, w_.gate, w_.up, w_.down, nn::Activation::swiglu, {}, some),
               linear(silu(linear(x_, w_.gate)) * linear(x_, w_.up, w_.up_bias), w_.down),
               tolerance(), "one bias");
  clear_fused_cache();
}

TEST_P(FusedMlps, TransposedWeightsAreReadAsTheyLie) {
  const Tensor stored = contiguous(transpose(w_.gate, 0, 1));
  const Tensor stored_down = contiguous(transpose(w_.down, 0, 1));
  const Tensor views[] = {transpose(stored, 0, 1), transpose(stored_down, 0, 1)};
  const Tensor biases[] = {w_.gate_bias, w_.down_bias};
  const FusedMlp mlp = FusedMlp::plain(views, biases, nn::Activation::gelu_tanh);
  expect_close(mlp(x_),
               linear(gelu(linear(x_, w_.gate, w_.gate_bias), Gelu::tanh), w_.down, w_.down_bias),
               tolerance(), "views");
}

TEST_P(FusedMlps, NormsOfEveryForm) {
  const Tensor weights[] = {w_.gate, w_.down};
  for (const NormWeight form : {NormWeight::product, NormWeight::rounded, NormWeight::one_plus}) {
    const FusedOptions options = {.norm = nn::Norm::rms,
                                  .norm_weight = w_.norm,
                                  .eps = 1e-6,
                                  .residual = true,
                                  .norm_weight_is = form};
    const auto mlp_of = [&](const Tensor& x) {
      return linear(relu(linear(rms(x, w_.norm, form, 1e-6), w_.gate)), w_.down);
    };
    const std::string name = "form " + std::to_string(static_cast<int>(form));
    const FusedMlp pre = FusedMlp::plain(weights, {}, nn::Activation::relu, options);
    expect_close(pre(x_), x_ + mlp_of(x_), tolerance(), name);

    FusedOptions with_post = options;
    with_post.post_norm = PostNorm::of_result;
    with_post.post_norm_weight = w_.post;
    with_post.post_eps = 1e-6;
    const FusedMlp gemma = FusedMlp::plain(weights, {}, nn::Activation::relu, with_post);
    expect_close(gemma(x_), x_ + rms(mlp_of(x_), w_.post, form, 1e-6), 2 * tolerance(),
                 name + ", the result's norm");
    const Tensor out = empty(x_.sizes(), GetParam());
    gemma.run_into(x_, out);
    expect_close(out, gemma(x_), 0, name + ", into");

    with_post.post_norm = PostNorm::of_residual;
    const FusedMlp bert = FusedMlp::plain(weights, {}, nn::Activation::relu, with_post);
    expect_close(bert(x_), rms(x_ + mlp_of(x_), w_.post, form, 1e-6), 2 * tolerance(),
                 name + ", the sum's norm");
  }
}

// Llama's rounding is seen in the bits: what is rounded before the product differs from what is
// not.
TEST(FusedMlp, LlamasNormRoundsBeforeTheWeight) {
  const NoGrad no_grad;
  const Tensor x = to(randn({64, 32}), DType::bf16);
  const Tensor norm = to(uniform({32}, 0.5, 1.5), DType::bf16);
  const Tensor weights[] = {to(randn({32, 32}), DType::bf16)};
  const auto run = [&](NormWeight form) {
    return FusedMlp::plain(weights, {}, nn::Activation::relu,
                           {.norm = nn::Norm::rms, .norm_weight = norm, .norm_weight_is = form})(x)
        .to_vector();
  };
  EXPECT_NE(run(NormWeight::rounded), run(NormWeight::product));
}

TEST_P(FusedMlps, ResultsGoToTheCallersMemory) {
  const FusedMlp mlp = FusedMlp::gated(w_.gate, w_.up, w_.down, nn::Activation::swiglu);
  const Tensor out = zeros({2, 5, 16}, GetParam());
  mlp.run_into(x_, out);
  expect_close(out, mlp(x_), 0, "into");
  const int64_t before = memory_stats().allocations;
  for (int i = 0; i < 10; ++i) mlp.run_into(x_, out);
  EXPECT_EQ(memory_stats().allocations, before);
  EXPECT_EQ(error_of([&] { mlp.run_into(x_, x_); }).find("[fused_gated_mlp] expected an out apart"),
            0U);
  EXPECT_EQ(
      error_of([&] {
        mlp.run_into(x_, zeros({10, 16}, GetParam()));
      }).find("[fused_gated_mlp] expected a contiguous out of x's dtype and sizes [2, 5, 16]"),
      0U);
}

// At odd sizes, with rows for each way in which threads share the work, against float64's sums.
TEST_P(FusedMlps, LinearLayersOfOneInput) {
  for (const int64_t rows : {1, 3, 70}) {
    const Tensor x = to(randn({rows, 37}), GetParam());
    const Tensor stored = to(randn({37, 29}) * 0.2, GetParam());
    const Tensor weights[] = {to(randn({50, 37}) * 0.2, GetParam()), transpose(stored, 0, 1),
                              to(randn({1, 37}) * 0.2, GetParam())};
    const Tensor biases[] = {to(randn({50}), GetParam()), Tensor(), to(randn({1}), GetParam())};
    const Tensor norm = to(uniform({37}, 0.5, 1.5), GetParam());
    for (const bool normed : {false, true}) {
      const FusedLinear layers(
          weights, biases,
          normed ? FusedOptions{.norm = nn::Norm::rms, .norm_weight = norm, .eps = 1e-6}
                 : FusedOptions{});
      const Tensor outs[] = {empty({rows, 50}, GetParam()), empty({rows, 29}, GetParam()),
                             empty({rows, 1}, GetParam())};
      layers.run_into(x, outs);
      const Tensor wide = to(normed ? rms(x, norm, NormWeight::product, 1e-6) : x, DType::f32);
      for (size_t i = 0; i < 3; ++i) {
        Tensor want = matmul(wide, transpose(to(weights[i], DType::f32), 0, 1));
        if (biases[i].defined()) want = want + to(biases[i], DType::f32);
        expect_close(to(outs[i], DType::f32), want, tolerance(),
                     std::to_string(rows) + " rows, layer " + std::to_string(i));
      }
    }
    const Tensor residual = to(randn({rows, 50}), GetParam());
    const FusedLinear with_residual({weights, 1}, {biases, 1}, {.residual = true});
    const Tensor out[] = {empty({rows, 50}, GetParam())};
    with_residual.run_into(x, out, residual);
    expect_close(out[0], residual + linear(x, weights[0], biases[0]), 2 * tolerance(), "residual");
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, FusedMlps, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& i) { return std::string(dtype_name(i.param)); });

// A weight that another library owns and counts the writes of: any other version is another weight.
TEST(FusedMlp, VersionsMayBeSetFromOutside) {
  const NoGrad no_grad;
  std::vector<float> stored(16 * 16, 0.5F);
  const Tensor weights[] = {Tensor::from_blob(stored.data(), {16, 16})};
  const FusedMlp mlp = FusedMlp::plain(weights, {}, nn::Activation::relu);
  const Compiled compiled = compile([&](const Tensor& x) { return linear(x, weights[0]); });
  const Tensor x = ones({1, 16});
  for (const uint32_t version : {41U, 42U, 7U, 0U}) {
    std::fill(stored.begin(), stored.end(), static_cast<float>(version));
    weights[0].set_version(version);
    const std::vector<double> want(16, 16.0 * version);
    EXPECT_EQ(mlp(x).to_vector(), want);
    EXPECT_EQ(compiled(x).to_vector(), want);
  }
}

TEST(FusedMlp, MisuseIsNamed) {
  const NoGrad no_grad;
  const Weights w(DType::f32);
  const FusedMlp mlp = FusedMlp::gated(w.gate, w.up, w.down, nn::Activation::swiglu);
  EXPECT_ERROR(
      mlp(randn({2, 8})),
      "[fused_gated_mlp] expected x [..., 16] of the weights' dtype f32 on their device, got "
      "f32[2, 8]");
  EXPECT_ERROR(FusedMlp::gated(w.gate, w.up, w.down, nn::Activation::swiglu,
                               {.post_norm = PostNorm::of_residual}),
               "[fused_gated_mlp] expected a residual for PostNorm::of_residual, got none");
  nn::Linear layer(16, 16);
  const Tensor weights[] = {layer.weight};
  const FusedMlp held = FusedMlp::plain(weights, {}, nn::Activation::relu);
  held(randn({1, 16}));
  layer.to(DType::bf16);
  EXPECT_NE(error_of([&] { held(randn({1, 16})); }), "");
}

TEST(FusedLinear, MisuseIsNamed) {
  const NoGrad no_grad;
  const Tensor weights[] = {randn({3, 4}), randn({5, 4})};
  const Tensor x = randn({2, 4});
  const Tensor outs[] = {empty({2, 3}), empty({2, 5})};
  EXPECT_ERROR(FusedLinear({weights, 0}), "[FusedLinear] expected at least one weight, got none");
  EXPECT_ERROR(FusedLinear(weights, {}, {.residual = true}),
               "[FusedLinear] expected one weight with a residual, got 2");
  const FusedLinear layers(weights);
  EXPECT_ERROR(layers.run_into(x, {outs, 1}), "[FusedLinear] expected 2 outs, got 1");
  EXPECT_ERROR(layers.run_into(x, outs, x), "[FusedLinear] expected no residual, got f32[2, 4]");
  const Tensor same[] = {outs[0], outs[0]};
  const FusedLinear alike(std::vector<Tensor>{weights[0], weights[0]});
  EXPECT_ERROR(alike.run_into(x, same),
               "[FusedLinear] expected outs apart from each other, got f32[2, 3] that overlaps "
               "another");
  const FusedLinear one({weights, 1}, {}, {.residual = true});
  EXPECT_ERROR(one.run_into(x, {outs, 1}, x),
               "[FusedLinear] expected a residual of x's dtype and sizes [2, 3], got f32[2, 4]");
}

}  // namespace epilogue::testing::fused_mlp_test
