// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/program_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace epilogue::cuda {
namespace {

constexpr int kWidth = 8;
constexpr uintptr_t kVectorAlignment = 16;
constexpr size_t kMostNameChars = 120;
constexpr std::string_view kMore = "_etc";  // where names are cut

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "Bf16";
    case DType::f16: return "F16";
    case DType::boolean: return "Truth";
    default: return "float";
  }
}

// The struct of kernels/math.cuh: gelu_tanh_backward -> GeluTanhBackward.
std::string function_name(PointwiseFn fn) {
  std::string name;
  bool upper = true;
  for (const char c : pointwise_fn_name(fn)) {
    if (c != '_') name += upper ? static_cast<char>(c - 'a' + 'A') : c;
    upper = c == '_';
  }
  return name;
}

// A float literal that is read back as the same number.
std::string literal(float x) {
  if (std::isnan(x)) return "__int_as_float(0x7fc00000)";
  if (std::isinf(x)) return x > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*g", std::numeric_limits<float>::max_digits10,
                static_cast<double>(x));
  std::string s = text.data();
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s + "f";
}

std::string value_name(int value, float constant) {
  if (value == kConstantOperand) return literal(constant);
  return "v" + std::to_string(value) + "[i]";
}

bool is_vector_view(const MatrixView& view, int64_t rows) {
  const auto bytes = static_cast<uintptr_t>(dtype_bytes(view.dtype)) * kWidth;
  return reinterpret_cast<uintptr_t>(view.data) % std::min(bytes, kVectorAlignment) == 0 &&
         (rows == 1 || view.row_stride % kWidth == 0);
}

// Results of 16 bits hide what fast functions lose.
bool is_fast(const ProgramVariant& variant) {
  return std::all_of(variant.outputs.begin(), variant.outputs.end(),
                     [](DType dtype) { return is_low_precision(dtype); });
}

void append_parameters(std::string& s, const ProgramVariant& variant) {
  s += "(Index vectors, Index vectors_per_row";
  for (size_t i = 0; i < variant.inputs.size(); ++i) {
    const std::string n = std::to_string(i);
    s += ",\n    const " + std::string(type_name(variant.inputs[i].dtype)) + "* in" + n +
         ", long long in" + n + "_row";
    if (variant.inputs[i].access == Access::strided) s += ", long long in" + n + "_col";
  }
  for (size_t i = 0; i < variant.outputs.size(); ++i) {
    const std::string n = std::to_string(i);
    s += ",\n    " + std::string(type_name(variant.outputs[i])) + "* out" + n + ", long long out" +
         n + "_row";
  }
  s += ")";
}

void append_load(std::string& s, const ProgramVariant& variant, size_t i) {
  const std::string n = std::to_string(i);
  const std::string row = "in" + n + " + row * in" + n + "_row";
  s += "    float v" + n + "[kWidth];\n";
  switch (variant.inputs[i].access) {
    case Access::vector: s += "    load_vector(" + row + " + col, v" + n + ");\n"; return;
    case Access::per_row:
      s += "    for (int i = 0; i < kWidth; ++i) v" + n + "[i] = to_float(*(" + row + "));\n";
      return;
    case Access::strided:
      s += "    for (int i = 0; i < kWidth; ++i) v" + n + "[i] = to_float((" + row +
           ")[(col + i) * in" + n + "_col]);\n";
      return;
  }
}

void append_step(std::string& s, const PointwiseStep& step, int value) {
  std::string arguments;
  const auto add = [&](const std::string& text) {
    arguments += (arguments.empty() ? "" : ", ") + text;
  };
  for (const int v : step.values()) add(value_name(v, step.constant));
  for (size_t i = 0; i < parameter_count(pointwise_row(step.fn)); ++i)
    add(literal(step.parameters[i]));
  s += "      v" + std::to_string(value) + "[i] = " + function_name(step.fn) + "::run<kFast>(" +
       arguments + ");\n";
}

}  // namespace

ProgramVariant make_variant(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
                            std::span<const MatrixView> outputs) {
  ProgramVariant variant;
  bool vectors_fit = cols % kWidth == 0;
  for (const MatrixView& view : inputs) {
    const Access access = view.col_stride == 1   ? Access::vector
                          : view.col_stride == 0 ? Access::per_row
                                                 : Access::strided;
    variant.inputs.push_back({view.dtype, access});
    if (access == Access::vector) vectors_fit = vectors_fit && is_vector_view(view, rows);
  }
  for (const MatrixView& view : outputs) {
    variant.outputs.push_back(view.dtype);
    vectors_fit = vectors_fit && is_vector_view(view, rows);
  }
  variant.width = vectors_fit ? kWidth : 1;
  variant.wide_index = rows * (cols / variant.width) > std::numeric_limits<uint32_t>::max() / 2;
  return variant;
}

std::string program_kernel_name(const PointwiseProgram& program, const ProgramVariant& variant) {
  const std::string end = "_" + std::string(dtype_name(variant.outputs[0]));
  std::string name = "epi_cuda_fused";
  for (const PointwiseStep& step : program.steps) {
    const std::string next = "_" + std::string(op_base_name(step.fn));
    if (name.size() + next.size() + kMore.size() + end.size() > kMostNameChars) {
      name += kMore;
      break;
    }
    name += next;
  }
  if (program.steps.empty()) name += "_copy";
  return name + end;
}

std::string_view device_text() {
  static const std::string text = [] {
    std::string s = "namespace epilogue {\nenum class PointwiseFn : unsigned char {";
    for (const PointwiseRow& row : kPointwiseTable) s += " " + std::string(row.name) + ",";
    return s + " };\n}\n" + std::string(device_header_text());
  }();
  return text;
}

std::string program_source(const PointwiseProgram& program, const ProgramVariant& variant) {
  std::string s(device_text());
  s += "\nusing namespace epilogue::cuda;\nusing Index = ";
  s += variant.wide_index ? "unsigned long long" : "unsigned";
  s += ";\nconstexpr int kWidth = " + std::to_string(variant.width) + ";\n";
  s += std::string("constexpr bool kFast = ") + (is_fast(variant) ? "true" : "false") + ";\n\n";
  s += "// " + to_string(program) + "\n";
  s += "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(kProgramThreads) + ")\n" +
       program_kernel_name(program, variant);
  append_parameters(s, variant);
  s += " {\n"
       "  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;\n"
       "  for (Index v = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; v < vectors;\n"
       "       v += step) {\n"
       "    const Index whole_row = v / vectors_per_row;\n"
       "    const long long row = whole_row;\n"
       "    const long long col = static_cast<long long>(v - whole_row * vectors_per_row) * "
       "kWidth;\n";
  for (size_t i = 0; i < variant.inputs.size(); ++i) append_load(s, variant, i);
  for (int v = program.inputs; v < program.values(); ++v)
    s += "    float v" + std::to_string(v) + "[kWidth];\n";
  if (!program.steps.empty()) {
    s += "#pragma unroll\n    for (int i = 0; i < kWidth; ++i) {\n";
    int value = program.inputs;
    for (const PointwiseStep& step : program.steps) append_step(s, step, value++);
    s += "    }\n";
  }
  for (size_t i = 0; i < variant.outputs.size(); ++i) {
    const std::string n = std::to_string(i);
    s += "    store_vector(v" + std::to_string(program.outputs[i]) + ", out" + n + " + row * out" +
         n + "_row + col);\n";
  }
  return s + "  }\n}\n";
}

}  // namespace epilogue::cuda
