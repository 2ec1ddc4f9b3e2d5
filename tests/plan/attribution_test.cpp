// SPDX-License-Identifier: Apache-2.0
// What a fused kernel's event says of the ops that it stands for.
#include "core/fused_call.h"
#include "epilogue/fused.h"
#include "epilogue/profiler.h"
#include "epilogue/runtime.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/memory.h"
#include "plan_testing.h"

namespace epilogue::testing::attribution_test {

trace::Trace record(const std::function<void()>& body, profiler::ProfileOptions options = {}) {
  trace::Trace result;
  options.on_trace_ready = [&](profiler::Profile& p) {
    result = std::move(const_cast<trace::Trace&>(p.trace()));
  };
  profiler::Profile prof(options);
  prof.start();
  body();
  prof.stop();
  return result;
}

// The bytes that a trace's kernels move in all.
int64_t kernel_bytes(const trace::Trace& t) {
  int64_t bytes = 0;
  for (const trace::KernelArgs& k : t.kernels) bytes += k.bytes;
  return bytes;
}

constexpr const char* kGegluOps = "aten::mm, aten::gelu, aten::mm, aten::mul, aten::mm";

TEST(Attribution, CompiledAndFusedKernelsNameTheirOps) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(16, 32);
  Compiled compiled = compile(mlp);
  const Tensor x = randn({2, 3, 16});
  compiled(x);
  for (const bool is_fused : {false, true}) {
    const trace::Trace t = record([&] { is_fused ? fused_forward(mlp, x).value() : compiled(x); });
    ASSERT_EQ(t.kernels.size(), 1U);
    const trace::KernelArgs& kernel = t.kernels[0];
    EXPECT_EQ(t.strings[kernel.fused_ops], kGegluOps);
    // x, the result and the weights once: (2 * 6 * 16 + 3 * 16 * 32) * 4.
    EXPECT_EQ(kernel.bytes, 6912);
    // Each product 6 * 16 + 16 * 32 + 6 * 32, gelu 2 and mul 3 times 6 * 32, of 4 bytes.
    EXPECT_EQ(kernel.unfused_bytes, 13440);
    const auto says_the_same = [&](const trace::OpArgs& op) {
      return op.fused_ops == kernel.fused_ops;
    };
    EXPECT_EQ(std::count_if(t.ops.begin(), t.ops.end(), says_the_same), 1)
        << "the op that launched it";
  }
  clear_fused_cache();
}

TEST(Attribution, UnfusedBytesAreWhatEagerMoves) {
  const NoGrad no_grad;
  for (const nn::Activation activation : {nn::Activation::swiglu, nn::Activation::relu})
    for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms, nn::Norm::layer})
      for (const bool residual : {false, true}) {
        const bool gated = nn::is_gated(activation);
        const auto module = nn::make_mlp({.dim = 24,
                                          .hidden = 40,
                                          .layers = gated ? 1 : 2,
                                          .activation = activation,
                                          .bias = !gated,
                                          .norm = norm,
                                          .residual = residual});
        module->to(DType::bf16);
        const Tensor x = randn({7, 24}, DType::bf16);
        Compiled compiled = compile(*module);
        compiled(randn({3, 24}, DType::bf16));  // planned for another number of rows
        const trace::Trace eager = record([&] { (*module)(x); });
        const trace::Trace planned = record([&] { compiled(x); });
        const trace::Trace fused = record([&] { fused_forward(*module, x).value(); });
        ASSERT_EQ(planned.kernels.size(), 1U);
        ASSERT_EQ(fused.kernels.size(), 1U);
        EXPECT_EQ(planned.kernels[0].unfused_bytes, kernel_bytes(eager));
        EXPECT_EQ(fused.kernels[0].unfused_bytes, kernel_bytes(eager));
        EXPECT_EQ(fused.kernels[0].bytes, planned.kernels[0].bytes);
        EXPECT_EQ(fused.strings[fused.kernels[0].fused_ops],
                  planned.strings[planned.kernels[0].fused_ops]);
        const auto name = [](const trace::Trace& t) {
          for (const trace::Event& e : t.events)
            if (e.category == trace::Category::kernel) return std::string(t.name(e));
          return std::string();
        };
        EXPECT_EQ(name(fused), name(planned)) << "one kernel, one name";
      }
  clear_fused_cache();
}

// The most that a step needs beside what was there before it, and its result.
int64_t intermediate_bytes(const std::function<Tensor()>& step) {
  const auto result_bytes = static_cast<int64_t>(step().bytes());
  profiler::ProfileOptions options;
  options.profile_memory = true;
  options.schedule = profiler::schedule({.active = 1, .repeat = 1});
  const trace::Trace result = record([&] { step(); }, options);
  return trace::step_peak_bytes(result, trace::link(result)).value() - result_bytes;
}

TEST(Attribution, ACompiledGatedMlpNeedsAFractionOfEagersMemory) {
  const NoGrad no_grad;
  const int threads = num_threads();
  set_num_threads(2);  // scratch memory is per thread
  nn::GatedMLP mlp(96, 384);
  mlp.to(DType::bf16);
  const Tensor x = randn({2048, 96}, DType::bf16);
  Compiled compiled = compile(mlp);
  const int64_t eager = intermediate_bytes([&] { return mlp(x); });
  const int64_t allocated = intermediate_bytes([&] { return compiled(x); });
  const CompileStats stats = compiled.stats();
  const int64_t planned = stats.intermediate_bytes + stats.scratch_bytes;
  // gelu, up and their product while the result is written: of 2048 rows.
  EXPECT_GE(eager, 2048 * 2 * 3 * 384);
  EXPECT_EQ(allocated, 0) << "a step allocates its result alone";
  EXPECT_GT(planned, 0);
  // Hidden values of two blocks of rows.
  EXPECT_LT(static_cast<double>(allocated + planned), 0.12 * static_cast<double>(eager));
  set_num_threads(threads);
}

TEST(Attribution, EagerKernelsClaimNoOthers) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(16, 32);
  const trace::Trace t = record([&] { mlp(randn({4, 16})); });
  ASSERT_GE(t.kernels.size(), 5U) << "three products, the activation, the gate";
  for (const trace::KernelArgs& k : t.kernels) {
    EXPECT_EQ(k.fused_ops, 0U);
    EXPECT_EQ(k.unfused_bytes, -1);
  }
}

TEST(Attribution, LongListsAreCutBetweenOpsInNamesAlone) {
  std::vector<std::string_view> names;
  for (int i = 0; i < 9; ++i) names.insert(names.end(), {"aten::addmm", "aten::relu"});
  const FusedOps ops(names);
  EXPECT_EQ(ops.short_names, "addmm_relu_addmm_relu_addmm_relu_addmm_relu_addmm_relu_etc");
  EXPECT_EQ(std::count(ops.full_names->begin(), ops.full_names->end(), ','), 17);
  const ShortText name =
      fused_kernel_name("epi_avx512_bf16", "row_chain", ops.short_names, DType::bf16);
  EXPECT_TRUE(name.view().ends_with("_etc_bf16")) << name.view();
}

}  // namespace epilogue::testing::attribution_test
