// SPDX-License-Identifier: Apache-2.0
// Mistakes with arithmetic, activations and reductions.
#include "epilogue/runtime.h"
#include "errors/mistakes.h"

namespace epilogue::test::compute_messages_test {

TEST(ComputeMessages, Arithmetic) {
  EXPECT_ERROR(add(f32({2, 3}), f32({4})),
               "[aten::add] expected shapes that broadcast, got [2, 3] and [4]");
  EXPECT_ERROR((void)(f32({2, 3}) * f32({3, 2})),
               "[aten::mul] expected shapes that broadcast, got [2, 3] and [3, 2]");
  EXPECT_ERROR((void)(f32({0}) / f32({2})),
               "[aten::div] expected shapes that broadcast, got [0] and [2]");
  EXPECT_ERROR(add(i64({2}), i64({2}), 0.5),
               "[aten::add] expected an integer alpha for integer tensors, got 0.500000");
  EXPECT_ERROR(sub(i64({2}), i64({2}), 1.5),
               "[aten::sub] expected an integer alpha for integer tensors, got 1.500000");
  EXPECT_ERROR(neg(boolean({2})), "[aten::neg] expected numbers, got bool[2]");
  EXPECT_ERROR(exp({}), "[aten::exp] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(add(f32({2}), Tensor()), "[aten::add] expected a tensor for 'other', got undefined");
  EXPECT_ERROR(add(Tensor(), 1.0), "[aten::add] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(
      mul(on_cuda({2}), f32({2})),
      "[aten::mul] expected tensors on one device, got f32[2] on cuda:0 and f32[2] on cpu");
  EXPECT_ERROR(add(expand(f32({1}), {int64_t{1} << 62}), 1.0),
               "[empty] expected fewer than 2^63 bytes, got f32[4611686018427387904]");
}

TEST(ComputeMessages, ADeviceThatIsNotThere) {
  if (!cuda_status().starts_with("CUDA is not available")) GTEST_SKIP() << "there is a device";
  EXPECT_ERROR(exp(on_cuda({2})), "[device] " + cuda_status());
}

TEST(ComputeMessages, InPlace) {
  EXPECT_ERROR(add_(f32({3}), f32({2, 3})),
               "[aten::add_] expected an argument that broadcasts to [3], got f32[2, 3]");
  EXPECT_ERROR(mul_(f32({2}), f32({3})),
               "[aten::mul_] expected shapes that broadcast, got [2] and [3]");
  EXPECT_ERROR(add_(i64({2}), f32({2})),
               "[aten::add_] expected a floating tensor to write floating values to, got i64[2]");
  EXPECT_ERROR(mul_(i64({2}), 0.5),
               "[aten::mul_] expected a floating tensor to write floating values to, got i64[2]");
  EXPECT_ERROR(add_(i64({2}), i64({2}), 0.5),
               "[aten::add_] expected an integer alpha for integer tensors, got 0.500000");
  EXPECT_ERROR(div_(i64({2}), 2), "[aten::div_] expected a floating tensor, got i64[2]");
  EXPECT_ERROR(
      add_(expand(f32({1}), {3}), f32({3})),
      "[aten::add_] expected a tensor to write whose elements do not share memory (clone it "
      "first), got f32[3] with strides [0]");
  EXPECT_EQ(
      message_of([] {
        const Tensor x = f32({3, 3});
        add_(x, t(x));
      }),
      "[aten::add_] expected a source that does not share memory with what is written (clone it "
      "first), got f32[3, 3] with strides [1, 3]");
  EXPECT_ERROR(mul_(Tensor(), 2.0), "[aten::mul_] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(fill_({}, 2.0), "[aten::fill_] expected a tensor for 'self', got undefined");
  const Tensor x = ones({2});
  EXPECT_EQ(add_(x, x).to_vector(), (std::vector<double>{2, 2}));  // the same view is fine
}

TEST(ComputeMessages, AFailedInPlaceOpChangesNothing) {
  const Tensor x = ones({2});
  const uint32_t version = x.version();
  EXPECT_NE(message_of([&] { add_(x, f32({3})); }), "(no error)");
  EXPECT_EQ(x.version(), version);
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1}));
}

TEST(ComputeMessages, Activations) {
  EXPECT_ERROR(relu(boolean({2})), "[aten::relu] expected numbers, got bool[2]");
  EXPECT_ERROR(silu(i64({2})), "[aten::silu] expected a floating tensor, got i64[2]");
  EXPECT_ERROR(gelu(i64({2})), "[aten::gelu] expected a floating tensor, got i64[2]");
  EXPECT_ERROR(tanh({}), "[aten::tanh] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(softmax(i64({2}), 0), "[aten::_softmax] expected a floating tensor, got i64[2]");
  EXPECT_ERROR(softmax(f32({2}), 1), "[aten::_softmax] expected a dimension in [-1, 0], got 1");
  EXPECT_ERROR(log_softmax(f32({2, 3}), -3),
               "[aten::_log_softmax] expected a dimension in [-2, 1], got -3");
}

TEST(ComputeMessages, Functions) {
  EXPECT_ERROR(leaky_relu(i64({2})), "[aten::leaky_relu] expected a floating tensor, got i64[2]");
  EXPECT_ERROR(softplus(boolean({2})), "[aten::softplus] expected a floating tensor, got bool[2]");
  EXPECT_ERROR(hardswish({}), "[aten::hardswish] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(abs(boolean({2})), "[aten::abs] expected numbers, got bool[2]");
  EXPECT_ERROR(clamp(f32({2}), {}), "[aten::clamp] expected min, max or both, got neither");
  EXPECT_ERROR(clamp(i64({2}), 0.5),
               "[aten::clamp] expected integer bounds for integer tensors, got 0.500000");
  EXPECT_ERROR(maximum(f32({2}), f32({3})),
               "[aten::maximum] expected shapes that broadcast, got [2] and [3]");
  EXPECT_ERROR(lt(f32({2, 3}), f32({4})),
               "[aten::lt] expected shapes that broadcast, got [2, 3] and [4]");
  EXPECT_ERROR(eq(Tensor(), 1.0), "[aten::eq] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(where(f32({2}), f32({2}), f32({2})),
               "[aten::where] expected a condition of booleans, got f32[2]");
  EXPECT_ERROR(where(boolean({2}), f32({3}), f32({2})),
               "[aten::where] expected shapes that broadcast, got [3] and [2]");
}

TEST(ComputeMessages, Reductions) {
  EXPECT_ERROR(sum(f32({2, 3}), {2}), "[aten::sum] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(sum(f32({2, 3}), {0, -2}), "[aten::sum] expected each dimension once, got [0, -2]");
  EXPECT_ERROR(sum(f32({}), {1}), "[aten::sum] expected a dimension in [-1, 0], got 1");
  EXPECT_ERROR(mean(i64({2})),
               "[aten::mean] expected a floating input or dtype, got i64[2] and dtype i64");
  EXPECT_ERROR(mean(f32({2}), {}, false, DType::i64),
               "[aten::mean] expected a floating input or dtype, got f32[2] and dtype i64");
  EXPECT_ERROR(sum({}), "[aten::sum] expected a tensor for 'self', got undefined");
}

TEST(ComputeMessages, Runtime) {
  EXPECT_ERROR(set_num_threads(0), "[set_num_threads] expected 1 to 4096 threads, got 0");
  EXPECT_ERROR(set_num_threads(5000), "[set_num_threads] expected 1 to 4096 threads, got 5000");
}

}  // namespace epilogue::test::compute_messages_test
