// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::fold_views_test {

Graph product_of(const Tensor& x, const Tensor& w) {
  return graph_of({x}, {w}, [](In in, In p) { return linear(in[0], p[0]); });
}

PipelineOptions packed(Packed packed) {
  PipelineOptions options;
  options.packed = packed;
  return options;
}

// A step that changes its weights: y = x w, and a gradient dx = y w^T.
Graph step() {
  return with_backward(graph_of({zeros({3, 4})}, {zeros({6, 4})},
                                [](In x, In p) {
                                  const Tensor y = linear(x[0], p[0]);
                                  return Out{y, matmul(y, p[0])};
                                }),
                       1);
}

const PassCases kCases(
    "fold_views", {{"ProductsTakeRowsAsTheyLie",
                    [] {
                      return product_of(zeros({2, 3, 4}), zeros({6, 4}));
                    }},
                   {"AViewThatOthersReadStays",
                    [] {
                      return graph_of({zeros({2, 3, 4})}, {zeros({6, 4})}, [](In x, In p) {
                        const Tensor rows = view(x[0], {6, 4});
                        const Tensor y = matmul(rows, t(p[0]));
                        return Out{y, neg(rows)};
                      });
                    }},
                   {"AWeightThatWasCastIsAWeightUnlessItIsAResult",
                    [] {
                      return graph_of({zeros({3, 4}, DType::bf16)}, {zeros({6, 4}), zeros({6, 4})},
                                      [](In x, In p) {
                                        const Tensor y = linear(x[0], to(p[0], DType::bf16));
                                        return Out{y, t(to(p[1], DType::bf16))};
                                      });
                    }},
                   {"AViewOfAParameterIsAParameter",
                    [] {
                      return graph_of({zeros({3, 4})}, {zeros({4, 3})},
                                      [](In x, In p) { return x[0] * t(p[0]); });
                    }},
                   {"ViewsThatUndoEachOtherGo",
                    [] {
                      return graph_of({zeros({3, 4})}, {}, [](In x, In) {
                        const Tensor y = relu(x[0]);
                        const Tensor same = t(t(y));
                        return Out{same, neg(view(view(y, {4, 3}), {3, 4}))};
                      });
                    }},
                   {"AViewOfAnInputThatIsAResultStays",
                    [] {
                      return graph_of({zeros({3, 4})}, {}, [](In x, In) { return t(t(x[0])); });
                    }},
                   {"NotAMatrixThatIsComputed",
                    [] {
                      return graph_of({zeros({2, 3}), zeros({3, 4})}, {},
                                      [](In x, In) { return matmul(x[0], relu(x[1])); });
                    }},
                   {"NotInF64",
                    [] {
                      return product_of(zeros({3, 4}, DType::f64), zeros({6, 4}, DType::f64));
                    }},
                   {"NotAWeightWithoutElements",
                    [] {
                      return product_of(zeros({3, 4}), zeros({0, 4}));
                    }},
                   {"NotRowsThatAreNotContiguous",
                    [] {
                      return graph_of({zeros({4, 3})}, {zeros({6, 4})},
                                      [](In x, In p) { return linear(t(x[0]), p[0]); });
                    }},
                   {"NotWhereNothingIsPacked",
                    [] {
                      return product_of(zeros({3, 4}), zeros({6, 4}));
                    },
                    packed(Packed::never)},
                   {"NotFewRowsOfAWeightThatAStepChanges", [] { return step(); }},
                   {"AsManyRowsAsPayForPacking",
                    [] {
                      // 6 n k / (n + k) with n = 2 and k = 2.
                      return with_backward(graph_of({zeros({6, 2}), zeros({5, 2})}, {zeros({2, 2})},
                                                    [](In x, In p) {
                                                      const Tensor y = linear(x[0], p[0]);
                                                      const Tensor fewer = linear(x[1], p[0]);
                                                      return Out{y, fewer, neg(y)};
                                                    }),
                                           2);
                    }},
                   {"FewRowsWhereAllIsPacked", [] { return step(); }, packed(Packed::always)}});

}  // namespace epilogue::testing::fold_views_test
