// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/checkpoint_activation.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace epilogue::tool {
namespace {

// Names that transformers gives activations, and what they are with a gate and without.
struct Name {
  std::string_view name;
  std::optional<nn::Activation> gated;
  std::optional<nn::Activation> plain;
};
constexpr Name kNames[] = {
    {"silu", nn::Activation::swiglu, nn::Activation::silu},
    {"swish", nn::Activation::swiglu, nn::Activation::silu},
    {"relu", nn::Activation::reglu, nn::Activation::relu},
    {"gelu", nn::Activation::geglu, nn::Activation::gelu},
    {"gelu_new", nn::Activation::geglu, nn::Activation::gelu_tanh},
    {"gelu_fast", nn::Activation::geglu, nn::Activation::gelu_tanh},
    {"gelu_pytorch_tanh", nn::Activation::geglu, nn::Activation::gelu_tanh},
};

std::optional<nn::Activation> activation_of(std::string_view name, bool gated) {
  for (const Name& known : kNames)
    if (known.name == name) return gated ? known.gated : known.plain;
  return std::nullopt;
}

// The activation that a config names; of models with several parts, the text's. Empty: none.
std::string name_in(const nlohmann::json& config) {
  if (!config.is_object()) return "";
  // Gemma's hidden_act is an old mistake that its hidden_activation corrects.
  for (const char* key : {"hidden_activation", "hidden_act", "activation_function", "dense_act_fn"})
    if (const auto found = config.find(key); found != config.end() && found->is_string())
      return found->get<std::string>();
  const auto text = config.find("text_config");
  return text != config.end() ? name_in(*text) : "";
}

std::string name_beside(const std::string& weights) {
  std::ifstream file(std::filesystem::path(weights).parent_path() / "config.json");
  if (!file) return "";
  return name_in(nlohmann::json::parse(file, nullptr, false));
}

}  // namespace

CheckpointActivation checkpoint_activation(const std::string& weights, const nn::HfMlp& mlp,
                                           std::optional<nn::Activation> asked) {
  if (asked && nn::is_gated(*asked) == mlp.gated) return {*asked, ""};
  const std::string instead = asked ? ", not " + std::string(nn::activation_name(*asked)) +
                                          ": its MLP is " + (mlp.gated ? "gated" : "not gated")
                                    : "";
  const std::string name = name_beside(weights);
  if (const auto named = activation_of(name, mlp.gated))
    return {*named, "of config.json" + instead};
  const std::string unknown = name.empty() ? "" : ", config.json's " + name + " is not known";
  return {mlp.activation, "assumed for " + mlp.family + unknown + instead};
}

}  // namespace epilogue::tool
