// SPDX-License-Identifier: Apache-2.0
// MLPs on a CUDA device: eager, compiled, fused. One line of JSON per measurement, for
// cuda_bench.py; the ceilings of the device first. Every mode is compared with f32 before it is
// timed.
//   cuda_bench [seconds per measurement]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "core/backend.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/fused.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"

namespace epilogue {
namespace {

constexpr Device kCuda{DeviceType::cuda, 0};
// Fused results must be no worse than eager ones: twice what bf16 costs in the whole MLP.
constexpr double kMostError = 8e-3;

struct Shape {
  int64_t rows;
  int64_t dim;
  int64_t hidden;
  int64_t layers;  // 0: a GeGLU MLP, else hidden layers of a ReLU MLP
};
constexpr Shape kShapes[] = {
    {8192, 768, 3072, 0}, {65536, 4096, 14336, 0}, {4096, 4096, 14336, 0}, {65536, 64, 64, 4},
    {64, 64, 256, 0},     {1, 768, 3072, 0},       {16, 768, 3072, 0},     {64, 768, 3072, 0},
    {1, 4096, 14336, 0},  {16, 4096, 14336, 0},    {64, 4096, 14336, 0},
};

using Call = std::function<Tensor()>;

double seconds_of(const Call& call, int64_t calls) {
  Backend& device = *cuda_backend();
  device.synchronize();
  const int64_t start = monotonic_ns();
  for (int64_t i = 0; i < calls; ++i) call();
  device.synchronize();
  return static_cast<double>(monotonic_ns() - start) * 1e-9;
}

struct Timing {
  double min_us;
  double median_us;
  double low_us;  // quartiles
  double high_us;
};
// Blocks of calls that take some 20 ms each, so that the wait at the end does not count.
Timing time_of(const Call& call, double seconds) {
  constexpr double kBlockSeconds = 0.02;
  seconds_of(call, 3);
  const double once = std::max(seconds_of(call, 3) / 3, 1e-6);
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(kBlockSeconds / once));
  std::vector<double> us;
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  while (us.size() < 3 || monotonic_ns() < end)
    us.push_back(seconds_of(call, calls) / static_cast<double>(calls) * 1e6);
  std::sort(us.begin(), us.end());
  return {us.front(), us[us.size() / 2], us[us.size() / 4], us[us.size() * 3 / 4]};
}

double relative_error(const Tensor& got, const Tensor& want) {
  const Tensor d = to(got, DType::f32) - want;
  return std::sqrt(sum(d * d).item() / sum(want * want).item());
}

void print_ceilings(double seconds) {
  constexpr int64_t kSize = 8192;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor a = randn({kSize, kSize}, dtype).to(kCuda);
    const Timing t = time_of([&] { return mm(a, a); }, seconds);
    fmt::print(R"({{"ceiling": "tflops", "dtype": "{}", "value": {:.1f}}})"
               "\n",
               dtype_name(dtype), 2.0 * kSize * kSize * kSize / t.min_us * 1e-6);
  }
  const Tensor x = ones({int64_t{1} << 30}, DType::bf16, kCuda);  // 2 GiB
  const Timing t = time_of([&] { return clone(x); }, seconds);
  fmt::print(R"({{"ceiling": "gb_per_s", "value": {:.0f}}})"
             "\n",
             2.0 * static_cast<double>(x.bytes()) / t.min_us * 1e-3);
}

nn::MlpConfig config_of(const Shape& s) {
  nn::MlpConfig config;
  config.dim = s.dim;
  config.hidden = s.hidden;
  if (s.layers > 0) {
    config.layers = s.layers;
    config.activation = nn::Activation::relu;
  }
  return config;
}

double flops_of(const Shape& s) {
  const auto rows = static_cast<double>(s.rows);
  const auto block = static_cast<double>(s.dim * s.hidden);
  if (s.layers == 0) return 6 * rows * block;
  return 2 * rows * (2 * block + static_cast<double>((s.layers - 1) * s.hidden * s.hidden));
}

// Random rows; many rows are the first ones again and again, since the host draws the numbers.
Tensor input_of(const Shape& s, DType dtype) {
  constexpr int64_t kDrawn = 4096;
  if (s.rows <= kDrawn) return randn({s.rows, s.dim}, dtype).to(kCuda);
  EPI_ASSERT(s.rows % kDrawn == 0, "many rows are a multiple of those drawn");
  const Tensor x = empty({s.rows / kDrawn, kDrawn, s.dim}, dtype, kCuda);
  copy_(x, randn({kDrawn, s.dim}, dtype).to(kCuda));
  return reshape(x, {s.rows, s.dim});
}

// The lines of an explanation that say which way was measured to be the fastest.
void print_choices(const std::string& explanation) {
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);)
    if (line.find("measured") != std::string::npos) fmt::print(stderr, "{}\n", line);
}

int run_shape(const Shape& s, DType dtype, double seconds) {
  manual_seed(0);
  const auto model = nn::make_mlp(config_of(s));
  model->to(dtype);
  model->to(kCuda);
  const Tensor x = input_of(s, dtype);
  // The same weights and input in f32, on the device: f32 products are exact enough, TF32 is off.
  const auto reference_model = nn::make_mlp(config_of(s));
  reference_model->to(kCuda);
  const nn::NamedTensors state = model->state_dict();
  for (const auto& [name, tensor] : reference_model->state_dict())
    for (const auto& [other, value] : state)
      if (name == other) copy_(tensor, to(value, DType::f32));
  const Tensor want = (*reference_model)(to(x, DType::f32));

  auto compiled = std::make_shared<Compiled>(
      compile([&](std::span<const Tensor> in) { return std::vector<Tensor>{(*model)(in[0])}; }));
  const std::pair<const char*, Call> modes[] = {
      {"epilogue.eager", [&] { return (*model)(x); }},
      {"epilogue.compile", [&] { return (*compiled)(x); }},
      {"epilogue.fused", [&] { return *fused_forward(*model, x); }}};
  int failures = 0;
  for (const auto& [name, call] : modes) {
    const double error = relative_error(call(), want);
    const bool agrees = error < kMostError;
    failures += agrees ? 0 : 1;
    const Timing t = agrees ? time_of(call, seconds) : Timing{};
    fmt::print(
        R"({{"name": "{}", "rows": {}, "dim": {}, "hidden": {}, "layers": {}, "dtype": "{}", )"
        R"("min_us": {:.3f}, "median_us": {:.3f}, "low_us": {:.3f}, "high_us": {:.3f}, )"
        R"("tflops": {:.1f}, "rel_l2_error": {:.2e}, "agrees": {}}})"
        "\n",
        name, s.rows, s.dim, s.hidden, s.layers, dtype_name(dtype), t.min_us, t.median_us, t.low_us,
        t.high_us, agrees ? flops_of(s) / t.median_us * 1e-6 : 0.0, error, agrees);
    std::fflush(stdout);
  }
  print_choices(compiled->explain());
  clear_fused_cache();
  release_cached_memory(kCuda);
  return failures;
}

int run(double seconds) {
  if (cuda_backend() == nullptr) {
    fmt::print(stderr, "cuda_bench: {}\n", cuda_status());
    return 2;
  }
  const NoGrad no_grad;
  print_ceilings(seconds);
  int failures = 0;
  for (const Shape& shape : kShapes) failures += run_shape(shape, DType::bf16, seconds);
  failures += run_shape(kShapes[0], DType::f16, seconds);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace epilogue

int main(int argc, char** argv) {
  constexpr double kSeconds = 0.3;
  char* rest = nullptr;
  const double seconds = argc > 1 ? std::strtod(argv[1], &rest) : kSeconds;
  if (argc > 2 || (argc == 2 && (*rest != '\0' || !(seconds > 0)))) {
    fmt::print(stderr, "usage: cuda_bench [seconds per measurement, {}]\n", kSeconds);
    return 2;
  }
  try {
    return epilogue::run(seconds);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cuda_bench: {}\n", e.what());
    return 2;
  }
}
