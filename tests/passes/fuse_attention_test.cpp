// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::fuse_attention_test {

// Of q, k, v [2, n, 4], and a mask if there is a fourth.
Tensor probabilities(In in) {
  Tensor scores = matmul(in[0], transpose(in[1], -2, -1)) * 0.5;
  if (in.size() > 3) scores = scores + in[3];
  return softmax(scores, -1);
}
Tensor attend(In in) { return matmul(probabilities(in), in[2]); }

std::vector<Tensor> inputs(int64_t queries = 12) {
  return {zeros({2, queries, 4}), zeros({2, 16, 4}), zeros({2, 16, 6})};
}
std::vector<Tensor> masked() {
  std::vector<Tensor> in = inputs();
  in.push_back(zeros({12, 16}));
  return in;
}

Tensor heads(const Tensor& x) { return transpose(view(x, {2, 12, 2, 3}), 1, 2); }

PipelineOptions unpacked() {
  PipelineOptions options;
  options.packed = Packed::never;
  return options;
}

const PassCases kCases(
    "fuse_attention",
    {{"ScoresStayInTheCache",
      [] { return graph_of(masked(), {}, [](In x, In) { return attend(x); }); }},
     {"TwoMatrices",
      [] {
        return graph_of({zeros({12, 4}), zeros({16, 4}), zeros({16, 6})}, {}, [](In x, In) {
          return matmul(softmax(div(matmul(x[0], t(x[1])), scalar(3.0)), 1), x[2]);
        });
      }},
     {"CopiesOfHeadsGo",
      [] {
        return graph_of({zeros({2, 12, 6}), zeros({1, 1, 12, 12})}, {}, [](In x, In) {
          const Tensor all[] = {heads(x[0]), heads(x[0]), heads(x[0]), x[1]};
          return reshape(transpose(attend(all), 1, 2), {2, 12, 6});
        });
      }},
     {"ACopyThatOthersReadStays",
      [] {
        return graph_of({zeros({2, 12, 6})}, {}, [](In x, In) {
          const Tensor v = contiguous(heads(x[0]));
          const Tensor all[] = {heads(x[0]), heads(x[0]), v};
          return Out{attend(all), v};
        });
      }},
     {"OneOfTwo",
      [] {
        return graph_of(inputs(), {}, [](In x, In) {
          const Tensor p = probabilities(x);
          const Tensor first = matmul(p, x[2]);
          const Tensor second = attend(x);
          return Out{first, p, second};
        });
      }},
     {"NotForFewQueries",
      [] { return graph_of(inputs(8), {}, [](In x, In) { return attend(x); }); }},
     {"NotWithoutAKernel",
      [] { return on_cuda(graph_of(inputs(), {}, [](In x, In) { return attend(x); })); }},
     {"NotWhereProductsAreEagers",
      [] { return graph_of(inputs(), {}, [](In x, In) { return attend(x); }); }, unpacked()},
     {"NotScoresThatOthersRead",
      [] {
        return graph_of(inputs(), {}, [](In x, In) {
          const Tensor scores = matmul(x[0], transpose(x[1], 1, 2));
          return Out{matmul(softmax(scores, -1), x[2]), scores};
        });
      }},
     {"NotProbabilitiesThatOthersRead",
      [] {
        return graph_of(inputs(), {}, [](In x, In) {
          const Tensor p = probabilities(x);
          return Out{matmul(p, x[2]), p};
        });
      }},
     {"NotProbabilitiesThatAreSaved",
      [] {
        return with_backward(graph_of(inputs(), {},
                                      [](In x, In) {
                                        const Tensor p = probabilities(x);
                                        const Tensor y = matmul(p, x[2]);
                                        return Out{y, matmul(transpose(p, 1, 2), y)};
                                      }),
                             1);
      }},
     {"NotDropoutBetween",
      [] {
        return graph_of(inputs(), {}, [](In x, In) {
          return matmul(dropout(probabilities(x), 0.25, true), x[2]);
        });
      }},
     {"NotAnotherOpBetween",
      [] {
        return graph_of(inputs(), {}, [](In x, In) { return matmul(neg(probabilities(x)), x[2]); });
      }},
     {"NotASoftmaxOfColumns",
      [] {
        return graph_of(inputs(), {}, [](In x, In) {
          return matmul(softmax(matmul(x[0], transpose(x[1], 1, 2)), 1), x[2]);
        });
      }},
     {"NotProductsOfOtherBatches",
      [] {
        return graph_of({zeros({2, 12, 4}), zeros({2, 16, 4}), zeros({16, 6})}, {},
                        [](In x, In) { return attend(x); });
      }},
     {"NotDoubles",
      [] {
        return graph_of(
            {zeros({12, 4}, DType::f64), zeros({16, 4}, DType::f64), zeros({16, 6}, DType::f64)},
            {}, [](In x, In) { return matmul(softmax(matmul(x[0], t(x[1])), -1), x[2]); });
      }},
     {"NotNothing",
      [] {
        return graph_of({zeros({0, 12, 4}), zeros({0, 16, 4}), zeros({0, 16, 6})}, {},
                        [](In x, In) { return attend(x); });
      }},
     {"OtherSoftmaxesSayNothing", [] {
        return graph_of({zeros({12, 4})}, {}, [](In x, In) { return softmax(x[0] * 0.5, -1); });
      }}});

}  // namespace epilogue::testing::fuse_attention_test
