// SPDX-License-Identifier: Apache-2.0
// A decoded kernel name: its family, and its fields, known or inferred.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace epilogue::trace {

// The kind of work. kOther: the kernel is known and is none of the others (pooling, a loss, an
// offset table of a convolution); kUnknown: nothing is known.
enum class KernelKind : uint8_t {
  unknown,
  gemm,
  gemv,
  split_k_reduce,
  conv,
  attention,
  elementwise,
  reduce,
  softmax,
  norm,
  index,
  sort,
  embedding,
  optimizer,
  copy,
  fill,
  collective,
  triton,  // fused by Inductor: `ops` says of what
  other,
};
std::string_view kernel_kind_name(KernelKind kind);  // "gemm", "splitk-reduce", "unknown"

// One thing that a name says. Inferred: a reading that the name's author has not documented, or
// that follows from other fields; `note` says of what.
struct KernelField {
  std::string key;  // snake_case: "tile", "stages", "accumulator"
  std::string value;
  bool is_inferred = false;
  std::string note;
};

// The facts of a matrix product that analyses need as numbers (of a convolution: of the product
// that it is computed as). Empty or nullopt: the name does not say. Types are "f32", "tf32",
// "bf16", "f16", "f64", "e4m3", "e5m2", "e2m1", "i8", "i32", ...
struct GemmFacts {
  std::optional<int64_t> tile_m;
  std::optional<int64_t> tile_n;
  std::optional<int64_t> tile_k;
  std::optional<int64_t> stages;
  std::optional<std::array<int64_t, 3>> cluster;  // in blocks
  std::string layout;                             // of A and B: "tn"
  std::string a_type;
  std::string b_type;
  std::string c_type;  // of the output
  std::string accumulator;
  std::string math_type;                  // what the multipliers take, if it differs: "tf32"
  std::optional<bool> uses_tensor_cores;  // NVIDIA's tensor cores, AMD's matrix cores
  std::string instruction;                // "16x8x16"
  std::optional<bool> splits_k;
  std::vector<std::string> epilogue;  // "bias", "relu", "gelu", "aux"
  // BLAS libraries are column-major: they compute out^T = B^T A^T, so tile_m runs over the columns
  // (N) of a row-major result. False: tile_m runs over its rows.
  bool is_column_major = true;
};

struct KernelName {
  std::string name;
  std::string family = "unknown";  // "cuBLAS nvjet", "CUTLASS 2.x", "ATen elementwise", ...
  KernelKind kind = KernelKind::unknown;
  std::vector<KernelField> fields;
  std::string summary;  // one line
  std::optional<GemmFacts> gemm;
  std::vector<std::string> ops;  // what a fused kernel computes: "gelu", "mul"

  // Null if there is none.
  const KernelField* find(std::string_view key) const;
  bool is_known() const { return family != "unknown"; }
};

// Reads any bytes in time linear in their number; never fails. Names that no family claims are
// "unknown".
KernelName decode_kernel_name(std::string_view name);

// "same kernel", or the fields that differ in words: "tile 128x128 -> 128x256; stages 5 -> 3".
std::string describe_difference(const KernelName& before, const KernelName& after);

}  // namespace epilogue::trace

#pragma GCC visibility pop
