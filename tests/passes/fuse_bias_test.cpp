// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::fuse_bias_test {

Graph product_of(const Tensor& x, const Tensor& w, const Tensor& b) {
  return graph_of({x}, {w, b}, [](In in, In p) { return linear(in[0], p[0], p[1]); });
}

// beta b + alpha x w^T.
Graph scaled(double beta, double alpha) {
  return graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({6})},
                  [=](In x, In p) { return addmm(p[1], x[0], t(p[0]), beta, alpha); });
}

PipelineOptions packed(Packed packed) {
  PipelineOptions options;
  options.packed = packed;
  return options;
}

const PassCases kCases(
    "fuse_bias", {{"AddmmIsOneProduct",
                   [] {
                     return product_of(zeros({2, 3, 4}), zeros({6, 4}), zeros({6}));
                   }},
                  {"BothFactorsAreSteps", [] { return scaled(0.5, 2); }},
                  {"ABiasTimesZeroIsNotRead", [] { return scaled(0, 2); }},
                  {"ABiasOfSomeRowsKeepsTheViews",
                   [] {
                     return graph_of(
                         {zeros({2, 3, 4})}, {zeros({6, 4}), zeros({6, 6})}, [](In x, In p) {
                           return view(addmm(p[1], view(x[0], {6, 4}), t(p[0])), {2, 3, 6});
                         });
                   }},
                  {"NotAMatrixThatIsComputed",
                   [] {
                     return graph_of({zeros({2, 3}), zeros({3, 4})}, {zeros({4})},
                                     [](In x, In p) { return addmm(p[0], x[0], relu(x[1])); });
                   }},
                  {"NotInF64",
                   [] {
                     return product_of(zeros({3, 4}, DType::f64), zeros({6, 4}, DType::f64),
                                       zeros({6}, DType::f64));
                   }},
                  {"NotAWeightWithoutElements",
                   [] {
                     return product_of(zeros({3, 4}), zeros({0, 4}), zeros({0}));
                   }},
                  {"NotRowsThatAreNotContiguous",
                   [] {
                     return graph_of({zeros({4, 3})}, {zeros({6, 4}), zeros({6})},
                                     [](In x, In p) { return linear(t(x[0]), p[0], p[1]); });
                   }},
                  {"NotWhereNothingIsPacked",
                   [] {
                     return product_of(zeros({3, 4}), zeros({6, 4}), zeros({6}));
                   },
                   packed(Packed::never)},
                  {"NotFewRowsOfAWeightThatAStepChanges", [] {
                     return with_backward(graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({6})},
                                                   [](In x, In p) {
                                                     const Tensor y = linear(x[0], p[0], p[1]);
                                                     return Out{y, neg(y)};
                                                   }),
                                          1);
                   }}});

}  // namespace epilogue::testing::fuse_bias_test
