// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::form_row_chains_test {

// What reads the norm of an input.
template <class F>
Graph behind_norm(F f) {
  return graph_of({zeros({3, 4})}, {ones({4}), zeros({6, 4}), zeros({4, 4})},
                  [f](In x, In p) { return f(rms_norm(x[0], {4}, p[0], 0.5), p); });
}

Graph two_linears(int64_t hidden) {
  return graph_of({zeros({3, 4})}, {empty({hidden, 4}), empty({4, hidden})},
                  [](In x, In p) { return linear(linear(x[0], p[0]), p[1]); });
}

// What lies between two products is a result too.
Graph stored_between() {
  return graph_of({zeros({3, 4})}, {zeros({4, 4}), zeros({4, 4})}, [](In x, In p) {
    const Tensor h = relu(linear(x[0], p[0]));
    return Out{h, linear(h, p[1])};
  });
}

// f of the rows between two products and of the second.
template <class F>
Graph around_two_products(F f) {
  return graph_of({zeros({3, 4})}, {zeros({4, 4}), zeros({4, 4})}, [f](In x, In p) {
    const Tensor h = linear(x[0], p[0]);
    return f(h, p[1]);
  });
}

const PassCases kCases(
    "form_row_chains",
    {{"NormAndBothProductsAreOneChain",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({4, 6}), ones({4})}, [](In x, In p) {
          const Tensor h = linear(rms_norm(x[0], {4}, p[2], 0.5), p[0]);
          return linear(relu(h), p[1]);
        });
      }},
     {"ALayerNormWithItsBiasJoins",
      [] {
        return graph_of({zeros({2, 3, 4})}, {zeros({6, 4}), ones({4}), zeros({4})},
                        [](In x, In p) { return linear(layer_norm(x[0], {4}, p[1], p[2]), p[0]); });
      }},
     {"WhatOthersReadBetweenIsStored", [] { return stored_between(); }},
     {"NotWhatOthersReadBetweenOnADevice", [] { return on_cuda(stored_between()); }},
     {"NotASecondNorm",
      [] {
        return behind_norm(
            [](const Tensor& n, In p) { return linear(rms_norm(n, {4}, p[0], 0.5), p[1]); });
      }},
     {"NotANormOverTwoDimensions",
      [] {
        return graph_of({zeros({2, 3, 4})}, {zeros({6, 4})}, [](In x, In p) {
          return linear(rms_norm(x[0], {3, 4}, Tensor(), 0.5), p[0]);
        });
      }},
     {"NotANormThatOthersRead",
      [] { return behind_norm([](const Tensor& n, In p) {
             return Out{linear(n, p[1]), n};
           }); }},
     {"NotANormThatTheProductAddsToo",
      [] { return behind_norm([](const Tensor& n, In p) { return n + linear(n, p[2]); }); }},
     {"NotANormWhoseStatisticsAreRead",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4})}, [](In x, In p) {
          const Outputs norm = run_op(kNativeLayerNorm, std::array{x[0], Tensor(), Tensor()},
                                      std::array<Attr, 2>{Dims{4}, 1e-5});
          return Out{linear(norm[0], p[0]), norm[1]};
        });
      }},
     {"NotANormWhoseWeightIsComputed",
      [] {
        return graph_of({zeros({3, 4}), zeros({4})}, {zeros({6, 4})}, [](In x, In p) {
          return linear(rms_norm(x[0], {4}, neg(x[1]), 0.5), p[0]);
        });
      }},
     {"NotANormOfRowsThatAreNotContiguous",
      [] {
        return graph_of({zeros({4, 3})}, {zeros({6, 4})}, [](In x, In p) {
          return linear(rms_norm(t(x[0]), {4}, Tensor(), 0.5), p[0]);
        });
      }},
     {"NotProductsWithANormBetween",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({4, 4}), zeros({4, 4}), ones({4})}, [](In x, In p) {
          const Tensor h = linear(x[0], p[0]);
          return linear(rms_norm(h, {4}, p[2], 0.5), p[1]);
        });
      }},
     {"NotWhatReadsAnEarlierStage",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({4, 4}), zeros({4, 4}), zeros({4, 4})},
                        [](In x, In p) {
                          const Tensor h = linear(x[0], p[0]);
                          const Tensor y = linear(h, p[1]);
                          return Out{y, linear(h, p[2])};
                        });
      }},
     {"NotWhereTheSecondAddsTheRowsToo",
      [] {
        return around_two_products(
            [](const Tensor& h, const Tensor& w) { return h + linear(h, w); });
      }},
     {"NotWhereAnotherNodeStandsBetween",
      [] {
        return around_two_products([](const Tensor& h, const Tensor& w) {
          const Tensor share = softmax(h, -1);
          return share + linear(h, w);
        });
      }},
     // 96 rows of 21846 f32 take more than 8 MiB, of 21845 not.
     {"AHiddenBlockThatFits", [] { return two_linears(21845); }},
     {"NotAHiddenBlockThatDoesNotFit", [] { return two_linears(21846); }}});

}  // namespace epilogue::testing::form_row_chains_test
