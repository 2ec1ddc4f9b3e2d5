// SPDX-License-Identifier: Apache-2.0
// Training: a spiral of two classes, AdamW, a cosine schedule, clipped gradients.
#include <cmath>
#include <cstdio>

#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/optim.h"

using namespace epilogue;

struct Spiral {
  Tensor points;  // [n, 2]
  Tensor labels;  // [n], i64
};

Spiral make_spiral(int64_t n) {
  Spiral s{empty({n, 2}), empty({n}, DType::i64)};
  auto* const point = static_cast<float*>(s.points.data());
  auto* const label = static_cast<int64_t*>(s.labels.data());
  for (int64_t i = 0; i < n; ++i) {
    const double along = static_cast<double>(i) / static_cast<double>(n);
    const double angle = 9 * along + (i % 2 == 0 ? 0 : 3.14159265);
    point[2 * i] = static_cast<float>(along * std::cos(angle));
    point[2 * i + 1] = static_cast<float>(along * std::sin(angle));
    label[i] = i % 2;
  }
  return s;
}

int main() {
  manual_seed(0);
  const Spiral spiral = make_spiral(512);
  nn::Sequential model;
  model.emplace<nn::Linear>(2, 64);
  model.emplace<nn::SiLU>();
  model.emplace<nn::Linear>(64, 64);
  model.emplace<nn::SiLU>();
  model.emplace<nn::Linear>(64, 2);
  constexpr int steps = 400;
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  optim::LrScheduler schedule(optimizer, optim::cosine_lr(steps, 20));
  double loss_value = 0;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(spiral.points), spiral.labels);
    loss.backward();
    optim::clip_grad_norm_(optimizer.parameters(), 1.0);
    optimizer.step();
    schedule.step();
    loss_value = loss.item();
    if (step % 100 == 0) std::printf("step %3d  loss %.4f\n", step, loss_value);
  }
  std::printf("loss after %d steps: %.4f\n", steps, loss_value);
  return loss_value < 0.05 ? 0 : 1;
}
