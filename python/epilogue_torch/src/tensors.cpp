// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>

namespace epilogue_torch {
namespace {

using epilogue::DType;

// torch's numbers. Its own conversion asks for a dozen of them, each by a call.
struct Numbers {
  int32_t f32 = aoti_torch_dtype_float32();
  int32_t bf16 = aoti_torch_dtype_bfloat16();
  int32_t f16 = aoti_torch_dtype_float16();
  int32_t u8 = aoti_torch_dtype_uint8();
  int32_t boolean = aoti_torch_dtype_bool();
};
const Numbers& numbers() {
  static const Numbers all;
  return all;
}

std::optional<DType> dtype_of(int32_t number) {
  const Numbers& of = numbers();
  if (number == of.f32) return DType::f32;
  if (number == of.bf16) return DType::bf16;
  if (number == of.f16) return DType::f16;
  return std::nullopt;
}

epilogue::Dims dims_of(std::span<const int64_t> list) {
  epilogue::Dims dims;
  for (const int64_t n : list) dims.push_back(n);
  return dims;
}

}  // namespace

Layout::Layout(const Torch& tensor) : data(tensor.const_data_ptr()) {
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  const auto dim = static_cast<size_t>(tensor.dim());
  int64_t* first = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &first));
  sizes = {first, dim};
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &first));
  strides = {first, dim};
}

int64_t element_bytes(torch::headeronly::ScalarType type) {
  using torch::headeronly::ScalarType;
  return type == ScalarType::Float                                  ? 4
         : type == ScalarType::Half || type == ScalarType::BFloat16 ? 2
                                                                    : 0;
}

std::string describe(const Torch& tensor) {
  std::string text = torch::headeronly::toString(tensor.scalar_type());
  text += "[";
  for (int64_t d = 0; d < tensor.dim(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(tensor.size(d));
  return text + "]";
}

void require_defined(const Torch& tensor, const char* what) {
  if (!tensor.defined())
    throw std::runtime_error(std::string("expected ") + what + " to be a tensor, but got None");
}

namespace {

// A view with any strides, of the dtype that the engine has for the tensor's.
epilogue::Tensor strided_view(const Torch& tensor, const Layout& at, std::optional<DType> dtype,
                              const char* what, const char* dtypes) {
  if (!tensor.is_cpu())
    throw std::runtime_error(std::string("Expected all tensors to be on the CPU, but ") + what +
                             " " + describe(tensor) + " is on another device");
  if (!dtype)
    throw std::runtime_error(std::string("expected ") + what + " of dtype " + dtypes +
                             ", but got " + describe(tensor));
  if (at.sizes.size() > epilogue::kMaxRank)
    throw std::runtime_error(std::string("expected ") + what + " of at most " +
                             std::to_string(epilogue::kMaxRank) + " dimensions, but got " +
                             describe(tensor));
  // The engine reads inputs and weights only.
  return epilogue::Tensor::from_blob(const_cast<void*>(at.data), dims_of(at.sizes), *dtype, {},
                                     dims_of(at.strides));
}

}  // namespace

epilogue::Tensor view_of(const Torch& tensor, const char* what) {
  require_defined(tensor, what);
  const Layout at(tensor);
  return strided_view(tensor, at, dtype_of(at.dtype), what, "Float, BFloat16 or Half");
}

epilogue::Tensor mask_of(const Torch& tensor, const char* what) {
  require_defined(tensor, what);
  const Layout at(tensor);
  const std::optional<DType> dtype =
      at.dtype == numbers().boolean ? DType::boolean : dtype_of(at.dtype);
  return strided_view(tensor, at, dtype, what, "Bool, Float, BFloat16 or Half");
}

epilogue::Tensor part_of(const Torch& tensor, const char* what) {
  require_defined(tensor, what);
  const Layout at(tensor);
  const std::optional<DType> dtype = at.dtype == numbers().u8 ? DType::u8 : dtype_of(at.dtype);
  const size_t dim = at.sizes.size();
  if (!tensor.is_cpu() || !dtype || dim < 1 || dim > 2 || !tensor.is_contiguous())
    throw std::runtime_error(std::string("expected ") + what +
                             " contiguous, on the CPU, of Byte, Float, BFloat16 or Half, but got " +
                             describe(tensor));
  return epilogue::Tensor::from_blob(const_cast<void*>(at.data), dims_of(at.sizes), *dtype,
                                     [keep = tensor](void*) {});
}

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// Fresh memory is mapped when it is written: of a large result in huge pages, a hundredth of the
// faults. Advice: where the system has none, small ones do. The ends, which others may share, are
// left out.
void ask_for_huge_pages(void* memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
  if (begin < end)
    static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
#endif
}

}  // namespace

Torch empty_like_rows(const Torch& like, const epilogue::Dims& sizes) {
  std::array<int64_t, epilogue::kMaxRank> shape{};
  std::array<int64_t, epilogue::kMaxRank> strides{};
  int64_t count = 1;
  int64_t stride = 1;
  for (int d = sizes.rank() - 1; d >= 0; --d) {
    shape[static_cast<size_t>(d)] = sizes[d];
    strides[static_cast<size_t>(d)] = stride;
    count *= sizes[d];
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(sizes.rank(), shape.data(), strides.data(), dtype,
                                                  aoti_torch_device_type_cpu(), 0, &out));
  Torch made(out);
  const int64_t bytes = count * static_cast<int64_t>(aoti_torch_dtype_element_size(dtype));
  if (bytes >= kHugePage)
    ask_for_huge_pages(const_cast<void*>(made.const_data_ptr()), static_cast<size_t>(bytes));
  return made;
}

}  // namespace epilogue_torch
