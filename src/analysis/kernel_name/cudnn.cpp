// SPDX-License-Identifier: Apache-2.0
// cuDNN: convolutions that are no GEMM family, batch norm, layout changes; MIOpen's helpers.
#include "analysis/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

struct CudnnKernel {
  std::string_view mark;  // in the name without namespaces
  KernelKind kind;
  std::string_view what;
};
constexpr CudnnKernel kCudnnKernels[] = {
    {"bn_fw_tr", KernelKind::kNorm, "batch norm, training, forward"},
    {"bn_fw_inf", KernelKind::kNorm, "batch norm, inference"},
    {"bn_bw", KernelKind::kNorm, "batch norm, backward"},
    {"wgrad", KernelKind::kConv, "convolution, gradient of the weight"},
    {"dgrad", KernelKind::kConv, "convolution, gradient of the input"},
    {"winograd", KernelKind::kConv, "Winograd convolution"},
    {"Winograd", KernelKind::kConv, "Winograd convolution"},
    {"implicit_convolve", KernelKind::kConv, "convolution as an implicit GEMM"},
    {"explicit_convolve", KernelKind::kConv, "convolution as a GEMM of an image-to-columns matrix"},
    {"precomputed_convolve", KernelKind::kConv, "convolution with precomputed offsets"},
    {"convolve", KernelKind::kConv, "convolution"},
    {"conv2d", KernelKind::kConv, "convolution"},
    {"im2col", KernelKind::kConv, "image to columns"},
    {"Im2d2Col", KernelKind::kConv, "image to columns"},
    {"Col2Im", KernelKind::kConv, "columns to image"},
    {"fft", KernelKind::kConv, "FFT of a convolution"},
    {"computeOffsets", KernelKind::kConv, "offset table of a convolution"},
    {"computeBOffsets", KernelKind::kConv, "offset table of a convolution"},
    {"computeWgrad", KernelKind::kConv, "offset table of a convolution"},
    {"precompute_indices", KernelKind::kConv, "offset table of a convolution"},
    {"Nhwc", KernelKind::kCopy, "changes the image layout"},
    {"Nchw", KernelKind::kCopy, "changes the image layout"},
    {"nhwc", KernelKind::kCopy, "changes the image layout"},
    {"nchw", KernelKind::kCopy, "changes the image layout"},
    {"scalePackedTensor", KernelKind::kElementwise, "scales a tensor"},
    {"convertTensor", KernelKind::kCopy, "converts a tensor"},
    {"SubTensorOpWithCast", KernelKind::kCopy, "casts a tensor"},
    {"SubTensorOpWithScalar", KernelKind::kElementwise, "tensor with a scalar"},
    {"softmax", KernelKind::kSoftmax, "softmax"},
    {"pooling", KernelKind::kOther, "pooling"},
    {"RNN", KernelKind::kOther, "recurrent network"},
    {"LSTM", KernelKind::kOther, "recurrent network"},
};
constexpr std::string_view kLooseMarks[] = {"convolve_",   "FoldedNhwc", "foldedNhwc",
                                            "SubTensorOp", "Im2d2Col",   "Col2Im2d"};

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
