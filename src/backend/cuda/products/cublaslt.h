// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, found at run time: the functions that are used, and its objects as values.
#pragma once

#include <cublasLt.h>

#include "base/dynamic_library.h"

namespace epilogue::cuda {

// Throws Error where it is missing.
DynamicLibrary open_cublaslt();

class CublasLt {
 public:
  // Loaded at the first call; throws Error (each time) where it is missing.
  static const CublasLt& get();

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;

  cublasLtHandle_t handle() const { return handle_; }
  // Throws Error that names the call.
  void check(cublasStatus_t status, const char* call) const;

 private:
  CublasLt();
  DynamicLibrary library_;
  cublasLtHandle_t handle_ = nullptr;
};

class MatmulDesc {
 public:
  MatmulDesc(cublasComputeType_t compute, cudaDataType_t scale);
  ~MatmulDesc() { CublasLt::get().desc_destroy(desc_); }
  MatmulDesc(const MatmulDesc&) = delete;
  MatmulDesc& operator=(const MatmulDesc&) = delete;
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    const CublasLt& lt = CublasLt::get();
    lt.check(lt.desc_set(desc_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
};

// Column-major.
class MatrixLayout {
 public:
  MatrixLayout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
               int64_t batch_stride);
  ~MatrixLayout() { CublasLt::get().layout_destroy(layout_); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class MatmulPreference {
 public:
  MatmulPreference();
  ~MatmulPreference() { CublasLt::get().preference_destroy(preference_); }
  MatmulPreference(const MatmulPreference&) = delete;
  MatmulPreference& operator=(const MatmulPreference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    const CublasLt& lt = CublasLt::get();
    lt.check(lt.preference_set(preference_, attribute, &value, sizeof value),
             "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace epilogue::cuda
