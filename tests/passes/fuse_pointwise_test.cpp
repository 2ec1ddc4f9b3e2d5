// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::fuse_pointwise_test {

template <class F>
Graph of_input(Dims sizes, F f) {
  return graph_of({zeros(sizes)}, {}, [f](In x, In) { return f(x[0]); });
}

Graph softmax_of_sum() {
  return graph_of({zeros({3, 4}), zeros({4})}, {},
                  [](In x, In) { return softmax(x[0] + x[1], -1); });
}

// A norm of a residual, with weight and bias.
Tensor normed(In x, In p) { return layer_norm(x[0] + x[1], {4}, p[0], p[0]); }

const PassCases kCases(
    "fuse_pointwise",
    {{"AChainIsOneProgram",
      [] {
        return graph_of({zeros({3, 4}), zeros({4})}, {},
                        [](In x, In) { return neg(relu(x[0]) * x[1]); });
      }},
     {"SoftmaxJoinsWhatMakesItsRows", [] { return softmax_of_sum(); }},
     {"RowsNumbersJoinElements",
      [] {
        return of_input({3, 4}, [](const Tensor& x) {
          const Tensor e = exp(x);
          return div(e, sum(e, {-1}, true) + 1.0);
        });
      }},
     {"AProgramMayEndInAReduction",
      [] {
        return graph_of({zeros({2, 3, 4}), zeros({2, 3, 4})}, {},
                        [](In x, In) { return mean(x[0] * x[1], {-1}); });
      }},
     // What is summed is stored for others too: it is not read again.
     {"ColumnSumsStandBesideWhatTheySum",
      [] {
        return graph_of({zeros({2, 3, 4}), zeros({2, 3, 4})}, {}, [](In x, In) {
          const Tensor d = run_op(kGeluBackward, {x[0], x[1]}, {int64_t{1}});
          return Out{d, sum(d, {0, 1}, true)};
        });
      }},
     {"NormsJoinResiduals",
      [] {
        return graph_of({zeros({3, 4}), zeros({3, 4})}, {ones({4})}, normed);
      }},
     // The exponential that two branches compute.
     {"StepsThatAreThereAreNotRepeated",
      [] {
        return of_input({3, 4}, [](const Tensor& x) {
          const Tensor e = neg(x);
          const Tensor second = exp(e) + 1.0;
          return exp(e) * second;
        });
      }},
     {"NotANormThatAProductTakes",
      [] {
        return graph_of({zeros({3, 4}), zeros({3, 4})}, {ones({4}), zeros({6, 4})},
                        [](In x, In p) { return linear(normed(x, p), p[1]); });
      }},
     // Programs of a GPU are generated for elements.
     {"NotRowsOnADevice", [] { return on_cuda(softmax_of_sum()); }},
     {"NotAReductionAlone",
      [] {
        return of_input({3, 4}, [](const Tensor& x) { return softmax(x, -1); });
      }},
     {"NotDownTheColumns",
      [] {
        return of_input({3, 4}, [](const Tensor& x) { return softmax(neg(x), 0); });
      }},
     // [4] beside [4, 4] is one number per column.
     {"NotSumsWithoutTheirDimension",
      [] {
        return of_input({4, 4}, [](const Tensor& x) { return x * sum(x, {-1}); });
      }},
     {"NotNormsOverTwoDimensions",
      [] {
        return of_input({2, 3, 4}, [](const Tensor& x) {
          return rms_norm(neg(x), {3, 4}, Tensor());
        });
      }},
     {"NotRowsOfAProduct",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4})},
                        [](In x, In p) { return softmax(matmul(x[0], t(p[0])), -1); });
      }},
     {"NotWhatOthersRead", [] {
        return of_input({3, 4}, [](const Tensor& x) {
          const Tensor y = exp(x);
          return Out{y, neg(y)};
        });
      }}});

}  // namespace epilogue::testing::fuse_pointwise_test
