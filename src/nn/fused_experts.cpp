// SPDX-License-Identifier: Apache-2.0
// FusedExperts: checks, the kernel that a backend has for them, and what it stands for.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/backend.h"
#include "core/experts.h"
#include "core/fused_call.h"
#include "core/tensor_impl.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "nn/activation.h"
#include "nn/inference_only.h"
#include "ops/ops.h"
#include "ops/overlap.h"

namespace epilogue {
namespace {

[[noreturn]] void fail_experts(const std::string& expected, const std::string& got) {
  throw Error("[fused_experts] expected " + expected + ", got " + got);
}

std::string sizes_text(std::initializer_list<int64_t> sizes) { return to_string(Dims(sizes)); }

// Rows and columns of one expert's matrix [out, in] within a tensor of all experts.
struct Slice {
  int64_t offset;
  int64_t out;
  int64_t out_stride;
  int64_t in;
  int64_t in_stride;
};

Tensor matrix_of(const Tensor& all, int64_t expert, const Slice& s) {
  return detail::make_view(all, {s.out, s.in}, {s.out_stride, s.in_stride},
                           expert * all.strides()[0] + s.offset);
}

Tensor vector_of(const Tensor& all, int64_t expert, int64_t first, int64_t count, int64_t step) {
  if (!all.defined()) return {};
  return detail::make_view(all, {count}, {step * all.strides()[1]},
                           expert * all.strides()[0] + first * all.strides()[1]);
}

void require_split(const Tensor& up, const Tensor& down, const ExpertLayout& layout,
                   const Tensor& up_bias, const Tensor& down_bias) {
  if (!up.defined() || up.dim() != 3) fail_experts("up [experts, out, in]", to_string(up));
  if (!down.defined() || down.dim() != 3 || down.size(0) != up.size(0))
    fail_experts("down [" + std::to_string(up.size(0)) + ", out, in]", to_string(down));
  const int64_t rows = up.size(layout.transposed ? 2 : 1);
  if (layout.gated && rows % 2 != 0)
    fail_experts("up with an even number of rows, for gate and up", to_string(up));
  const auto require_bias = [&](const Tensor& b, int64_t n, const char* what) {
    if (b.defined() && (b.dim() != 2 || b.size(0) != up.size(0) || b.size(1) != n))
      fail_experts(std::string("biases of ") + what + " " + sizes_text({up.size(0), n}),
                   to_string(b));
  };
  require_bias(up_bias, rows, "up");
  require_bias(down_bias, down.size(layout.transposed ? 2 : 1), "down");
}

}  // namespace

std::vector<Expert> split_experts(const Tensor& up, const Tensor& down, const ExpertLayout& layout,
                                  const Tensor& up_bias, const Tensor& down_bias) {
  require_split(up, down, layout, up_bias, down_bias);
  const int out = layout.transposed ? 2 : 1;
  const int in = layout.transposed ? 1 : 2;
  const int64_t rows = up.size(out) / (layout.gated ? 2 : 1);
  const int64_t step = layout.gated && layout.interleaved ? 2 : 1;
  const int64_t first_of_up = !layout.gated ? 0 : layout.interleaved ? 1 : rows;
  const int64_t row = up.strides()[out];
  const auto part = [&](int64_t first) {
    return Slice{first * row, rows, step * row, up.size(in), up.strides()[in]};
  };
  const Slice down_slice = {0, down.size(out), down.strides()[out], down.size(in),
                            down.strides()[in]};
  std::vector<Expert> experts(static_cast<size_t>(up.size(0)));
  for (int64_t e = 0; e < up.size(0); ++e) {
    Expert& expert = experts[static_cast<size_t>(e)];
    if (layout.gated) {
      expert.gate = matrix_of(up, e, part(0));
      expert.gate_bias = vector_of(up_bias, e, 0, rows, step);
    }
    expert.up = matrix_of(up, e, part(first_of_up));
    expert.up_bias = vector_of(up_bias, e, first_of_up, rows, step);
    expert.down = matrix_of(down, e, down_slice);
    expert.down_bias = vector_of(down_bias, e, 0, down.size(out), 1);
  }
  return experts;
}

class FusedExperts::Impl {
 public:
  Impl(std::vector<Expert> experts, nn::Activation activation, const nn::SwiGluClamp& clamp,
       const Quantisation& bits)
      : experts_(std::move(experts)), gated_(nn::is_gated(activation)) {
    if (experts_.empty()) fail_experts("at least one expert", "none");
    if (!std::isfinite(clamp.alpha) || !(clamp.limit > 0))
      fail_experts("a finite alpha and a limit above 0",
                   std::to_string(clamp.alpha) + " and " + std::to_string(clamp.limit));
    for (const Expert& e : experts_) require_expert(e);
    const FusedKernelMaker* const maker =
        backend_of(first().up.device()).capabilities().maker_of(kExperts);
    if (maker == nullptr) fail_experts("experts on the CPU", to_string(first().up.device()));
    kernel_ = std::unique_ptr<ExpertsKernel>(
        dynamic_cast<ExpertsKernel*>(maker->make(spec_of(activation, clamp, bits)).release()));
    for (const Expert& e : experts_)
      for (const Tensor* const t : tensors_of(e)) addresses_.push_back(address_of(*t));
    describe_work(activation);
  }

  Tensor run(const Tensor& x, const Tensor& index, const Tensor& weights) const {
    require_call(x, index, weights);
    Tensor out = empty({x.size(0), columns()}, x.dtype(), x.device());
    run_kernel(x, index, weights, out);
    return out;
  }

  void run_into(const Tensor& x, const Tensor& index, const Tensor& weights,
                const Tensor& out) const {
    require_call(x, index, weights);
    const Dims sizes{x.size(0), columns()};
    if (!out.defined() || out.dtype() != x.dtype() || !(out.sizes() == sizes) ||
        !out.is_contiguous())
      fail_experts("a contiguous out of x's dtype and sizes " + to_string(sizes), to_string(out));
    if (extents_meet(x, out))
      fail_experts("an out apart from x", to_string(out) + " that overlaps it");
    run_kernel(x, index, weights, out);
    out.increment_version();
  }

  int64_t packed_bytes() const { return kernel_->packed_bytes(); }
  int64_t experts() const { return static_cast<int64_t>(experts_.size()); }
  int64_t columns() const { return first().down.size(0); }

 private:
  const Expert& first() const { return experts_[0]; }
  DType dtype() const { return first().up.dtype(); }
  static const void* address_of(const Tensor& t) { return t.defined() ? t.data() : nullptr; }

  static std::array<const Tensor*, 6> tensors_of(const Expert& e) {
    return {&e.gate, &e.up, &e.down, &e.gate_bias, &e.up_bias, &e.down_bias};
  }

  void require_matrix(const Tensor& t, const Dims& sizes, const char* what) const {
    if (!t.defined() || !(t.sizes() == sizes) || t.dtype() != dtype() ||
        !(t.device() == first().up.device()))
      fail_experts(std::string(what) + " " + to_string(sizes) + " of " +
                       std::string(dtype_name(dtype())) + " on one device",
                   to_string(t));
  }

  void require_bias(const Tensor& t, const Tensor& of_first, int64_t n, const char* what) const {
    if (t.defined() != of_first.defined())
      fail_experts(std::string(what) + " in all experts or in none", to_string(t));
    if (t.defined()) require_matrix(t, {n}, what);
  }

  void require_expert(const Expert& e) const {
    const Tensor& up = first().up;
    if (!up.defined() || up.dim() != 2 || up.numel() == 0) fail_experts("up [h, k]", to_string(up));
    if (gated_ != e.gate.defined())
      fail_experts(gated_ ? "a gate in each expert, of a gated activation"
                          : "no gate in an expert, of a plain activation",
                   to_string(e.gate));
    const Dims sizes = up.sizes();
    if (gated_) require_matrix(e.gate, sizes, "gate");
    require_matrix(e.up, sizes, "up");
    const Tensor& down = first().down;
    if (!down.defined() || down.dim() != 2 || down.numel() == 0)
      fail_experts("down [n, h]", to_string(down));
    require_matrix(e.down, {down.size(0), sizes[0]}, "down");
    require_bias(e.gate_bias, first().gate_bias, sizes[0], "a gate's bias");
    if (!gated_ && e.gate_bias.defined())
      fail_experts("no gate's bias without a gate", to_string(e.gate_bias));
    require_bias(e.up_bias, first().up_bias, sizes[0], "an up's bias");
    require_bias(e.down_bias, first().down_bias, down.size(0), "a down's bias");
  }

  ExpertsSpec spec_of(nn::Activation activation, const nn::SwiGluClamp& clamp,
                      const Quantisation& bits) const {
    ExpertsSpec spec;
    spec.bits = bits;
    spec.dtype = dtype();
    for (const Expert& e : experts_) {
      ExpertsSpec::Expert& to = spec.experts.emplace_back();
      if (gated_) {
        to.weights.push_back(e.gate);
        to.biases.push_back(e.gate_bias);
      }
      to.weights.insert(to.weights.end(), {e.up, e.down});
      to.biases.insert(to.biases.end(), {e.up_bias, e.down_bias});
    }
    const int products = gated_ ? 2 : 1;
    PointwiseProgram& hidden = spec.hidden;
    const std::array<bool, 2> has_bias = {
        gated_ ? first().gate_bias.defined() : first().up_bias.defined(),
        gated_ && first().up_bias.defined()};
    hidden.inputs = products + int{has_bias[0]} + int{has_bias[1]};
    int operand = products;
    const auto biased = [&](int product) {
      if (!has_bias[static_cast<size_t>(product)]) return product;
      hidden.steps.push_back({PointwiseFn::add, product, operand++});
      return hidden.values() - 1;
    };
    const int one = biased(0);
    hidden.outputs = {gated_ ? nn::push_gate(hidden, activation, clamp, one, biased(1))
                             : nn::push_activation(hidden, activation, one)};
    spec.result.inputs = 1;
    spec.result.outputs = {0};
    if (first().down_bias.defined()) {
      spec.result.inputs = 2;
      spec.result.steps.push_back({PointwiseFn::add, 0, 1});
      spec.result.outputs = {2};
    }
    return spec;
  }

  void describe_work(nn::Activation activation) {
    const Expert& e = first();
    std::vector<std::string_view> names;
    const auto add_product = [&](const Tensor& w, const Tensor& bias) {
      if (!w.defined()) return;
      names.push_back(bias.defined() ? kAddmm.name : kMm.name);
      flops_per_pair_ += 2.0 * static_cast<double>(w.numel());
      parameter_bytes_ += static_cast<double>(w.bytes());
    };
    add_product(e.gate, e.gate_bias);
    add_product(e.up, e.up_bias);
    for (const auto& [op, operands] : nn::ops_of(activation)) names.push_back(op->name);
    add_product(e.down, e.down_bias);
    ops_ = FusedOps(names);
  }

  void require_call(const Tensor& x, const Tensor& index, const Tensor& weights) const {
    const int64_t k = first().up.size(1);
    if (!x.defined() || x.dim() != 2 || x.size(1) != k || x.dtype() != dtype() ||
        !(x.device() == first().up.device()))
      fail_experts("x [tokens, " + std::to_string(k) + "] of the experts' dtype " +
                       std::string(dtype_name(dtype())) + " on their device",
                   to_string(x));
    const int64_t tokens = x.size(0);
    if (!index.defined() || index.dim() != 2 || index.size(0) != tokens ||
        index.dtype() != DType::i64)
      fail_experts("an index [" + std::to_string(tokens) + ", choices] of i64", to_string(index));
    if (!weights.defined() || !(weights.sizes() == index.sizes()) ||
        (weights.dtype() != DType::f32 && weights.dtype() != x.dtype()))
      fail_experts("weights " + to_string(index.sizes()) + " of f32 or x's dtype",
                   to_string(weights));
    size_t at = 0;
    for (const Expert& e : experts_)
      for (const Tensor* const t : tensors_of(e))
        if (address_of(*t) != addresses_[at++])
          fail_experts("weights in the memory that they had", "one that was given other memory");
    nn::require_inference(fail_experts, [&] { return wants_gradient(x, weights); });
  }

  bool wants_gradient(const Tensor& x, const Tensor& weights) const {
    return nn::wants_gradient(x) || nn::wants_gradient(weights) ||
           std::ranges::any_of(experts_, [](const Expert& e) {
             return std::ranges::any_of(tensors_of(e),
                                        [](const Tensor* t) { return nn::wants_gradient(*t); });
           });
  }

  void run_kernel(const Tensor& any_x, const Tensor& index, const Tensor& weights,
                  const Tensor& out) const {
    const Tensor x = any_x.size(1) <= 1 || any_x.strides()[1] == 1 ? any_x : contiguous(any_x);
    const int64_t choices = index.size(1);
    thread_local std::vector<MatrixView> operands;
    operands.clear();
    operands.push_back({x.data(), x.dtype(), x.strides()[0], 1});
    for (const Tensor* const t : {&index, &weights})
      for (int64_t j = 0; j < choices; ++j)
        operands.push_back({static_cast<char*>(t->data()) +
                                j * t->strides()[1] * static_cast<int64_t>(dtype_bytes(t->dtype())),
                            t->dtype(), t->strides()[0], 1});
    const MatrixView result{out.data(), out.dtype(), columns(), 1};
    const auto inputs = [&] { return std::vector<Tensor>{x, index, weights}; };
    const auto notes = [&] { return notes_of(x, index, out); };
    run_fused({kExperts, inputs, notes}, {&out, 1}, [&] {
      kernel_->run(x.size(0), operands, {&result, 1});
    });
  }

  // Bytes: of each expert that was chosen, once.
  FusedKernelNotes notes_of(const Tensor& x, const Tensor& index, const Tensor& out) const {
    std::vector<bool> is_chosen(experts_.size());
    double pairs = 0;
    for (const double e : index.to_vector()) {
      if (e < 0 || e >= static_cast<double>(experts_.size())) continue;
      is_chosen[static_cast<size_t>(e)] = true;
      ++pairs;
    }
    const auto chosen = static_cast<double>(std::ranges::count(is_chosen, true));
    const auto moved = static_cast<double>(x.bytes() + out.bytes());
    const auto element = static_cast<double>(dtype_bytes(x.dtype()));
    // Rows gathered, the hidden ones written and read by each op, results weighted and added.
    const auto row = static_cast<double>(2 * x.size(1) + 7 * first().up.size(0) + 6 * columns());
    return {kernel_->info(x.size(0), ops_.short_names), flops_per_pair_ * pairs,
            chosen * parameter_bytes_ + moved,
            chosen * parameter_bytes_ + moved + pairs * row * element, ops_.full_names};
  }

  std::vector<Expert> experts_;
  bool gated_;
  std::unique_ptr<ExpertsKernel> kernel_;
  std::vector<const void*> addresses_;
  FusedOps ops_;
  double flops_per_pair_ = 0;
  double parameter_bytes_ = 0;  // of one expert
};

FusedExperts::FusedExperts(std::vector<Expert> experts, nn::Activation activation,
                           const nn::SwiGluClamp& clamp, const Quantisation& bits)
    : impl_(std::make_shared<const Impl>(std::move(experts), activation, clamp, bits)) {}

Tensor FusedExperts::operator()(const Tensor& x, const Tensor& index, const Tensor& weights) const {
  return impl_->run(x, index, weights);
}
void FusedExperts::run_into(const Tensor& x, const Tensor& index, const Tensor& weights,
                            const Tensor& out) const {
  impl_->run_into(x, index, weights, out);
}
int64_t FusedExperts::packed_bytes() const { return impl_->packed_bytes(); }
int64_t FusedExperts::experts() const { return impl_->experts(); }
int64_t FusedExperts::columns() const { return impl_->columns(); }

}  // namespace epilogue
