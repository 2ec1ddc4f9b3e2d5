// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::stack_gemms_test {

// The backward pass of a gated layer in ops: dh = dy w, dg = dh u, du = dh g, dx = dg a + du b. The
// inputs are dy, g, u; the parameters w, a, b.
struct Gated {
  Tensor dg;
  Tensor from_gate;
  Tensor from_up;
};
Gated gated_backward(In x, In p) {
  const Tensor dh = matmul(x[0], t(p[0]));
  const Tensor dg = dh * x[2];
  const Tensor du = dh * x[1];
  const Tensor from_gate = matmul(dg, t(p[1]));
  return {dg, from_gate, matmul(du, t(p[2]))};
}

// Of 3 rows, n columns in and out, and a hidden layer.
template <class F>
Graph gated_graph(int64_t n, int64_t hidden, F f) {
  const std::vector<Tensor> inputs = {zeros({3, n}), zeros({3, hidden}), zeros({3, hidden})};
  return graph_of(inputs, {zeros({hidden, n}), zeros({n, hidden}), zeros({n, hidden})},
                  [f](In x, In p) { return f(x, gated_backward(x, p)); });
}

Graph summed(int64_t hidden) {
  return gated_graph(4, hidden, [](In, const Gated& g) {
    return Out{g.from_up + g.from_gate, g.dg};
  });
}

// y reads h, both are in one chain; the sum is of products of both. They are so wide that nothing
// joins the chain of y.
Graph rows_of_two_stages() {
  PipelineOptions options;
  options.skip = {"fuse_epilogues", "stack_gemms", "fuse_pointwise"};
  return after_pipeline(
      graph_of({zeros({3, 2})},
               {zeros({2, 2}), zeros({21846, 2}), zeros({4, 2}), zeros({4, 21846})},
               [](In x, In p) {
                 const Tensor h = linear(x[0], p[0]);
                 const Tensor y = linear(h, p[1]);
                 const Tensor of_h = linear(h, p[2]);
                 return linear(y, p[3]) + of_h;
               }),
      options);
}

// The chain that makes the rows was formed where chains have several results.
Graph on_cuda_behind_a_chain() {
  PipelineOptions options;
  options.skip = {"stack_gemms", "form_row_chains", "fuse_pointwise"};
  return on_cuda(after_pipeline(summed(6), options));
}

const PassCases kCases("stack_gemms",
                       {{"ProductsThatAreSummedBecomeOneOfRowsSideBySide",
                         [] { return summed(6); }},
                        {"OtherTermsOfTheSumStay",
                         [] {
                           return gated_graph(4, 6, [](In x, const Gated& g) {
                             const Tensor dx = g.from_up + g.from_gate;
                             return Out{dx + x[0]};
                           });
                         }},
                        {"NotRowsFromElsewhere",
                         [] {
                           return graph_of({zeros({3, 6}), zeros({3, 6})}, {zeros({4, 6})},
                                           [](In x, In p) {
                                             const Tensor first = matmul(x[0], t(p[0]));
                                             return first + matmul(x[1], t(p[0]));
                                           });
                         }},
                        {"NotWhereTheyMeetInMoreThanASum",
                         [] {
                           return gated_graph(4, 6, [](In, const Gated& g) {
                             const Tensor twice = g.from_gate * 2.0;
                             return Out{twice + g.from_up};
                           });
                         }},
                        {"NotRowsOfAnEarlierStage", [] { return rows_of_two_stages(); }},
                        {"NotWhereTheSumReadsTheRowsTwice",
                         [] {
                           return gated_graph(6, 6, [](In, const Gated& g) {
                             const Tensor dx = g.from_up + g.from_gate;
                             return Out{dx + g.dg};
                           });
                         }},
                        {"NotWhereAnotherNodeStandsBetween",
                         [] {
                           return gated_graph(6, 6, [](In, const Gated& g) {
                             const Tensor share = softmax(g.dg, -1);
                             const Tensor dx = g.from_up + g.from_gate;
                             return Out{dx + share};
                           });
                         }},
                        {"NotOnADevice", [] { return on_cuda_behind_a_chain(); }},
                        // 96 rows of 2 x 10923 f32 take more than 8 MiB, of 2 x 10922 not.
                        {"RowsThatFitABlock", [] { return summed(10922); }},
                        {"NotRowsThatFitNoBlock", [] { return summed(10923); }}});

}  // namespace epilogue::testing::stack_gemms_test
