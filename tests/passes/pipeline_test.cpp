// SPDX-License-Identifier: Apache-2.0
// The driver of the passes. Each pass has a file of its own: PASS_test.cpp.
#include "pass_testing.h"
#include "support/test.h"

namespace epilogue::testing::pipeline_test {

Graph gated_mlp() {
  return graph_of({zeros({2, 3, 4})}, {zeros({6, 4}), zeros({6, 4}), zeros({4, 6})},
                  [](In x, In p) {
                    const Tensor activated = gelu(linear(x[0], p[0]), Gelu::tanh);
                    return linear(activated * linear(x[0], p[1]), p[2]);
                  });
}

TEST(Pipeline, SkippedPassesDoNothing) {
  for (const passes::Pass& pass : passes::pipeline()) {
    Graph graph = gated_mlp();
    PipelineOptions options = {.skip = {std::string(pass.name)}, .keep_texts = true};
    const passes::PipelineResult result = passes::run_pipeline(graph, options);
    for (const passes::Note& note : result.notes) EXPECT_NE(note.pass, pass.name);
    ASSERT_EQ(result.passes.size(), passes::pipeline().size());
    for (const passes::PassRecord& record : result.passes) {
      EXPECT_EQ(record.skipped, record.name == pass.name);
      EXPECT_EQ(record.text.empty(), record.skipped) << record.name;
    }
  }
}

TEST(Pipeline, NamesThatAreNoPassAreRefused) {
  Graph graph = gated_mlp();
  PipelineOptions options;
  options.skip = {"merge_gemms", "make_faster"};
  const std::string before = graph::to_text(graph);
  const std::string error = error_of([&] { passes::run_pipeline(graph, options); });
  EXPECT_HAS(error, "'make_faster'");
  EXPECT_EQ(graph::to_text(graph), before);
}

TEST(Pipeline, TwiceIsOnce) {
  Graph graph = gated_mlp();
  passes::run_pipeline(graph, {});
  const std::string first = graph::to_text(graph);
  EXPECT_LACKS(first, "aten::");
  passes::run_pipeline(graph, {});
  EXPECT_EQ(graph::to_text(graph), first);
}

}  // namespace epilogue::testing::pipeline_test
