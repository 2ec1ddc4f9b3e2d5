// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/products/chain_stage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cuda/error.h"
#include "backend/cuda/products/gemm_epilogue.h"
#include "backend/cuda/program.h"
#include "backend/cuda/runtime.h"
#include "base/assert.h"
#include "base/units.h"
#include "epilogue/base/error.h"

namespace epilogue::cuda {

struct StageCall {
  int64_t rows;
  const MatrixView& x;
  std::span<const MatrixView> operands;
  const MatrixView& products;
  const MatrixView& out;
};

namespace {

constexpr int64_t kHopper = 90;

// Whether the program gives the first product as it is.
bool is_identity(const PointwiseProgram& program) {
  return program.steps.empty() && program.outputs[0] == 0;
}

// [n, k] as the product's b [k, n].
GemmMatrix transposed(const Tensor& weight) {
  return {weight.data(), weight.strides()[1], weight.strides()[0], 0};
}

MatrixView shifted(const MatrixView& view, int64_t rows) {
  MatrixView v = view;
  v.data = static_cast<std::byte*>(view.data) +
           rows * view.row_stride * static_cast<int64_t>(dtype_bytes(view.dtype));
  return v;
}

}  // namespace

void require_stage_fits(const RowChainSpec::Stage& stage, DType dtype) {
  if (stage.weights.empty() || stage.weights.size() > 2)
    throw Error("[row chain] expected one or two weights, got " +
                std::to_string(stage.weights.size()));
  for (const Tensor& w : stage.weights) {
    if (w.dim() != 2 || w.dtype() != dtype || !(w.sizes() == stage.weights[0].sizes()))
      throw Error("[row chain] expected weights of one shape and dtype, got " + to_string(w));
    if (w.size(1) == 0)
      throw Error("[row chain] expected weights with columns, got " + to_string(w));
    GemmCall probe;
    probe.m = probe.a.col_stride = 1;
    probe.k = probe.a.row_stride = w.size(1);
    probe.n = w.size(0);
    probe.b = transposed(w);
    if (!gemm_layout(probe))
      throw Error("[row chain] expected weights with a unit stride, got " + to_string(w) +
                  " with strides " + to_string(w.strides()));
  }
  if (stage.stacked || stage.flows != 1 || !stage.stores.empty())
    throw Error(
        "[row chain] expected stages that pass one result on and store none, got one that passes "
        "on " +
        std::to_string(stage.flows) + " and stores " + std::to_string(stage.stores.size()) +
        (stage.stacked ? ", of stacked weights" : ""));
  const auto inputs = static_cast<int>(stage.weights.size() + stage.operands.size());
  if (stage.epilogue.inputs != inputs || stage.epilogue.outputs.size() != 1)
    throw Error("[row chain] expected a program of " + std::to_string(inputs) +
                " inputs and one output, got " + to_string(stage.epilogue));
}

ChainStage::ChainStage(const RowChainSpec::Stage& stage) : spec_(stage) {
  if (!is_identity(stage.epilogue) || parts() == 2) program_ = make_program(stage.epilogue);
}

void ChainStage::run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
                     const MatrixView& products, const MatrixView& out) {
  const StageCall call{rows, x, operands, products, out};
  const Choice& choice = choose(call);
  last_ = &choice;
  (this->*choice.way.run)(call);
}

// What can run this call, in the order in which ties are broken.
std::vector<ChainStage::Way> ChainStage::ways(const StageCall& call) const {
  std::vector<Way> list;
  if (parts() == 1) {
    if (match_gemm_epilogue(spec_.epilogue, call.operands, call.out.dtype))
      list.push_back({"product with epilogue", 1, &ChainStage::run_epilogue});
    if (program_ != nullptr) list.push_back({"product, program", 2, &ChainStage::run_products});
    return list;
  }
  if (match_gated(spec_.epilogue) && Runtime::get().architecture() == kHopper &&
      decline_gated_sm90(gated(call)) == nullptr) {
    list.push_back({"Hopper gated kernel", 1, &ChainStage::run_gated_one});
    list.push_back({"Hopper gated kernel in clusters of 2", 1, &ChainStage::run_gated_two});
  }
  if (can_batch())
    list.push_back({"both products in one launch, program", 2, &ChainStage::run_batched});
  list.push_back({"two products, program", 3, &ChainStage::run_products});
  return list;
}

const ChainStage::Choice& ChainStage::choose(const StageCall& call) {
  const std::vector<Way> list = ways(call);
  const std::pair key(std::bit_ceil(static_cast<uint64_t>(call.rows)), list.size());
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  EPI_ASSERT(!list.empty(), "products alone can always run");
  Choice choice{list[0], list[0].name};
  // A result that is also read must not be computed several times.
  const bool reads_out = std::any_of(call.operands.begin(), call.operands.end(),
                                     [&](const MatrixView& v) { return v.data == call.out.data; });
  if (list.size() > 1 && !reads_out) {
    double least = std::numeric_limits<double>::infinity();
    std::string times;
    for (const Way& way : list) {
      times += std::string(times.empty() ? "" : ", ") + way.name;
      double us = 0;
      try {
        us = measure_us(Runtime::get().stream(), [&] { (this->*way.run)(call); });
      } catch (const Error& e) {  // the library has no kernel for it; another way does
        times += " refused (" + std::string(e.what()) + ")";
        continue;
      }
      times += " " + format_duration_ns(us * 1e3);
      if (us >= least) continue;
      least = us;
      choice.way = way;
    }
    if (std::isinf(least)) throw Error("[row chain] no way to compute the stage works: " + times);
    choice.report = std::string(choice.way.name) + " (measured: " + times + ")";
  }
  return choices_.emplace(key, std::move(choice)).first->second;
}

int64_t ChainStage::launches() const {
  if (last_ != nullptr) return last_->way.launches;
  return parts() == 1 && program_ == nullptr ? 1 : 2;
}

std::string ChainStage::choices() const {
  return last_ != nullptr ? last_->report : "not measured yet";
}

GemmCall ChainStage::product(const StageCall& call, const Tensor& weight,
                             const MatrixView& out) const {
  GemmCall g;
  g.m = call.rows;
  g.n = n();
  g.k = k();
  g.dtype = weight.dtype();
  g.a = {call.x.data, call.x.row_stride, 1, 0};
  g.b = transposed(weight);
  g.c = out.data;
  g.c_row_stride = out.row_stride;
  return g;
}

void ChainStage::run_epilogue(const StageCall& call) {
  const GemmEpilogue e = *match_gemm_epilogue(spec_.epilogue, call.operands, call.out.dtype);
  GemmCall g = product(call, spec_.weights[0], call.out);
  g.gelu_tanh = e.gelu_tanh;
  if (e.bias >= 0) g.bias = call.operands[static_cast<size_t>(e.bias)].data;
  if (e.residual >= 0) {
    const MatrixView& residual = call.operands[static_cast<size_t>(e.residual)];
    g.beta = 1;
    g.addend = residual.data;
    g.addend_row_stride = residual.row_stride;
  }
  gemm(g, g.addend != g.c || g.addend == nullptr);
}

void ChainStage::run_products(const StageCall& call) {
  std::vector<MatrixView> products;
  for (int part = 0; part < parts(); ++part) {
    products.push_back(shifted(call.products, part * call.rows));
    gemm(product(call, spec_.weights[static_cast<size_t>(part)], products.back()), true);
  }
  run_program(call, products);
}

// Both weights lie in the device's memory, a fixed distance apart: a batch of two with that stride.
bool ChainStage::can_batch() const {
  const Tensor& gate = spec_.weights[0];
  const Tensor& up = spec_.weights[1];
  const auto distance = static_cast<std::byte*>(up.data()) - static_cast<std::byte*>(gate.data());
  constexpr std::ptrdiff_t kAlignment = 16;  // of what the copy engine reads
  return gate.strides() == up.strides() && distance != 0 && distance % kAlignment == 0;
}

void ChainStage::run_batched(const StageCall& call) {
  const auto element = static_cast<std::ptrdiff_t>(dtype_bytes(call.products.dtype));
  const auto* const gate = static_cast<std::byte*>(spec_.weights[0].data());
  const auto* const up = static_cast<std::byte*>(spec_.weights[1].data());
  const bool gate_first = gate < up;
  GemmCall g = product(call, spec_.weights[gate_first ? 0 : 1], call.products);
  g.batch = 2;
  g.b.batch_stride = (gate_first ? up - gate : gate - up) / element;
  g.c_batch_stride = call.rows * call.products.row_stride;
  gemm(g, true);
  const MatrixView second = shifted(call.products, call.rows);
  const std::array<MatrixView, 2> products = {gate_first ? call.products : second,
                                              gate_first ? second : call.products};
  run_program(call, products);
}

void ChainStage::run_program(const StageCall& call, std::span<const MatrixView> products) {
  std::vector<MatrixView> inputs(products.begin(), products.end());
  inputs.insert(inputs.end(), call.operands.begin(), call.operands.end());
  program_->run(call.rows, n(), inputs, {&call.out, 1});
}

GatedCall ChainStage::gated(const StageCall& call) const {
  GatedCall g;
  g.rows = call.rows;
  g.hidden = n();
  g.k = k();
  g.dtype = call.out.dtype;
  g.activation = *match_gated(spec_.epilogue);
  g.x = call.x.data;
  // One row has no stride; the copy engine wants one all the same.
  g.x_stride = call.rows == 1 ? k() : call.x.row_stride;
  g.gate = spec_.weights[0].data();
  g.up = spec_.weights[1].data();
  // A weight that is stored transposed has no rows to fetch: a stride that is declined.
  g.gate_stride = spec_.weights[0].strides()[1] == 1 ? spec_.weights[0].strides()[0] : 1;
  g.up_stride = spec_.weights[1].strides()[1] == 1 ? spec_.weights[1].strides()[0] : 1;
  g.out = call.out.data;
  g.out_stride = call.out.row_stride;
  return g;
}

void ChainStage::run_gated(const StageCall& call, GatedCluster cluster) {
  const Runtime& runtime = Runtime::get();
  check(launch_gated_sm90(gated(call), cluster, runtime.info().multiprocessors, runtime.stream()),
        "gated MLP");
}
void ChainStage::run_gated_one(const StageCall& call) { run_gated(call, GatedCluster::one); }
void ChainStage::run_gated_two(const StageCall& call) { run_gated(call, GatedCluster::two); }

}  // namespace epilogue::cuda
