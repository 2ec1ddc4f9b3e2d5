// SPDX-License-Identifier: Apache-2.0
// OpDef: everything the project knows about one op, said once. Call and Kernel: one evaluation.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "epilogue/tensor.h"

namespace epilogue {

struct OpDef;

// An argument that is not a tensor. Order and meaning are the op's schema.
using Attr = std::variant<std::monostate, bool, int64_t, double, DType, Dims>;

// The results of one op: one, rarely two or three.
class Outputs {
 public:
  Outputs() = default;
  Outputs(Tensor t) : count_(1) { tensors_[0] = std::move(t); }  // NOLINT: implicit on purpose
  void push_back(Tensor t) { tensors_[count_++] = std::move(t); }
  Tensor& operator[](size_t i) { return tensors_[i]; }
  const Tensor& operator[](size_t i) const { return tensors_[i]; }
  size_t size() const { return count_; }
  std::span<Tensor> span() { return {tensors_.data(), count_}; }
  std::span<const Tensor> span() const { return {tensors_.data(), count_}; }

 private:
  std::array<Tensor, 3> tensors_;
  size_t count_ = 0;
};

// One evaluation, as shape rules and kernels see it. `out` is empty while shapes are inferred.
struct Call {
  const OpDef& op;
  std::span<const Tensor> in;
  std::span<const Attr> attrs;
  std::span<Tensor> out;

  template <class T>
  const T& attr(size_t i) const {
    return std::get<T>(attrs[i]);
  }
  bool has_attr(size_t i) const {
    return i < attrs.size() && !std::holds_alternative<std::monostate>(attrs[i]);
  }
};

// Size and dtype of one result; results are contiguous.
struct OutMeta {
  Dims sizes;
  DType dtype = DType::f32;
};
class OutMetas {
 public:
  OutMetas(OutMeta m) : count_(1) { metas_[0] = m; }  // NOLINT: implicit on purpose
  OutMetas(std::initializer_list<OutMeta> list) {
    for (const OutMeta& m : list) metas_[count_++] = m;
  }
  const OutMeta& operator[](size_t i) const { return metas_[i]; }
  size_t size() const { return count_; }

 private:
  std::array<OutMeta, 3> metas_;
  size_t count_ = 0;
};

// A gradient rule's view of a call. `in` and `out` hold what OpDef::saves asks for (the rest is
// undefined); in_meta always holds sizes and dtype of every input.
struct GradCall {
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  std::span<const OutMeta> in_meta;
  std::span<const Attr> attrs;
  const Tensor& dout;           // gradient of the first result
  std::span<const bool> needs;  // which inputs want a gradient

  template <class T>
  const T& attr(size_t i) const {
    return std::get<T>(attrs[i]);
  }
  bool has_attr(size_t i) const {
    return i < attrs.size() && !std::holds_alternative<std::monostate>(attrs[i]);
  }
};
// One gradient per input; undefined where there is none. A rule may return a gradient of a
// broadcast result's shape: the engine sums it to the input's shape.
using Gradients = std::vector<Tensor>;

// Text of at most 95 characters without a heap allocation: kernel names are made while events are
// timed. Text that does not fit is cut.
class ShortText {
 public:
  ShortText() = default;
  ShortText(std::string_view text) { *this += text; }                 // NOLINT: implicit on purpose
  ShortText(const char* text) : ShortText(std::string_view(text)) {}  // NOLINT
  ShortText& operator+=(std::string_view text) {
    const size_t n = std::min(text.size(), text_.size() - size_);
    std::copy_n(text.data(), n, text_.data() + size_);
    size_ = static_cast<uint8_t>(size_ + n);
    return *this;
  }
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 95> text_;
  uint8_t size_ = 0;
};

// How a kernel execution shows in the trace.
struct KernelInfo {
  ShortText name;
  std::array<int64_t, 3> grid = {1, 1, 1};   // blocks of work
  std::array<int64_t, 3> block = {1, 1, 1};  // elements (or rows, columns) of one block
  int threads = 1;
};

// One implementation of an op on a backend. decline() says why it cannot run the call, or returns
// nullptr; run() then fills call.out. describe() is called only while a recorder listens.
struct Kernel {
  std::string_view name;
  const char* (*decline)(const Call&);
  void (*run)(const Call&);
  void (*describe)(const Call&, KernelInfo&);
};

// compute: allocates results and runs one kernel. view: the result shares the input's storage, no
// kernel. composite: made of other ops. inplace: writes input 0 and returns it, one kernel.
enum class OpKind : uint8_t { compute, view, composite, inplace };

// Autocast's treatment of an op's inputs (ops/autocast.h). lower: floating inputs become the
// region's dtype. f32: they become f32. f32_result: the attribute OpDef::autocast_attr, where
// unset, becomes f32. promote: where one is f32, all become f32.
enum class AutocastRule : uint8_t { none, lower, f32, f32_result, promote };

// Bits of OpDef::saves.
constexpr uint32_t save_input(int i) { return 1U << i; }
inline constexpr uint32_t kSaveOutput = 1U << 31;

// An example call for the op-table tests. Every input is drawn from [low, high).
struct SampleInput {
  Dims sizes;
  double low = -2;
  double high = 2;
  std::optional<DType> dtype = {};  // empty: the dtype under test
  bool undefined = false;           // an absent optional tensor
};
struct Sample {
  std::vector<SampleInput> in;
  std::vector<Attr> attrs = {};
};

struct OpDef {
  std::string_view name = {};  // ATen's name, e.g. "aten::addmm": the profiler's and the tests' too
  std::string_view schema = {};  // ATen's arguments, e.g. "(Tensor self, Tensor mat2)"
  std::string_view doc = {};     // one line
  OpKind kind = OpKind::compute;
  bool pointwise = false;  // out[i] depends on in[...][i] alone, after broadcasting

  // Shape rule of compute ops; throws Error "[aten::x] expected ..., got ...".
  OutMetas (*infer)(const Call&) = nullptr;
  // The result of view and composite ops.
  Outputs (*compose)(const Call&) = nullptr;
  // Work of one call, for rooflines: arithmetic operations, and bytes that must move at least.
  double (*flops)(const Call&) = nullptr;
  double (*bytes)(const Call&) = nullptr;  // null: all inputs and results once
  // Gradient, written with public ops. Null with kind composite: the parts have gradients.
  Gradients (*vjp)(const GradCall&) = nullptr;
  uint32_t saves = 0;  // what vjp needs: save_input(i) | kSaveOutput
  // Ops on lists (aten::_foreach_*, aten::_fused_*_): the inputs are `lists` lists of one length,
  // one after the other (undefined tensors where a list is absent), then `singles` tensors. 0: no
  // lists.
  uint32_t lists = 0;
  uint32_t singles = 0;
  // In-place ops: bit i says that argument i is written; a list is one argument.
  uint32_t writes = 1;
  // In-place ops: whether nothing of what is written is read before; else the op that gives the
  // same as a new tensor, where there is one.
  bool overwrites = false;
  const OpDef* functional = nullptr;
  bool draws = false;  // takes numbers from the generator: no two calls give the same
  // By DeviceType: PyTorch's lists differ.
  std::array<AutocastRule, 2> autocast = {};
  int autocast_attr = -1;
  // Plain loops that define the meaning. For views and composites it fills a fresh result and
  // exists for the tests.
  void (*reference)(const Call&) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;

  // Backends cache their kernel list here (index: DeviceType); see core/backend.h.
  mutable std::array<std::atomic<const std::span<const Kernel>*>, 2> kernel_lists = {};

  // Which argument input i of n belongs to, as `writes` and the schema count them.
  size_t argument_of(size_t i, size_t n) const {
    if (lists == 0) return i;
    const size_t listed = n - singles;
    return i < listed ? i / (listed / lists) : lists + (i - listed);
  }
};

// Bytes of all inputs and results once.
double moved_bytes(const Call& call);

}  // namespace epilogue
