// SPDX-License-Identifier: Apache-2.0
// cuDNN: convolutions that are no GEMM family, batch norm, layout changes; MIOpen's helpers.
#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

struct CudnnKernel {
  std::string_view mark;  // in the name without namespaces
  KernelKind kind;
  std::string_view what;
};
constexpr CudnnKernel kCudnnKernels[] = {
    {"bn_fw_tr", KernelKind::norm, "batch norm, training, forward"},
    {"bn_fw_inf", KernelKind::norm, "batch norm, inference"},
    {"bn_bw", KernelKind::norm, "batch norm, backward"},
    {"wgrad", KernelKind::conv, "convolution, gradient of the weight"},
    {"dgrad", KernelKind::conv, "convolution, gradient of the input"},
    {"winograd", KernelKind::conv, "Winograd convolution"},
    {"Winograd", KernelKind::conv, "Winograd convolution"},
    {"implicit_convolve", KernelKind::conv, "convolution as an implicit GEMM"},
    {"explicit_convolve", KernelKind::conv, "convolution as a GEMM of an image-to-columns matrix"},
    {"precomputed_convolve", KernelKind::conv, "convolution with precomputed offsets"},
    {"convolve", KernelKind::conv, "convolution"},
    {"conv2d", KernelKind::conv, "convolution"},
    {"im2col", KernelKind::conv, "image to columns"},
    {"Im2d2Col", KernelKind::conv, "image to columns"},
    {"Col2Im", KernelKind::conv, "columns to image"},
    {"fft", KernelKind::conv, "FFT of a convolution"},
    {"computeOffsets", KernelKind::conv, "offset table of a convolution"},
    {"computeBOffsets", KernelKind::conv, "offset table of a convolution"},
    {"computeWgrad", KernelKind::conv, "offset table of a convolution"},
    {"precompute_indices", KernelKind::conv, "offset table of a convolution"},
    {"Nhwc", KernelKind::copy, "changes the image layout"},
    {"Nchw", KernelKind::copy, "changes the image layout"},
    {"nhwc", KernelKind::copy, "changes the image layout"},
    {"nchw", KernelKind::copy, "changes the image layout"},
    {"scalePackedTensor", KernelKind::elementwise, "scales a tensor"},
    {"convertTensor", KernelKind::copy, "converts a tensor"},
    {"SubTensorOpWithCast", KernelKind::copy, "casts a tensor"},
    {"SubTensorOpWithScalar", KernelKind::elementwise, "tensor with a scalar"},
    {"softmax", KernelKind::softmax, "softmax"},
    {"pooling", KernelKind::other, "pooling"},
    {"RNN", KernelKind::other, "recurrent network"},
    {"LSTM", KernelKind::other, "recurrent network"},
};
constexpr std::string_view kLooseMarks[] = {
    "convolve_", "FoldedNhwc", "foldedNhwc",      "SubTensorOp",    "Im2d2Col",
    "Col2Im2d",  "wgrad_alg",  "dgrad_alg",       "dgrad_engine",   "wgrad_engine",
    "dgrad2d_",  "wgrad2d_",   "_wgrad_implicit", "_dgrad_implicit"};

// "..._128x128_sliced1x4_ldg4_exp_interior_nhwc_tn_v1"
bool is_product_name(std::string_view name) {
  return contains(name, "_sliced") || contains(name, "_ldg") || contains(name, "scudnn") ||
         contains(name, "gemm");
}

}  // namespace

bool decode_cudnn(const NameText& name, KernelName& out) {
  const std::string_view function = name.cpp.name;
  bool is_ours = function.starts_with("cudnn::") || function.starts_with("cask_cudnn") ||
                 function.starts_with("cask__5x_cudnn") || function.starts_with("cudnn_");
  const std::string_view base = base_name(function);
  for (const std::string_view mark : kLooseMarks) is_ours = is_ours || contains(base, mark);
  if (!is_ours) return false;
  // The winograd kernels of one stage are named by their namespace.
  const std::string_view where = contains(function, "winograd") ? function : base;
  for (const CudnnKernel& kernel : kCudnnKernels) {
    if (!contains(where, kernel.mark)) continue;
    // An image layout in the middle of a product's name is its operands'.
    if (kernel.kind == KernelKind::copy && is_product_name(base)) return false;
    const bool is_miopen = base.starts_with("SubTensorOp") || contains(base, "Im2d");
    out.family = is_miopen ? "MIOpen" : "cuDNN";
    out.kind = kernel.kind;
    known(out, "function", std::string(base));
    known(out, "operation", std::string(kernel.what));
    out.summary = std::string(kernel.what);
    for (const std::string_view arg : name.cpp.args) {
      const std::string_view type = element_type(arg);
      if (type.empty() || type == "bool" || type == "i32") continue;
      inferred(out, "type", std::string(type), "first type of the template");
      out.summary += ", " + std::string(type);
      break;
    }
    return true;
  }
  return false;
}

}  // namespace epilogue::trace
