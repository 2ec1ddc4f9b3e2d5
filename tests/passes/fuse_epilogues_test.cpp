// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::fuse_epilogues_test {

// A product that is a result too.
Graph stored_product() {
  return graph_of({zeros({3, 4})}, {zeros({4, 4})}, [](In x, In p) {
    const Tensor y = linear(x[0], p[0]);
    return Out{y, relu(y)};
  });
}

Graph sum_alone(int64_t rows) {
  return graph_of({zeros({rows, 4})}, {zeros({6, 4})},
                  [](In x, In p) { return sum(matmul(x[0], t(p[0])), {0}, true); });
}

// Rows of a second product, and what else reads those of the first, after a pipeline that joined
// the products and nothing else.
Graph stored_between() {
  PipelineOptions options;
  options.skip = {"fuse_epilogues", "fuse_pointwise"};
  return after_pipeline(graph_of({zeros({3, 4})}, {zeros({4, 4}), zeros({4, 4})},
                                 [](In x, In p) {
                                   const Tensor h = linear(x[0], p[0]);
                                   const Tensor y = linear(h, p[1]);
                                   return Out{y, relu(h)};
                                 }),
                        options);
}

PipelineOptions without(std::vector<std::string> skip) {
  PipelineOptions options;
  options.skip = std::move(skip);
  return options;
}

const PassCases kCases(
    "fuse_epilogues",
    {{"ActivationScaleAndResidualJoinTheProduct",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({4, 4})},
                        [](In x, In p) { return x[0] - silu(linear(x[0], p[0])) * 2.0; });
      }},
     {"WhatMakesAnOperandJoinsTheProduct",
      [] {
        return graph_of({zeros({3, 4}), zeros({3, 4})}, {zeros({4, 4})}, [](In x, In p) {
          const Tensor gate = silu(x[1]);
          return gate * linear(x[0], p[0]);
        });
      }},
     {"AProductOfOtherRowsIsAnOperand",
      [] {
        return graph_of({zeros({3, 4}), zeros({3, 4})}, {zeros({6, 4}), zeros({6, 4})},
                        [](In x, In p) {
                          const Tensor first = linear(x[0], p[0]);
                          return first * linear(x[1], p[1]);
                        });
      }},
     {"GateAndUpStayApartWhereMergingIsSkipped",
      [] {
        return graph_of({zeros({2, 3, 4})}, {zeros({6, 4}), zeros({6, 4}), zeros({4, 6})},
                        [](In x, In p) {
                          const Tensor activated = gelu(linear(x[0], p[0]), Gelu::tanh);
                          return linear(activated * linear(x[0], p[1]), p[2]);
                        });
      },
      without({"merge_gemms"})},
     {"AProductThatIsAResultTooIsStored", [] { return stored_product(); }},
     // dh = dy w^T g, read by others, and the gradient of its bias.
     {"TheGradientOfABiasStandsBesideThatOfTheRows",
      [] {
        return graph_of({zeros({3, 4}), zeros({3, 6})}, {zeros({6, 4})}, [](In x, In p) {
          const Tensor dh = matmul(x[0], t(p[0])) * x[1];
          return Out{dh, sum(dh, {0}, true)};
        });
      }},
     // One row: the sum over rows has the rows' sizes, and is still none of them.
     {"WhatReadsASumOverOneRowStaysBehindIt",
      [] {
        return graph_of({zeros({1, 4})}, {zeros({6, 4})}, [](In x, In p) {
          const Tensor dh = matmul(x[0], t(p[0]));
          return Out{dh, neg(sum(dh, {0}, true))};
        });
      }},
     {"NotTheSumAlone", [] { return sum_alone(3); }},
     {"NotTheSumOfOneRowAlone", [] { return sum_alone(1); }},
     {"NotWhatBroadcastsTheProduct",
      [] {
        return graph_of({zeros({1, 4}), zeros({3, 6})}, {zeros({6, 4})},
                        [](In x, In p) { return linear(x[0], p[0]) + x[1]; });
      }},
     {"NotWhatChangesTheDtype",
      [] {
        return graph_of({zeros({3, 4}, DType::bf16), zeros({3, 6})}, {zeros({6, 4}, DType::bf16)},
                        [](In x, In p) { return linear(x[0], p[0]) + x[1]; });
      }},
     {"NotWhatNeedsWholeRows",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4})},
                        [](In x, In p) { return softmax(linear(x[0], p[0]), -1); });
      }},
     // What an earlier pipeline made a program of.
     {"NotAnOperandThatNeedsWholeRows",
      [] {
        return after_pipeline(
            graph_of({zeros({3, 4}), zeros({3, 6})}, {zeros({6, 4})}, [](In x, In p) {
              const Tensor y = linear(x[0], p[0]);
              return y * softmax(neg(x[1]), -1);
            }));
      }},
     {"NotWhatReadsAnEarlierStage", [] { return stored_between(); }},
     {"NotWhereAnotherNodeStandsBetween",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({4, 4})}, [](In x, In p) {
          const Tensor y = linear(x[0], p[0]);
          const Tensor scale = softmax(y, -1);
          return y * scale;
        });
      }},
     {"NotASecondResultOnADevice", [] { return on_cuda(stored_product()); }}});

}  // namespace epilogue::testing::fuse_epilogues_test
