// SPDX-License-Identifier: Apache-2.0
// Hugging Face MLPs: small files in every naming, loaded and compared with hand-built modules.
#include "epilogue/io.h"
#include "nn/reference.h"
#include "nn/temp_file.h"
#include "support/test.h"

namespace epilogue::nn::hf_mlp_test {

constexpr int64_t kDim = 4;
constexpr int64_t kHidden = 6;
const std::string kPrefix = "model.layers.0.mlp";

// A source in memory; its tensors are those of `tensors`.
TensorSource memory_source(NamedTensors tensors) {
  TensorSource source;
  source.label = "test.safetensors";
  for (const auto& [name, tensor] : tensors) source.names.push_back(name);
  source.tensor = [tensors = std::move(tensors)](std::string_view name) -> Result<Tensor> {
    for (const auto& [other, tensor] : tensors)
      if (other == name) return tensor;
    return Failure{FailureCode::tensor_not_found, std::string(name)};
  };
  return source;
}

// The weights of a module without HF names, drawn once per test.
struct Weights {
  Tensor gate = randn({kHidden, kDim});
  Tensor up = randn({kHidden, kDim});
  Tensor down = randn({kDim, kHidden});
  Tensor gate_bias = randn({kHidden});
  Tensor up_bias = randn({kHidden});
  Tensor down_bias = randn({kDim});
};

struct Case {
  std::string family;
  std::string gate;  // empty: plain
  std::string up;
  std::string down;
  Activation activation;
  bool bias = false;
  bool transposed = false;
};

NamedTensors tensors_of(const Case& c, const Weights& w) {
  const auto stored = [&](const Tensor& m) { return c.transposed ? contiguous(t(m)) : m; };
  NamedTensors tensors = {{"unrelated", ones({1})}};
  const auto add = [&](const std::string& name, const Tensor& weight, const Tensor& bias) {
    tensors.emplace_back(kPrefix + "." + name + ".weight", stored(weight));
    if (c.bias) tensors.emplace_back(kPrefix + "." + name + ".bias", bias);
  };
  if (c.gate == c.up) {
    add(c.up, cat({w.gate, w.up}), cat({w.gate_bias, w.up_bias}));
  } else {
    if (!c.gate.empty()) add(c.gate, w.gate, w.gate_bias);
    add(c.up, w.up, w.up_bias);
  }
  add(c.down, w.down, w.down_bias);
  return tensors;
}

// The expected result, without any module.
Matrix expected_of(const Case& c, const Weights& w, const Tensor& x) {
  const auto bias = [&](const Tensor& b) { return c.bias ? b : Tensor(); };
  Matrix h = reference_linear(matrix_of(x), w.up, bias(w.up_bias));
  if (c.gate.empty()) {
    h = reference_activate(std::move(h), c.activation);
  } else {
    const Matrix g =
        reference_activate(reference_linear(matrix_of(x), w.gate, bias(w.gate_bias)), c.activation);
    for (size_t i = 0; i < h.values.size(); ++i) h.values[i] *= g.values[i];
  }
  return reference_linear(h, w.down, bias(w.down_bias));
}

class HfFamilies : public testing::TestWithParam<Case> {};

TEST_P(HfFamilies, InspectLoadAndRunFromAFile) {
  const Case& c = GetParam();
  manual_seed(17);
  const Weights w;
  const TempFile temp;
  ASSERT_TRUE(save_safetensors(temp.path(), tensors_of(c, w)).ok());
  const SafetensorsFile file = SafetensorsFile::open(temp.path()).value();
  const TensorSource source{temp.path(), file.names(),
                            [&](std::string_view name) { return file.tensor(name); }};

  const HfMlp mlp = inspect_hf_mlp(source, kPrefix).value();
  EXPECT_EQ(mlp.family, c.family);
  EXPECT_EQ(mlp.activation, c.activation);
  EXPECT_EQ(mlp.dim, kDim);
  EXPECT_EQ(mlp.hidden, kHidden);
  EXPECT_EQ(mlp.gated, !c.gate.empty());
  EXPECT_EQ(mlp.bias, c.bias);
  EXPECT_EQ(mlp.dtype, DType::f32);

  for (const bool in_block : {false, true}) {
    const auto module = make_mlp({.dim = mlp.dim,
                                  .hidden = mlp.hidden,
                                  .activation = mlp.activation,
                                  .bias = mlp.bias,
                                  .residual = in_block});
    ASSERT_TRUE(load_hf_mlp(*module, source, kPrefix + (in_block ? "." : "")).ok());
    const Tensor x = randn({3, kDim});
    Matrix expected = expected_of(c, w, x);
    if (in_block) expected = plus(expected, matrix_of(x));
    EXPECT_TRUE(near((*module)(x), expected, 2e-5));
    for (const Tensor& p : module->parameters()) {
      EXPECT_TRUE(p.requires_grad());
      EXPECT_TRUE(p.is_contiguous());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, HfFamilies,
    testing::Values(Case{"llama", "gate_proj", "up_proj", "down_proj", Activation::swiglu},
                    Case{"llama", "gate_proj", "up_proj", "down_proj", Activation::swiglu, true},
                    Case{"phi3", "gate_up_proj", "gate_up_proj", "down_proj", Activation::swiglu},
                    Case{"phi3", "gate_up_proj", "gate_up_proj", "down_proj", Activation::swiglu,
                         true},
                    Case{"mixtral", "w1", "w3", "w2", Activation::swiglu},
                    Case{"t5-gated", "wi_0", "wi_1", "wo", Activation::geglu},
                    Case{"t5", "", "wi", "wo", Activation::relu},
                    Case{"gpt2", "", "c_fc", "c_proj", Activation::gelu_tanh, true, true},
                    Case{"gpt-neox", "", "dense_h_to_4h", "dense_4h_to_h", Activation::gelu, true},
                    Case{"bert", "", "intermediate.dense", "output.dense", Activation::gelu, true},
                    Case{"phi2", "", "fc1", "fc2", Activation::gelu_tanh, true}),
    [](const auto& p) {
      std::string name = p.param.family + (p.param.bias ? "_bias" : "");
      for (char& c : name)
        if (c == '-') c = '_';
      return name;
    });

const Case kLlama{"llama", "gate_proj", "up_proj", "down_proj", Activation::swiglu};
const Case kPacked{"phi3", "gate_up_proj", "gate_up_proj", "down_proj", Activation::swiglu};

TEST(HfMlp, SharesMemoryWhereTheDtypesAgree) {
  const Weights w;
  GatedMLP mlp(kDim, kHidden);
  ASSERT_TRUE(load_hf_mlp(mlp, memory_source(tensors_of(kLlama, w)), kPrefix).ok());
  EXPECT_EQ(mlp.gate_proj.weight.data(), w.gate.data());
  EXPECT_EQ(mlp.down_proj.weight.data(), w.down.data());
}

TEST(HfMlp, ConvertsToTheModulesDtype) {
  const Weights w;
  GatedMLP mlp(kDim, kHidden);
  mlp.to(DType::bf16);
  const Tensor held = mlp.up_proj.weight;
  ASSERT_TRUE(load_hf_mlp(mlp, memory_source(tensors_of(kPacked, w)), kPrefix).ok());
  EXPECT_TRUE(mlp.up_proj.weight.is_same(held));
  EXPECT_EQ(held.dtype(), DType::bf16);
  EXPECT_EQ(held.to_vector(), to(w.up, DType::bf16).to_vector());
}

TEST(HfMlp, LoadedWeightsTrain) {
  GatedMLP mlp(kDim, kHidden);
  ASSERT_TRUE(load_hf_mlp(mlp, memory_source(tensors_of(kPacked, Weights())), kPrefix).ok());
  sum(mlp(randn({2, kDim}))).backward();
  for (const Tensor& p : mlp.parameters()) EXPECT_TRUE(p.grad().defined());
}

TEST(HfMlp, EmptyPrefixIsTheTopLevel) {
  const Weights w;
  const TensorSource source =
      memory_source({{"c_fc.weight", t(w.up)}, {"c_proj.weight", t(w.down)}});
  EXPECT_EQ(inspect_hf_mlp(source, "").value().family, "gpt2");
}

// The failure of inspecting `tensors`.
Failure failure_of(NamedTensors tensors, std::string_view prefix = "mlp") {
  auto result = inspect_hf_mlp(memory_source(std::move(tensors)), prefix);
  return result ? Failure{} : result.failure();
}

TEST(HfMlpErrors, NotFoundListsWhatWasLookedForAndTheClosestNames) {
  const Failure f = failure_of({{"model.embed.weight", ones({1})},
                                {"model.layers.0.mlp.gate_proj.weight", ones({1})},
                                {"model.layers.0.mlp.up_proj.weight", ones({1})},
                                {"lm_head.weight", ones({1})}},
                               "model.layers.7.mlp");
  EXPECT_EQ(f.code, FailureCode::hf_mlp_not_found);
  EXPECT_EQ(
      f.message,
      "test.safetensors: HfMlpNotFound: expected the weights of an MLP under "
      "\"model.layers.7.mlp\", looked for gate_proj/up_proj/down_proj, gate_up_proj/down_proj, "
      "w1/w3/w2, wi_0/wi_1/wo, wi/wo, c_fc/c_proj, dense_h_to_4h/dense_4h_to_h, "
      "intermediate.dense/output.dense, fc1/fc2; it has 4 tensors, such as "
      "model.layers.0.mlp.gate_proj.weight, model.layers.0.mlp.up_proj.weight, model.embed.weight");
}

TEST(HfMlpErrors, NothingInTheFile) {
  const std::string message = failure_of({}).message;
  EXPECT_TRUE(message.ends_with("; it has 0 tensors")) << message;
}

TEST(HfMlpErrors, AWeightIsMissing) {
  const Failure f =
      failure_of({{"mlp.gate_proj.weight", ones({6, 4})}, {"mlp.down_proj.weight", ones({4, 6})}});
  EXPECT_EQ(
      f.message,
      "test.safetensors: HfMlpIncomplete: expected the weights of a llama MLP, got none named "
      "mlp.up_proj.weight; it has 2 tensors, such as mlp.down_proj.weight, mlp.gate_proj.weight");
}

TEST(HfMlpErrors, NamesFromTheFileAreMadeFitForATerminal) {
  const std::string message =
      failure_of({{"mlp.\x1b[31m" + std::string(500, 'x') + "\n", ones({1})}}).message;
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 500U);
}

TEST(HfMlpErrors, ShapesThatDoNotFitTogether) {
  const Tensor up = ones({6, 4}), down = ones({4, 6});
  const auto message = [](NamedTensors tensors) { return failure_of(std::move(tensors)).message; };
  EXPECT_EQ(message({{"mlp.gate_proj.weight", ones({5, 4})},
                     {"mlp.up_proj.weight", up},
                     {"mlp.down_proj.weight", down}}),
            "test.safetensors: HfMlpShape: expected gate_proj of [6, 4] (out, in), got [5, 4]");
  EXPECT_EQ(message({{"mlp.gate_proj.weight", up},
                     {"mlp.up_proj.weight", ones({5, 4})},
                     {"mlp.down_proj.weight", down}}),
            "test.safetensors: HfMlpShape: expected up_proj of [6, 4] (out, in), got [5, 4]");
  EXPECT_EQ(message({{"mlp.fc1.weight", up}, {"mlp.fc2.weight", up}}),
            "test.safetensors: HfMlpShape: expected fc2 of [4, 6] (out, in), got [6, 4]");
  EXPECT_EQ(message({{"mlp.fc1.weight", ones({6})}, {"mlp.fc2.weight", down}}),
            "test.safetensors: HfMlpShape: expected fc1.weight with 2 dimension(s), got f32[6]");
  EXPECT_EQ(message({{"mlp.fc1.weight", ones({0, 4})}, {"mlp.fc2.weight", ones({4, 0})}}),
            "test.safetensors: HfMlpShape: expected an MLP with elements, got f32[0, 4]");
  EXPECT_EQ(message({{"mlp.gate_up_proj.weight", ones({7, 4})}, {"mlp.down_proj.weight", down}}),
            "test.safetensors: HfMlpShape: expected gate_up_proj with an even number of rows and a "
            "bias of as many, got weight f32[7, 4], bias undefined");
}

TEST(HfMlpErrors, Biases) {
  const Tensor up = ones({6, 4}), down = ones({4, 6});
  EXPECT_EQ(
      failure_of({{"mlp.fc1.weight", up}, {"mlp.fc1.bias", ones({6})}, {"mlp.fc2.weight", down}})
          .message,
      "test.safetensors: HfMlpIncomplete: expected a bias for all linears or for none, got "
      "none for fc2");
  EXPECT_EQ(failure_of({{"mlp.fc1.weight", up},
                        {"mlp.fc1.bias", ones({4})},
                        {"mlp.fc2.weight", down},
                        {"mlp.fc2.bias", ones({4})}})
                .message,
            "test.safetensors: HfMlpShape: expected a bias of [6] for fc1, got [4]");
}

TEST(HfMlpErrors, QuantisedWeightsAreRefused) {
  EXPECT_EQ(
      failure_of({{"mlp.fc1.weight", ones({6, 4}, DType::u8)}, {"mlp.fc2.weight", ones({4, 6})}})
          .message,
      "test.safetensors: HfMlpDtype: expected floating fc1.weight, got u8[6, 4]");
}

TEST(HfMlpErrors, FailuresOfTheSourceComeThrough) {
  TensorSource source = memory_source({{"mlp.fc1.weight", {}}, {"mlp.fc2.weight", {}}});
  source.tensor = [](std::string_view) -> Result<Tensor> {
    return Failure{FailureCode::unsupported_dtype, "no"};
  };
  EXPECT_EQ(inspect_hf_mlp(source, "mlp").failure().code, FailureCode::unsupported_dtype);
}

TEST(HfMlpErrors, AnotherMlpThanTheModules) {
  const Weights w;
  GatedMLP wide(kDim, kHidden + 1, Activation::swiglu, true);
  const std::vector<double> before = wide.up_proj.weight.to_vector();
  const auto result = load_hf_mlp(wide, memory_source(tensors_of(kLlama, w)), kPrefix);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(
      result.failure().message,
      "test.safetensors: HfMlpMismatch: expected a gated MLP of dim 4, hidden 7, with biases, "
      "got llama's: a gated MLP of dim 4, hidden 6, without biases");
  EXPECT_EQ(wide.up_proj.weight.to_vector(), before);
  MLP plain(kDim, kHidden);
  EXPECT_EQ(load_hf_mlp(plain, memory_source(tensors_of(kLlama, w)), kPrefix).failure().code,
            FailureCode::hf_mlp_mismatch);
}

TEST(HfMlpErrors, ModulesOfAnotherKind) {
  Linear linear(4, 4);
  MLP deep(4, 6, 2);
  const TensorSource source = memory_source({});
  for (Module* module : {static_cast<Module*>(&linear), static_cast<Module*>(&deep)})
    EXPECT_ERROR(
        (void)load_hf_mlp(*module, source, ""),
        "[load_hf_mlp] expected a GatedMLP, an MLP of one hidden layer or a Block around one, "
        "got " +
            module->class_name());
}

}  // namespace epilogue::nn::hf_mlp_test
