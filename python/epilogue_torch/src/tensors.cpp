// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <sys/mman.h>

#include <torch/headeronly/core/ScalarType.h>

#include <optional>
#include <stdexcept>
#include <vector>

namespace epilogue_torch {
namespace {

using epilogue::DType;
using torch::headeronly::ScalarType;

std::optional<DType> dtype_of(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return DType::f32;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Half: return DType::f16;
    default: return std::nullopt;
  }
}

epilogue::Dims sizes_of(const Torch& t) {
  epilogue::Dims sizes;
  for (int64_t d = 0; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return sizes;
}

}  // namespace

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

// A view with any strides, of one of the dtypes that `dtype` has.
epilogue::Tensor strided_view(const Torch& tensor, std::optional<DType> dtype, const char* what,
                              const char* dtypes) {
  if (!tensor.is_cpu())
    throw std::runtime_error(std::string("Expected all tensors to be on the CPU, but ") + what +
                             " " + describe(tensor) + " is on another device");
  if (!dtype)
    throw std::runtime_error(std::string("expected ") + what + " of dtype " + dtypes +
                             ", but got " + describe(tensor));
  if (tensor.dim() > epilogue::kMaxRank)
    throw std::runtime_error(std::string("expected ") + what + " of at most " +
                             std::to_string(epilogue::kMaxRank) + " dimensions, but got " +
                             describe(tensor));
  epilogue::Dims strides;
  for (int64_t d = 0; d < tensor.dim(); ++d) strides.push_back(tensor.stride(d));
  // The engine reads inputs and weights only.
  void* const data = const_cast<void*>(tensor.const_data_ptr());
  return epilogue::Tensor::from_blob(data, sizes_of(tensor), *dtype, {}, strides);
}

}  // namespace

epilogue::Tensor view_of(const Torch& tensor, const char* what) {
  require_defined(tensor, what);
  return strided_view(tensor, dtype_of(tensor.scalar_type()), what, "Float, BFloat16 or Half");
}

epilogue::Tensor mask_of(const Torch& tensor, const char* what) {
  require_defined(tensor, what);
  const std::optional<DType> dtype =
      tensor.scalar_type() == ScalarType::Bool ? DType::boolean : dtype_of(tensor.scalar_type());
  return strided_view(tensor, dtype, what, "Bool, Float, BFloat16 or Half");
}

epilogue::Tensor part_of(const Torch& tensor, const char* what) {
  require_defined(tensor, what);
  const std::optional<DType> dtype =
      tensor.scalar_type() == ScalarType::Byte ? DType::u8 : dtype_of(tensor.scalar_type());
  if (!tensor.is_cpu() || !dtype || tensor.dim() < 1 || tensor.dim() > 2 || !tensor.is_contiguous())
    throw std::runtime_error(std::string("expected ") + what +
                             " contiguous, on the CPU, of Byte, Float, BFloat16 or Half, but got " +
                             describe(tensor));
  void* const data = const_cast<void*>(tensor.const_data_ptr());
  return epilogue::Tensor::from_blob(data, sizes_of(tensor), *dtype, [keep = tensor](void*) {});
}

namespace {

// Fresh memory is mapped when it is written: of a large result in huge pages, a hundredth of the
// faults. Advice: where the system has none, small ones do. The ends, which others may share, are
// left out.
void ask_for_huge_pages(void* memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
  if (begin < end)
    static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
#endif
}

}  // namespace

Torch empty_like_rows(const Torch& like, epilogue::Dims sizes) {
  std::vector<int64_t> strides(static_cast<size_t>(sizes.rank()), 1);
  for (int d = sizes.rank() - 2; d >= 0; --d)
    strides[static_cast<size_t>(d)] =
        strides[static_cast<size_t>(d) + 1] * std::max<int64_t>(sizes[d + 1], 1);
  std::vector<int64_t> shape;
  for (int d = 0; d < sizes.rank(); ++d) shape.push_back(sizes[d]);
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(),
                                                  strides.data(), dtype,
                                                  aoti_torch_device_type_cpu(), 0, &out));
  Torch made(out);
  ask_for_huge_pages(const_cast<void*>(made.const_data_ptr()), made.numel() * made.element_size());
  return made;
}

}  // namespace epilogue_torch
