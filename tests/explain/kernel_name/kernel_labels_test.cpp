// SPDX-License-Identifier: Apache-2.0
#include "explain/kernel_name/kernel_labels.h"
#include "support/test.h"

namespace epilogue::trace::kernel_labels_test {

// With the instances that a real trace has.
std::string mul_by(const std::string& functor) {
  return "void at::native::vectorized_elementwise_kernel<4, at::native::" + functor +
         "<float, float, float, at::native::binary_internal::MulFunctor<float> >, "
         "at::detail::Array<char*, 2> >(int, at::native::" +
         functor +
         "<float, float, float, at::native::binary_internal::MulFunctor<float> >, "
         "at::detail::Array<char*, 2>)";
}

TEST(KernelLabels, ShortAndUnknownNamesStayAsTheyAre) {
  const std::string unknown(200, 'x');
  const KernelLabels labels({"ampere_sgemm_128x64_tn", unknown});
  EXPECT_EQ(labels.of("ampere_sgemm_128x64_tn"), "ampere_sgemm_128x64_tn");
  EXPECT_EQ(labels.of(unknown), unknown);
  EXPECT_EQ(labels.of(mul_by("AUnaryFunctor")), mul_by("AUnaryFunctor")) << "not given";
}

TEST(KernelLabels, LongNamesAreDecoded) {
  const std::string name = mul_by("AUnaryFunctor");
  EXPECT_EQ(KernelLabels({name, name}).of(name), "elementwise mul f32, 4 wide");
}

TEST(KernelLabels, NamesThatSayTheSameShowWhereTheyDiffer) {
  const std::string a = mul_by("AUnaryFunctor");
  const std::string b = mul_by("BUnaryFunctor");
  const KernelLabels labels({a, b});
  EXPECT_EQ(labels.of(a),
            "elementwise mul f32, 4 wide [...AUnaryFunctor<float, float, float, "
            "at::native::binary_internal::...]");
  EXPECT_EQ(labels.of(b),
            "elementwise mul f32, 4 wide [...BUnaryFunctor<float, float, float, "
            "at::native::binary_internal::...]");
}

TEST(KernelLabels, NamesThatNoExcerptTellsApartAreWhole) {
  // The first two differ behind the excerpt, which the third moves to the front.
  const std::string a = mul_by("AUnaryFunctor");
  const std::string late = a + " [clone .1]";
  const std::string b = mul_by("BUnaryFunctor");
  const KernelLabels labels({a, late, b});
  EXPECT_EQ(labels.of(a), a);
  EXPECT_EQ(labels.of(late), late);
}

}  // namespace epilogue::trace::kernel_labels_test
