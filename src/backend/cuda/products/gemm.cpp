// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/products/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "backend/cuda/error.h"
#include "backend/cuda/products/cublaslt.h"
#include "backend/cuda/runtime.h"
#include "base/assert.h"
#include "epilogue/base/error.h"

namespace epilogue::cuda {
namespace {

// What PyTorch gives cuBLASLt on Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// cuBLASLt assumes this alignment where it is not told of less.
constexpr uint32_t kBestAlignment = 256;
// Candidates that tuning times.
constexpr int kCandidates = 8;

struct Stored {
  bool row_major;
  int64_t ld;
};
std::optional<Stored> stored(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  if ((col_stride == 1 || cols == 1) && (row_stride >= cols || rows == 1))
    return Stored{true, rows == 1 ? cols : row_stride};
  if ((row_stride == 1 || rows == 1) && (col_stride >= rows || cols == 1))
    return Stored{false, cols == 1 ? rows : col_stride};
  return std::nullopt;
}

uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address == 0) return kBestAlignment;
  const auto lowest = uint64_t{1} << std::countr_zero(static_cast<uint64_t>(address));
  return static_cast<uint32_t>(std::min<uint64_t>(lowest, kBestAlignment));
}

const void* addend(const GemmCall& c) { return c.addend != nullptr ? c.addend : c.c; }
int64_t addend_stride(const GemmCall& c) {
  return c.addend != nullptr ? c.addend_row_stride : c.c_row_stride;
}

// What decides which kernel is best.
struct Key {
  std::array<int64_t, 11> numbers;  // sizes and strides
  std::array<uint32_t, 5> alignments;
  DType dtype;
  bool first_transposed;
  bool second_transposed;
  bool has_bias;
  bool gelu;
  bool accumulates;
  bool tuned;
  auto operator<=>(const Key&) const = default;
};

Key key_of(const GemmCall& c, const GemmLayout& l, bool tuned) {
  return {{c.m, c.n, c.k, c.batch, l.first_ld, l.second_ld, c.c_row_stride, c.b.batch_stride,
           c.a.batch_stride, c.c_batch_stride, addend_stride(c)},
          {alignment_of(c.b.data), alignment_of(c.a.data), alignment_of(c.c), alignment_of(c.bias),
           alignment_of(addend(c))},
          c.dtype,
          l.first_transposed,
          l.second_transposed,
          c.bias != nullptr,
          c.gelu_tanh,
          c.beta != 0,
          tuned};
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// f32 products keep f32 inputs unless EPILOGUE_TF32=1: PyTorch's default.
cublasComputeType_t compute_of(DType dtype) {
  static const bool tf32 = [] {
    const char* const value = std::getenv("EPILOGUE_TF32");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return dtype == DType::f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(const GemmCall& c) {
  if (c.gelu_tanh) return c.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return c.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// cuBLASLt's description of calls of one key.
class Problem {
 public:
  Problem(const GemmCall& c, const GemmLayout& l)
      : desc_(compute_of(c.dtype), CUDA_R_32F),
        first_(type_of(c.dtype), l.first_transposed ? c.k : c.n, l.first_transposed ? c.n : c.k,
               l.first_ld, c.batch, c.b.batch_stride),
        second_(type_of(c.dtype), l.second_transposed ? c.m : c.k, l.second_transposed ? c.k : c.m,
                l.second_ld, c.batch, c.a.batch_stride),
        addend_(type_of(c.dtype), c.n, c.m, addend_stride(c), c.batch, c.c_batch_stride),
        result_(type_of(c.dtype), c.n, c.m, c.c_row_stride, c.batch, c.c_batch_stride) {
    const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    desc_.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(l.first_transposed));
    desc_.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(l.second_transposed));
    desc_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(c));
    if (c.bias != nullptr) {
      desc_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.bias);
      desc_.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(c.dtype)));
    }
  }

  // The kernel that run() takes.
  void choose(const GemmCall& call, void* workspace, bool tune) {
    const auto list = candidates(call, tune ? kCandidates : 1);
    if (list.empty())
      throw Error("[cuda] cuBLASLt has no kernel for the product [" + std::to_string(call.m) +
                  ", " + std::to_string(call.k) + "] x [" + std::to_string(call.k) + ", " +
                  std::to_string(call.n) + "] of " + std::string(dtype_name(call.dtype)));
    algo_ = list[0].algo;
    if (list.size() == 1) return;
    EPI_ASSERT(call.beta == 0 || addend(call) != call.c, "what is added stays as it is");
    const cudaStream_t stream = Runtime::get().stream();
    cublasLtMatmulAlgo_t best = algo_;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < list.size(); ++i) {
      algo_ = list[i].algo;
      double us = 0;
      try {
        us = measure_us(stream, [&] { run(call, workspace, stream); });
      } catch (const Error&) {  // another candidate may work
        if (i + 1 == list.size() && std::isinf(least)) throw;
        continue;
      }
      if (us >= least) continue;
      least = us;
      best = algo_;
    }
    algo_ = best;
  }

  void run(const GemmCall& call, void* workspace, cudaStream_t stream) {
    const CublasLt& lt = CublasLt::get();
    if (call.bias != nullptr) desc_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    lt.check(lt.matmul(lt.handle(), desc_.get(), &call.alpha, call.b.data, first_.get(),
                       call.a.data, second_.get(), &call.beta, addend(call), addend_.get(), call.c,
                       result_.get(), &algo_, workspace, kWorkspaceBytes, stream),
             "cublasLtMatmul");
  }

 private:
  // Best first; empty where the library has none.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const GemmCall& call, int most) const {
    const CublasLt& lt = CublasLt::get();
    MatmulPreference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.b.data));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.a.data));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(addend(call)));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.c));
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        lt.heuristic(lt.handle(), desc_.get(), first_.get(), second_.get(), addend_.get(),
                     result_.get(), preference.get(), most, results.data(), &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) lt.check(status, "cublasLtMatmulAlgoGetHeuristic");
    results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
    std::erase_if(results, [](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
    return results;
  }

  MatmulDesc desc_;
  MatrixLayout first_;
  MatrixLayout second_;
  MatrixLayout addend_;
  MatrixLayout result_;
  cublasLtMatmulAlgo_t algo_{};
};

// The problems so far, and the workspace that all products share: they run one after the other.
struct Planner {
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Problem>> problems;
  void* workspace = nullptr;

  static Planner& get() {
    static auto* planner = new Planner;
    return *planner;
  }
};

}  // namespace

std::optional<GemmLayout> gemm_layout(const GemmCall& c) {
  const auto first = stored(c.k, c.n, c.b.row_stride, c.b.col_stride);
  const auto second = stored(c.m, c.k, c.a.row_stride, c.a.col_stride);
  if (!first || !second) return std::nullopt;
  return GemmLayout{!first->row_major, !second->row_major, first->ld, second->ld};
}

void gemm(const GemmCall& call, bool tune) {
  const auto layout = gemm_layout(call);
  EPI_ASSERT(layout.has_value(), "operands of a product have a unit stride");
  Planner& planner = Planner::get();
  const std::lock_guard<std::mutex> lock(planner.mutex);
  if (planner.workspace == nullptr)
    planner.workspace = Runtime::get().memory().allocate(kWorkspaceBytes);
  const Key key = key_of(call, *layout, tune);
  auto found = planner.problems.find(key);
  if (found == planner.problems.end()) {
    auto problem = std::make_unique<Problem>(call, *layout);
    problem->choose(call, planner.workspace, tune);
    found = planner.problems.emplace(key, std::move(problem)).first;
  }
  found->second->run(call, planner.workspace, Runtime::get().stream());
}

}  // namespace epilogue::cuda
