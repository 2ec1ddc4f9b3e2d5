// SPDX-License-Identifier: Apache-2.0
// The workloads that profile, compile and bench run, from their flags on.
#include "tools/epilogue/profile/workload.h"

#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "errors/message_of.h"
#include "support/test.h"
#include "tool/parse.h"

namespace epilogue::tool::workload_test {

struct Parsed {
  WorkloadOptions options;
  std::string error;
};

Parsed parsed(const std::string& kind, const std::vector<std::string>& arguments) {
  Parsed p;
  CLI::App app;
  add_workload_flags(app, kind, p.options);
  p.error = parse(app, arguments);
  return p;
}

Workload made(const std::string& kind, const std::vector<std::string>& arguments) {
  const Parsed p = parsed(kind, arguments);
  EXPECT_EQ(p.error, "");
  return make_workload(p.options);
}

std::string refused(const std::string& kind, const std::vector<std::string>& arguments) {
  const Parsed p = parsed(kind, arguments);
  EXPECT_EQ(p.error, "");
  return test::message_of([&] { make_workload(p.options); });
}

TEST(WorkloadFlags, DefaultsAreTheReferencesShapes) {
  const WorkloadOptions mlp = parsed("mlp", {}).options;
  EXPECT_EQ(mlp.kind, "mlp");
  EXPECT_EQ(mlp.dtype, "bf16");
  EXPECT_EQ(mlp.hidden, 3072);
  EXPECT_FALSE(mlp.activation.has_value()) << "geglu, or what a checkpoint has";
  EXPECT_FALSE(mlp.dim.has_value());
  EXPECT_EQ(parsed("train-step", {}).options.dtype, "f32");  // the weights' own
}

TEST(WorkloadFlags, AreThoseOfTheKind) {
  EXPECT_EQ(parsed("linear", {"--in-dim", "3", "--no-bias"}).options.in_dim_given, 3);
  EXPECT_EQ(parsed("train-step", {"--amp", "half", "--accumulate", "4"}).options.amp, "f16");
  EXPECT_NE(parsed("matmul-add", {"--hidden", "3"}).error, "");
  EXPECT_NE(parsed("train-step", {"--backward"}).error, "");
  EXPECT_EQ(parsed("mlp", {"--batch", "0"}).error,
            "--batch: expected a whole number of 1 or more, got '0'");
}

TEST(Workload, MatmulAddIsWhatItsNameSays) {
  const Workload w = made("matmul-add", {"--size", "8", "--dtype", "f32"});
  EXPECT_EQ(w.tag, "8_f32_warm_eager");
  EXPECT_EQ(w.what, "matmul-add: [8,8] x [8,8] + [8,8]");
  EXPECT_EQ(w.warmup_calls, 3);
  const auto got = w.call().to_vector();
  const auto expected = add(matmul(w.input, w.operands.at(0)), w.operands.at(1)).to_vector();
  EXPECT_EQ(got, expected);
  EXPECT_EQ(made("matmul-add", {"--size", "8", "--cold"}).warmup_calls, 0);
}

TEST(Workload, ModesComputeTheSame) {
  const std::vector<std::string> shape = {"--batch", "2",        "--seq", "3",       "--dim",
                                          "16",      "--hidden", "24",    "--dtype", "f32"};
  std::vector<std::vector<double>> results;
  for (const char* mode : {"eager", "compile", "fused"}) {
    std::vector<std::string> arguments = shape;
    arguments.insert(arguments.end(), {"--mode", mode});
    const Workload w = made("mlp", arguments);
    EXPECT_EQ(w.tag, std::string("2_3_16_24_") + mode);
    EXPECT_EQ(w.label, "mlp_fwd");
    results.push_back(w.call().to_vector());
  }
  ASSERT_EQ(results[0].size(), 96U);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_NEAR(results[0][i], results[1][i], 1e-5);
    EXPECT_NEAR(results[0][i], results[2][i], 1e-5);
  }
}

TEST(Workload, TheSeedDecidesTheNumbers) {
  const auto first = [](const char* seed) {
    return made("linear", {"--batch", "2", "--dtype", "f32", "--seed", seed}).call().to_vector();
  };
  EXPECT_EQ(first("1"), first("1"));
  EXPECT_NE(first("1"), first("2"));
}

TEST(Workload, SaysItsSizesByTheNamesOfItsFlags) {
  const Workload w = made("linear", {"--batch", "5", "--in-dim", "3", "--out-dim", "4"});
  using Shape = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(w.shape, (Shape{{"batch", 5}, {"in_dim", 3}, {"out_dim", 4}}));
  EXPECT_EQ(w.description, "linear: [5, 3] -> 4 + bias, bf16, eager, " + machine_description());
}

TEST(Workload, ATrainingStepLearns) {
  for (const char* mode : {"eager", "compile"}) {
    const Workload w = made("train-step", {"--batch", "4", "--seq", "2", "--dim", "16", "--hidden",
                                           "32", "--accumulate", "2", "--mode", mode});
    EXPECT_EQ(w.tag, std::string("4_2_16_32_none_2_") + mode);
    const double before = w.call().item();
    double after = before;
    for (int i = 0; i < 20; ++i) after = w.call().item();
    EXPECT_LT(after, before) << mode;
  }
}

TEST(Workload, MisuseNamesTheFlag) {
  EXPECT_EQ(refused("mlp", {"--mode", "magic"}),
            "[--mode] expected eager, compile or fused, got 'magic'");
  EXPECT_EQ(refused("linear", {"--mode", "fused"}),
            "[--mode] expected an mlp for the fused op, got linear");
  EXPECT_EQ(refused("train-step", {"--mode", "fused"}),
            "[--mode] expected eager or compile for a training step, got 'fused'");
  EXPECT_EQ(refused("mlp", {"--prefix", "model"}),
            "[--prefix] expected --weights FILE.safetensors beside it, got none");
  EXPECT_EQ(refused("mlp", {"--input", "noise", "--batch", "1"}),
            "[--input] expected random, fashion-mnist or a .safetensors file, got 'noise'");
  EXPECT_EQ(refused("mlp", {"--device", "tpu"}), "[--device] expected cpu or cuda, got 'tpu'");
  EXPECT_EQ(refused("train-step", {"--amp", "bf16", "--dtype", "bf16"}),
            "[--amp] expected --dtype f32 (the weights' own), got 'bf16'");
  EXPECT_EQ(refused("train-step", {"--optimizer", "lion", "--batch", "1", "--seq", "1", "--dim",
                                   "4", "--hidden", "4"}),
            "[--optimizer] expected adamw, adam or sgd, got 'lion'");
  EXPECT_EQ(
      refused("matmul-add", {"--size", "1000000000"}).find("[--size] expected sizes that fit"), 0U);
}

}  // namespace epilogue::tool::workload_test
