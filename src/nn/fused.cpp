// SPDX-License-Identifier: Apache-2.0
// The fused MLPs that functions of tensors use again: the process keeps them.
#include "epilogue/fused.h"

#include <list>
#include <mutex>
#include <unordered_map>

#include "nn/fused_spec.h"

namespace epilogue {
namespace {

// The layers of a large model.
constexpr size_t kKept = 1024;

// What makes two calls the same MLP.
struct Leaf {
  const void* data = nullptr;
  const detail::Storage* storage = nullptr;
  Dims sizes;
  Dims strides;
  DType dtype = DType::f32;
  bool operator==(const Leaf&) const = default;
};
struct Key {
  std::vector<Leaf> leaves;
  std::vector<double> options;
  bool operator==(const Key&) const = default;
};
struct HashOfKey {
  size_t operator()(const Key& key) const {
    size_t hash = key.leaves.size();
    for (const Leaf& leaf : key.leaves)
      hash = hash * 1'000'003 + std::hash<const void*>()(leaf.data);
    return hash;
  }
};

Leaf leaf_of(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.data(), t.impl()->storage.get(), t.sizes(), t.strides(), t.dtype()};
}

Key key_of(const nn::FusedSpec& spec) {
  const FusedOptions& o = spec.options;
  Key key;
  for (const Tensor& w : spec.weights) key.leaves.push_back(leaf_of(w));
  for (const Tensor& b : spec.biases) key.leaves.push_back(leaf_of(b));
  for (const Tensor* const t :
       {&o.norm_weight, &o.norm_bias, &o.post_norm_weight, &o.post_norm_bias})
    key.leaves.push_back(leaf_of(*t));
  const nn::FusedNorm pre = nn::pre_norm(o);
  const nn::FusedNorm post = nn::post_norm(o);
  const Quantisation bits = nn::bits_of(o);
  const auto number = [](auto choice) { return static_cast<double>(choice); };
  key.options = {number(spec.activation),
                 number(spec.gated),
                 number(o.residual),
                 number(bits.weights),
                 number(bits.activations),
                 number(bits.group),
                 number(bits.zero_points),
                 number(pre.kind),
                 pre.eps,
                 number(o.post_norm),
                 number(post.kind),
                 post.eps,
                 number(o.norm_weight_is),
                 number(spec.biases.size()),
                 o.clamp.alpha,
                 o.clamp.limit};
  return key;
}

// The last used comes first. Never destroyed: threads end after main() does.
class Kept {
 public:
  template <class Make>
  FusedMlp get(const Key& key, Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      list_.splice(list_.begin(), list_, found->second);
      return list_.front().mlp;
    }
    list_.push_front({key, make()});
    by_key_.emplace(key, list_.begin());
    if (list_.size() > kKept) {
      by_key_.erase(list_.back().key);
      list_.pop_back();
    }
    return list_.front().mlp;
  }

  void clear() {
    std::list<Entry> dead;  // ends after the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    by_key_.clear();
    dead.swap(list_);
  }

 private:
  struct Entry {
    Key key;
    FusedMlp mlp;
  };
  std::mutex mutex_;
  std::list<Entry> list_;
  std::unordered_map<Key, std::list<Entry>::iterator, HashOfKey> by_key_;
};

Kept& kept() {
  static Kept& the_kept = *new Kept;
  return the_kept;
}

}  // namespace

Tensor fused_gated_mlp(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down,
                       nn::Activation activation, const FusedOptions& options,
                       std::span<const Tensor> biases) {
  if (!nn::is_gated(activation))
    throw Error("[fused_gated_mlp] expected a gated activation, got " +
                std::string(nn::activation_name(activation)));
  const Tensor weights[] = {gate, up, down};
  const nn::FusedSpec spec = {"fused_gated_mlp", weights, biases, activation, options, true};
  nn::require_fit(spec, &x);
  return kept().get(key_of(spec), [&] {
    return FusedMlp::gated(gate, up, down, activation, options, biases);
  })(x);
}

Tensor fused_mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 nn::Activation activation, const FusedOptions& options) {
  if (nn::is_gated(activation))
    throw Error("[fused_mlp] expected a plain activation, got " +
                std::string(nn::activation_name(activation)));
  const nn::FusedSpec spec = {"fused_mlp", weights, biases, activation, options, false};
  nn::require_fit(spec, &x);
  return kept().get(key_of(spec),
                    [&] { return FusedMlp::plain(weights, biases, activation, options); })(x);
}

namespace {

std::optional<Tensor> forward(const nn::Module& module, const Tensor& x,
                              const FusedOptions& options) {
  if (const auto* gated = dynamic_cast<const nn::GatedMLP*>(&module)) {
    const Tensor biases[] = {gated->gate_proj.bias, gated->up_proj.bias, gated->down_proj.bias};
    return fused_gated_mlp(x, gated->gate_proj.weight, gated->up_proj.weight,
                           gated->down_proj.weight, gated->activation(), options, biases);
  }
  const auto* mlp = dynamic_cast<const nn::MLP*>(&module);
  if (mlp == nullptr) return std::nullopt;
  std::vector<Tensor> weights;
  std::vector<Tensor> biases;
  for (size_t i = 0; i < mlp->num_linears(); ++i) {
    weights.push_back(mlp->fc(i).weight);
    biases.push_back(mlp->fc(i).bias);
  }
  return fused_mlp(x, weights, biases, mlp->activation(), options);
}

}  // namespace

std::optional<Tensor> fused_forward(const nn::Module& module, const Tensor& x,
                                    const Quantisation& bits) {
  const auto* block = dynamic_cast<const nn::Block*>(&module);
  FusedOptions options;
  options.bits = bits;
  if (block == nullptr) return forward(module, x, options);
  options.residual = block->has_residual();
  if (const auto* rms = dynamic_cast<const nn::RMSNorm*>(block->norm())) {
    options.norm = nn::Norm::rms;
    options.norm_weight = rms->weight;
    options.eps = rms->eps();
  } else if (const auto* layer = dynamic_cast<const nn::LayerNorm*>(block->norm())) {
    options.norm = nn::Norm::layer;
    options.norm_weight = layer->weight;
    options.norm_bias = layer->bias;
    options.eps = layer->eps();
  }
  return forward(block->mlp(), x, options);
}

void clear_fused_cache() { kept().clear(); }

}  // namespace epilogue
