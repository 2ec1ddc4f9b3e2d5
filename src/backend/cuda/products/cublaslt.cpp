// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/products/cublaslt.h"

#include <string>

#include "epilogue/base/error.h"

namespace epilogue::cuda {

DynamicLibrary open_cublaslt() {
  return {{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
          "a matrix product",
          EPILOGUE_CUDA_LIBRARY_DIR};
}

CublasLt::CublasLt() : library_(open_cublaslt()) {
  library_.load(create, "cublasLtCreate");
  library_.load(desc_create, "cublasLtMatmulDescCreate");
  library_.load(desc_destroy, "cublasLtMatmulDescDestroy");
  library_.load(desc_set, "cublasLtMatmulDescSetAttribute");
  library_.load(layout_create, "cublasLtMatrixLayoutCreate");
  library_.load(layout_destroy, "cublasLtMatrixLayoutDestroy");
  library_.load(layout_set, "cublasLtMatrixLayoutSetAttribute");
  library_.load(preference_create, "cublasLtMatmulPreferenceCreate");
  library_.load(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library_.load(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library_.load(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library_.load(matmul, "cublasLtMatmul");
  library_.load(status_name, "cublasLtGetStatusName");
  check(create(&handle_), "cublasLtCreate");
}

const CublasLt& CublasLt::get() {
  static const auto* const library = new CublasLt;
  return *library;
}

void CublasLt::check(cublasStatus_t status, const char* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw Error(std::string("[cuda] ") + call + ": " + status_name(status));
}

MatmulDesc::MatmulDesc(cublasComputeType_t compute, cudaDataType_t scale) {
  const CublasLt& lt = CublasLt::get();
  lt.check(lt.desc_create(&desc_, compute, scale), "cublasLtMatmulDescCreate");
}

MatrixLayout::MatrixLayout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                           int64_t batch, int64_t batch_stride) {
  const CublasLt& lt = CublasLt::get();
  lt.check(lt.layout_create(&layout_, type, static_cast<uint64_t>(rows),
                            static_cast<uint64_t>(cols), ld),
           "cublasLtMatrixLayoutCreate");
  if (batch == 1) return;
  const auto count = static_cast<int32_t>(batch);
  lt.check(lt.layout_set(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
           "cublasLtMatrixLayoutSetAttribute");
  lt.check(lt.layout_set(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                         sizeof batch_stride),
           "cublasLtMatrixLayoutSetAttribute");
}

MatmulPreference::MatmulPreference() {
  const CublasLt& lt = CublasLt::get();
  lt.check(lt.preference_create(&preference_), "cublasLtMatmulPreferenceCreate");
}

}  // namespace epilogue::cuda
