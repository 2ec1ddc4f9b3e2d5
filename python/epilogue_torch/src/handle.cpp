// SPDX-License-Identifier: Apache-2.0
#include "handle.h"

#include <algorithm>
#include <shared_mutex>
#include <stdexcept>
#include <unordered_map>

#include "torch_threads.h"

namespace epilogue_torch {
namespace {

using epilogue::DType;
using epilogue::Tensor;

std::optional<DType> engine_dtype(std::optional<torch::headeronly::ScalarType> type) {
  using torch::headeronly::ScalarType;
  if (!type) return std::nullopt;
  switch (*type) {
    case ScalarType::Float: return DType::f32;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Half: return DType::f16;
    default: throw std::runtime_error("expected a dtype of Float, BFloat16 or Half");
  }
}

template <class T>
T by_name(const std::string& name, std::initializer_list<std::pair<const char*, T>> names) {
  for (const auto& [known, value] : names)
    if (name == known) return value;
  throw std::runtime_error("unknown option '" + name + "'");
}

void set_forms(const Request& request, epilogue::FusedOptions& options) {
  using epilogue::Norm;
  using epilogue::NormWeight;
  using epilogue::PostNorm;
  if (request.forms.size() != 4 || request.eps.size() != 2 || request.norms.size() != 4)
    throw std::runtime_error("expected 4 norms, 4 forms and 2 eps");
  const std::initializer_list<std::pair<const char*, Norm>> kinds = {
      {"none", Norm::none}, {"rms", Norm::rms}, {"layer", Norm::layer}};
  options.norm = by_name(request.forms[0], kinds);
  options.norm_weight_is =
      by_name<NormWeight>(request.forms[1], {{"product", NormWeight::product},
                                             {"rounded", NormWeight::rounded},
                                             {"one_plus", NormWeight::one_plus}});
  options.post_norm = by_name<PostNorm>(request.forms[2], {{"none", PostNorm::none},
                                                           {"of_result", PostNorm::of_result},
                                                           {"of_residual", PostNorm::of_residual}});
  options.post_norm_kind = by_name(request.forms[3], kinds);
  options.eps = request.eps[0];
  options.post_eps = request.eps[1];
  options.residual = request.residual;
  options.bits = quantisation_of(request.bits);
}

int64_t inputs_of(const epilogue::RoundedWeight& w) {
  return std::visit([](const auto& some) { return some.k; }, w);
}
int64_t outputs_of(const epilogue::RoundedWeight& w) {
  return std::visit([](const auto& some) { return some.n; }, w);
}

}  // namespace

epilogue::Quantisation quantisation_of(const std::string& name) {
  using epilogue::ActivationBits;
  using epilogue::WeightBits;
  epilogue::Quantisation bits;
  if (name.empty()) return bits;
  if (name == "int8") return {.weights = WeightBits::int8};
  if (name == "w8a8") return {WeightBits::int8, ActivationBits::int8};
  if (name == "rows") return {.activations = ActivationBits::int8};  // of rounded weights
  std::string rest = name;
  const auto take = [&rest](std::string_view part) {
    if (!rest.starts_with(part)) return false;
    rest.erase(0, part.size());
    return true;
  };
  bits.weights = WeightBits::int4;
  if (take("w4a8_")) {
    bits.activations = ActivationBits::int8;
  } else if (!take("int4_")) {
    throw std::runtime_error("unknown option '" + name + "'");
  }
  bits.group = take("128") ? 128 : take("32") ? 32 : 0;
  bits.zero_points = take("_zeros");
  if (bits.group == 0 || !rest.empty()) throw std::runtime_error("unknown option '" + name + "'");
  return bits;
}

Handle::Handle(const Request& request) : weights_(request.borrows) {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const bool is_rounded = !request.rounded.empty();
  const size_t count = is_rounded ? request.rounded.size() : request.weights.size();
  if (count == 0 || count != request.biases.size())
    throw std::runtime_error("expected one bias or None for each of the weights");
  if (is_rounded && !request.dtype)
    throw std::runtime_error("expected a dtype to compute in beside rounded weights, got none");
  dtype_ =
      request.dtype ? *engine_dtype(request.dtype) : view_of(request.weights[0], "weight").dtype();
  // Refers to weights of one number and of one dtype: no converted copies mix with others.
  std::vector<Tensor> weights;
  std::vector<Tensor> biases;
  for (const Torch& w : request.weights) weights.push_back(weights_.add(w, "weight", dtype_));
  for (const auto& b : request.biases)
    biases.push_back(b ? weights_.add(*b, "bias", dtype_) : Tensor());
  epilogue::FusedOptions options;
  set_forms(request, options);
  Tensor* const norms[] = {&options.norm_weight, &options.norm_bias, &options.post_norm_weight,
                           &options.post_norm_bias};
  for (size_t i = 0; i < 4; ++i)
    if (request.norms[i]) *norms[i] = weights_.add(*request.norms[i], "norm", dtype_);
  const auto& rounded = request.rounded;
  k_ = is_rounded ? inputs_of(rounded[0]) : weights[0].size(1);
  for (size_t i = 0; i < count; ++i)
    widths_.push_back(is_rounded ? outputs_of(rounded[i]) : weights[i].size(0));
  if (request.activation == "none") {
    if (is_rounded) {
      linear_.emplace(std::span(rounded), biases, dtype_, options);
    } else {
      linear_.emplace(std::span<const Tensor>(weights), biases, options);
    }
  } else {
    widths_ = {widths_.back()};
    const auto activation = epilogue::nn::parse_activation(request.activation);
    using epilogue::FusedMlp;
    if (!epilogue::nn::is_gated(activation)) {
      mlp_ = is_rounded ? FusedMlp::plain(std::span(rounded), biases, activation, dtype_, options)
                        : FusedMlp::plain(weights, biases, activation, options);
    } else {
      if (count != 3) throw std::runtime_error("expected the weights gate, up and down");
      mlp_ = is_rounded
                 ? FusedMlp::gated(rounded[0], rounded[1], rounded[2], activation, dtype_, options,
                                   biases)
                 : FusedMlp::gated(weights[0], weights[1], weights[2], activation, options, biases);
    }
  }
  weights_.watch(request.parameters);
}

Tensor Handle::rows_of(const Torch& x) const {
  if (x.dim() == 0 || x.size(x.dim() - 1) != k_)
    throw std::runtime_error("mat1 and mat2 shapes cannot be multiplied: x is " + describe(x) +
                             ", the first weight has " + std::to_string(k_) + " inputs");
  const Tensor in = view_of(x, "x");
  if (in.dtype() != dtype_)
    throw std::runtime_error("expected x and weights of the same dtype, but x is " + describe(x) +
                             " and the weights are " + std::string(dtype_name(dtype_)));
  return in;
}

Torch Handle::out_like(const Torch& x, int64_t columns) const {
  epilogue::Dims sizes;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) sizes.push_back(x.size(d));
  sizes.push_back(columns);
  return empty_like_rows(x, sizes);
}

std::optional<Torch> Handle::run(const Torch& x, const std::vector<Torch>& parameters) {
  if (!mlp_) throw std::runtime_error("expected the handle of an MLP, got one of linear layers");
  if (!weights_.see(parameters)) return std::nullopt;
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = rows_of(x);
  Torch out = out_like(x, columns());
  if (out.numel() != 0) mlp_->run_into(in, view_of(out, "out"));
  return out;
}

std::vector<Torch> Handle::run_linear(const Torch& x, const std::vector<Torch>& parameters,
                                      const std::optional<Torch>& residual) {
  if (!linear_) throw std::runtime_error("expected the handle of linear layers, got one of an MLP");
  if (!weights_.see(parameters)) return {};
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = rows_of(x);
  std::vector<Torch> outs;
  std::vector<Tensor> views;
  for (const int64_t n : widths_) {
    outs.push_back(out_like(x, n));
    views.push_back(view_of(outs.back(), "out"));
  }
  if (x.numel() != 0)
    linear_->run_into(in, views, residual ? view_of(*residual, "residual") : Tensor());
  return outs;
}

bool Handle::run_linear_into(const Tensor& x, const std::vector<Torch>& parameters,
                             std::span<const Tensor> outs) {
  if (!linear_) throw std::runtime_error("expected the handle of linear layers, got one of an MLP");
  if (!weights_.see(parameters)) return false;
  linear_->run_into(x, outs);
  return true;
}

MakeRows Handle::makes_rows(const Tensor& in) const {
  const int64_t row_bytes = k_ * static_cast<int64_t>(epilogue::dtype_bytes(dtype_));
  return [this, in, row_bytes](int64_t first, int64_t last, void* to) {
    char* const from = static_cast<char*>(in.data()) + first * row_bytes;
    const Tensor some = Tensor::from_blob(from, {last - first, k_}, dtype_);
    const Tensor part = Tensor::from_blob(to, {last - first, columns()}, dtype_);
    if (mlp_)
      mlp_->run_into(some, part);
    else
      linear_->run_into(some, std::span(&part, 1), Tensor());
  };
}

template <class Run>
std::optional<Torch> Handle::run_joined(const Torch& x, const std::vector<Torch>& parameters,
                                        int64_t columns, Run&& run) {
  if (linear_ && widths_.size() != 1)
    throw std::runtime_error("expected the handle of an MLP, or of one linear layer, got one of " +
                             std::to_string(widths_.size()));
  if (!weights_.see(parameters)) return std::nullopt;
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = rows_of(x);
  if (!in.is_contiguous()) throw std::runtime_error("expected x contiguous, got " + describe(x));
  Torch out = out_like(x, columns);
  if (out.numel() != 0) run(out, makes_rows(in));
  return out;
}

std::optional<Torch> Handle::run_summed(const Torch& x, const std::vector<Torch>& parameters,
                                        int64_t group, const std::optional<Torch>& bias,
                                        const std::optional<Torch>& residual) {
  return run_joined(x, parameters, columns(), [&](const Torch& out, const MakeRows& make) {
    sum_rows(out, group, bias, residual, make);
  });
}

std::optional<Torch> Handle::run_summed_later(const Torch& x, const std::vector<Torch>& parameters,
                                              int64_t group, const std::optional<Torch>& bias) {
  return run_joined(x, parameters, columns(), [&](const Torch& out, const MakeRows& make) {
    sum_rows_later(out, group, bias, make);
  });
}

std::optional<Torch> Handle::run_gathered(const Torch& x, const std::vector<Torch>& parameters,
                                          int64_t group) {
  return run_joined(
      x, parameters, columns() * ranks_of(group),
      [&](const Torch& out, const MakeRows& make) { gather_rows(out, group, columns(), make); });
}

namespace {

struct Handles {
  std::shared_mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<Handle>> by_number;
  int64_t next = 1;
};
// Never destroyed: Python may release handles while the process ends.
Handles& handles() {
  static auto* const all = new Handles;
  return *all;
}

}  // namespace

int64_t keep(std::shared_ptr<Handle> handle) {
  Handles& all = handles();
  const std::unique_lock lock(all.mutex);
  all.by_number.emplace(all.next, std::move(handle));
  return all.next++;
}

std::shared_ptr<Handle> find(int64_t number) {
  Handles& all = handles();
  const std::shared_lock lock(all.mutex);
  const auto found = all.by_number.find(number);
  if (found == all.by_number.end())
    throw std::runtime_error("there is no fused MLP of number " + std::to_string(number));
  return found->second;
}

// Of C, because Python calls it while it collects garbage: an op would go through the dispatch
// modes that are on at that moment.
extern "C" [[gnu::visibility("default")]] void epilogue_release(int64_t number) {
  Handles& all = handles();
  std::shared_ptr<Handle> dead;  // dies after the lock
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_number.find(number);
  if (found == all.by_number.end()) return;
  dead = std::move(found->second);
  all.by_number.erase(found);
}

int64_t count_handles() {
  Handles& all = handles();
  const std::shared_lock lock(all.mutex);
  return static_cast<int64_t>(all.by_number.size());
}

namespace {

// The memory of weights and biases, and what is computed with it.
struct KeptKey {
  std::string activation;
  std::string bits;
  std::vector<int64_t> words;

  bool operator==(const KeptKey&) const = default;
};

struct KeptHash {
  size_t operator()(const KeptKey& key) const {
    size_t sum = std::hash<std::string>()(key.activation) ^ std::hash<std::string>()(key.bits) * 3;
    for (const int64_t word : key.words)
      sum = (sum ^ static_cast<size_t>(word)) * 0x9e3779b97f4a7c15U;
    return sum;
  }
};

void add_words(const Torch& t, std::vector<int64_t>& words) {
  const Layout at(t);
  words.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(at.data)));
  words.push_back(at.dtype);
  words.insert(words.end(), at.sizes.begin(), at.sizes.end());
  words.insert(words.end(), at.strides.begin(), at.strides.end());
}

struct Kept {
  std::shared_mutex mutex;
  std::unordered_map<KeptKey, std::weak_ptr<Handle>, KeptHash> by_memory;
};
// Never destroyed, as handles().
Kept& all_kept() {
  static auto* const all = new Kept;
  return *all;
}

bool has_no_version(const Torch& tensor) { return ask<bool>("aten::is_inference", tensor); }

}  // namespace

std::shared_ptr<Handle> find_kept(const std::vector<Torch>& weights,
                                  const std::vector<std::optional<Torch>>& biases,
                                  const std::string& activation, const std::string& bits,
                                  std::vector<Torch>& parameters) {
  KeptKey key{activation, bits, {}};
  key.words.reserve(8 * (weights.size() + biases.size()));
  parameters = weights;
  for (const Torch& w : weights) add_words(w, key.words);
  for (const auto& b : biases) {
    if (b) {
      add_words(*b, key.words);
      parameters.push_back(*b);
    } else {
      key.words.push_back(0);
    }
  }
  Kept& all = all_kept();
  {
    const std::shared_lock lock(all.mutex);
    const auto known = all.by_memory.find(key);
    if (known != all.by_memory.end())
      if (auto handle = known->second.lock()) return handle;
  }
  if (std::ranges::any_of(parameters, has_no_version)) {
    parameters.clear();
    return std::make_shared<Handle>(Request{.parameters = {},
                                            .weights = weights,
                                            .biases = biases,
                                            .activation = activation,
                                            .bits = bits});
  }
  // Without the lock: Python has one of its own.
  auto handle = find(ask<int64_t>("epilogue::keep", weights, biases, activation, bits));
  const std::unique_lock lock(all.mutex);
  std::erase_if(all.by_memory, [](const auto& entry) { return entry.second.expired(); });
  all.by_memory.insert_or_assign(std::move(key), handle);
  return handle;
}

}  // namespace epilogue_torch
