// SPDX-License-Identifier: Apache-2.0
// Messages on wrong use of layers, initialisers and states.
#include "epilogue/nn.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::nn::misuse_test {

using test::message_of;

TEST(Misuse, LinearsThatAreNotThere) {
  const MLP mlp(2, 3);
  EXPECT_EQ(mlp.fc(1).weight.sizes(), (Dims{2, 3}));
  EXPECT_ERROR(mlp.fc(2), "[MLP::fc] expected a linear below 2, got 2");
}

TEST(Misuse, AnInputOfAnotherDtypeIsTheLayersError) {
  Linear layer(4, 2);
  EXPECT_ERROR(layer(ones({3, 4}, DType::bf16)), "[Linear] expected input of dtype f32, got bf16");
  layer.to(DType::bf16);
  EXPECT_ERROR(layer(ones({3, 4})), "[Linear] expected input of dtype bf16, got f32");
}

TEST(Misuse, AWrongUpProjectionIsNamed) {
  GatedMLP mlp(4, 6);
  mlp.up_proj.weight = ones({5, 4});
  EXPECT_ERROR(
      mlp(ones({3, 4})),
      "[GatedMLP] expected up_proj.weight of gate_proj.weight's shape [6, 4], got f32[5, 4]");
}

TEST(Misuse, Norms) {
  EXPECT_ERROR(LayerNorm({}), "[LayerNorm] expected a shape of one dimension or more, got []");
  EXPECT_ERROR(RMSNorm({}), "[RMSNorm] expected a shape of one dimension or more, got []");
  EXPECT_ERROR(LayerNorm({4}, NAN), "[LayerNorm] expected a finite eps >= 0, got nan");
  EXPECT_ERROR(LayerNorm({4}, -1), "[LayerNorm] expected a finite eps >= 0, got -1.000000");
  EXPECT_ERROR(RMSNorm({4}, NAN), "[RMSNorm] expected a finite eps >= 0, got nan");
  EXPECT_EQ(message_of([] { RMSNorm({4}, 0.0); }), "(no error)");
}

TEST(Misuse, Initialisers) {
  const Tensor w = ones({2, 2});
  const std::string bounds = "[uniform_] expected finite bounds, low <= high, got ";
  EXPECT_ERROR(uniform_(w, 1, 0), bounds + "1.000000 and 0.000000");
  EXPECT_ERROR(uniform_(w, NAN, 1), bounds + "nan and 1.000000");
  EXPECT_ERROR(uniform_(w, 0, INFINITY), bounds + "0.000000 and inf");
  EXPECT_ERROR(
      normal_(w, 0, -1),
      "[normal_] expected a finite mean and a finite stddev >= 0, got 0.000000 and -1.000000");
  EXPECT_ERROR(kaiming_uniform_(w, NAN), "[kaiming_uniform_] expected a finite slope, got nan");
  EXPECT_EQ(w.to_vector(), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(uniform_(w, 3, 3).to_vector(), (std::vector<double>{3, 3, 3, 3}));
}

TEST(Misuse, AStateWithAKeyTwice) {
  Linear layer(1, 1, false);
  const double before = layer.weight.item();
  EXPECT_ERROR(layer.load_state_dict({{"weight", ones({1, 1})}, {"weight", zeros({1, 1})}}),
               "[load_state_dict] expected the keys and shapes of Linear, got repeated key(s): "
               "\"weight\"");
  EXPECT_EQ(layer.weight.item(), before);
}

TEST(Misuse, ASourceWithoutAFunction) {
  GatedMLP mlp(2, 3);
  const TensorSource source{"nowhere", {"gate_proj.weight"}, {}};
  EXPECT_ERROR((void)inspect_hf_mlp(source, "").ok(),
               "[inspect_hf_mlp] expected a function that gives tensors, got an empty one");
  EXPECT_ERROR((void)load_hf_mlp(mlp, source, "").ok(),
               "[load_hf_mlp] expected a function that gives tensors, got an empty one");
}

}  // namespace epilogue::nn::misuse_test
