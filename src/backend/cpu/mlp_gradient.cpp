// SPDX-License-Identifier: Apache-2.0
// The pointwise part of an MLP's forward and backward pass: tiles that stay in the first cache.
#include "epilogue/mlp_gradient.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "backend/cpu/float_type.h"
#include "backend/cpu/product_call.h"
#include "backend/cpu/simd/panels/block_lines.h"
#include "backend/cpu/simd/pointwise.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"
#include "epilogue/ops.h"
#include "ops/overlap.h"

namespace epilogue {
namespace {

// Floats of a tile: six of them fit in the first cache.
constexpr int64_t kMlpTile = 1024;
// Elements per thread at least: waking one costs as much as some thousand activations.
constexpr int64_t kMlpGrain = 8192;

// act(x) = f(scale x) / scale, or its square.
struct MlpActivation {
  std::string_view name;
  PointwiseFn f;
  PointwiseFn f_backward;  // of d and x: d f'(x)
  float scale = 1.0F;
  bool squared = false;

  void run(const simd::PointwiseKernels& kernels, const float* x, float* out, size_t n) const {
    if (scale != 1.0F) {
      kernels.run(PointwiseFn::mul, {x, simd::TileOperand(scale)}, out, n);
      kernels.run(f, {out}, out, n);
      kernels.run(PointwiseFn::mul, {out, simd::TileOperand(1.0F / scale)}, out, n);
    } else {
      kernels.run(f, {x}, out, n);
    }
    if (squared) kernels.run(PointwiseFn::mul, {out, out}, out, n);
  }

  // `out` may be `d`; `scratch` is a tile by itself.
  void run_backward(const simd::PointwiseKernels& kernels, const float* d, const float* x,
                    float* out, float* scratch, size_t n) const {
    if (squared) {  // (f^2)' = 2 f f'
      kernels.run(f, {x}, scratch, n);
      kernels.run(PointwiseFn::mul, {d, scratch}, out, n);
      kernels.run(PointwiseFn::mul, {out, simd::TileOperand(2.0F)}, out, n);
      kernels.run(f_backward, {out, x}, out, n);
    } else if (scale != 1.0F) {
      kernels.run(PointwiseFn::mul, {x, simd::TileOperand(scale)}, scratch, n);
      kernels.run(f_backward, {d, scratch}, out, n);
    } else {
      kernels.run(f_backward, {d, x}, out, n);
    }
  }
};
constexpr MlpActivation kMlpActivations[] = {
    {"silu", PointwiseFn::silu, PointwiseFn::silu_backward},
    {"relu", PointwiseFn::relu, PointwiseFn::relu_backward},
    {"gelu", PointwiseFn::gelu_erf, PointwiseFn::gelu_erf_backward},
    {"gelu_tanh", PointwiseFn::gelu_tanh, PointwiseFn::gelu_tanh_backward},
    {"quick_gelu", PointwiseFn::silu, PointwiseFn::silu_backward, 1.702F},
    {"squared_relu", PointwiseFn::relu, PointwiseFn::relu_backward, 1.0F, true},
};

[[noreturn]] void fail_mlp(const std::string& expected, const std::string& got) {
  throw Error("[mlp_gradient] expected " + expected + ", got " + got);
}

const MlpActivation& mlp_activation(std::string_view name) {
  for (const MlpActivation& known : kMlpActivations)
    if (known.name == name) return known;
  fail_mlp("one of silu, relu, gelu, gelu_tanh, quick_gelu, squared_relu",
           "\"" + std::string(name) + "\"");
}

void require_alike(const Tensor& first, std::initializer_list<Tensor> others) {
  if (!first.defined() || first.device().type != DeviceType::cpu ||
      !has_float_type(first.dtype()) || !first.is_contiguous())
    fail_mlp("a contiguous f32, bf16 or f16 tensor on the host",
             first.defined() ? to_string(first) : "an undefined tensor");
  for (const Tensor& t : others)
    if (t.defined() && (t.dtype() != first.dtype() || !(t.sizes() == first.sizes()) ||
                        t.device().type != DeviceType::cpu || !t.is_contiguous()))
      fail_mlp("a contiguous tensor like " + to_string(first), to_string(t));
}

void require_apart(std::initializer_list<Tensor> results, std::initializer_list<Tensor> read) {
  for (const Tensor& out : results)
    for (const Tensor& in : read)
      if (out.defined() && in.defined() && extents_meet(in, out))
        fail_mlp("results apart from what is read and from each other",
                 to_string(out) + " that overlaps");
}

void require_gradients_apart(const Tensor& gate, const Tensor& up, const MlpGradients& out) {
  if (out.up.defined() && !up.defined()) fail_mlp("up with its gradient", "an undefined tensor");
  require_apart({out.hidden, out.gate, out.up}, {gate, up});
  require_apart({out.hidden}, {out.gate, out.up});
  require_apart({out.gate}, {out.up});
}

// A tensor's elements as f32, tile by tile: in place where they are.
class TileReader {
 public:
  TileReader(const Tensor& t) {  // NOLINT: implicit on purpose
    if (!t.defined()) return;
    data_ = static_cast<const std::byte*>(t.data());
    type_ = cpu::float_type(t.dtype());
  }
  bool defined() const { return data_ != nullptr; }
  const float* read(int64_t begin, size_t n, float* buffer) const {
    const std::byte* const from = data_ + static_cast<size_t>(begin) * simd::size_of(type_);
    if (type_ == simd::FloatType::f32) return reinterpret_cast<const float*>(from);
    simd::to_f32(type_, from, buffer, n);
    return buffer;
  }

 private:
  const std::byte* data_ = nullptr;
  simd::FloatType type_ = simd::FloatType::f32;
};

class TileWriter {
 public:
  TileWriter(const Tensor& t) {  // NOLINT: implicit on purpose
    if (!t.defined()) return;
    data_ = static_cast<std::byte*>(t.data());
    type_ = cpu::float_type(t.dtype());
  }
  bool defined() const { return data_ != nullptr; }
  // Where a tile's results go: the tensor itself, or `buffer`, which store() then rounds.
  float* tile(int64_t begin, float* buffer) const {
    return type_ == simd::FloatType::f32 ? reinterpret_cast<float*>(data_) + begin : buffer;
  }
  void store(int64_t begin, const float* tile, size_t n) const {
    if (type_ == simd::FloatType::f32) return;
    simd::from_f32(type_, tile, data_ + static_cast<size_t>(begin) * simd::size_of(type_), n);
  }

 private:
  std::byte* data_ = nullptr;
  simd::FloatType type_ = simd::FloatType::f32;
};

struct MlpBackward {
  const MlpActivation& act;
  TileReader d_hidden, gate, up;
  TileWriter hidden, d_gate, d_up;

  void run(const simd::PointwiseKernels& kernels, int64_t begin, size_t n) const {
    alignas(64) float read[3][kMlpTile];
    alignas(64) float active[kMlpTile];
    alignas(64) float result[kMlpTile];
    const float* const g = gate.read(begin, n, read[0]);
    const float* const dh = d_hidden.read(begin, n, read[1]);
    const float* const u = up.defined() ? up.read(begin, n, read[2]) : nullptr;
    if (hidden.defined() || d_up.defined()) act.run(kernels, g, active, n);
    const auto write = [&](const TileWriter& to, const float* a, const float* b) {
      if (!to.defined()) return;
      float* const out = to.tile(begin, result);
      kernels.run(PointwiseFn::mul, {a, b == nullptr ? simd::TileOperand(1.0F) : b}, out, n);
      to.store(begin, out, n);
    };
    write(hidden, active, u);
    write(d_up, active, dh);
    if (!d_gate.defined()) return;
    float* const out = d_gate.tile(begin, result);
    if (u != nullptr) kernels.run(PointwiseFn::mul, {dh, u}, out, n);
    act.run_backward(kernels, u != nullptr ? out : dh, g, out, active, n);
    d_gate.store(begin, out, n);
  }
};

// Where the processor rounds to bf16 itself: an element's results in one go.
bool rounds_itself(const MlpActivation& act, DType dtype) {
  return dtype == DType::bf16 && act.scale == 1.0F && !act.squared &&
         cpu_has(CpuFeature::avx512_bf16);
}
simd::HiddenFunction hidden_function(const MlpActivation& act, const Tensor& gate) {
  return rounds_itself(act, gate.dtype()) ? simd::hidden_elements(act.f) : nullptr;
}
void run_elements(simd::HiddenFunction f, const simd::HiddenElements& elements, int64_t count) {
  parallel_for(count, kMlpGrain,
               [&](int64_t begin, int64_t end) { f(elements, begin, end - begin); });
}
const uint16_t* bits_of(const Tensor& t) {
  return t.defined() ? static_cast<const uint16_t*>(t.data()) : nullptr;
}
uint16_t* writable_bits_of(const Tensor& t) {
  return t.defined() ? static_cast<uint16_t*>(t.data()) : nullptr;
}

template <class Body>
void for_tiles(int64_t count, Body body) {
  const simd::PointwiseKernels& kernels = simd::pointwise_kernels();
  parallel_for(count, kMlpGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kMlpTile)
      body(kernels, i, static_cast<size_t>(std::min(kMlpTile, end - i)));
  });
}

}  // namespace

void mlp_hidden_into(std::string_view activation, const Tensor& gate, const Tensor& up,
                     const Tensor& out) {
  const MlpActivation& act = mlp_activation(activation);
  require_alike(gate, {up, out});
  require_apart({out}, {gate, up});
  if (!out.defined()) fail_mlp("an out", "an undefined tensor");
  if (const auto f = hidden_function(act, gate))
    return run_elements(f,
                        {.gate = bits_of(gate), .up = bits_of(up), .hidden = writable_bits_of(out)},
                        gate.numel());
  const TileReader in(gate);
  const TileReader factor(up);
  const TileWriter to(out);
  for_tiles(gate.numel(), [&](const simd::PointwiseKernels& kernels, int64_t begin, size_t n) {
    alignas(64) float read[2][kMlpTile];
    alignas(64) float result[kMlpTile];
    float* const tile = to.tile(begin, result);
    act.run(kernels, in.read(begin, n, read[0]), tile, n);
    if (factor.defined())
      kernels.run(PointwiseFn::mul, {tile, factor.read(begin, n, read[1])}, tile, n);
    to.store(begin, tile, n);
  });
}

void mlp_gradients_into(std::string_view activation, const Tensor& d_hidden, const Tensor& gate,
                        const Tensor& up, const MlpGradients& out) {
  const MlpActivation& act = mlp_activation(activation);
  require_alike(gate, {d_hidden, up, out.hidden, out.gate, out.up});
  if (!d_hidden.defined()) fail_mlp("d_hidden", "an undefined tensor");
  require_apart({out.hidden, out.gate, out.up}, {d_hidden});
  require_gradients_apart(gate, up, out);
  if (const auto f = hidden_function(act, gate))
    return run_elements(
        f,
        {bits_of(gate), bits_of(up), bits_of(d_hidden), writable_bits_of(out.hidden),
         writable_bits_of(out.gate), writable_bits_of(out.up)},
        gate.numel());
  const MlpBackward work{act, d_hidden, gate, up, out.hidden, out.gate, out.up};
  for_tiles(gate.numel(), [&](const simd::PointwiseKernels& kernels, int64_t begin, size_t n) {
    work.run(kernels, begin, n);
  });
}

void product_hidden_into(std::string_view activation, const Tensor& a, const Tensor& b,
                         const Tensor& added, const Tensor& gate, const Tensor& out,
                         const Tensor& hidden) {
  const MlpActivation& act = mlp_activation(activation);
  simd::GemmCall call = cpu::product_call(a, b, added, out);
  require_alike(out, {gate, hidden});
  if (!hidden.defined()) fail_mlp("a hidden", "an undefined tensor");
  require_apart({out, hidden}, {a, b, gate});
  require_apart({hidden}, {out, added});
  if (!rounds_itself(act, out.dtype()) || !simd::makes_hidden(call, act.f)) {
    simd::gemm(call);
    return gate.defined() ? mlp_hidden_into(activation, gate, out, hidden)
                          : mlp_hidden_into(activation, out, gate, hidden);
  }
  const simd::GemmHidden use = {act.f,
                                gate.defined() ? simd::HiddenSums::up : simd::HiddenSums::gate,
                                {.gate = bits_of(gate), .hidden = writable_bits_of(hidden)}};
  call.hidden = &use;
  simd::gemm(call);
}

void product_gradients_into(std::string_view activation, const Tensor& a, const Tensor& b,
                            const Tensor& gate, const Tensor& up, const MlpGradients& out) {
  const MlpActivation& act = mlp_activation(activation);
  simd::GemmCall call = cpu::product_call(a, b, {}, gate);
  require_alike(gate, {up, out.hidden, out.gate, out.up});
  require_apart({out.hidden, out.gate, out.up}, {a, b});
  if (!rounds_itself(act, gate.dtype()) || !simd::makes_hidden(call, act.f)) {
    const Tensor d_hidden = empty(gate.sizes(), gate.dtype());
    product_into(a, b, {}, d_hidden);
    return mlp_gradients_into(activation, d_hidden, gate, up, out);
  }
  require_gradients_apart(gate, up, out);
  call.c = nullptr;
  const simd::GemmHidden use = {act.f,
                                simd::HiddenSums::d_hidden,
                                {bits_of(gate), bits_of(up), nullptr, writable_bits_of(out.hidden),
                                 writable_bits_of(out.gate), writable_bits_of(out.up)}};
  call.hidden = &use;
  simd::gemm(call);
}

}  // namespace epilogue
