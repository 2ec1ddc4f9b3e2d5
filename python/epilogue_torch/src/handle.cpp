// SPDX-License-Identifier: Apache-2.0
#include "handle.h"

#include <atomic>
#include <cstring>
#include <shared_mutex>
#include <stdexcept>
#include <unordered_map>

#include "torch_threads.h"

namespace epilogue_torch {
namespace {

using epilogue::DType;
using epilogue::Tensor;

// Elements of each weight that are looked at before a call.
constexpr int64_t kSamples = 32;

// Handles may share a weight's memory, and packed copies are shared by memory and version: no two
// writes may have the same number.
uint32_t next_version() {
  static std::atomic<uint32_t> version{1};
  return ++version;
}

uint64_t mix(uint64_t sum, uint64_t bits, uint64_t position) {
  return sum + (bits + 0x9e3779b97f4a7c15U) * (2 * position + 0x2545f4914f6cdd1dU);
}

uint64_t sample_of(const Tensor& t, uint64_t seed) {
  const int64_t count = t.numel();
  if (count == 0 || t.dim() > 2) return 0;
  const size_t bytes = epilogue::dtype_bytes(t.dtype());
  const auto* const data = static_cast<const std::byte*>(t.data());
  const int64_t columns = t.size(-1);
  const int64_t row_stride = t.dim() == 2 ? t.strides()[0] : 0;
  const int64_t column_stride = t.strides()[t.dim() - 1];
  const int64_t taken = std::min(count, kSamples);
  for (int64_t i = 0; i < taken; ++i) {
    // Spread over the whole, not all in one column.
    const int64_t at = taken == count ? i : (count / taken) * i + (i * 37) % (count / taken);
    const int64_t offset = (at / columns) * row_stride + (at % columns) * column_stride;
    uint64_t bits = 0;
    std::memcpy(&bits, data + offset * static_cast<int64_t>(bytes), bytes);
    seed = mix(seed, bits, static_cast<uint64_t>(i));
  }
  return seed;
}

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
  options.int8_weights = request.int8_weights;
}

}  // namespace

Tensor Handle::add(const Torch& tensor, const char* what, DType dtype) {
  const Tensor view = view_of(tensor, what);
  const Tensor used = view.dtype() == dtype ? view : view.to(dtype);
  sources_.push_back({tensor, view, used});
  return used;
}

Handle::Handle(const Request& request) {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  if (request.weights.empty() || request.weights.size() != request.biases.size())
    throw std::runtime_error("expected one bias or None for each of the weights");
  dtype_ = engine_dtype(request.dtype).value_or(view_of(request.weights[0], "weight").dtype());
  // Refers to weights of one number and of one dtype: no converted copies mix with others.
  std::vector<Tensor> weights;
  std::vector<Tensor> biases;
  for (const Torch& w : request.weights) weights.push_back(add(w, "weight", dtype_));
  for (const auto& b : request.biases) biases.push_back(b ? add(*b, "bias", dtype_) : Tensor());
  epilogue::FusedOptions options;
  set_forms(request, options);
  Tensor* const norms[] = {&options.norm_weight, &options.norm_bias, &options.post_norm_weight,
                           &options.post_norm_bias};
  for (size_t i = 0; i < 4; ++i)
    if (request.norms[i]) *norms[i] = add(*request.norms[i], "norm", dtype_);
  const auto activation = epilogue::nn::parse_activation(request.activation);
  if (!epilogue::nn::is_gated(activation)) {
    mlp_ = epilogue::FusedMlp::plain(weights, biases, activation, options);
  } else {
    if (weights.size() != 3) throw std::runtime_error("expected the weights gate, up and down");
    mlp_ =
        epilogue::FusedMlp::gated(weights[0], weights[1], weights[2], activation, options, biases);
  }
  k_ = weights[0].size(1);
  n_ = weights.back().size(0);
  write_again();
}

uint64_t Handle::sample() const {
  uint64_t sum = 0;
  for (const Source& s : sources_) sum = sample_of(s.tensor, sum);
  return sum;
}

// What is converted is converted again; the rest gets a version that no weight had before.
void Handle::write_again() {
  for (const Source& s : sources_) {
    if (!s.tensor.is_same(s.used)) epilogue::copy_(s.used, s.tensor);
    s.used.set_version(next_version());
  }
  sample_ = sample();
}

void Handle::see_writes(int64_t version) {
  const std::lock_guard lock(mutex_);
  if (version == version_ && sample() == sample_) return;
  if (version_ != -1) write_again();
  version_ = version;
}

void Handle::refresh() {
  const std::lock_guard lock(mutex_);
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const epilogue::NoGrad no_grad;
  write_again();
}

void Handle::require_fit(const Torch& x) const {
  if (x.dim() == 0 || x.size(x.dim() - 1) != k_)
    throw std::runtime_error("mat1 and mat2 shapes cannot be multiplied: x is " + describe(x) +
                             ", the first weight is " + to_string(sources_[0].tensor));
}

Torch Handle::run(const Torch& x, int64_t version) {
  require_fit(x);
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = view_of(x, "x");
  if (in.dtype() != dtype_)
    throw std::runtime_error("expected x and weights of the same dtype, but x is " + describe(x) +
                             " and the weights are " + std::string(dtype_name(dtype_)));
  see_writes(version);
  epilogue::Dims sizes = in.sizes();
  sizes[sizes.rank() - 1] = n_;
  Torch out = empty_like_rows(x, sizes);
  if (out.numel() == 0) return out;
  mlp_->run_into(in, view_of(out, "out"));
  return out;
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

void release(int64_t number) {
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

}  // namespace epilogue_torch
