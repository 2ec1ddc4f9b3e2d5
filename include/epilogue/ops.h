// SPDX-License-Identifier: Apache-2.0
// The functional ops. Names, arguments, defaults, broadcasting and dtype promotion are PyTorch's;
// each is described (shape rule, formula, gradient, FLOPs) in src/ops, one file per family.
// All throw Error "[aten::x] expected ..., got ..." on misuse and are thread-safe.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Views: share storage, launch no kernel.
Tensor as_strided(const Tensor& self, Dims sizes, Dims strides,
                  std::optional<int64_t> storage_offset = {});  // empty: self's own
Tensor t(const Tensor& self);                                   // rank <= 2
Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1);
Tensor view(const Tensor& self, Dims sizes);  // one size may be -1
Tensor unsafe_view(const Tensor& self, Dims sizes);
Tensor expand(const Tensor& self, Dims sizes);  // -1 keeps a size
Tensor slice(const Tensor& self, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
Tensor permute(const Tensor& self, Dims dims);
// Without the dimensions of size 1 among `dims`; empty: of all.
Tensor squeeze(const Tensor& self, Dims dims = {});
Tensor unsqueeze(const Tensor& self, int64_t dim);  // a dimension of size 1 before `dim`
// Slices along a dimension, one after the other: of split_size (the last may be smaller), of the
// sizes named, or `chunks` of one size (fewer where rounding up takes less). (In C++ only: their
// slices are what traces show.)
std::vector<Tensor> split(const Tensor& self, int64_t split_size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& self, std::span<const int64_t> split_sizes,
                          int64_t dim = 0);
std::vector<Tensor> split(const Tensor& self, std::initializer_list<int64_t> split_sizes,
                          int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim = 0);
// A view where strides allow, else a copy.
Tensor reshape(const Tensor& self, Dims sizes);

// Copies.
Tensor contiguous(const Tensor& self);  // self if it is already
Tensor clone(const Tensor& self);
Tensor to(const Tensor& self, DType dtype);  // self if it has that dtype
Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0);
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);  // of one shape, in a new dimension
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0);
Tensor tril(const Tensor& self, int64_t diagonal = 0);  // zeros above a diagonal
Tensor triu(const Tensor& self, int64_t diagonal = 0);  // zeros below a diagonal

// Elements by index. Indices are i64, from 0; one out of range is an Error that names it and the
// size.
// Rows of a weight [rows, columns]: [..., columns] for indices [...]. The row of padding_idx gets
// no gradient; -1: none.
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1);
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index);  // index: one dimension
// As many dimensions in index as in self: result[i][j] = self[i][index[i][j]] for dim 1.
Tensor gather(const Tensor& self, int64_t dim, const Tensor& index);
// Their gradients. Values for one place are summed in the order of the index, on any thread.
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 double alpha = 1);
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);

// In place; return the first argument. Not differentiable.
Tensor copy_(const Tensor& self, const Tensor& src);
Tensor add_(const Tensor& self, const Tensor& other, double alpha = 1);
Tensor mul_(const Tensor& self, const Tensor& other);
Tensor div_(const Tensor& self, const Tensor& other);
Tensor fill_(const Tensor& self, double value);
Tensor zero_(const Tensor& self);

// Matrix products. Sums are at least f32; the result is rounded once.
Tensor mm(const Tensor& self, const Tensor& mat2);  // [m,k] [k,n]
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, double beta = 1,
             double alpha = 1);                          // beta*self + alpha*mat1 mat2
Tensor bmm(const Tensor& self, const Tensor& mat2);      // [b,m,k] [b,k,n]
Tensor matmul(const Tensor& self, const Tensor& other);  // torch.matmul's ranks
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = {});  // x W^T + b

// Pointwise, with broadcasting.
Tensor add(const Tensor& self, const Tensor& other, double alpha = 1);
Tensor sub(const Tensor& self, const Tensor& other, double alpha = 1);
Tensor mul(const Tensor& self, const Tensor& other);
Tensor div(const Tensor& self, const Tensor& other);
Tensor neg(const Tensor& self);
Tensor exp(const Tensor& self);
Tensor log(const Tensor& self);
Tensor relu(const Tensor& self);
Tensor sigmoid(const Tensor& self);
Tensor tanh(const Tensor& self);
Tensor silu(const Tensor& self);
Tensor leaky_relu(const Tensor& self, double negative_slope = 0.01);
Tensor elu(const Tensor& self, double alpha = 1, double scale = 1, double input_scale = 1);
Tensor softplus(const Tensor& self, double beta = 1, double threshold = 20);
Tensor mish(const Tensor& self);
Tensor hardswish(const Tensor& self);
Tensor sqrt(const Tensor& self);
Tensor abs(const Tensor& self);
Tensor sgn(const Tensor& self);
Tensor sin(const Tensor& self);
Tensor cos(const Tensor& self);
Tensor pow(const Tensor& self, double exponent);  // integers give f32
// One bound may be absent. Bounds of integers are integers.
Tensor clamp(const Tensor& self, std::optional<double> min, std::optional<double> max = {});
Tensor maximum(const Tensor& self, const Tensor& other);  // NaN where one is NaN
Tensor minimum(const Tensor& self, const Tensor& other);
enum class Gelu { exact, tanh };
Tensor gelu(const Tensor& self, Gelu approximate = Gelu::exact);

// Comparisons give booleans. A number is compared as self's dtype has it.
Tensor eq(const Tensor& self, const Tensor& other);
Tensor ne(const Tensor& self, const Tensor& other);
Tensor lt(const Tensor& self, const Tensor& other);
Tensor le(const Tensor& self, const Tensor& other);
Tensor gt(const Tensor& self, const Tensor& other);
Tensor ge(const Tensor& self, const Tensor& other);
Tensor eq(const Tensor& self, double other);
Tensor ne(const Tensor& self, double other);
Tensor lt(const Tensor& self, double other);
Tensor le(const Tensor& self, double other);
Tensor gt(const Tensor& self, double other);
Tensor ge(const Tensor& self, double other);
// self where the boolean condition is true, else other.
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other);

// A number beside a tensor. A whole number leaves the dtype of an integer tensor as it is.
namespace detail {
template <Number T>
Tensor number_beside(const Tensor& t, T number) {
  if constexpr (std::is_integral_v<T>)
    if (t.defined() && !is_floating(t.dtype())) return scalar(number);
  return scalar(static_cast<double>(number));
}
}  // namespace detail
Tensor add(const Tensor& self, Number auto other) {
  return add(self, detail::number_beside(self, other));
}
Tensor sub(const Tensor& self, Number auto other) {
  return sub(self, detail::number_beside(self, other));
}
Tensor mul(const Tensor& self, Number auto other) {
  return mul(self, detail::number_beside(self, other));
}
Tensor div(const Tensor& self, Number auto other) {
  return div(self, detail::number_beside(self, other));
}
Tensor add_(const Tensor& self, Number auto other) {
  return add_(self, detail::number_beside(self, other));
}
Tensor mul_(const Tensor& self, Number auto other) {
  return mul_(self, detail::number_beside(self, other));
}
Tensor div_(const Tensor& self, Number auto other) {
  return div_(self, detail::number_beside(self, other));
}
Tensor where(const Tensor& condition, const Tensor& self, Number auto other) {
  return where(condition, self, detail::number_beside(self, other));
}
Tensor where(const Tensor& condition, Number auto self, const Tensor& other) {
  return where(condition, detail::number_beside(other, self), other);
}

// The value where the mask is true, else self. The mask broadcasts; the value has no dimensions.
Tensor masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value);
Tensor masked_fill(const Tensor& self, const Tensor& mask, Number auto value) {
  return masked_fill(self, mask, detail::number_beside(self, value));
}

// Reductions. Empty dims: all; one number is one dimension.
Tensor sum(const Tensor& self, Dims dims = {}, bool keepdim = false,
           std::optional<DType> dtype = {});
Tensor mean(const Tensor& self, Dims dims = {}, bool keepdim = false,
            std::optional<DType> dtype = {});
// Sum of squared deviations over the number of elements less `correction`, and its root
// (torch.std).
Tensor var(const Tensor& self, Dims dims = {}, double correction = 1, bool keepdim = false);
Tensor stddev(const Tensor& self, Dims dims = {}, double correction = 1, bool keepdim = false);
// The largest and the smallest element; along a dimension each with its index, which is the first
// one's where several are equal. NaN wins over every number.
struct Extremum {
  Tensor values;
  Tensor indices;  // i64
};
Tensor max(const Tensor& self);
Tensor min(const Tensor& self);
Extremum max(const Tensor& self, int64_t dim, bool keepdim = false);
Extremum min(const Tensor& self, int64_t dim, bool keepdim = false);
Tensor max(const Tensor& self, const Tensor& other);  // maximum()
Tensor min(const Tensor& self, const Tensor& other);
// The index alone; without `dim` that in the flattened tensor.
Tensor argmax(const Tensor& self, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& self, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor cumsum(const Tensor& self, int64_t dim, std::optional<DType> dtype = {});
Tensor softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype = {});
Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype = {});

// Normalisation over the last dimensions. weight and bias may be undefined.
Tensor layer_norm(const Tensor& input, Dims normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
// eps empty: the machine epsilon of the computation's dtype (f32 for bf16 and f16).
Tensor rms_norm(const Tensor& input, Dims normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

// Losses.
enum class Reduction { none, mean, sum };
// A target has the input's shape: nothing broadcasts.
Tensor mse_loss(const Tensor& self, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& self, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor smooth_l1_loss(const Tensor& self, const Tensor& target,
                      Reduction reduction = Reduction::mean, double beta = 1);
Tensor huber_loss(const Tensor& self, const Tensor& target, Reduction reduction = Reduction::mean,
                  double delta = 1);
// self: probabilities in [0, 1]; weight broadcasts.
Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight = {},
                            Reduction reduction = Reduction::mean);
// self: logits, of any size; pos_weight multiplies the part of positive targets.
Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target,
                                        const Tensor& weight = {}, const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::mean);
// self: log-probabilities [n, classes]; target: i64 [n]; weight: [classes] or undefined.
Tensor nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight = {},
                Reduction reduction = Reduction::mean, int64_t ignore_index = -100);
// self: logits [n, classes]; target: i64 [n], or probabilities [n, classes].
Tensor cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight = {},
                     Reduction reduction = Reduction::mean, int64_t ignore_index = -100,
                     double label_smoothing = 0);
// Zeroes elements with probability p and scales the rest by 1/(1-p); identity unless train.
Tensor dropout(const Tensor& input, double p = 0.5, bool train = true);

// Sums a gradient of a broadcast result down to `sizes`.
Tensor sum_to_size(const Tensor& self, const Dims& sizes);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator+(const Tensor& a, Number auto b) { return add(a, b); }
Tensor operator-(const Tensor& a, Number auto b) { return sub(a, b); }
Tensor operator*(const Tensor& a, Number auto b) { return mul(a, b); }
Tensor operator/(const Tensor& a, Number auto b) { return div(a, b); }
Tensor operator+(Number auto a, const Tensor& b) { return add(b, a); }
Tensor operator-(Number auto a, const Tensor& b) { return sub(detail::number_beside(b, a), b); }
Tensor operator*(Number auto a, const Tensor& b) { return mul(b, a); }
Tensor operator/(Number auto a, const Tensor& b) { return div(detail::number_beside(b, a), b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }

// In place, as add_, mul_ and div_ are: refused where a gradient would be lost. `a` may be a view.
inline Tensor operator+=(const Tensor& a, const Tensor& b) { return add_(a, b); }
inline Tensor operator-=(const Tensor& a, const Tensor& b) { return add_(a, b, -1); }
inline Tensor operator*=(const Tensor& a, const Tensor& b) { return mul_(a, b); }
inline Tensor operator/=(const Tensor& a, const Tensor& b) { return div_(a, b); }
Tensor operator+=(const Tensor& a, Number auto b) { return add_(a, b); }
Tensor operator-=(const Tensor& a, Number auto b) {
  return add_(a, detail::number_beside(a, b), -1);
}
Tensor operator*=(const Tensor& a, Number auto b) { return mul_(a, b); }
Tensor operator/=(const Tensor& a, Number auto b) { return div_(a, b); }

}  // namespace epilogue

#pragma GCC visibility pop
