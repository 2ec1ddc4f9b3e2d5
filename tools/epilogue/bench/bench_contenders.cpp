// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/bench_contenders.h"

#include <cstdlib>
#include <limits>
#include <memory>

#include "bench/call_memory.h"
#include "bench/onednn_model.h"
#include "core/backend.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"

namespace epilogue::tool {
namespace {

Tensor as_rows(const Tensor& x) { return reshape(x, {-1, x.size(-1)}); }

BenchContender measured(const std::string& name, std::function<Tensor()> call) {
  call();  // plans, packs weights
  const bench::CallMemory memory = bench::measure_call_memory(call);
  const Device device = memory.result.device();
  const auto run = [call = std::move(call)] { call(); };
  const auto wait = [device] { backend_of(device).synchronize(); };
  return {device.type == DeviceType::cpu ? bench::Contender(name, run)
                                         : bench::Contender(name, run, wait),
          memory.result, memory.peak_intermediate_bytes};
}

void add_compiled(const Workload& w, const WorkloadOptions& o, BenchContenders& all) {
  auto function = std::make_shared<Compiled>(w.function, compile_options(o));
  BenchContender contender = measured("epilogue.compile", [function, x = w.input] {
    const NoGrad no_grad;
    return (*function)(x);
  });
  // Memory that the plan keeps from call to call counts too: it is there while a call runs.
  const CompileStats stats = function->stats();
  *contender.peak_intermediate_bytes += stats.intermediate_bytes + stats.scratch_bytes;
  all.present.push_back(std::move(contender));
  all.scratch_bytes = stats.scratch_bytes;
}

// After add_compiled(): its kernels are the same, and work in as much.
void add_fused(const Workload& w, BenchContenders& all) {
  const std::string name = "epilogue.fused";
  const NoGrad no_grad;
  if (w.module == nullptr || !fused_forward(*w.module, w.input)) {
    all.skipped.push_back({name, "there is no fused op for this workload"});
    return;
  }
  all.present.push_back(measured(name, [module = w.module, x = w.input] {
    const NoGrad off;
    return *fused_forward(*module, x);
  }));
  *all.present.back().peak_intermediate_bytes += all.scratch_bytes;
}

// The plan that the flags of bits ask for.
void add_fewer_bits(const Workload& w, const WorkloadOptions& o, BenchContenders& all) {
  const Quantisation bits = bits_of(o);
  if (bits == Quantisation{}) return;
  // Steps of 8 and of 4 bits, of rows spread about as a normal distribution: some two and four
  // times what is measured.
  constexpr double kError8 = 0.05;
  constexpr double kError4 = 0.4;
  auto function = std::make_shared<Compiled>(w.function, compile_options(o));
  BenchContender contender = measured("epilogue." + bits_name(bits), [function, x = w.input] {
    const NoGrad no_grad;
    return (*function)(x);
  });
  contender.allowed_error = bits.weights == WeightBits::int4 ? kError4 : kError8;
  const CompileStats stats = function->stats();
  *contender.peak_intermediate_bytes += stats.intermediate_bytes + stats.scratch_bytes;
  all.present.push_back(std::move(contender));
}

void add_onednn(const Workload& w, const bench::Model& model, BenchContenders& all) {
  const std::string name = "onednn";
  try {
    auto peer = std::make_shared<bench::OnednnModel>(model, as_rows(w.input));
    peer->run();
    const auto run = [peer](const bench::Block& block) {
      std::vector<double> samples = bench::run_block([&] { peer->run(); }, block);
      bench::OnednnModel::end_threads();
      return samples;
    };
    bench::OnednnModel::end_threads();
    all.present.push_back({{name, run}, peer->result(), peer->intermediate_bytes()});
  } catch (const Error& e) {
    all.skipped.push_back({name, e.what()});
  }
}

void add_torch(const std::string& kind, const Workload& w, const bench::Model& model,
               TorchChoice& torch, BenchContenders& all,
               const std::function<void(const std::string&)>& progress) {
  const size_t others = all.present.size();
  std::string failure = torch.reason;
  if (torch.peer)
    if (auto loaded = torch.peer->load(kind, model, w.input); !loaded)
      failure = loaded.failure().message;
  for (const std::string mode : {"eager", "compile"}) {
    const std::string name = "pytorch." + mode;
    if (!failure.empty()) {
      all.skipped.push_back({name, failure});
      continue;
    }
    progress(name);
    auto prepared = torch.peer->prepare(mode);
    if (prepared) {
      bench::TorchPeer* const peer = &*torch.peer;
      auto run = [peer, mode](const bench::Block& block) { return peer->run(mode, block); };
      all.present.push_back(
          {{name, run, true}, prepared.value().result, prepared.value().peak_intermediate_bytes});
      continue;
    }
    const Failure& why = prepared.failure();
    all.skipped.push_back({name, why.message});
    if (why.code == FailureCode::peer_error) continue;  // the process is well
    failure = torch.reason = why.message;
    torch.peer.reset();
    for (; all.present.size() > others; all.present.pop_back())
      all.skipped.push_back({all.present.back().timed.name, failure});
  }
}

bench::Stage stage_of(const nn::Linear& linear) {
  return {.weight = linear.weight, .bias = linear.bias};
}

void add_stages(const nn::Module& module, bench::Model& model) {
  if (const auto* gated = dynamic_cast<const nn::GatedMLP*>(&module)) {
    bench::Stage stage = stage_of(gated->gate_proj);
    stage.activation = gated->activation();
    stage.up = gated->up_proj.weight;
    stage.up_bias = gated->up_proj.bias;
    model.stages = {stage, stage_of(gated->down_proj)};
  } else if (const auto* mlp = dynamic_cast<const nn::MLP*>(&module)) {
    for (size_t i = 0; i < mlp->num_linears(); ++i) {
      bench::Stage& stage = model.stages.emplace_back(stage_of(mlp->fc(i)));
      if (i + 1 < mlp->num_linears()) stage.activation = mlp->activation();
    }
  } else if (const auto* linear = dynamic_cast<const nn::Linear*>(&module)) {
    model.stages = {stage_of(*linear)};
  } else {
    throw Error("[bench] expected a linear or an MLP, got " + module.class_name());
  }
}

}  // namespace

TorchChoice choose_torch(const std::string& python) {
  const char* const variable = std::getenv("EPILOGUE_PYTHON");
  const std::string program = !python.empty() || variable == nullptr ? python : variable;
  if (program.empty()) return {{}, "not asked for (--torch PYTHON, or EPILOGUE_PYTHON)"};
  auto peer = bench::TorchPeer::start(program, num_threads());
  if (!peer) return {{}, peer.failure().message};
  return {std::move(peer).value(), ""};
}

bench::Model model_of(const Workload& w) {
  bench::Model model;
  if (w.module == nullptr) {
    model.stages.push_back({.weight = t(w.operands[0]), .addend = w.operands[1]});
    return model;
  }
  const auto* block = dynamic_cast<const nn::Block*>(w.module.get());
  add_stages(block != nullptr ? block->mlp() : *w.module, model);
  if (block == nullptr) return model;
  model.residual = block->has_residual();
  if (const auto* rms = dynamic_cast<const nn::RMSNorm*>(block->norm())) {
    model.norm = nn::Norm::rms;
    model.norm_weight = rms->weight;
    model.norm_eps = rms->eps().value_or(double{std::numeric_limits<float>::epsilon()});
  } else if (const auto* layer = dynamic_cast<const nn::LayerNorm*>(block->norm())) {
    model.norm = nn::Norm::layer;
    model.norm_weight = layer->weight;
    model.norm_bias = layer->bias;
    model.norm_eps = layer->eps();
  }
  return model;
}

WorkloadOptions exact_options(WorkloadOptions options) {
  const WorkloadOptions plain;
  options.weight_bits = plain.weight_bits;
  options.activation_bits = plain.activation_bits;
  options.group = plain.group;
  options.zero_points = plain.zero_points;
  return options;
}

BenchContenders make_own_contenders(const Workload& w, const WorkloadOptions& options) {
  BenchContenders all;
  all.present.push_back(measured("epilogue.eager", w.call));
  add_compiled(w, exact_options(options), all);
  add_fused(w, all);
  add_fewer_bits(w, options, all);
  return all;
}

BenchContenders make_contenders(const Workload& w, const bench::Model& model,
                                const WorkloadOptions& options, TorchChoice& torch,
                                const std::function<void(const std::string&)>& progress) {
  progress("epilogue");
  BenchContenders all = make_own_contenders(w, options);
  if (w.input.device().type != DeviceType::cpu) {
    for (const char* const peer : {"onednn", "pytorch.eager", "pytorch.compile"})
      all.skipped.push_back(
          {peer, "runs on the CPU here; bench/cuda_bench.py has PyTorch on CUDA"});
    return all;
  }
  progress("onednn");
  add_onednn(w, model, all);
  add_torch(options.kind, w, model, torch, all, progress);
  return all;
}

}  // namespace epilogue::tool
