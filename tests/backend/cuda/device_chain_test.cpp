// SPDX-License-Identifier: Apache-2.0
// Fused kernels on the device, against ops in f32 on the host: programs, row chains, the Hopper
// kernel in every form, compiled functions.
#include "backend/cuda/kernels/gated_sm90.h"
#include "backend/cuda/runtime.h"
#include "backend/device/device_testing.h"
#include "core/row_chain.h"
#include "epilogue/compile.h"
#include "epilogue/fused.h"
#include "epilogue/nn.h"
#include "support/test.h"

namespace epilogue::test::device_chain_test {

using CudaChain = OnDevice;

MatrixView matrix(const Tensor& t) {
  return {t.data(), t.dtype(), t.dim() == 2 ? t.strides()[0] : 0, t.strides()[t.dim() - 1]};
}

// ||got - want|| / ||want||.
double relative_error(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = want.to_vector();
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// Eager bf16 has 4e-3, f16 5e-4, f32 5e-7 against f64.
double tolerance(DType dtype) {
  return dtype == DType::bf16 ? 8e-3 : dtype == DType::f16 ? 1e-3 : 3e-6;
}

Tensor weight(Dims sizes, DType dtype) {
  const double bound = 1 / std::sqrt(static_cast<double>(sizes[1]));
  return uniform(sizes, -bound, bound, dtype);
}
Tensor f32(const Tensor& t) { return to(t, DType::f32); }

TEST_F(CudaChain, ProgramsOverEveryKindOfOperand) {
  const PointwiseProgram program{
      3,
      {{PointwiseFn::gelu_tanh, 0}, {PointwiseFn::mul, 3, 1}, {PointwiseFn::add, 4, 2, 0, 2}},
      {5, 3}};
  const auto kernel = backend_of(kCuda).make_program(program);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t cols : {1, 7, 64, 1000})
      for (const int64_t rows : {1, 5, 33}) {
        const Tensor a = randn({rows, cols}, dtype);
        const Tensor b = randn({cols, rows}, dtype);  // read transposed
        const Tensor c = randn({cols}, dtype);
        const Tensor in[] = {on_device(a), on_device(b), on_device(c)};
        const Tensor first = empty({rows, cols}, dtype, kCuda);
        const Tensor second = empty({rows, cols}, DType::f32, kCuda);
        const MatrixView views[] = {matrix(in[0]), matrix(t(in[1])), matrix(in[2])};
        const MatrixView results[] = {matrix(first), matrix(second)};
        kernel->run(rows, cols, views, results);
        const Tensor activated = gelu(f32(a), Gelu::tanh);
        const Tensor want = activated * f32(t(b)) + f32(c) * 2.0;
        EXPECT_LT(relative_error(on_host(first), want), tolerance(dtype)) << rows << " x " << cols;
        EXPECT_LT(relative_error(on_host(second), activated), 1e-5) << rows << " x " << cols;
      }
}

void expect_gated(int64_t rows, int64_t hidden, int64_t k, DType dtype, PointwiseFn fn,
                  cuda::GatedCluster cluster) {
  const Tensor x = randn({rows, k}, dtype);
  const Tensor gate = weight({hidden, k}, dtype);
  const Tensor up = weight({hidden, k}, dtype);
  const Tensor dx = on_device(x);
  const Tensor dgate = on_device(gate);
  const Tensor dup = on_device(up);
  // Guard rows after the result: nothing may be written there.
  const Tensor out = full({rows + 2, hidden}, 7, dtype, kCuda);
  cuda::GatedCall call{rows,         hidden,     k, dtype, fn,         dx.data(), k,
                       dgate.data(), dup.data(), k, k,     out.data(), hidden};
  ASSERT_EQ(cuda::decline_gated_sm90(call), nullptr);
  const cuda::Runtime& runtime = cuda::Runtime::get();
  ASSERT_EQ(
      cuda::launch_gated_sm90(call, cluster, runtime.info().multiprocessors, runtime.stream()),
      cudaSuccess);
  runtime.synchronize();
  const Tensor g = linear(f32(x), f32(gate));
  const Tensor a = fn == PointwiseFn::gelu_tanh ? gelu(g, Gelu::tanh)
                   : fn == PointwiseFn::silu    ? silu(g)
                                                : relu(g);
  const Tensor want = a * linear(f32(x), f32(up));
  const Tensor got = on_host(out);
  EXPECT_LT(relative_error(slice(got, 0, 0, rows), want), tolerance(dtype))
      << rows << " x " << k << " -> " << hidden << " " << pointwise_fn_name(fn) << ", cluster of "
      << static_cast<int>(cluster);
  for (const double guard : slice(got, 0, rows, rows + 2).to_vector()) ASSERT_EQ(guard, 7);
}

TEST_F(CudaChain, TheHopperKernelAtEveryEdge) {
  if (cuda::Runtime::get().architecture() != 90) GTEST_SKIP() << "needs architecture 9.0";
  using cuda::GatedCluster;
  for (const GatedCluster cluster : {GatedCluster::one, GatedCluster::two}) {
    for (const PointwiseFn fn : {PointwiseFn::gelu_tanh, PointwiseFn::silu, PointwiseFn::relu})
      for (const DType dtype : {DType::bf16, DType::f16})
        expect_gated(256, 256, 128, dtype, fn, cluster);
    for (const int64_t rows : {1, 63, 64, 65, 128, 129, 257, 1000})
      expect_gated(rows, 136, 72, DType::bf16, PointwiseFn::gelu_tanh, cluster);
    for (const int64_t k : {8, 64, 256, 264, 320, 768})
      expect_gated(130, 264, k, DType::bf16, PointwiseFn::gelu_tanh, cluster);
    expect_gated(2048, 3072, 768, DType::bf16, PointwiseFn::gelu_tanh, cluster);
  }
}

struct Mlp {
  Tensor x, gate, up, down;
};
Mlp make_mlp(int64_t rows, int64_t dim, int64_t hidden, DType dtype) {
  return {randn({rows, dim}, dtype), weight({hidden, dim}, dtype), weight({hidden, dim}, dtype),
          weight({dim, hidden}, dtype)};
}

TEST_F(CudaChain, AFusedGatedMlpWithNormAndResidual) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t rows : {1, 16, 100, 1024}) {
      const Mlp m = make_mlp(rows, 64, 192, dtype);
      FusedOptions options;
      options.norm = nn::Norm::rms;
      options.norm_weight = uniform({64}, 0.5, 1.5, dtype);
      options.residual = true;
      const Tensor want =
          fused_gated_mlp(f32(m.x), f32(m.gate), f32(m.up), f32(m.down), nn::Activation::swiglu,
                          {.norm = nn::Norm::rms,
                           .norm_weight = f32(options.norm_weight),
                           .eps = 1e-5,
                           .residual = true});
      options.norm_weight = on_device(options.norm_weight);
      options.eps = 1e-5;
      // Twice: the first call measures, the second runs what was chosen.
      for (int call = 0; call < 2; ++call) {
        const Tensor got = fused_gated_mlp(on_device(m.x), on_device(m.gate), on_device(m.up),
                                           on_device(m.down), nn::Activation::swiglu, options);
        EXPECT_LT(relative_error(on_host(got), want), tolerance(dtype))
            << rows << " rows of " << dtype_name(dtype);
      }
    }
  clear_fused_cache();
}

TEST_F(CudaChain, APlainMlpWithBiases) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = randn({48, 40}, dtype);
    const Tensor weights[] = {weight({56, 40}, dtype), weight({24, 56}, dtype)};
    const Tensor biases[] = {uniform({56}, -1, 1, dtype), uniform({24}, -1, 1, dtype)};
    for (const nn::Activation activation :
         {nn::Activation::gelu_tanh, nn::Activation::relu, nn::Activation::gelu}) {
      const Tensor w32[] = {f32(weights[0]), f32(weights[1])};
      const Tensor b32[] = {f32(biases[0]), f32(biases[1])};
      const Tensor want = fused_mlp(f32(x), w32, b32, activation, {});
      const Tensor w[] = {on_device(weights[0]), on_device(weights[1])};
      const Tensor b[] = {on_device(biases[0]), on_device(biases[1])};
      const Tensor got = fused_mlp(on_device(x), w, b, activation, {});
      EXPECT_LT(relative_error(on_host(got), want), tolerance(dtype));
    }
  }
  clear_fused_cache();
}

TEST_F(CudaChain, CompiledIsEagerForEveryBatch) {
  const NoGrad no_grad;
  nn::MlpConfig config;
  config.dim = 64;
  config.hidden = 192;
  config.residual = true;
  const auto model = nn::make_mlp(config);
  model->to(DType::bf16);
  model->to(kCuda);
  Compiled compiled =
      compile([&](std::span<const Tensor> in) { return std::vector<Tensor>{(*model)(in[0])}; });
  for (const int64_t rows :
       {4, 4, 4, 200, 4, 16, 16, 16})  // small batches are recorded and replayed
    for (int call = 0; call < 3; ++call) {
      const Tensor x = randn({rows, 64}, DType::bf16).to(kCuda);
      EXPECT_LT(relative_error(on_host(compiled(x)), f32(on_host((*model)(x)))), 8e-3)
          << rows << " rows, call " << call;
    }
}

}  // namespace epilogue::test::device_chain_test
