// SPDX-License-Identifier: Apache-2.0
// state_dict and load_state_dict, also through a file; every disagreement is named.
#include "epilogue/io.h"
#include "nn/reference.h"
#include "nn/temp_file.h"
#include "support/test.h"

namespace epilogue::nn::state_dict_test {

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST(StateDict, IsDetachedAndSharesMemory) {
  const Linear layer(2, 3);
  const NamedTensors state = layer.state_dict();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].first, "weight");
  EXPECT_EQ(state[0].second.data(), layer.weight.data());
  EXPECT_FALSE(state[0].second.requires_grad());
}

TEST(StateDict, RoundTripThroughSafetensorsIsBitwise) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const auto saved = make_mlp({.dim = 5, .hidden = 7, .bias = true, .norm = Norm::layer});
    const auto loaded = make_mlp({.dim = 5, .hidden = 7, .bias = true, .norm = Norm::layer});
    saved->to(dtype);
    loaded->to(dtype);
    const TempFile file;
    ASSERT_TRUE(save_safetensors(file.path(), saved->state_dict()).ok());
    const SafetensorsFile opened = SafetensorsFile::open(file.path()).value();
    NamedTensors state;
    for (const std::string& name : opened.names())
      state.emplace_back(name, opened.tensor(name).value());
    loaded->load_state_dict(state);
    const NamedTensors a = saved->state_dict(), b = loaded->state_dict();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bytes(a[i].second, b[i].second));
  }
}

TEST(StateDict, LoadConvertsAndKeepsTheParameters) {
  Linear layer(2, 1);
  const Tensor held = layer.weight;
  layer.load_state_dict({{"bias", from_values({3}, {1}, DType::i64)},
                         {"weight", from_values({0.5, -2}, {1, 2}, DType::bf16)}});
  EXPECT_TRUE(layer.weight.is_same(held));
  EXPECT_EQ(held.dtype(), DType::f32);
  EXPECT_TRUE(held.requires_grad());
  EXPECT_EQ(held.to_vector(), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(layer.bias.to_vector(), (std::vector<double>{3}));
}

TEST(StateDict, LoadsViewsAndItself) {
  Linear layer(2, 3, false);
  const Tensor columns = from_values({1, 2, 3, 4, 5, 6}, {2, 3});
  layer.load_state_dict({{"weight", t(columns)}});
  EXPECT_EQ(layer.weight.to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  layer.load_state_dict(layer.state_dict());
  EXPECT_EQ(layer.weight.to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST(StateDict, OneMessageForEveryDisagreementAndNothingIsChanged) {
  GatedMLP mlp(2, 3, Activation::geglu, true);
  const std::vector<double> before = mlp.up_proj.weight.to_vector();
  const NamedTensors state = {{"up_proj.weight", ones({3, 2})},
                              {"gate_proj.weight", ones({2, 3})},
                              {"down_proj.weight", ones({2, 3})},
                              {"down_proj.bias", ones({3})},
                              {"extra", ones({1})},
                              {"another", ones({1})}};
  EXPECT_ERROR(
      mlp.load_state_dict(state),
      "[load_state_dict] expected the keys and shapes of GatedMLP, got missing key(s): "
      "\"gate_proj.bias\", \"up_proj.bias\"; unexpected key(s): \"extra\", \"another\"; size "
      "mismatch for gate_proj.weight: [2, 3] in the state, [3, 2] in the module; size mismatch "
      "for down_proj.bias: [3] in the state, [2] in the module");
  EXPECT_EQ(mlp.up_proj.weight.to_vector(), before);
}

TEST(StateDict, NotStrictReturnsTheKeysButRefusesShapes) {
  Linear layer(2, 3);
  const LoadResult result =
      layer.load_state_dict({{"weight", ones({3, 2})}, {"extra", ones({1})}}, false);
  EXPECT_EQ(result.missing, (std::vector<std::string>{"bias"}));
  EXPECT_EQ(result.unexpected, (std::vector<std::string>{"extra"}));
  EXPECT_EQ(layer.weight.to_vector(), std::vector<double>(6, 1.0));
  EXPECT_ERROR(
      layer.load_state_dict({{"weight", ones({2})}}, false),
      "[load_state_dict] expected the keys and shapes of Linear, got size mismatch for weight: "
      "[2] in the state, [3, 2] in the module");
}

TEST(StateDict, AnUndefinedTensorCountsAsMissing) {
  Linear layer(2, 3);
  EXPECT_ERROR(
      layer.load_state_dict({{"weight", ones({3, 2})}, {"bias", Tensor()}}),
      "[load_state_dict] expected the keys and shapes of Linear, got missing key(s): \"bias\"");
}

TEST(StateDict, SharedWeightsRoundTrip) {
  const auto layer = std::make_shared<Linear>(3, 3);
  Sequential model({layer, layer});
  model.load_state_dict(model.state_dict());
  EXPECT_ERROR(model.load_state_dict({{"0.weight", layer->weight.detach()}}),
               "[load_state_dict] expected the keys and shapes of Sequential, got missing key(s): "
               "\"0.bias\", \"1.weight\", \"1.bias\"");
}

}  // namespace epilogue::nn::state_dict_test
