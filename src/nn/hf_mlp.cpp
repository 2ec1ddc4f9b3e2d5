// SPDX-License-Identifier: Apache-2.0
// Reads an MLP of a Hugging Face checkpoint into a GatedMLP or an MLP.

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "nn/parameter.h"

namespace epilogue::nn {

namespace {

enum class HfLayout : uint8_t {
  plain,       // weights [out, in]
  packed,      // gate and up in one tensor [2 hidden, dim], gate rows first
  transposed,  // weights [in, out] (GPT-2's Conv1D)
};

// One naming. "<prefix>.<up>.weight" and so on; `.bias` beside each weight or beside none.
struct HfFamily {
  std::string_view name;
  Activation activation;
  std::string_view gate;  // empty: not gated, or packed
  std::string_view up;
  std::string_view down;
  HfLayout layout = HfLayout::plain;

  bool gated() const { return !gate.empty() || layout == HfLayout::packed; }
  // gate (where it is a tensor of its own), up, down.
  std::vector<std::string_view> modules() const;
};

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

std::vector<std::string_view> HfFamily::modules() const {
  if (gate.empty()) return {up, down};
  return {gate, up, down};
}

// "model.layers.0.mlp" + "up_proj.weight"; the prefix may be empty or end in a dot.
std::string join_name(std::string_view prefix, std::string_view name) {
  std::string full(prefix);
  if (!full.empty() && full.back() != '.') full += '.';
  return full.append(name);
}

// "LABEL: CODE: DETAIL", fit for one line of a terminal.
Failure hf_failure(const TensorSource& source, FailureCode code, std::string_view detail) {
  std::string message = source.label.empty() ? "checkpoint" : source.label;
  message.append(": ").append(failure_code_name(code)).append(": ").append(detail);
  return {code, std::move(message)};
}

// The family whose weights are all below `prefix`. Codes: HfMlpNotFound, HfMlpIncomplete.
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

// One linear as the module wants it: weight [out, in] (a view where the file has it otherwise).
struct HfLinear {
  Tensor weight;
  Tensor bias;  // undefined without one
};

struct HfWeights {
  HfMlp mlp;
  HfLinear gate;  // undefined where not gated
  HfLinear up;
  HfLinear down;
};

class Reader {
 public:
  Reader(const TensorSource& source, std::string_view prefix) : source_(source), prefix_(prefix) {}

  Result<HfWeights> read() {
    auto family = find_hf_family(source_, prefix_);
    if (!family) return family.failure();
    HfWeights weights;
    const HfFamily& f = *family.value();
    for (auto [name, linear] :
         {std::pair{f.gate, &weights.gate}, {f.up, &weights.up}, {f.down, &weights.down}}) {
      if (name.empty()) continue;
      if (const auto ok = read_linear(f, name, *linear); !ok) return ok.failure();
    }
    if (f.layout == HfLayout::packed) {
      if (const auto ok = unpack(weights); !ok) return ok.failure();
    }
    if (const auto ok = check_shapes(f, weights); !ok) return ok.failure();
    weights.mlp = {.family = std::string(f.name),
                   .activation = f.activation,
                   .dim = weights.up.weight.size(1),
                   .hidden = weights.up.weight.size(0),
                   .gated = f.gated(),
                   .bias = weights.up.bias.defined(),
                   .dtype = weights.up.weight.dtype()};
    return weights;
  }

 private:
  Result<Tensor> read_tensor(std::string_view name, int rank) const {
    auto tensor = source_.tensor(join_name(prefix_, name));
    if (!tensor) return tensor.failure();
    const Tensor& value = tensor.value();
    if (!is_floating(value.dtype()))
      return hf_failure(source_, FailureCode::hf_mlp_dtype,
                        "expected floating " + std::string(name) + ", got " + to_string(value));
    if (value.dim() != rank)
      return hf_failure(source_, FailureCode::hf_mlp_shape,
                        "expected " + std::string(name) + " with " + std::to_string(rank) +
                            " dimension(s), got " + to_string(value));
    return value;
  }

  Status read_linear(const HfFamily& family, std::string_view name, HfLinear& linear) const {
    auto weight = read_tensor(std::string(name) + ".weight", 2);
    if (!weight) return weight.failure();
    linear.weight = family.layout == HfLayout::transposed ? t(weight.value()) : weight.value();
    const std::string bias_name = std::string(name) + ".bias";
    if (!contains(bias_name)) return ok_status();
    auto bias = read_tensor(bias_name, 1);
    if (!bias) return bias.failure();
    linear.bias = bias.value();
    return ok_status();
  }

  bool contains(std::string_view name) const {
    const std::string full = join_name(prefix_, name);
    for (const std::string& other : source_.names)
      if (other == full) return true;
    return false;
  }

  // [2 hidden, dim] into gate (the first rows) and up.
  Status unpack(HfWeights& weights) const {
    const HfLinear both = weights.up;
    const int64_t rows = both.weight.size(0);
    if (rows % 2 != 0 || (both.bias.defined() && both.bias.numel() != rows))
      return hf_failure(source_, FailureCode::hf_mlp_shape,
                        "expected gate_up_proj with an even number of rows and a bias of as many, "
                        "got weight " +
                            to_string(both.weight) + ", bias " + to_string(both.bias));
    const auto half = [&](const Tensor& whole, int64_t begin) {
      return whole.defined() ? slice(whole, 0, begin, begin + rows / 2) : Tensor();
    };
    weights.gate = {half(both.weight, 0), half(both.bias, 0)};
    weights.up = {half(both.weight, rows / 2), half(both.bias, rows / 2)};
    return ok_status();
  }

  // `up` decides dim, hidden and whether there are biases; the others have to agree.
  Status check_shapes(const HfFamily& family, const HfWeights& weights) const {
    const Dims up = weights.up.weight.sizes();
    if (up[0] < 1 || up[1] < 1)
      return hf_failure(source_, FailureCode::hf_mlp_shape,
                        "expected an MLP with elements, got " + to_string(weights.up.weight));
    const bool bias = weights.up.bias.defined();
    const auto check = [&](std::string_view name, const HfLinear& linear, Dims expected) -> Status {
      if (!(linear.weight.sizes() == expected))
        return hf_failure(source_, FailureCode::hf_mlp_shape,
                          "expected " + std::string(name) + " of " + to_string(expected) +
                              " (out, in), got " + to_string(linear.weight.sizes()));
      if (linear.bias.defined() != bias)
        return hf_failure(source_, FailureCode::hf_mlp_incomplete,
                          "expected a bias for all linears or for none, got " +
                              std::string(bias ? "none" : "one") + " for " + std::string(name));
      if (bias && linear.bias.numel() != expected[0])
        return hf_failure(source_, FailureCode::hf_mlp_shape,
                          "expected a bias of [" + std::to_string(expected[0]) + "] for " +
                              std::string(name) + ", got " + to_string(linear.bias.sizes()));
      return ok_status();
    };
    // Gate and down agree: up is the one that is wrong.
    if (family.gated() && !family.gate.empty()) {
      const Dims gate = weights.gate.weight.sizes();
      if (weights.down.weight.sizes() == Dims{gate[1], gate[0]})
        if (const auto ok = check(family.up, weights.up, gate); !ok) return ok;
    }
    if (family.gated()) {
      const std::string_view gate = family.gate.empty() ? family.up : family.gate;
      if (const auto ok = check(gate, weights.gate, up); !ok) return ok;
    }
    if (const auto ok = check(family.up, weights.up, up); !ok) return ok;
    return check(family.down, weights.down, {up[1], up[0]});
  }

  const TensorSource& source_;
  std::string_view prefix_;
};

// A module's linears in the order gate, up, down; gate is null for a plain MLP.
struct Target {
  Linear* gate = nullptr;
  Linear* up = nullptr;
  Linear* down = nullptr;
};

Target target_of(Module& module) {
  if (auto* block = dynamic_cast<Block*>(&module)) return target_of(block->mlp());
  if (auto* mlp = dynamic_cast<GatedMLP*>(&module))
    return {&mlp->gate_proj, &mlp->up_proj, &mlp->down_proj};
  if (auto* mlp = dynamic_cast<MLP*>(&module); mlp != nullptr && mlp->num_linears() == 2)
    return {nullptr, &mlp->fc(0), &mlp->fc(1)};
  throw Error(
      "[load_hf_mlp] expected a GatedMLP, an MLP of one hidden layer or a Block around one, got " +
      module.class_name());
}

std::string described(bool gated, int64_t dim, int64_t hidden, bool bias) {
  return std::string(gated ? "a gated" : "a plain") + " MLP of dim " + std::to_string(dim) +
         ", hidden " + std::to_string(hidden) + (bias ? ", with biases" : ", without biases");
}

void assign(const HfLinear& from, const Linear& to) {
  const auto set = [](const Tensor& value, const Tensor& parameter) {
    if (!value.defined()) return;
    set_parameter_data(parameter, contiguous(epilogue::to(value, parameter.dtype())));
    parameter.set_grad({});
  };
  set(from.weight, to.weight);
  set(from.bias, to.bias);
}

void require_source(const char* op, const TensorSource& source) {
  if (!source.tensor)
    throw Error(std::string("[") + op +
                "] expected a function that gives tensors, got an empty one");
}

}  // namespace

Result<HfMlp> inspect_hf_mlp(const TensorSource& source, std::string_view prefix) {
  require_source("inspect_hf_mlp", source);
  const NoGrad no_grad;
  auto weights = Reader(source, prefix).read();
  if (!weights) return weights.failure();
  return weights.value().mlp;
}

Result<HfMlp> load_hf_mlp(Module& module, const TensorSource& source, std::string_view prefix) {
  require_source("load_hf_mlp", source);
  const NoGrad no_grad;
  const Target target = target_of(module);
  auto read = Reader(source, prefix).read();
  if (!read) return read.failure();
  const HfWeights& weights = read.value();

  const Dims up = target.up->weight.sizes();
  const std::string wanted =
      described(target.gate != nullptr, up[1], up[0], target.up->bias.defined());
  const HfMlp& mlp = weights.mlp;
  const std::string found = described(mlp.gated, mlp.dim, mlp.hidden, mlp.bias);
  if (wanted != found)
    return hf_failure(source, FailureCode::hf_mlp_mismatch,
                      "expected " + wanted + ", got " + mlp.family + "'s: " + found);
  if (target.gate != nullptr) assign(weights.gate, *target.gate);
  assign(weights.up, *target.up);
  assign(weights.down, *target.down);
  return mlp;
}

}  // namespace epilogue::nn
