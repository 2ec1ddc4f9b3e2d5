// SPDX-License-Identifier: Apache-2.0
#include "nn/hf_names.h"

#include <algorithm>
#include <set>

#include "base/printable.h"

namespace epilogue::nn {
namespace {

// The first family whose weights are all there wins: more tensors before fewer.
constexpr HfFamily kFamilies[] = {
    {"llama", Activation::swiglu, "gate_proj", "up_proj", "down_proj"},
    {"phi3", Activation::swiglu, "", "gate_up_proj", "down_proj", HfLayout::packed},
    {"mixtral", Activation::swiglu, "w1", "w3", "w2"},
    {"t5-gated", Activation::geglu, "wi_0", "wi_1", "wo"},
    {"t5", Activation::relu, "", "wi", "wo"},
    {"gpt2", Activation::gelu_tanh, "", "c_fc", "c_proj", HfLayout::transposed},
    {"gpt-neox", Activation::gelu, "", "dense_h_to_4h", "dense_4h_to_h"},
    {"bert", Activation::gelu, "", "intermediate.dense", "output.dense"},
    {"phi2", Activation::gelu_tanh, "", "fc1", "fc2"},
};

constexpr size_t kShownNames = 3;

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

// "it has 12 tensors, such as a, b, c": those whose names begin most like `prefix`.
std::string closest_names(const TensorSource& source, std::string_view prefix) {
  std::vector<std::string_view> names(source.names.begin(), source.names.end());
  const size_t n = std::min(kShownNames, names.size());
  std::partial_sort(names.begin(), names.begin() + static_cast<ptrdiff_t>(n), names.end(),
                    [&](std::string_view a, std::string_view b) {
                      const size_t ca = common_prefix(a, prefix), cb = common_prefix(b, prefix);
                      return ca != cb ? ca > cb : a < b;
                    });
  std::string text = "it has " + std::to_string(names.size()) + " tensors";
  for (size_t i = 0; i < n; ++i) text += (i == 0 ? ", such as " : ", ") + printable(names[i]);
  return text;
}

// "gate_proj/up_proj/down_proj, gate_up_proj/down_proj, ...".
std::string all_families() {
  std::string text;
  for (const HfFamily& family : kFamilies) {
    if (!text.empty()) text += ", ";
    const std::vector<std::string_view> modules = family.modules();
    for (size_t i = 0; i < modules.size(); ++i) text.append(i == 0 ? "" : "/").append(modules[i]);
  }
  return text;
}

}  // namespace

std::vector<std::string_view> HfFamily::modules() const {
  if (gate.empty()) return {up, down};
  return {gate, up, down};
}

std::string join_name(std::string_view prefix, std::string_view name) {
  std::string full(prefix);
  if (!full.empty() && full.back() != '.') full += '.';
  return full.append(name);
}

Failure hf_failure(const TensorSource& source, FailureCode code, std::string_view detail) {
  std::string message = source.label.empty() ? "checkpoint" : source.label;
  message.append(": ").append(failure_code_name(code)).append(": ").append(detail);
  return {code, std::move(message)};
}

Result<const HfFamily*> find_hf_family(const TensorSource& source, std::string_view prefix) {
  const std::set<std::string_view> names(source.names.begin(), source.names.end());
  std::string missing;  // of the first family of which something is there
  for (const HfFamily& family : kFamilies) {
    std::string absent;
    size_t present = 0;
    for (const std::string_view module : family.modules()) {
      const std::string name = join_name(prefix, std::string(module) + ".weight");
      if (names.count(name) != 0) {
        ++present;
      } else {
        absent += (absent.empty() ? "" : ", ") + printable(name);
      }
    }
    if (absent.empty()) return &family;
    if (present > 0 && missing.empty())
      missing = "expected the weights of a " + std::string(family.name) + " MLP, got none named " +
                absent;
  }
  if (!missing.empty())
    return hf_failure(source, FailureCode::hf_mlp_incomplete,
                      missing + "; " + closest_names(source, prefix));
  return hf_failure(source, FailureCode::hf_mlp_not_found,
                    "expected the weights of an MLP under \"" + printable(prefix) +
                        "\", looked for " + all_families() + "; " + closest_names(source, prefix));
}

}  // namespace epilogue::nn
