// SPDX-License-Identifier: Apache-2.0
// CPU kernels of the fused cross entropy: the logits are read once forward and once backward.
#include "ops/losses/cross_entropy_loss.h"

#include <vector>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/cross_entropy.h"
#include "ops/ops.h"

namespace epilogue::cpu {
namespace {

const char* decline_logits(const Tensor& self, const Tensor& weight) {
  if (!has_float_type(self.dtype())) return kNeedsFloatType;
  return !weight.defined() || has_float_type(weight.dtype()) ? nullptr : kNeedsFloatType;
}

Dims class_dim(const Tensor& self) { return {self.dim() - 1}; }

// Blocks of rows, enough to be worth a piece of a sum. Within one, `at_once` rows are read
// together.
struct Blocks {
  int64_t rows;
  int64_t at_once;
  int64_t size;  // rows of a block
  int64_t count;
  int64_t grain;

  Blocks(const Tensor& self, const Tensor& target)
      : rows(target.numel()),
        at_once(Rows(self, class_dim(self)).block()),
        size(std::max(at_once, kRowPiece / std::max<int64_t>(1, self.size(-1)))),
        count((rows + size - 1) / size),
        grain(grain_for(size * self.size(-1))) {}
  int64_t begin(int64_t block) const { return block * size; }
  int64_t end(int64_t block) const { return std::min(rows, (block + 1) * size); }

  // Calls body(first, k) for rows [first, first + k) of a block, at_once at a time.
  template <class Body>
  void for_each_group(int64_t block, Body&& body) const {
    for (int64_t first = begin(block); first < end(block); first += at_once)
      body(first, std::min(at_once, end(block) - first));
  }
};

std::vector<float> weights_of(const CrossEntropyRows& rows) {
  std::vector<float> values;
  for (int64_t c = 0; rows.weight.defined() && c < rows.classes; ++c)
    values.push_back(static_cast<float>(rows.weight_of(c)));
  return values;
}
const float* data_or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

// Loss of a row whose class is t and not ignored; notes the row's statistics.
double row_loss(const CrossEntropyRows& rows, const float* x, const float* weight, int64_t t,
                simd::SoftmaxStats stats) {
  const auto max = static_cast<double>(stats.max);
  const auto log_sum = static_cast<double>(stats.log_sum);
  double loss = 0;
  if (rows.kept != 0)
    loss = -rows.kept * rows.weight_of(t) * (static_cast<double>(x[t]) - max - log_sum);
  if (rows.spread == 0) return loss;
  const auto n = static_cast<size_t>(rows.classes);
  const auto shifted =
      static_cast<double>(simd::cross_entropy_kernels().shifted_sum(x, weight, stats.max, n));
  return loss - rows.spread * (shifted - rows.weight_sum * log_sum);
}

void run_cross_entropy(const Call& call) {
  const CrossEntropyRows rows(call, call.in[0], call.in[1], call.in[2]);
  const Blocks blocks(call.in[0], call.in[1]);
  const Rows x(call.in[0], class_dim(call.in[0]));
  const std::vector<float> weights = weights_of(rows);
  const auto& kernels = simd::cross_entropy_kernels();
  auto* stats = static_cast<float*>(call.out[1].data());
  const bool is_each = rows.reduction == Reduction::none;
  const double sum = ordered_sum(blocks.count, blocks.grain, [&](int64_t block) {
    double part = 0;
    blocks.for_each_group(block, [&](int64_t first, int64_t k) {
      const auto from = x.read_rows(first, k, scratch(Slot::a, k * x.pitch()));
      for (int64_t r = 0; r < k; ++r) {
        const int64_t i = first + r;
        const simd::SoftmaxStats s = kernels.stats(from.row(r), static_cast<size_t>(rows.classes));
        stats[2 * i] = s.max;
        stats[2 * i + 1] = s.log_sum;
        const int64_t t = rows.class_at(i);
        const double loss =
            t == kIgnored ? 0 : row_loss(rows, from.row(r), data_or_null(weights), t, s);
        if (is_each) store_element(call.out[0].dtype(), call.out[0].data(), i, loss);
        part += loss;
      }
    });
    return part;
  });
  const double total = ordered_sum(blocks.count, blocks.grain, [&](int64_t block) {
    double part = 0;
    for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const int64_t t = rows.class_at(i);
      part += t == kIgnored ? 0 : rows.weight_of(t);
    }
    return part;
  });
  store_element(call.out[2].dtype(), call.out[2].data(), 0, total);
  if (!is_each)
    store_element(call.out[0].dtype(), call.out[0].data(), 0,
                  rows.reduction == Reduction::mean ? sum / total : sum);
}

void run_cross_entropy_backward(const Call& call) {
  const Tensor& grad = call.in[0];
  const CrossEntropyRows rows(call, call.in[1], call.in[2], call.in[3]);
  const Blocks blocks(call.in[1], call.in[2]);
  const Rows x(call.in[1], class_dim(call.in[1]));
  const Rows dx(call.out[0], class_dim(call.out[0]));
  const std::vector<float> weights = weights_of(rows);
  const auto& kernels = simd::cross_entropy_kernels();
  const auto* stats = static_cast<const float*>(call.in[4].data());
  const double total = rows.reduction == Reduction::mean ? call.in[5].item() : 1;
  const int64_t grad_stride = grad.dim() == 1 ? grad.strides()[0] : 0;
  const auto run_row = [&](int64_t i, const float* from, float* to) {
    const int64_t t = rows.class_at(i);
    if (t == kIgnored) {
      std::fill_n(to, rows.classes, 0.0F);
      return;
    }
    const double g = load_element(grad.dtype(), grad.data(), i * grad_stride) / total;
    const double main = rows.kept * rows.weight_of(t);
    kernels.gradient(from, data_or_null(weights), {stats[2 * i], stats[2 * i + 1]},
                     static_cast<float>(g * (main + rows.spread * rows.weight_sum)),
                     static_cast<float>(g * rows.spread), to, static_cast<size_t>(rows.classes));
    to[t] -= static_cast<float>(g * main);
  };
  parallel_for(blocks.count, blocks.grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      blocks.for_each_group(block, [&](int64_t first, int64_t k) {
        const auto from = x.read_rows(first, k, scratch(Slot::a, k * x.pitch()));
        const auto to = dx.target_rows(first, k, scratch(Slot::b, k * dx.pitch()));
        for (int64_t r = 0; r < k; ++r) run_row(first + r, from.row(r), to.row(r));
        dx.write_rows(first, k, to);
      });
  });
}

void describe_cross_entropy(KernelInfo& info, const char* what, const Tensor& self,
                            const Tensor& target) {
  const Blocks blocks(self, target);
  info.name = kernel_name(what, self.dtype());
  describe_items(info, blocks.count, blocks.grain, self.size(-1),
                 std::min(blocks.size, blocks.rows));
}

constexpr Kernel kForwardKernels[] = {
    {"cross_entropy", [](const Call& c) { return decline_logits(c.in[0], c.in[2]); },
     run_cross_entropy,
     [](const Call& c, KernelInfo& i) {
       describe_cross_entropy(i, "cross_entropy", c.in[0], c.in[1]);
     }}};
constexpr Kernel kBackwardKernels[] = {
    {"cross_entropy_backward",
     [](const Call& c) -> const char* {
       if (!c.in[4].is_contiguous() || c.in[4].dtype() != DType::f32)
         return "needs the f32 statistics of the forward kernel";
       return decline_logits(c.in[1], c.in[3]);
     },
     run_cross_entropy_backward,
     [](const Call& c, KernelInfo& i) {
       describe_cross_entropy(i, "cross_entropy_backward", c.in[1], c.in[2]);
     }}};

constexpr KernelList kCrossEntropyLists[] = {{&kCrossEntropyForward, kForwardKernels},
                                             {&kCrossEntropyBackward, kBackwardKernels}};

}  // namespace

std::span<const KernelList> cross_entropy_lists() { return kCrossEntropyLists; }

}  // namespace epilogue::cpu
