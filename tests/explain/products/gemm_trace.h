// SPDX-License-Identifier: Apache-2.0
// Matrix products on a GPU, one op after the other.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/trace/gemms.h"
#include "explain/gpu_trace.h"

namespace epilogue::trace::testing {

constexpr const char* kBf16 = "c10::BFloat16";
constexpr const char* kGate = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";
constexpr const char* kDown = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn";

// One op after the other, each with its launch and its kernels.
struct GemmTrace : GpuTrace {
  explicit GemmTrace(DeviceProperties device) { trace.devices = {std::move(device)}; }

  void product(std::string_view op_name, std::vector<OpInput> list, std::string_view kernel_name,
               int64_t kernel_ns, KernelArgs args = {}) {
    begin_op(op_name, std::move(list));
    add_kernel(kernel_name, kernel_ns, std::move(args));
  }
  void begin_op(std::string_view op_name, std::vector<OpInput> list) {
    op(op_name, now, now + 1000 * host_unit_ns);
    inputs(std::move(list));
    inner = now + 100 * host_unit_ns;
    now += 1000 * host_unit_ns;
  }
  void add_kernel(std::string_view kernel_name, int64_t kernel_ns, KernelArgs args = {}) {
    call("cudaLaunchKernel", inner, inner + 10 * host_unit_ns, ++correlation);
    inner += 20 * host_unit_ns;
    gpu_kernel(kernel_name, device_now, device_now + kernel_ns, correlation);
    args.stream = 7;
    trace.kernels.back() = args;
    device_now += kernel_ns;
  }
  GemmReport report() const { return gemm_report(trace, link(trace)); }

  int64_t host_unit_ns = 1;
  int64_t now = 1000;
  int64_t inner = 0;
  int64_t device_now = 5000;
  int64_t correlation = 0;
};

inline std::vector<OpInput> mm(int64_t m, int64_t n, int64_t k, const char* type) {
  return {tensor({m, k}, type), tensor({k, n}, type)};
}

}  // namespace epilogue::trace::testing
