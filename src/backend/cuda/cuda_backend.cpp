// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/products/row_chain.h"
#include "backend/cuda/program.h"
#include "backend/cuda/runtime.h"
#include "core/backend.h"

namespace epilogue {
namespace cuda {

ShortText kernel_name(std::string_view what, DType dtype) {
  ShortText name = "epi_cuda_";
  name += what;
  name += "_";
  return name += dtype_name(dtype);
}

namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  Capabilities capabilities() const override { return {.most_recorded_rows = kMostRecordedRows}; }

  const std::span<const Kernel>& kernels(const OpDef& op) const override {
    static constexpr KernelLists kAll[] = {gemm_lists,          pointwise_lists, copy_lists,
                                           reduction_lists,     row_lists,       loss_lists,
                                           cross_entropy_lists, gradient_lists,  optimizer_lists};
    return find_kernels(kAll, op);
  }

  std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) const override {
    return cuda::make_row_chain(spec);
  }
  std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) const override {
    return cuda::make_program(program);
  }

  DeviceMemory* memory() const override { return &Runtime::get().memory(); }
  DeviceTimer* timer() const override { return &Runtime::get().timer(); }
  void synchronize() const override { Runtime::get().synchronize(); }
  std::unique_ptr<LaunchGraph> record(FunctionRef<void()> body) const override {
    return Runtime::get().record(body);
  }
};

}  // namespace
}  // namespace cuda

Backend* cuda_backend() {
  static cuda::CudaBackend backend;
  return cuda::Runtime::find() != nullptr ? &backend : nullptr;
}

std::string cuda_status() {
  if (const cuda::Runtime* runtime = cuda::Runtime::find()) {
    const DeviceInfo& info = runtime->info();
    return info.name + ", compute capability " + std::to_string(info.compute_major) + "." +
           std::to_string(info.compute_minor);
  }
  return "CUDA is not available: " + cuda::Runtime::why_none() + "; use --device cpu";
}

std::vector<DeviceInfo> cuda_devices() {
  const cuda::Runtime* const runtime = cuda::Runtime::find();
  return runtime != nullptr ? std::vector<DeviceInfo>{runtime->info()} : std::vector<DeviceInfo>{};
}

}  // namespace epilogue
