// SPDX-License-Identifier: Apache-2.0

#include "tools/epilogue/profile/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"
#include "epilogue/io.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/memory_limit.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/input.h"
#include "tools/epilogue/train/train_step.h"

namespace epilogue::tool {

namespace {

struct CheckpointActivation {
  nn::Activation activation;
  std::string how;  // "of config.json", "assumed for llama"
};

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
  const auto text =
      read_file((std::filesystem::path(weights).parent_path() / "config.json").string());
  return text ? name_in(parse_json(text.value())) : "";
}

// `asked` (--activation, if it was given) where it fits the MLP's shape; else what the config.json
// beside the weights says; else the usual one of the family, which is an assumption.
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

void require_supported(const WorkloadOptions& o) {
  if (o.mode != "eager" && o.mode != "compile" && o.mode != "fused")
    throw Error("[--mode] expected eager, compile or fused, got '" + o.mode + "'");
  if (o.mode == "fused" && o.backward)
    throw Error(
        "[--backward] expected --mode eager or compile, got 'fused': the fused ops have no "
        "backward pass");
  if (o.kind == "train-step" && o.mode == "fused")
    throw Error("[--mode] expected eager or compile for a training step, got 'fused'");
  if (o.mode == "fused" && o.kind != "mlp")
    throw Error("[--mode] expected an mlp for the fused op, got " + o.kind);
  require_device(o.device);
  if (!(bits_of(o) == Quantisation{}) && (o.mode == "eager" || o.backward))
    throw Error(
        "[--weight-bits] expected --mode compile or fused without --backward: eager ops and "
        "gradients have the weights' own bits");
  if (!o.prefix.empty() && o.weights.empty())
    throw Error("[--prefix] expected --weights FILE.safetensors beside it, got none");
}

}  // namespace

Quantisation bits_of(const BitsFlags& o) {
  Quantisation bits;
  if (o.weight_bits == "int8") bits.weights = WeightBits::int8;
  if (o.weight_bits == "int4") bits.weights = WeightBits::int4;
  if (o.activation_bits == "int8") bits.activations = ActivationBits::int8;
  bits.group = o.group;
  bits.zero_points = o.zero_points;
  const bool is_int4 = bits.weights == WeightBits::int4;
  if (bits.activations == ActivationBits::int8 && bits.weights == WeightBits::same)
    throw Error(
        "[--activation-bits] expected --weight-bits int8 or int4 beside int8 activations, got " +
        o.weight_bits);
  if (!is_int4 && (o.group != 128 || o.zero_points))
    throw Error("[--group, --zero-points] expected --weight-bits int4 beside them, got " +
                o.weight_bits);
  if (is_int4 && o.group != 32 && o.group != 128)
    throw Error("[--group] expected 32 or 128, got " + std::to_string(o.group));
  return bits;
}

std::string bits_name(const Quantisation& bits) {
  const bool has_integer_rows = bits.activations == ActivationBits::int8;
  if (bits.weights == WeightBits::int4) return has_integer_rows ? "w4a8" : "int4";
  if (bits.weights == WeightBits::same) return "";
  return has_integer_rows ? "w8a8" : "int8";
}

void add_bits_flags(CLI::App& app, BitsFlags& o) {
  app.add_option(
         "--weight-bits", o.weight_bits,
         "weights of the fused kernel: same, int8 (a scale per output) or int4 (one per group)")
      ->check(choices({"same", "int8", "int4"}))
      ->option_text("BITS [same]");
  app.add_option("--activation-bits", o.activation_bits,
                 "rows before each product: same, or int8 (with --weight-bits int8 or int4)")
      ->check(choices({"same", "int8"}))
      ->option_text("BITS [same]");
  app.add_option("--group", o.group, "inputs that share a scale of int4 weights: 32 or 128")
      ->check(whole_number(1))
      ->option_text("N [128]");
  app.add_flag("--zero-points", o.zero_points, "int4 weights with a zero point per group");
}

CompileOptions compile_options(const WorkloadOptions& o) {
  CompileOptions options;
  options.skip = o.skip_passes;
  options.collapse_linears = o.collapse_linears;
  options.bits = bits_of(o);
  options.tune = o.tune == "measure" ? Tune::measure : Tune::model;
  return options;
}

namespace {

DType workload_dtype(const WorkloadOptions& o) {
  const DType dtype = parse_dtype(o.dtype);
  if (dtype != DType::f32 && !is_low_precision(dtype))
    throw Error("[--dtype] expected f32, bf16 or f16, got '" + o.dtype + "'");
  return dtype;
}

// Where the options say, outside any graph.
Tensor placed(const Tensor& t, const WorkloadOptions& o) {
  const NoGrad no_grad;
  return t.to(parse_device(o.device));
}

std::string describe(const Workload& w, const WorkloadOptions& o) {
  return fmt::format("{}, {}, {}{}, {}", w.what, o.dtype, o.mode,
                     o.backward ? ", forward and backward" : "",
                     device_description(parse_device(o.device)));
}

// A forward without a graph, or forward and backward of the result's sum.
std::function<Tensor()> step_of(bool with_backward, std::function<Tensor()> forward) {
  if (!with_backward) {
    return [forward = std::move(forward)] {
      const NoGrad no_grad;
      return forward();
    };
  }
  return [forward = std::move(forward)] {
    const Tensor y = forward();
    y.backward(ones(y.sizes(), y.dtype(), y.device()));
    return y;
  };
}

// The workload's function of its input, in the wanted mode, as a step.
void set_call(Workload& w, const WorkloadOptions& o, Compiled::Function function, const Tensor& x) {
  w.function = std::move(function);
  w.input = x;
  if (o.mode != "compile") return;
  w.call = step_of(o.backward, [compiled = compile(w.function, compile_options(o)), x]() mutable {
    return compiled(x);
  });
}

Workload make_matmul_add(const WorkloadOptions& o, DType dtype) {
  if (is_input_file(o.input))
    throw Error("[--input] matmul-add takes random or fashion-mnist, got '" + o.input + "'");
  if (!o.weights.empty()) throw Error("[--weights] matmul-add has no weights to load");
  const auto n = static_cast<double>(o.size);
  require_memory("--size", 4 * n * n, dtype);  // a, b, c and the result
  const Tensor a = placed(input_rows(o.input, o.size, o.size, dtype), o);
  const Tensor b = placed(randn({o.size, o.size}, dtype), o);
  const Tensor c = placed(randn({o.size, o.size}, dtype), o);
  if (o.backward) Tensor(b).set_requires_grad(true);
  Workload w;
  w.tag = fmt::format("{}_{}_{}_{}", o.size, o.dtype, o.cold ? "cold" : "warm", o.mode);
  w.label = "matmul_add";
  w.what = fmt::format("matmul-add: [{0},{0}] x [{0},{0}] + [{0},{0}]", o.size);
  w.description = describe(w, o);
  w.shape = {{"size", o.size}};
  w.operands = {b, c};
  w.call = step_of(o.backward, [a, b, c] { return add(matmul(a, b), c); });
  set_call(
      w, o,
      [b, c](std::span<const Tensor> in) { return std::vector<Tensor>{add(matmul(in[0], b), c)}; },
      a);
  w.warmup_calls = o.cold ? 0 : 3;
  return w;
}

Workload make_linear(const WorkloadOptions& o, DType dtype) {
  const int64_t batch = o.batch == 0 ? 1024 : o.batch;
  int64_t in_dim = o.in_dim_given.value_or(o.input == "fashion-mnist" ? kFashionMnistPixels : 32);
  const Tensor from_file = is_input_file(o.input) ? input_from_file(o.input, dtype) : Tensor();
  if (from_file.defined()) in_dim = from_file.size(-1);
  int64_t out_dim = o.out_dim;
  bool bias = !o.no_bias;
  nn::NamedTensors state;
  if (!o.weights.empty()) {
    const SafetensorsFile file = SafetensorsFile::open(o.weights).value();
    const std::string dot = o.prefix.empty() ? "" : o.prefix + ".";
    state.emplace_back("weight", file.tensor(dot + "weight").value());
    bias = file.contains(dot + "bias") && bias;
    if (bias) state.emplace_back("bias", file.tensor(dot + "bias").value());
    const Tensor& weight = state.front().second;
    if (weight.dim() != 2 || weight.numel() == 0)
      throw Error("[--weights] expected a weight [out, in], got " + to_string(weight));
    out_dim = weight.size(0);
    if (!o.in_dim_given && !from_file.defined()) in_dim = weight.size(1);
  }
  const auto rows = static_cast<double>(from_file.defined() ? from_file.numel() / in_dim : batch);
  const auto width = static_cast<double>(in_dim);
  const auto outputs = static_cast<double>(out_dim);
  require_memory("--batch, --in-dim, --out-dim", rows * width + width * outputs + rows * outputs,
                 dtype);
  auto layer = std::make_shared<nn::Linear>(in_dim, out_dim, bias);
  if (!state.empty()) layer->load_state_dict(state);
  layer->to(dtype);
  layer->to(parse_device(o.device));
  const Tensor x =
      placed(from_file.defined() ? from_file : input_rows(o.input, batch, in_dim, dtype), o);
  Workload w;
  w.tag = fmt::format("{}_{}_{}_{}", x.numel() / in_dim, in_dim, out_dim, o.mode);
  w.label = "linear_fwd";
  w.what = fmt::format("linear: {} -> {}{}", to_string(x.sizes()), out_dim, bias ? " + bias" : "");
  w.description = describe(w, o);
  w.shape = {{"batch", x.numel() / in_dim}, {"in_dim", in_dim}, {"out_dim", out_dim}};
  w.module = layer;
  w.call = step_of(o.backward, [layer, x] { return (*layer)(x); });
  set_call(
      w, o, [layer](std::span<const Tensor> in) { return std::vector<Tensor>{(*layer)(in[0])}; },
      x);
  return w;
}

nn::TensorSource source_of(const std::string& path, const SafetensorsFile& file) {
  return {path, file.names(), [&file](std::string_view name) { return file.tensor(name); }};
}

// The rows of an MLP's [batch, seq, dim].
int64_t batch_of(const WorkloadOptions& o) { return o.batch == 0 ? 64 : o.batch; }

struct MlpInput {
  Tensor x;
  int64_t batch;
  int64_t seq;
};

MlpInput mlp_input(const WorkloadOptions& o, int64_t dim, DType dtype) {
  const int64_t batch = batch_of(o);
  if (is_input_file(o.input)) {
    const Tensor x = input_from_file(o.input, dtype);
    if (x.size(-1) != dim)
      throw Error(fmt::format("[--input] expected rows of {} values for this MLP, got {}", dim,
                              to_string(x)));
    const int64_t seq = x.size(-2);
    return {x, x.numel() / std::max<int64_t>(1, seq * dim), seq};
  }
  const Tensor rows = input_rows(o.input, batch * o.seq, dim, dtype);
  return {view(rows, {batch, o.seq, dim}), batch, o.seq};
}

// Elements of the weights, input and result, and those that an eager run keeps of the hidden
// values.
void require_mlp_memory(const WorkloadOptions& o, const nn::MlpConfig& config, DType dtype) {
  const auto dim = static_cast<double>(config.dim);
  const auto hidden = static_cast<double>(config.hidden);
  const double rows = static_cast<double>(batch_of(o)) * static_cast<double>(o.seq);
  const double ends = dim * hidden * (nn::is_gated(config.activation) ? 3 : 2);
  const double between = static_cast<double>(config.layers - 1) * hidden * hidden;
  const double activations = 2 * rows * dim + (o.mode == "eager" ? rows * hidden : 0);
  require_memory("--batch, --seq, --dim, --hidden, --layers",
                 ends + between + (is_input_file(o.input) ? 0 : activations), dtype);
}

Workload make_mlp_workload(const WorkloadOptions& o, DType dtype) {
  const MlpSetup setup = set_up_mlp(o, dtype);
  const auto& [model, config, x, batch, seq, how_activation] = setup;
  Workload w;
  w.tag = fmt::format("{}_{}_{}_{}_{}", batch, seq, config.dim, config.hidden, o.mode);
  w.label = "mlp_fwd";
  w.what = "mlp: " + setup.description();
  w.description = describe(w, o);
  w.shape = {{"batch", batch},
             {"seq", seq},
             {"dim", config.dim},
             {"hidden", config.hidden},
             {"layers", config.layers}};
  w.module = model;
  w.call = step_of(o.backward, [model = model, x = x] { return (*model)(x); });
  if (o.mode == "fused") {
    if (config.bias && nn::is_gated(config.activation))
      throw Error("[--mode] expected no --bias: the fused gated MLP has none");
    w.call = step_of(false, [model = model, x = x, bits = bits_of(o)] {
      return *fused_forward(*model, x, bits);
    });
  }
  set_call(
      w, o,
      [model = model](std::span<const Tensor> in) { return std::vector<Tensor>{(*model)(in[0])}; },
      x);
  return w;
}

// geglu, swiglu, ...
std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < nn::kActivations; ++i)
    names.emplace_back(nn::activation_name(nn::Activation(i)));
  return names;
}

void add_common_flags(CLI::App& app, WorkloadOptions& o) {
  app.add_option("--mode", o.mode, o.kind == "mlp" ? "eager, compile or fused" : "eager or compile")
      ->check(o.kind == "mlp" ? choices({"eager", "compile", "fused"})
                              : choices({"eager", "compile"}))
      ->option_text("MODE [eager]");
  app.add_option("--dtype", o.dtype, "f32, bf16 or f16")
      ->transform(dtype_value())
      ->check(choices({"f32", "bf16", "f16"}))
      ->option_text("DTYPE [" + o.dtype + "]");
  add_device_flag(app, o.device);
  add_threads(app, o.threads);
  app.add_option("--seed", o.seed, "seed of weights and random input")
      ->check(whole_number(0))
      ->option_text("N [0]");
  if (o.kind != "train-step") app.add_flag("--backward", o.backward, "forward and backward");
  app.add_option("--input", o.input, "random, fashion-mnist or FILE.safetensors")
      ->check(choices({"random", "fashion-mnist"}))
      ->option_text("SOURCE [random]");
  app.add_option("--weights", o.weights, "load weights (Hugging Face tensor names)")
      ->option_text("FILE.safetensors");
  app.add_option("--prefix", o.prefix,
                 "prefix of the tensors' names, e.g. model.layers.0.mlp; with --weights")
      ->option_text("NAME");
}

}  // namespace

MlpSetup set_up_mlp(const WorkloadOptions& o, DType dtype) {
  nn::MlpConfig config = {.hidden = o.hidden, .layers = o.layers};
  std::optional<nn::Activation> asked;
  if (o.activation) asked = nn::parse_activation(*o.activation);
  config.activation = asked.value_or(config.activation);
  std::string how_activation;
  config.bias = o.bias;
  config.norm = nn::parse_norm(o.norm);
  config.residual = o.residual;
  config.dim = o.dim.value_or(o.input == "fashion-mnist" ? kFashionMnistPixels : 768);
  std::shared_ptr<nn::Module> model;
  if (!o.weights.empty()) {
    const SafetensorsFile file = SafetensorsFile::open(o.weights).value();
    const nn::TensorSource source = source_of(o.weights, file);
    const nn::HfMlp found = nn::inspect_hf_mlp(source, o.prefix).value();
    config.dim = found.dim;
    config.hidden = found.hidden;
    config.bias = found.bias;
    // The file knows the shape; --activation chooses among what fits it.
    CheckpointActivation known = checkpoint_activation(o.weights, found, asked);
    config.activation = known.activation;
    how_activation = std::move(known.how);
    model = nn::make_mlp(config);
    model->to(dtype);
    if (auto loaded = nn::load_hf_mlp(*model, source, o.prefix); !loaded)
      throw Error("[--weights] " + loaded.failure().message);
  } else {
    require_mlp_memory(o, config, dtype);
    model = nn::make_mlp(config);
    model->to(dtype);
  }
  model->to(parse_device(o.device));
  const MlpInput input = mlp_input(o, config.dim, dtype);
  return {model, config, placed(input.x, o), input.batch, input.seq, how_activation};
}

std::string MlpSetup::description() const {
  return fmt::format(
      "{}{} {} -> {}{}{}{}", nn::activation_name(config.activation),
      how_activation.empty() ? "" : " (" + how_activation + ")", to_string(x.sizes()),
      config.hidden, config.layers > 1 ? fmt::format(" x {} layers", config.layers) : "",
      config.norm == nn::Norm::none ? "" : fmt::format(", {} norm", nn::norm_name(config.norm)),
      config.residual ? ", residual" : "");
}

std::string machine_description() {
  return fmt::format("{} thread{}, {}", num_threads(), num_threads() == 1 ? "" : "s",
                     active_isa_name());
}

void add_tune_flag(CLI::App& app, WorkloadOptions& o) {
  app.add_option("--tune", o.tune, "choice of compile's plan: model, or measure (times the plans)")
      ->check(CLI::IsMember({"model", "measure"}))
      ->check(choices({"model", "measure"}))
      ->option_text("HOW [model]");
}

void add_workload_flags(CLI::App& app, const std::string& kind, WorkloadOptions& o) {
  o.kind = kind;
  if (kind == "matmul-add") {
    app.add_option("--size", o.size, "n of the n x n matrices")
        ->check(whole_number(1))
        ->option_text("N [64]");
    app.add_flag("--cold", o.cold, "leave the warm-up calls out");
  } else if (kind == "linear") {
    app.add_option("--batch", o.batch, "rows")->check(whole_number(1))->option_text("N [1024]");
    app.add_option("--in-dim", o.in_dim_given, "in features")
        ->check(whole_number(1))
        ->option_text("N [32]");
    app.add_option("--out-dim", o.out_dim, "out features")
        ->check(whole_number(1))
        ->option_text("N [64]");
    app.add_flag("--no-bias", o.no_bias, "without a bias");
  } else {
    app.add_option("--batch", o.batch, "batch size")->check(whole_number(1))->option_text("N [64]");
    app.add_option("--seq", o.seq, "sequence length; batch * seq rows")
        ->check(whole_number(1))
        ->option_text("N [128]");
    app.add_option("--dim", o.dim, "model width")->check(whole_number(1))->option_text("N [768]");
    app.add_option("--hidden", o.hidden, "hidden width")
        ->check(whole_number(1))
        ->option_text("N [3072]");
    app.add_option("--layers", o.layers, "hidden layers (plain activations only)")
        ->check(whole_number(1))
        ->option_text("N [1]");
    app.add_option("--activation", o.activation,
                   fmt::format("{}", fmt::join(activation_names(), ", ")))
        ->check(choices(activation_names()))
        ->option_text("NAME [geglu; with --weights the checkpoint's]");
    app.add_flag("--bias", o.bias, "linears with biases");
    app.add_option("--norm", o.norm, "none, rms or layer, before the MLP")
        ->check(choices({"none", "rms", "layer"}))
        ->option_text("NAME [none]");
    app.add_flag("--residual", o.residual, "add the input to the output");
  }
  if (kind == "train-step") add_train_step_flags(app, o);
  if (kind == "linear" || kind == "mlp") add_bits_flags(app, o);
  add_common_flags(app, o);
}

Workload make_workload(const WorkloadOptions& o) {
  require_supported(o);
  const DType dtype = workload_dtype(o);
  if (o.threads != 0) set_num_threads(o.threads);
  manual_seed(o.seed);
  if (o.kind == "matmul-add") return make_matmul_add(o, dtype);
  if (o.kind == "linear") return make_linear(o, dtype);
  if (o.kind == "train-step") return make_train_step(o, dtype);
  return make_mlp_workload(o, dtype);
}

}  // namespace epilogue::tool
