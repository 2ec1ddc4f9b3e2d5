// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/tour_stops.h"

#include "tools/epilogue/profile/tour_fusion.h"

namespace epilogue::tool {
namespace {

WorkloadOptions on_images(const std::string& kind, const TourOptions& o) {
  WorkloadOptions w;
  w.kind = kind;
  w.dtype = o.dtype;
  w.device = o.device;
  w.input = "fashion-mnist";
  w.threads = o.threads;
  return w;
}

}  // namespace

std::vector<TourStop> tour_stops(const TourOptions& o) {
  TourStop matmul_add{
      "matmul + add",
      "Two ops, two kernels: aten::mm and aten::add. The time of a step beyond its kernels is "
      "dispatch: shape rules, allocation, the choice of a kernel.",
      on_images("matmul-add", o)};
  TourStop linear{
      "nn.Linear",
      "aten::linear dispatches aten::t, which only swaps strides and launches nothing, then "
      "aten::addmm: one kernel. The bias is added while the product is written (its name "
      "ends in _bias).",
      on_images("linear", o)};
  linear.workload.out_dim = 256;
  TourStop mlp{
      "the GeGLU MLP, eager",
      "Three linears, five kernels per step: gate, gelu, up, mul, down. The hidden tensors are "
      "written and read back between them; fusing them saves this. epiLaunchKernel is "
      "the call that runs a kernel: on a CPU it lasts until the kernel is done, so that its share "
      "is that of all kernels together.",
      on_images("mlp", o)};
  mlp.workload.batch = o.quick ? 2 : 8;
  mlp.workload.hidden = 3072;
  mlp.is_mlp = true;
  TourStop compiled = mlp;
  compiled.title = "the same MLP through compile()";
  compiled.what_to_see =
      "One kernel per step, and its name lists the ops that it stands for. Blocks of rows run "
      "through all three products, so that the hidden values stay in a cache.";
  compiled.workload.mode = kFusionModes[1];
  TourStop fused = mlp;
  fused.title = "the same MLP as an op chosen by hand";
  fused.what_to_see =
      "epilogue::fused_gated_mlp runs the kernel that compile() found, without capture and plan.";
  fused.workload.mode = kFusionModes[2];
  return {matmul_add, linear, mlp, compiled, fused};
}

}  // namespace epilogue::tool
