// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/program_cache.h"
#include "backend/cuda/program_source.h"
#include "backend/cuda/runtime.h"
#include "epilogue/base/error.h"

namespace epilogue::cuda {
namespace {

// Blocks at most; the kernel loops. 32 per multiprocessor of the largest devices.
constexpr int64_t kMostBlocks = 132 * 32;

// Whether rows follow each other without a gap (or all elements are one).
bool is_flat(const MatrixView& view, int64_t cols) {
  return (view.col_stride == 1 && view.row_stride == cols) ||
         (view.col_stride == 0 && view.row_stride == 0);
}

// A kernel's arguments, by address, as launches want them.
class Arguments {
 public:
  template <class T>
  void add(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "an argument is a number or a pointer");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    values_.push_back(bits);
  }
  std::vector<void*> addresses() {
    std::vector<void*> list;
    for (uint64_t& value : values_) list.push_back(&value);
    return list;
  }

 private:
  std::vector<uint64_t> values_;
};

class CudaProgram final : public ProgramKernel {
 public:
  explicit CudaProgram(const PointwiseProgram& program) : program_(program) {
    verify(program);
    if (has_row_reductions(program) || has_column_sums(program))
      throw Error("[cuda] expected a program that reduces nothing, got " + to_string(program));
  }

  void run(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
           std::span<const MatrixView> outputs) const override {
    require(inputs, outputs);
    if (rows == 0 || cols == 0) return;
    const auto flat = [cols](const MatrixView& view) { return is_flat(view, cols); };
    if (std::all_of(inputs.begin(), inputs.end(), flat) &&
        std::all_of(outputs.begin(), outputs.end(), flat)) {
      cols *= rows;
      rows = 1;
    }
    const ProgramVariant variant = make_variant(rows, cols, inputs, outputs);
    const int64_t per_row = cols / variant.width;
    const int64_t vectors = rows * per_row;
    Arguments arguments;
    const auto add_index = [&](int64_t value) {
      variant.wide_index ? arguments.add(value) : arguments.add(static_cast<uint32_t>(value));
    };
    add_index(vectors);
    add_index(per_row);
    for (size_t i = 0; i < inputs.size(); ++i) {
      arguments.add(inputs[i].data);
      arguments.add(inputs[i].row_stride);
      if (variant.inputs[i].access == Access::strided) arguments.add(inputs[i].col_stride);
    }
    for (const MatrixView& view : outputs) {
      arguments.add(view.data);
      arguments.add(view.row_stride);
    }
    launch(kernel_for(variant), vectors, arguments);
  }

  int threads(int64_t, int64_t) const override { return 1; }
  std::string kernel_prefix() const override { return "epi_cuda"; }

 private:
  static void launch(cudaKernel_t kernel, int64_t vectors, Arguments& arguments) {
    const int64_t blocks = (vectors + kProgramThreads - 1) / kProgramThreads;
    std::vector<void*> addresses = arguments.addresses();
    check(cudaLaunchKernel(static_cast<const void*>(kernel),
                           dim3(static_cast<unsigned>(std::min(blocks, kMostBlocks))),
                           dim3(kProgramThreads), addresses.data(), 0, Runtime::get().stream()),
          "cudaLaunchKernel");
  }

  cudaKernel_t kernel_for(const ProgramVariant& variant) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [known, kernel] : kernels_)
      if (known == variant) return kernel;
    cudaKernel_t const kernel =
        load_kernel(program_source(program_, variant), program_kernel_name(program_, variant));
    kernels_.emplace_back(variant, kernel);
    return kernel;
  }

  void require(std::span<const MatrixView> inputs, std::span<const MatrixView> outputs) const {
    if (static_cast<int>(inputs.size()) != program_.inputs ||
        outputs.size() != program_.outputs.size())
      throw Error("[program] expected " + std::to_string(program_.inputs) + " inputs and " +
                  std::to_string(program_.outputs.size()) + " outputs, got " +
                  std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
    for (const std::span<const MatrixView> views : {inputs, outputs})
      for (const MatrixView& view : views)
        if (!has_float_type(view.dtype) && view.dtype != DType::boolean)
          throw Error("[program] expected f32, bf16 or f16, got " +
                      std::string(dtype_name(view.dtype)));
    for (const MatrixView& view : outputs)
      if (view.col_stride != 1) throw Error("[program] expected outputs with contiguous columns");
  }

  PointwiseProgram program_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::pair<ProgramVariant, cudaKernel_t>> kernels_;
};

}  // namespace

std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) {
  return std::make_unique<CudaProgram>(program);
}

}  // namespace epilogue::cuda
