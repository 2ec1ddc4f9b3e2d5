// SPDX-License-Identifier: Apache-2.0
// The reference workloads: matmul-add, linear, mlp, train-step, with their flags, tags and ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/compile.h"
#include "epilogue/nn.h"
#include "epilogue/tensor.h"

namespace CLI {
class App;
}

namespace epilogue::tool {

// Fewer bits, of kernels that compile() and fused ops make.
struct BitsFlags {
  std::string weight_bits = "same";
  std::string activation_bits = "same";
  int group = 128;
  bool zero_points = false;
};

struct WorkloadOptions : BitsFlags {
  std::string kind;  // "matmul-add", "linear", "mlp", "train-step"
  // matmul-add
  int64_t size = 64;
  bool cold = false;
  // linear, mlp
  int64_t batch = 0;  // 0: the workload's default
  int64_t in_dim = 32;
  int64_t out_dim = 64;
  bool no_bias = false;
  int64_t seq = 128;
  std::optional<int64_t> dim;
  std::optional<int64_t> in_dim_given;
  int64_t hidden = 3072;
  int64_t layers = 1;
  std::optional<std::string> activation;  // none given: geglu, or what a checkpoint has
  bool bias = false;
  std::string norm = "none";
  bool residual = false;
  // train-step
  std::string optimizer = "adamw";
  std::string amp = "none";
  int64_t accumulate = 1;
  // common
  std::string mode = "eager";
  std::string dtype = "bf16";
  std::string device = "cpu";
  int threads = 0;  // 0: leave
  uint64_t seed = 0;
  bool backward = false;
  std::string input = "random";
  std::string weights;
  std::string prefix;
  // of compile
  std::vector<std::string> skip_passes;
  bool collapse_linears = false;
  std::string tune = "model";
};

// An MLP and its input [batch, seq, dim].
struct MlpSetup {
  std::shared_ptr<nn::Module> model;
  nn::MlpConfig config;
  Tensor x;
  int64_t batch;
  int64_t seq;
  std::string how_activation;  // how a checkpoint's activation is known; empty: it was asked for

  // "geglu [64, 128, 768] -> 3072, rms norm, residual".
  std::string description() const;
};
MlpSetup set_up_mlp(const WorkloadOptions& options, DType dtype);
// "2 threads, avx512".
std::string machine_description();

struct Workload {
  std::string tag;               // file names: "64_128_768_3072_eager"
  std::string what;              // "mlp: geglu [64, 128, 768] -> 3072"
  std::string label;             // the record_function range: "mlp_fwd"
  std::string description;       // that, with dtype, mode, threads and ISA
  std::function<Tensor()> call;  // one step; returns the result
  int warmup_calls = 3;
  Compiled::Function function;  // what `call` computes, of `input`
  Tensor input;
  std::vector<std::pair<std::string, int64_t>> shape;  // sizes, by the names of their flags
  std::shared_ptr<nn::Module> module;                  // that `function` runs; null: matmul-add
  std::vector<Tensor> operands;                        // matmul-add's b and c
};

// The options of compile(): passes to skip, collapsed linears, how plans are chosen.
CompileOptions compile_options(const WorkloadOptions& options);
// Their choice. Throws Error where they do not fit each other.
Quantisation bits_of(const BitsFlags& flags);
// Adds them.
void add_bits_flags(CLI::App& app, BitsFlags& flags);
// The same as a contender's or kernel's suffix: "int8", "w8a8", "int4", "w4a8"; empty: none.
std::string bits_name(const Quantisation& bits);
// Adds --tune, of commands that compile.
void add_tune_flag(CLI::App& app, WorkloadOptions& options);

// Adds the flags of `kind` and the common ones.
void add_workload_flags(CLI::App& app, const std::string& kind, WorkloadOptions& options);

// Checks the options, applies threads and seed, builds module and input. Throws Error on misuse,
// also with the messages of files that cannot be used.
Workload make_workload(const WorkloadOptions& options);

}  // namespace epilogue::tool
