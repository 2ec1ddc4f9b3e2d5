// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::recompute_saved_test {

PipelineOptions options_of(Saved saved, Packed packed) {
  return PipelineOptions{.saved = saved, .packed = packed};
}

// y = gelu(x w) v with the product read again by the "backward pass": everything that y does not
// need.
Graph saving_graph() {
  const auto f = [](In x, In p) {
    const Tensor product = matmul(x[0], t(p[0]));
    const Tensor h = gelu(product, Gelu::tanh);
    const Tensor y = matmul(h, t(p[1]));
    const Tensor dh = matmul(y, p[1]);
    const Tensor dp = run_op(kGeluBackward, {dh, product}, {int64_t{1}});
    return Out{y, dp, matmul(t(y), h)};
  };
  return with_backward(graph_of({zeros({3, 4})}, {zeros({6, 4}), zeros({4, 6})}, f), 1);
}

// In the graph of a training step a draw that no result needs is no part of the backward pass.
Graph drawing_graph() {
  const auto f = [](In x, In) {
    const Tensor mask = empty({3, 4});
    run_op(kBernoulli_, {mask}, {0.5});
    const Tensor scaled = div(mask, 0.5);
    dropout(x[0], 0.25, true);
    const Tensor y = x[0] * scaled;
    return Out{y, x[1] * scaled};
  };
  return with_backward(graph_of({zeros({3, 4}), zeros({3, 4})}, {}, f), 1);
}

const PassCases kCases(
    "recompute_saved",
    {{"PointwiseOpsRunAgainFromWhatIsSavedAnyway", [] { return saving_graph(); },
      options_of(Saved::automatic, Packed::always)},
     {"ProductsRunAgainWhereAskedFor", [] { return saving_graph(); },
      options_of(Saved::recompute, Packed::always)},
     {"NormsRunAgain",
      [] {
        return with_backward(graph_of({zeros({3, 4}), zeros({3, 4})}, {ones({4})},
                                      [](In x, In p) {
                                        const Tensor h = rms_norm(x[0], {4}, p[0], 0.5);
                                        const Tensor y = neg(h);
                                        return Out{y, x[1] * h};
                                      }),
                             1);
      }},
     {"WhatIsMadeOfADrawIsMadeAgainOfTheSameDraw", [] { return drawing_graph(); },
      options_of(Saved::automatic, Packed::automatic)},
     {"WhatIsMadeOfADrawIsMadeAgainWhereAskedFor", [] { return drawing_graph(); },
      options_of(Saved::recompute, Packed::automatic)},
     {"NothingRunsAgainWhereAllIsSaved", [] { return saving_graph(); },
      options_of(Saved::save, Packed::automatic)},
     {"NotWhatIsMadeOfWhatIsNotSaved",
      [] {
        return with_backward(graph_of({zeros({3, 4}), zeros({3, 4})}, {},
                                      [](In x, In) {
                                        const Tensor h = exp(softmax(x[0], -1));
                                        const Tensor y = neg(h);
                                        return Out{y, x[1] * h};
                                      }),
                             1);
      }},
     {"NotWhatAnEagerProductReads", [] { return saving_graph(); },
      options_of(Saved::automatic, Packed::never)},
     {"NothingWithoutABackwardPass", [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4})},
                        [](In x, In p) { return relu(linear(x[0], p[0])); });
      }}});

}  // namespace epilogue::testing::recompute_saved_test
