// SPDX-License-Identifier: Apache-2.0
// Attention of one new token for each sequence as one op of torch, from its projections to its
// output, and a decoder's layer of it: between products of one row there is little but the calls.
#include <epilogue/fused.h>
#include <torch/csrc/stable/library.h>

#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "element.h"
#include "handle.h"
#include "norms.h"
#include "rotary.h"
#include "tensors.h"
#include "torch_threads.h"

namespace epilogue_torch {
namespace {

using epilogue::Tensor;
using torch::headeronly::ScalarType;

// Rows that a token's keys (or values) are put behind: [batch, heads, room, columns].
struct Room {
  Room(const Torch& buffer, const char* what) : at(buffer), base(buffer.mutable_data_ptr()) {
    const auto& s = at.sizes;
    if (!buffer.is_cpu() || s.size() != 4 || (s[3] != 1 && at.strides[3] != 1))
      throw std::runtime_error(std::string("decoded_attention: expected ") + what +
                               " [batch, heads, room, columns] on the CPU with columns that lie "
                               "one after the other, got " +
                               describe(buffer));
  }
  int64_t heads() const { return at.sizes[1]; }
  int64_t columns() const { return at.sizes[3]; }
  char* row(int64_t batch, int64_t head, int64_t row, int64_t bytes) const {
    return static_cast<char*>(base) +
           (batch * at.strides[0] + head * at.strides[1] + row * at.strides[2]) * bytes;
  }
  Tensor rows(int64_t begin, int64_t end, epilogue::DType dtype, int64_t bytes) const {
    return Tensor::from_blob(row(0, 0, begin, bytes),
                             {at.sizes[0], heads(), end - begin, columns()}, dtype, {},
                             {at.strides[0], at.strides[1], at.strides[2], 1});
  }

  Layout at;
  void* base;
};

// A projection's results: one row for each sequence.
struct Part {
  char* at = nullptr;
  int64_t stride = 0;  // elements from one sequence's row to the next one's
  int64_t columns = 0;

  char* row(int64_t batch, int64_t bytes) const { return at + batch * stride * bytes; }
};

void put_behind(const Part& x, const Room& room, int64_t batch, int64_t at, int64_t bytes) {
  const int64_t columns = room.columns();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < room.heads(); ++h)
      std::memcpy(room.row(b, h, at, bytes), x.row(b, bytes) + h * columns * bytes,
                  static_cast<size_t>(columns * bytes));
}

void norm_heads(const Part& x, const Torch& weight, int64_t batch, int64_t form, double eps,
                ScalarType type) {
  const int64_t columns = is_norm_weight(weight, type) ? weight.size(0) : 0;
  if (columns == 0 || x.columns % columns != 0)
    throw std::runtime_error("decoded_attention: expected a norm's weight that divides " +
                             std::to_string(x.columns) + " columns, got " + describe(weight));
  for (int64_t b = 0; b < batch; ++b) {
    char* const row = x.row(b, element_bytes(type));
    norm_rows_into(row, weight, row, x.columns / columns, form, eps);
  }
}

// Attention of one token: arguments of the ops.
struct Attention {
  int64_t projections;  // the handle of q, k and v (or of one layer, which gives them side by side)
  const std::vector<Torch>& of_projections;
  // Weights of RMS norms of q's and of k's heads (or of all their columns), or none.
  const std::vector<std::optional<Torch>>& norms;
  int64_t form;  // of both norms
  double eps;
  const std::optional<Torch>& cos;  // that turn q and k
  const std::optional<Torch>& sin;
  bool is_wide;
  const Torch& keys;
  const Torch& values;
  int64_t begin;  // the rows before the token's: from, to
  int64_t end;
  const std::optional<Torch>& mask;
  std::optional<double> scale;
  int64_t output;  // the handle of the linear layer behind
  const std::vector<Torch>& of_output;

  // What the output's layer makes of attention of x [batch, 1, k] over all rows and the token's,
  // which are put behind them. Nullopt where a parameter has other memory than it had: the row
  // behind the others may be written then.
  std::optional<Torch> run(const Torch& x) const;
};

std::optional<Torch> Attention::run(const Torch& x) const {
  require_defined(x, "x");
  require_defined(keys, "keys");
  require_defined(values, "values");
  const auto first = find(projections), last = find(output);
  const ScalarType type = x.scalar_type();
  const Room k_room(keys, "keys"), v_room(values, "values");
  const Tensor in = view_of(x, "x");
  const int64_t bytes = element_bytes(type);
  const auto& widths = first->widths();
  const int64_t total = std::accumulate(widths.begin(), widths.end(), int64_t{0});
  const int64_t kv = k_room.heads(), depth = k_room.columns();
  const int64_t of_keys = kv * depth, of_values = kv * v_room.columns();
  const int64_t of_queries = total - of_keys - of_values;
  const int64_t heads = depth == 0 ? 0 : of_queries / depth;
  const int64_t batch = in.dim() == 3 ? in.size(0) : -1;
  const auto fits = [&](const Room& room, const Torch& of) {
    return room.at.sizes[0] == batch && room.heads() == kv && of.scalar_type() == type &&
           end < room.at.sizes[2];
  };
  if (batch < 1 || in.size(1) != 1 || in.size(2) != first->inputs() || begin < 0 || begin > end ||
      kv < 1 || heads < 1 || cos.has_value() != sin.has_value() || heads * depth != of_queries ||
      heads % kv != 0 || !fits(k_room, keys) || !fits(v_room, values) || norms.size() != 2 ||
      (widths.size() != 1 && (widths.size() != 3 || widths[0] != of_queries ||
                              widths[1] != of_keys || widths[2] != of_values)) ||
      last->inputs() != heads * v_room.columns() || last->widths().size() != 1)
    throw std::runtime_error(
        "decoded_attention: expected x [batch, 1, columns], handles of q, k and v and of the "
        "output, and room for a row of each sequence in keys and values of x's dtype, got " +
        describe(x) + ", " + describe(keys) + " and " + describe(values) + ", a row at " +
        std::to_string(end));

  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const int64_t attended = heads * v_room.columns();
  const Torch memory = empty_like_rows(x, {batch * (total + attended)});
  char* const base = static_cast<char*>(memory.mutable_data_ptr());
  const std::array<int64_t, 3> columns = {of_queries, of_keys, of_values};
  std::array<Part, 3> parts;
  std::vector<Tensor> outs;
  const bool is_one = widths.size() == 1;
  int64_t before = 0;
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = {base + before * (is_one ? 1 : batch) * bytes, is_one ? total : columns[i],
                columns[i]};
    if (i == 0 || !is_one)
      outs.push_back(
          Tensor::from_blob(parts[i].at, {batch, 1, is_one ? total : columns[i]}, in.dtype()));
    before += columns[i];
  }
  if (!first->run_linear_into(in, of_projections, outs)) return std::nullopt;

  const Part &q = parts[0], &k = parts[1], &v = parts[2];
  for (size_t i = 0; i < 2; ++i)
    if (norms[i]) norm_heads(parts[i], *norms[i], batch, form, eps, type);
  if (cos && sin) {
    const auto waves = waves_of(*cos, *sin, type, is_wide, batch, 1);
    if (!waves || waves->columns > depth || type == ScalarType::Half)
      throw std::runtime_error(
          "decoded_attention: expected cos and sin [batch or 1, 1, an even number of at most " +
          std::to_string(depth) + "], got " + describe(*cos) + " and " + describe(*sin));
    const RotaryHeads turned[] = {
        {q.at, q.at, heads, depth, {q.stride, 0, depth}, {q.stride, 0, depth}},
        {k.at,
         k_room.row(0, 0, end, bytes),
         kv,
         depth,
         {k.stride, 0, depth},
         {k_room.at.strides[0], 0, k_room.at.strides[1]}}};
    rotate_heads(turned, *waves, type, is_wide, batch, 1);
  } else {
    put_behind(k, k_room, batch, end, bytes);
  }
  put_behind(v, v_room, batch, end, bytes);

  char* const between = base + batch * total * bytes;
  const int64_t value = v_room.columns();
  epilogue::attention_into(Tensor::from_blob(q.at, {batch, heads, 1, depth}, in.dtype(), {},
                                             {q.stride, depth, depth, 1}),
                           k_room.rows(begin, end + 1, in.dtype(), bytes),
                           v_room.rows(begin, end + 1, in.dtype(), bytes),
                           mask ? mask_of(*mask, "mask") : Tensor(),
                           {.scale = scale, .causal = false},
                           Tensor::from_blob(between, {batch, heads, 1, value}, in.dtype(), {},
                                             {attended, value, attended, 1}));
  Torch y = empty_like_rows(x, {batch, 1, last->columns()});
  const Tensor out = view_of(y, "out");
  const Tensor rows = Tensor::from_blob(between, {batch, 1, attended}, in.dtype());
  if (!last->run_linear_into(rows, of_output, std::span(&out, 1))) return std::nullopt;
  return y;
}

// Empty: the caller runs what the op stands for.
std::vector<Torch> decoded_attention(Torch x, int64_t projections,
                                     std::vector<Torch> of_projections,
                                     std::vector<std::optional<Torch>> norms, int64_t form,
                                     double eps, std::optional<Torch> cos, std::optional<Torch> sin,
                                     bool is_wide, Torch keys, Torch values, int64_t begin,
                                     int64_t end, std::optional<Torch> mask,
                                     std::optional<double> scale, int64_t output,
                                     std::vector<Torch> of_output) {
  auto y = Attention{projections, of_projections, norms, form, eps,  cos,   sin,    is_wide,
                     keys,        values,         begin, end,  mask, scale, output, of_output}
               .run(x);
  if (!y) return {};
  return {std::move(*y)};
}

// y += x, rounded as PyTorch's sum.
template <class T>
void add_rows(const void* x, void* y, int64_t count) {
  const auto* const from = static_cast<const T*>(x);
  auto* const to = static_cast<T*>(y);
  for (int64_t i = 0; i < count; ++i) narrow(widen(from[i]) + widen(to[i]), to[i]);
}

// x behind PyTorch's layer norm, or behind an RMS norm.
constexpr int64_t kLayerNorm = -1;  // among the forms of the weight

Torch normed_rows(const Torch& x, const std::optional<Torch>& weight,
                  const std::optional<Torch>& bias, int64_t form, double eps) {
  const int64_t columns = x.size(2);
  if (form == kLayerNorm)
    return ask<Torch>("aten::layer_norm", x, std::vector<int64_t>{columns}, weight, bias, eps,
                      true);
  if (!weight || bias || !is_norm_weight(*weight, x.scalar_type()) || weight->size(0) != columns)
    throw std::runtime_error(
        "decoded_layers: expected for a first norm a weight of x's dtype and columns, got " +
        (weight ? describe(*weight) : "none") + (bias ? " and a bias" : ""));
  Torch y = empty_like_rows(x, {x.size(0), 1, columns});
  norm_rows_into(x.const_data_ptr(), *weight, y.mutable_data_ptr(), x.size(0), form, eps);
  return y;
}

// Layers of a decoder, each of the result of the one before: mlp(x + attention(norm(x))), with the
// norm and the residual that the MLP's handle has around it. Of each layer, one after the other:
struct Layers {
  const std::vector<int64_t>& handles;   // projections, output, MLP
  const std::vector<Torch>& parameters;  // theirs
  const std::vector<int64_t>& counts;    // of the parameters of each handle
  // Weight and bias of the first norm; weights of norms of q's and of k's heads, and of attention's
  // result: RMS norms, or none.
  const std::vector<std::optional<Torch>>& norms;
  const std::vector<int64_t>& forms;  // of the first norm, of those of heads, of the last
  const std::vector<double>& eps;     // likewise
  const std::vector<Torch>& rooms;    // of keys, of values
  const std::vector<int64_t>& rows;   // from, to
  // The same for all layers.
  const std::optional<Torch>& cos;
  const std::optional<Torch>& sin;
  bool is_wide;
  const std::optional<Torch>& mask;
  std::optional<double> scale;

  size_t count() const { return handles.size() / 3; }
  bool are_whole() const {
    const size_t n = count();
    size_t left = parameters.size();
    for (const int64_t c : counts) {
      if (c < 0 || static_cast<size_t>(c) > left) return false;
      left -= static_cast<size_t>(c);
    }
    return n > 0 && left == 0 && handles.size() == 3 * n && counts.size() == 3 * n &&
           norms.size() == 5 * n && forms.size() == 3 * n && eps.size() == 3 * n &&
           rooms.size() == 2 * n && rows.size() == 2 * n;
  }
  // Nullopt: as in Attention::run. before: how many of the parameters are those of layers before.
  std::optional<Torch> run(size_t layer, const Torch& x, int64_t before) const;
  int64_t parameters_of(size_t layer) const {
    return counts[3 * layer] + counts[3 * layer + 1] + counts[3 * layer + 2];
  }
};

std::optional<Torch> Layers::run(size_t layer, const Torch& x, int64_t before) const {
  const ScalarType type = x.scalar_type();
  const auto behind = find(handles[3 * layer + 2]);
  const std::optional<Torch>& post = norms[5 * layer + 4];
  const int64_t columns = x.dim() == 3 ? x.size(2) : -1;
  if (!x.is_cpu() || !x.is_contiguous() ||
      (type != ScalarType::Float && type != ScalarType::BFloat16) || columns != behind->inputs() ||
      columns != find(handles[3 * layer + 1])->columns() || x.size(1) != 1 ||
      (post && (!is_norm_weight(*post, type) || post->size(0) != columns)))
    throw std::runtime_error(
        "decoded_layers: expected x [batch, 1, columns] of Float or BFloat16, contiguous, of the "
        "sizes of attention's and the MLP's results, and a last norm's weight of as many columns, "
        "or none, got " +
        describe(x) + " and " + (post ? describe(*post) : "none"));
  std::array<std::vector<Torch>, 3> of;
  auto next = parameters.begin() + before;
  for (size_t i = 0; i < 3; ++i) {
    const auto end = next + counts[3 * layer + i];
    of[i].assign(next, end);
    next = end;
  }
  const std::vector<std::optional<Torch>> heads = {norms[5 * layer + 2], norms[5 * layer + 3]};
  auto y = Attention{handles[3 * layer],
                     of[0],
                     heads,
                     forms[3 * layer + 1],
                     eps[3 * layer + 1],
                     cos,
                     sin,
                     is_wide,
                     rooms[2 * layer],
                     rooms[2 * layer + 1],
                     rows[2 * layer],
                     rows[2 * layer + 1],
                     mask,
                     scale,
                     handles[3 * layer + 1],
                     of[1]}
               .run(normed_rows(x, norms[5 * layer], norms[5 * layer + 1], forms[3 * layer],
                                eps[3 * layer]));
  if (!y) return std::nullopt;
  if (post) {
    void* const rows_of_y = y->mutable_data_ptr();
    norm_rows_into(rows_of_y, *post, rows_of_y, x.size(0), forms[3 * layer + 2],
                   eps[3 * layer + 2]);
  }
  if (type == ScalarType::Float)
    add_rows<float>(x.const_data_ptr(), y->mutable_data_ptr(), y->numel());
  else
    add_rows<uint16_t>(x.const_data_ptr(), y->mutable_data_ptr(), y->numel());
  return behind->run(*y, of[2]);
}

// The result of each layer. Fewer: the caller runs what the rest stands for.
std::vector<Torch> decoded_layers(Torch x, std::vector<int64_t> handles,
                                  std::vector<Torch> parameters, std::vector<int64_t> counts,
                                  std::vector<std::optional<Torch>> norms,
                                  std::vector<int64_t> forms, std::vector<double> eps,
                                  std::vector<Torch> rooms, std::vector<int64_t> rows,
                                  std::optional<Torch> cos, std::optional<Torch> sin, bool is_wide,
                                  std::optional<Torch> mask, std::optional<double> scale) {
  require_defined(x, "x");
  const Layers layers{handles, parameters, counts, norms,   forms, eps,  rooms,
                      rows,    cos,        sin,    is_wide, mask,  scale};
  if (!layers.are_whole())
    throw std::runtime_error(
        "decoded_layers: expected for each layer 3 handles with a count of parameters each, 5 "
        "norms, 3 forms, 3 eps, 2 rooms and 2 rows, got " +
        std::to_string(handles.size()) + " handles, counts of " + std::to_string(counts.size()) +
        ", " + std::to_string(parameters.size()) + " parameters, " + std::to_string(norms.size()) +
        " norms, " + std::to_string(forms.size()) + " forms, " + std::to_string(eps.size()) +
        " eps, " + std::to_string(rooms.size()) + " rooms and " + std::to_string(rows.size()) +
        " rows");
  std::vector<Torch> outs;
  int64_t before = 0;
  for (size_t i = 0; i < layers.count(); ++i) {
    auto out = layers.run(i, outs.empty() ? x : outs.back(), before);
    if (!out) break;
    outs.push_back(std::move(*out));
    before += layers.parameters_of(i);
  }
  return outs;
}

}  // namespace

// Not said to write, as append.
STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def(
      "decoded_attention(Tensor x, int projections, Tensor[] of_projections, Tensor?[] norms, "
      "int form, float eps, Tensor? cos, Tensor? sin, bool is_wide, Tensor keys, Tensor values, "
      "int begin, int end, Tensor? mask, float? scale, int output, Tensor[] of_output) -> "
      "Tensor[]");
  m.def(
      "decoded_layers(Tensor x, int[] handles, Tensor[] parameters, int[] counts, Tensor?[] norms, "
      "int[] forms, float[] eps, Tensor[] rooms, int[] rows, Tensor? cos, Tensor? sin, bool "
      "is_wide, Tensor? mask, float? scale) -> Tensor[]");
}
STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) {
  m.impl("decoded_layers", TORCH_BOX(&decoded_layers));
  m.impl("decoded_attention", TORCH_BOX(&decoded_attention));
}

}  // namespace epilogue_torch
