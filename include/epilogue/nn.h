// SPDX-License-Identifier: Apache-2.0
// Layers: modules with named parameters, MLPs, and weights from Hugging Face checkpoints.
//
// Names, shapes, initialisation and state keys are torch.nn's. Every layer takes [*, in] and gives
// [*, out]. Running a module from several threads is safe; changing one (training mode, dtype,
// parameters) needs the caller's own ordering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/module.h"
#include "epilogue/ops.h"
#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue::nn {

// y = x W^T + b. weight [out, in] and bias [out] are drawn from U(-1/sqrt(in), 1/sqrt(in)), weight
// first.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);
  Tensor forward(const Tensor& x) const override;

  Tensor weight;
  Tensor bias;  // undefined without one
};

// Layers in a row; their names are "0", "1", ...
class Sequential : public Module {
 public:
  // A layer with its size, where its type is known.
  class Layer {
   public:
    Layer(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): on purpose
    template <class M>
    // NOLINTNEXTLINE(google-explicit-constructor): on purpose
    requires std::is_base_of_v<Module, M> Layer(const std::shared_ptr<M>& layer) : module_(layer) {
      if (const M* const m = layer.get(); m != nullptr && typeid(*m) == typeid(M))
        bytes_ = sizeof(M);
    }

   private:
    friend class Sequential;
    std::shared_ptr<Module> module_;
    size_t bytes_ = 0;
  };

  Sequential() : Sequential({}) {}
  Sequential(std::initializer_list<Layer> layers);
  Tensor forward(const Tensor& x) const override;

  // Appends a layer; it may be shared with other owners. Throws Error on null.
  void add(Layer layer);
  // Makes a layer and appends it: model.emplace<nn::Linear>(784, 10).
  template <class M, class... Args>
  M& emplace(Args&&... args) {
    auto layer = std::make_shared<M>(std::forward<Args>(args)...);
    add(Layer(layer));
    return *layer;
  }
  size_t size() const { return layers_.size(); }

 private:
  std::vector<std::shared_ptr<Module>> layers_;
};

class GELU : public Module {
 public:
  explicit GELU(Gelu approximate = Gelu::exact) : Module("GELU"), approximate_(approximate) {}
  Tensor forward(const Tensor& x) const override { return gelu(x, approximate_); }

 private:
  Gelu approximate_;
};

class ReLU : public Module {
 public:
  ReLU() : Module("ReLU") {}
  Tensor forward(const Tensor& x) const override { return relu(x); }
};

class SiLU : public Module {
 public:
  SiLU() : Module("SiLU") {}
  Tensor forward(const Tensor& x) const override { return silu(x); }
};

// Zeroes elements with probability p while training, and scales the rest by 1/(1-p).
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);  // throws Error outside [0, 1]
  Tensor forward(const Tensor& x) const override;

 private:
  double p_;
};

// Normalises over the last dimensions `shape`; weight starts as ones, bias as zeros. Throws Error
// on an empty shape and on an eps that is negative or not finite, as RMSNorm does.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(Dims shape, double eps = 1e-5, bool affine = true);
  // NOLINTNEXTLINE(google-explicit-constructor): as the one above
  explicit LayerNorm(std::initializer_list<int64_t> shape, double eps = 1e-5, bool affine = true)
      : LayerNorm(Dims(shape), eps, affine) {}
  Tensor forward(const Tensor& x) const override;
  double eps() const { return eps_; }

  Tensor weight;
  Tensor bias;

 private:
  Dims shape_;
  double eps_;
};

// x / rms(x) * weight. Without eps: the machine epsilon of the computation's dtype, as in PyTorch.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(Dims shape, std::optional<double> eps = {}, bool affine = true);
  // NOLINTNEXTLINE(google-explicit-constructor): as the one above
  explicit RMSNorm(std::initializer_list<int64_t> shape, std::optional<double> eps = {},
                   bool affine = true)
      : RMSNorm(Dims(shape), eps, affine) {}
  Tensor forward(const Tensor& x) const override;
  std::optional<double> eps() const { return eps_; }

  Tensor weight;

 private:
  Dims shape_;
  std::optional<double> eps_;
};

// The first seven gate one branch with another (GatedMLP), the others stand alone (MLP).
// geglu and gelu_tanh use the tanh form of GELU, geglu_erf and gelu the exact one, quick_geglu and
// quick_gelu x sigmoid(1.702 x) (CLIP's). squared_reglu and squared_relu are relu(x)^2 (Nemotron's,
// "relu2" in transformers). clamped_swiglu is GPT-OSS's (SwiGluClamp).
enum class Activation : uint8_t {
  geglu,
  swiglu,
  reglu,
  geglu_erf,
  quick_geglu,
  squared_reglu,
  clamped_swiglu,
  gelu,
  relu,
  silu,
  gelu_tanh,
  quick_gelu,
  squared_relu,
};
inline constexpr size_t kActivations = 13;
std::string_view activation_name(Activation activation);
// The inverse. Throws Error on an unknown name, listing the known ones.
Activation parse_activation(std::string_view name);
constexpr bool is_gated(Activation activation) { return activation <= Activation::clamped_swiglu; }

// clamped_swiglu of a gate g and an up u, as GPT-OSS's experts define it:
//   g' = min(g, limit), u' = min(max(u, -limit), limit): g' sigmoid(alpha g') (u' + 1)
struct SwiGluClamp {
  double alpha = 1.702;
  double limit = 7;
};

// fc1 [hidden, dim], act, fc2 [hidden, hidden], act, ..., then a projection back to dim without an
// activation: `layers` hidden layers and layers + 1 linears. Throws Error on a gated activation.
class MLP : public Module {
 public:
  MLP(int64_t dim, int64_t hidden, int64_t layers = 1, Activation activation = Activation::gelu,
      bool bias = true);
  Tensor forward(const Tensor& x) const override;

  Activation activation() const { return activation_; }
  size_t num_linears() const { return linears_.size(); }
  // i from 0: fc(0) is fc1. Throws Error unless i < num_linears().
  Linear& fc(size_t i) const;

 private:
  Activation activation_;
  std::vector<std::unique_ptr<Linear>> linears_;
};

// down_proj(act(gate_proj(x)) * up_proj(x)): the MLP of Llama, Gemma and Qwen. Throws Error on a
// plain activation.
class GatedMLP : public Module {
 public:
  GatedMLP(int64_t dim, int64_t hidden, Activation activation = Activation::geglu,
           bool bias = false);
  Tensor forward(const Tensor& x) const override;
  Activation activation() const { return activation_; }

  Linear gate_proj;  // [hidden, dim]
  Linear up_proj;    // [hidden, dim]
  Linear down_proj;  // [dim, hidden]

 private:
  Activation activation_;
};

// Losses: functions of two tensors, so no Modules.
class MSELoss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return mse_loss(input, target, reduction_);
  }

 private:
  Reduction reduction_;
};

struct CrossEntropyOptions {
  Tensor weight = {};  // one per class, or undefined
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;
};
// Takes logits [n, classes] and i64 classes [n], or probabilities [n, classes].
class CrossEntropyLoss {
 public:
  explicit CrossEntropyLoss(CrossEntropyOptions options = {}) : options_(std::move(options)) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return cross_entropy(input, target, options_.weight, options_.reduction, options_.ignore_index,
                         options_.label_smoothing);
  }

 private:
  CrossEntropyOptions options_;
};

using epilogue::Norm;
std::string_view norm_name(Norm norm);
Norm parse_norm(std::string_view name);  // throws Error on an unknown name

// mlp(norm(x)), plus x where `residual`: a transformer's pre-norm block. Children "norm" (where
// there is one) and "mlp".
class Block : public Module {
 public:
  Block(int64_t dim, Norm norm, std::shared_ptr<Module> mlp, bool residual = true);
  Tensor forward(const Tensor& x) const override;

  Module& mlp() const { return *mlp_; }
  const Module* norm() const { return norm_.get(); }  // null without one
  bool has_residual() const { return residual_; }

 private:
  std::unique_ptr<Module> norm_;
  std::shared_ptr<Module> mlp_;
  bool residual_;
};

struct MlpConfig {
  int64_t dim = 768;
  int64_t hidden = 3072;
  int64_t layers = 1;  // hidden layers; more than one with plain activations only
  Activation activation = Activation::geglu;
  bool bias = false;
  Norm norm = Norm::none;
  bool residual = false;
};
// A GatedMLP or an MLP, inside a Block where there is a norm or a residual. Throws Error on sizes
// below 1 and on more than one layer with a gated activation.
std::shared_ptr<Module> make_mlp(const MlpConfig& config);

// Initialisation: overwrite a floating tensor in place and return it. Throw Error unless all
// numbers are finite, low <= high and stddev >= 0.
Tensor uniform_(const Tensor& tensor, double low = 0, double high = 1);
Tensor normal_(const Tensor& tensor, double mean = 0, double stddev = 1);
// U(-b, b) with b = sqrt(6 / ((1 + a^2) fan_in)); fan_in is what one row of [out, in, ...] holds.
// Throws Error below rank 2.
Tensor kaiming_uniform_(const Tensor& tensor, double a = 0);

// A checkpoint as the functions below see it. With a SafetensorsFile:
//   nn::TensorSource source{path, file.names(), [&](auto name) { return file.tensor(name); }};
// The functions throw Error where `tensor` is empty.
struct TensorSource {
  std::string label;  // what messages call it: the path
  std::vector<std::string> names;
  std::function<Result<Tensor>(std::string_view name)> tensor;
};

// The kind of an MLP in a checkpoint, found from the names and shapes under a prefix.
struct HfMlp {
  std::string family;  // "llama", "phi3", "mixtral", "t5-gated", "t5", "gpt2", "gpt-neox", "bert",
                       // "phi2"
  // The family's usual one; the file does not say (Gemma has Llama's names and uses geglu).
  Activation activation = Activation::swiglu;
  int64_t dim = 0;
  int64_t hidden = 0;
  bool gated = false;
  bool bias = false;
  DType dtype = DType::f32;
};

// Looks for the tensor names of Hugging Face models below `prefix` (such as "model.layers.0.mlp",
// for BERT "encoder.layer.0"; empty: top level):
//   gate_proj, up_proj, down_proj    Llama, Mistral, Qwen, Gemma
//   gate_up_proj, down_proj          Phi-3 (gate rows first)
//   w1, w3, w2                       Mixtral (one expert)
//   wi_0, wi_1, wo                   T5 v1.1, Flan-T5
//   wi, wo                           T5
//   c_fc, c_proj                     GPT-2 (stored transposed, [in, out])
//   dense_h_to_4h, dense_4h_to_h     GPT-NeoX, Pythia
//   intermediate.dense, output.dense BERT
//   fc1, fc2                         Phi-2, OPT
// A failure's message begins with the source's label. Codes: HfMlpNotFound, HfMlpIncomplete,
// HfMlpShape, HfMlpDtype, and those of the source.
Result<HfMlp> inspect_hf_mlp(const TensorSource& source, std::string_view prefix);

// Puts that MLP's weights into `module`: a GatedMLP, an MLP of one hidden layer, or a Block around
// one. Where the dtypes agree the parameters become views of the source's memory (no copy, so two
// modules loaded from one open file share it; GPT-2's weights are copied), else they are converted
// to the module's dtype. Further code: HfMlpMismatch (the module is another MLP than the file's).
// On failure the module is unchanged. Throws Error on other modules.
Result<HfMlp> load_hf_mlp(Module& module, const TensorSource& source, std::string_view prefix);

}  // namespace epilogue::nn

#pragma GCC visibility pop
