// SPDX-License-Identifier: Apache-2.0
// A user whose numbers lie in memory of their own: no copies, and the deleter is called.
#include <epilogue/epilogue.h>

#include <vector>

int main() {
  using namespace epilogue;
  std::vector<float> numbers(6, 2.0F);
  bool is_deleted = false;
  {
    const Tensor x =
        Tensor::from_blob(numbers.data(), {2, 3}, DType::f32, [&](void*) { is_deleted = true; });
    add_(x, scalar(1.0));
  }
  return numbers[5] == 3.0F && is_deleted ? 0 : 1;
}
