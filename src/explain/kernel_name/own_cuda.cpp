// SPDX-License-Identifier: Apache-2.0
// This project's own CUDA kernels: C++ templates, and generated programs (decode_own takes those).
//   void epilogue::cuda::(anonymous namespace)::pointwise_vector<epilogue::cuda::GeluTanh,
//   epilogue::cuda::Bf16>(...)
#include <array>
#include <charconv>

#include "explain/kernel_name/decode.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue::trace {
namespace {

struct Kind {
  std::string_view start;
  KernelKind kind;
};
constexpr Kind kKinds[] = {
    {"softmax", KernelKind::softmax},  {"norm", KernelKind::norm},
    {"sum", KernelKind::reduce},       {"nll", KernelKind::reduce},
    {"copy", KernelKind::copy},        {"cast", KernelKind::copy},
    {"fill", KernelKind::fill},        {"adam", KernelKind::optimizer},
    {"sgd", KernelKind::optimizer},    {"cross_entropy", KernelKind::reduce},
    {"list_norm", KernelKind::reduce},
};

// "GeluTanhBackward" -> "gelu_tanh_backward".
std::string snake_case(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !out.empty()) out += '_';
    out += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::string_view type_of(std::string_view arg) {
  const std::string_view name = base_name(arg);
  return name == "Bf16" ? "bf16" : name == "F16" ? "f16" : element_type(name);
}

// The activation of "(epilogue::PointwiseFn)5": the enumerator's number.
std::string_view activation_of(std::string_view arg) {
  const size_t digits = arg.find_last_not_of("0123456789") + 1;
  size_t number = kPointwiseFns;
  std::from_chars(arg.data() + digits, arg.data() + arg.size(), number);
  const std::optional<PointwiseFn> fn = pointwise_fn_of_number(number);
  return fn ? pointwise_fn_name(*fn) : "";
}

// gated_mlp_sm90<activation, type, cluster>
bool decode_gated(const CppName& cpp, KernelName& out) {
  if (cpp.args.size() != 3) return false;
  constexpr std::array<int64_t, 3> kTile = {128, 256, 64};
  out.kind = KernelKind::gemm;
  GemmFacts& g = out.gemm.emplace();
  g.is_column_major = false;
  g.a_type = g.b_type = g.c_type = type_of(cpp.args[1]);
  g.accumulator = "f32";
  g.uses_tensor_cores = true;
  add_types_field(out, false);
  set_tile(out, kTile, false, "rows x columns of gate and up together, K");
  set_stages(out, 4);
  const std::array<int64_t, 2> cluster = {cpp.args[2].starts_with("2") ? 2 : 1, 1};
  set_cluster(out, cluster);
  for (const std::string_view step : {activation_of(cpp.args[0]), std::string_view("mul")}) {
    if (step.empty()) continue;
    g.epilogue.emplace_back(step);
    known(out, "epilogue", std::string(step));
  }
  out.summary = summarise_gemm(out);
  return true;
}

}  // namespace

bool decode_own_cuda(const NameText& name, KernelName& out) {
  if (!name.cpp.name.starts_with("epilogue::cuda::")) return false;
  out.family = "epilogue CUDA";
  std::string what(base_name(name.cpp.name));
  if (what == "gated_mlp_sm90" && decode_gated(name.cpp, out)) return true;
  std::string_view type;
  for (const std::string_view arg : name.cpp.args)
    if (type.empty()) type = type_of(arg);
  if (what.starts_with("pointwise_") && !name.cpp.args.empty()) {
    known(out, "access", what == "pointwise_vector" ? "16 bytes at a time" : "element by element");
    // The strided kernel has its function inside: UpToTwo<epilogue::cuda::Add>.
    const CppName inner = parse_cpp_name(name.cpp.args[0]);
    what = snake_case(base_name(inner.args.empty() ? name.cpp.args[0] : inner.args[0]));
  }
  if (const size_t at = what.rfind("_kernel"); at != std::string::npos) what.erase(at);
  out.kind = KernelKind::elementwise;
  for (const Kind& kind : kKinds)
    if (what.starts_with(kind.start)) out.kind = kind.kind;
  known(out, "operation", what);
  out.ops = {what};
  if (!type.empty()) known(out, "type", std::string(type));
  out.summary = what + (type.empty() ? "" : " " + std::string(type));
  return true;
}

}  // namespace epilogue::trace
