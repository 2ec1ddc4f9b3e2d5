// SPDX-License-Identifier: Apache-2.0
// Programs as CUDA source: the text, and that NVRTC makes machine code of it without spills. Needs
// NVRTC, no device.
#include "backend/cuda/program_source.h"

#include "backend/cuda/nvrtc.h"
#include "epilogue/base/error.h"
#include "support/test.h"

namespace epilogue::cuda::program_source_test {

using Fn = PointwiseFn;

constexpr int kHopper = 90;
constexpr int kAmpere = 80;

// v2 = gelu_tanh(v0), v3 = v2 * v1.
const PointwiseProgram kGeglu{2, {{Fn::gelu_tanh, 0}, {Fn::mul, 2, 1}}, {3}};

ProgramVariant variant(std::vector<ProgramVariant::Input> inputs, std::vector<DType> outputs,
                       int width) {
  return {std::move(inputs), std::move(outputs), width, false};
}
const ProgramVariant kBf16 = variant({{DType::bf16}, {DType::bf16}}, {DType::bf16}, 8);

// Without the headers' text.
std::string kernel_text(const PointwiseProgram& program, const ProgramVariant& v) {
  const std::string source = program_source(program, v);
  EXPECT_TRUE(source.starts_with(device_text()));
  return source.substr(device_text().size());
}

TEST(ProgramSource, AGatedActivationReadsAndWritesVectors) {
  EXPECT_EQ(kernel_text(kGeglu, kBf16), R"(
using namespace epilogue::cuda;
using Index = unsigned;
constexpr int kWidth = 8;
constexpr bool kFast = true;

// v2 = gelu_tanh(v0); v3 = mul(v2, v1); store v3
extern "C" __global__ void __launch_bounds__(256)
epi_cuda_fused_gelu_mul_bf16(Index vectors, Index vectors_per_row,
    const Bf16* in0, long long in0_row,
    const Bf16* in1, long long in1_row,
    Bf16* out0, long long out0_row) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index v = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; v < vectors;
       v += step) {
    const Index whole_row = v / vectors_per_row;
    const long long row = whole_row;
    const long long col = static_cast<long long>(v - whole_row * vectors_per_row) * kWidth;
    float v0[kWidth];
    load_vector(in0 + row * in0_row + col, v0);
    float v1[kWidth];
    load_vector(in1 + row * in1_row + col, v1);
    float v2[kWidth];
    float v3[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      v2[i] = GeluTanh::run<kFast>(v0[i]);
      v3[i] = Mul::run<kFast>(v2[i], v1[i]);
    }
    store_vector(v3, out0 + row * out0_row + col);
  }
}
)");
}

TEST(ProgramSource, ConstantsAreReadBackAsTheSameNumbers) {
  const float third = 1.0F / 3;
  const PointwiseProgram program{
      1,
      {{Fn::mul, 0, kConstantOperand, third},
       {Fn::sub, kConstantOperand, 1, 1, -2},
       {Fn::add, 2, kConstantOperand, std::numeric_limits<float>::infinity()},
       {Fn::mul, 3, kConstantOperand, 1e-30F}},
      {4}};
  const std::string text = kernel_text(program, variant({{DType::f32}}, {DType::f32}, 1));
  EXPECT_HAS(text, "v1[i] = Mul::run<kFast>(v0[i], 0.333333343f);");
  EXPECT_HAS(text, "v2[i] = Sub::run<kFast>(1.0f, v1[i], -2.0f);");
  EXPECT_HAS(text, "Add::run<kFast>(v2[i], __int_as_float(0x7f800000), 1.0f)");
  EXPECT_HAS(text, "1e-30f");
  EXPECT_HAS(text, "kFast = false");
}

TEST(ProgramSource, InputsAreReadAsTheirStridesAllow) {
  const PointwiseProgram program{3, {{Fn::add, 0, 1}, {Fn::add, 3, 2}}, {4, 3}};
  const ProgramVariant v =
      variant({{DType::f32}, {DType::f16, Access::per_row}, {DType::bf16, Access::strided}},
              {DType::f32, DType::f16}, 1);
  const std::string text = kernel_text(program, v);
  EXPECT_HAS(text, "v1[i] = to_float(*(in1 + row * in1_row));");
  EXPECT_HAS(text, "v2[i] = to_float((in2 + row * in2_row)[(col + i) * in2_col]);");
  EXPECT_HAS(text, "const Bf16* in2, long long in2_row, long long in2_col");
  EXPECT_HAS(text, "store_vector(v4, out0");
  EXPECT_HAS(text, "store_vector(v3, out1");
}

TEST(ProgramSource, StepsHaveTheirParametersAndAsManyOperandsAsTheyNeed) {
  PointwiseProgram program{2, {{Fn::gt, 0, kConstantOperand, 0.5F}, {Fn::leaky_relu, 1}}, {}};
  program.steps.emplace_back(Fn::where, std::array{2, 3, kConstantOperand}, 0.25F);
  program.outputs = {4, 2};
  program.steps[1].parameters = {0.1F};
  const std::string text = kernel_text(
      program, variant({{DType::f32}, {DType::boolean}}, {DType::f32, DType::boolean}, 8));
  EXPECT_HAS(text, "v2[i] = Gt::run<kFast>(v0[i], 0.5f);");
  EXPECT_HAS(text, "v3[i] = LeakyRelu::run<kFast>(v1[i], 0.100000001f);");
  EXPECT_HAS(text, "v4[i] = Where::run<kFast>(v2[i], v3[i], 0.25f);");
  EXPECT_HAS(text, "const Truth* in1");
  EXPECT_HAS(text, "Truth* out1");
  EXPECT_HAS(text, "v3 = leaky_relu(v1, negative_slope=0.1)");
}

TEST(ProgramSource, LongProgramsHaveNamesThatFit) {
  PointwiseProgram program{1, {}, {}};
  for (int i = 0; i < 40; ++i) program.steps.push_back({Fn::gelu_tanh, i});
  program.outputs = {40};
  const std::string name = program_kernel_name(program, variant({{DType::f16}}, {DType::f16}, 8));
  EXPECT_EQ(name.size(), 117U);  // 19 times "_gelu" is what fits
  EXPECT_TRUE(name.ends_with("_gelu_etc_f16"));
}

TEST(ProgramSource, StepsAreNamedAsTheOpsThatTheyStandFor) {
  const PointwiseProgram program{2,
                                 {{Fn::relu_backward, 0, 1},
                                  {Fn::gelu_tanh_backward, 2, 1},
                                  {Fn::silu_backward, 3, 1},
                                  {Fn::gelu_erf, 4}},
                                 {5}};
  EXPECT_EQ(program_kernel_name(program, variant({{DType::f32}, {DType::f32}}, {DType::f32}, 1)),
            "epi_cuda_fused_threshold_backward_gelu_backward_silu_backward_gelu_f32");
}

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

ProgramVariant variant_of(int64_t rows, int64_t cols, std::vector<MatrixView> inputs,
                          std::vector<MatrixView> outputs) {
  return make_variant(rows, cols, inputs, outputs);
}

TEST(ProgramVariant, VectorsNeedAlignedRowsOfMultiplesOfEight) {
  const MatrixView good{at(4096), DType::bf16, 64, 1};
  EXPECT_EQ(variant_of(5, 64, {good}, {good}).width, 8);
  EXPECT_EQ(variant_of(5, 63, {good}, {good}).width, 1);
  EXPECT_EQ(variant_of(5, 64, {{at(4098), DType::bf16, 64, 1}}, {good}).width, 1);
  EXPECT_EQ(variant_of(5, 64, {good}, {{at(4096), DType::bf16, 68, 1}}).width, 1);
  EXPECT_EQ(variant_of(1, 64, {good}, {{at(4096), DType::bf16, 68, 1}}).width, 8);  // one row
  // A bias row, and operands that are read one by one.
  const ProgramVariant v = variant_of(
      5, 64,
      {{at(4096), DType::bf16, 0, 1}, {at(4098), DType::f32, 1, 0}, {at(4098), DType::f16, 1, 5}},
      {good});
  EXPECT_EQ(v.width, 8);
  EXPECT_EQ(v.inputs[0].access, Access::vector);
  EXPECT_EQ(v.inputs[1].access, Access::per_row);
  EXPECT_EQ(v.inputs[2].access, Access::strided);
}

TEST(ProgramVariant, HugeCallsCountWith64Bits) {
  const MatrixView view{at(4096), DType::bf16, 0, 1};
  EXPECT_FALSE(variant_of(1, int64_t{1} << 33, {view}, {view}).wide_index);
  EXPECT_TRUE(variant_of(1, int64_t{1} << 35, {view}, {view}).wide_index);
}

// Every program here must become machine code, and fit the registers.
void expect_compiles(const PointwiseProgram& program, const ProgramVariant& v) {
  for (const int architecture : {kHopper, kAmpere}) {
    const Compiled code = compile_source(program_source(program, v), architecture, true);
    EXPECT_GT(code.cubin.size(), 1000U);
    EXPECT_HAS(code.cubin, program_kernel_name(program, v));
    EXPECT_HAS(code.log, "0 bytes spill stores, 0 bytes spill loads");
  }
}

TEST(CompiledProgram, AGatedActivationOfEveryDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int width : {1, 8})
      expect_compiles(kGeglu, variant({{dtype}, {dtype}}, {dtype}, width));
}

// In programs of some twenty, whose results all fit into registers.
TEST(CompiledProgram, EveryFunction) {
  constexpr size_t kEach = 24;
  for (size_t first = 0; first < kPointwiseFns; first += kEach) {
    PointwiseProgram program{3, {}, {}};
    for (size_t i = first; i < std::min(first + kEach, kPointwiseFns); ++i) {
      const int a = static_cast<int>(i % 3);
      if (is_elementwise(kPointwiseTable[i].fn))
        program.steps.emplace_back(kPointwiseTable[i].fn, std::array{a, (a + 1) % 3, (a + 2) % 3},
                                   1.0F);
    }
    for (int v = 3; v < program.values(); ++v) program.outputs.push_back(v);
    ProgramVariant v =
        variant({{DType::bf16}, {DType::f32, Access::per_row}, {DType::f16, Access::strided}},
                std::vector<DType>(program.outputs.size(), DType::bf16), 1);
    expect_compiles(program, v);
    v.wide_index = true;
    expect_compiles(program, v);
  }
}

TEST(CompiledProgram, BooleansAreReadAndWritten) {
  PointwiseProgram program{3, {{Fn::lt, 1, 2}}, {4, 3}};
  program.steps.emplace_back(Fn::where, std::array{0, 1, 2}, 0.0F);
  for (const int width : {1, 8})
    expect_compiles(program, variant({{DType::boolean}, {DType::f32}, {DType::f32}},
                                     {DType::f32, DType::boolean}, width));
}

// dh, gate, up -> dgate, dup, hidden: the backward pass of a gated MLP between its products.
TEST(CompiledProgram, AGatedBackwardWithThreeResults) {
  const PointwiseProgram program{3,
                                 {{Fn::gelu_tanh, 1},
                                  {Fn::mul, 0, 3},
                                  {Fn::mul, 0, 2},
                                  {Fn::gelu_tanh_backward, 5, 1},
                                  {Fn::mul, 3, 2}},
                                 {6, 4, 7}};
  expect_compiles(program, variant({{DType::bf16}, {DType::bf16}, {DType::bf16}},
                                   {DType::bf16, DType::bf16, DType::bf16}, 8));
}

TEST(CompiledProgram, WhatDoesNotCompileIsReportedWithTheCompilersWords) {
  try {
    compile_source("__global__ void f() { no_such_thing(); }", kHopper);
    FAIL() << "it compiled";
  } catch (const Error& e) {
    EXPECT_HAS(std::string(e.what()), "no_such_thing");
  }
}

}  // namespace epilogue::cuda::program_source_test
