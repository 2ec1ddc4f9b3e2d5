// SPDX-License-Identifier: Apache-2.0
// A chain runs stage by stage; what lies between stages is in buffers that the chain keeps, so that
// a call allocates nothing and may be recorded. Calls of several threads take turns: they launch
// into one stream, where the next one's kernels wait for the last one's anyway.
#include "backend/cuda/products/row_chain.h"

#include <array>
#include <mutex>

#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/products/chain_stage.h"
#include "backend/cuda/runtime.h"
#include "epilogue/base/error.h"

namespace epilogue::cuda {
namespace {

// A matrix of `parts` x rows rows. Calls that may be recorded share memory that stays where it is
// as long as the chain lives; that of others grows with their rows.
class Buffer {
 public:
  MatrixView view(int64_t rows, int64_t cols, DType dtype, int64_t parts = 1) {
    const bool is_recorded = rows <= kMostRecordedRows;
    Tensor& memory = is_recorded ? recorded_ : grown_;
    const int64_t bytes = parts * (is_recorded ? kMostRecordedRows : rows) * cols *
                          static_cast<int64_t>(dtype_bytes(dtype));
    if (!memory.defined() || memory.numel() < bytes) memory = empty({bytes}, DType::u8, kDevice);
    return {memory.data(), dtype, cols, 1};
  }
  int64_t bytes() const {
    return (recorded_.defined() ? recorded_.numel() : 0) + (grown_.defined() ? grown_.numel() : 0);
  }

 private:
  Tensor recorded_;
  Tensor grown_;
};

class CudaRowChain final : public RowChain {
 public:
  explicit CudaRowChain(const RowChainSpec& spec) : dtype_(spec.dtype), norm_(spec.norm) {
    if (!has_float_type(spec.dtype))
      throw Error("[row chain] expected f32, bf16 or f16, got " +
                  std::string(dtype_name(spec.dtype)));
    if (!(spec.bits == Quantisation{}))
      throw Error("[row chain] expected weights of their own dtype on " + to_string(kDevice) +
                  ", got fewer bits");
    if (spec.stages.empty()) throw Error("[row chain] expected at least one stage, got none");
    if (spec.side_by_side)
      throw Error("[row chain] expected stages one after the other on " + to_string(kDevice) +
                  ", got some side by side");
    for (const RowChainSpec::Stage& stage : spec.stages) {
      require_stage_fits(stage, dtype_);
      if (!stages_.empty() && stages_.back().n() != stage.weights[0].size(1))
        throw Error("[row chain] expected a stage of " + std::to_string(stages_.back().n()) +
                    " inputs, got " + to_string(stage.weights[0]));
      stages_.emplace_back(stage);
    }
    require_norm_fits();
  }

  void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
           std::span<const MatrixView> outputs) const override {
    const std::lock_guard<std::mutex> turn(turn_);
    if (outputs.size() != 1)
      throw Error("[row chain] expected one output, got " + std::to_string(outputs.size()));
    const MatrixView& out = outputs[0];
    if (rows == 0 || stages_.back().n() == 0) return;
    if (rows > 1 && x.row_stride < stages_.front().k())
      throw Error("[row chain] expected rows that do not overlap, got a row stride of " +
                  std::to_string(x.row_stride));
    MatrixView from = norm_.kind == Norm::none ? x : normalise(rows, x);
    for (size_t i = 0; i < stages_.size(); ++i) {
      ChainStage& stage = stages_[i];
      const bool last = i + 1 == stages_.size();
      const MatrixView to = last ? out : hidden_[i % 2].view(rows, stage.n(), dtype_);
      std::vector<MatrixView> views;
      for (const int o : stage.operands()) views.push_back(operands[static_cast<size_t>(o)]);
      stage.run(rows, from, views, products_.view(rows, stage.n(), dtype_, stage.parts()), to);
      from = to;
    }
  }

  RowChainPlan plan(int64_t rows) const override {
    const std::lock_guard<std::mutex> turn(turn_);
    RowChainPlan p;
    p.block_rows = rows;
    p.blocks = 1;
    p.scratch_bytes =
        normalised_.bytes() + products_.bytes() + hidden_[0].bytes() + hidden_[1].bytes();
    return p;
  }

  int64_t launches() const override {
    const std::lock_guard<std::mutex> turn(turn_);
    int64_t n = norm_.kind == Norm::none ? 0 : 1;
    for (const ChainStage& stage : stages_) n += stage.launches();
    return n;
  }

  std::string choices() const override {
    const std::lock_guard<std::mutex> turn(turn_);
    std::string text = norm_.kind == Norm::none ? "" : "norm";
    for (const ChainStage& stage : stages_)
      text += (text.empty() ? "" : "; then ") + stage.choices();
    return text;
  }

  std::string kernel_name() const override {
    std::string name = "epi_cuda_row_chain_" + std::string(dtype_name(dtype_));
    if (norm_.kind != Norm::none) name += norm_.kind == Norm::rms ? "_rms" : "_layer_norm";
    for (const ChainStage& s : stages_)
      name +=
          "_" + std::to_string(s.k()) + "x" + std::to_string(s.n()) + (s.parts() == 2 ? "x2" : "");
    return name;
  }

 private:
  // What the kernel reads directly: contiguous parameters of one dtype.
  void require_norm_fits() const {
    if (norm_.weight_is != NormWeight::product)
      throw Error("[row chain] expected an RMS norm as torch.nn.RMSNorm has it on " +
                  to_string(kDevice) + ", got another form");
    const Tensor& weight = norm_.weight;
    const Tensor& bias = norm_.bias;
    for (const Tensor* const t : {&weight, &bias})
      if (t->defined() && (!has_float_type(t->dtype()) || !t->is_contiguous()))
        throw Error("[row chain] expected contiguous norm parameters of f32, bf16 or f16, got " +
                    to_string(*t));
    if (weight.defined() && bias.defined() && weight.dtype() != bias.dtype())
      throw Error("[row chain] expected a norm's weight and bias of one dtype, got " +
                  to_string(weight) + " and " + to_string(bias));
  }

  MatrixView normalise(int64_t rows, const MatrixView& x) const {
    const int64_t k = stages_.front().k();
    const MatrixView to = normalised_.view(rows, k, dtype_);
    NormCall c;
    c.rows = rows;
    c.n = k;
    c.eps = static_cast<float>(norm_.eps);
    c.subtracts_mean = norm_.kind == Norm::layer;
    c.dtype = dtype_;
    c.x = x.data;
    c.x_stride = x.row_stride;
    c.y = to.data;
    if (norm_.weight.defined()) c.weight = norm_.weight.data();
    if (norm_.bias.defined()) c.bias = norm_.bias.data();
    c.parameter_dtype = norm_.weight.defined() ? norm_.weight.dtype()
                        : norm_.bias.defined() ? norm_.bias.dtype()
                                               : dtype_;
    check(launch_norm(c, Runtime::get().stream()), "norm");
    return to;
  }

  DType dtype_;
  RowChainSpec::Norm norm_;
  mutable std::mutex turn_;  // guards what follows
  mutable std::vector<ChainStage> stages_;
  mutable Buffer normalised_;
  mutable Buffer products_;
  mutable std::array<Buffer, 2> hidden_;
};

}  // namespace

std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) {
  return std::make_unique<CudaRowChain>(spec);
}

}  // namespace epilogue::cuda
