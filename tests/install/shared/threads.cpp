// SPDX-License-Identifier: Apache-2.0
// A server: threads share one compiled model, each with its own number of rows.
#include <epilogue/epilogue.h>

#include <atomic>
#include <thread>

int main() {
  using namespace epilogue;
  const nn::GatedMLP mlp(64, 128);
  const Compiled fast = compile(mlp);
  std::atomic<int> failures{0};
  std::vector<std::thread> server;
  for (int t = 1; t <= 4; ++t)
    server.emplace_back([&, t] {
      const NoGrad inference;
      const Tensor x = ones({t, 64});
      const std::vector<double> want = mlp(x).to_vector();
      const Tensor out = empty({t, 64});
      for (int i = 0; i < 50; ++i) {
        fast.run_into(x, out);
        const std::vector<double> got = out.to_vector();
        for (size_t e = 0; e < got.size(); ++e)
          if (std::abs(got[e] - want[e]) > 1e-5) ++failures;
      }
    });
  for (std::thread& thread : server) thread.join();
  return failures == 0 && fast.stats().misses == 1 ? 0 : 1;
}
