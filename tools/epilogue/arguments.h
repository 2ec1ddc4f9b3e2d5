// SPDX-License-Identifier: Apache-2.0
// What values flags take. Each check refuses with "expected ..., got '...'"; the flag's name is put
// before it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

namespace epilogue::tool {

// In decimal; from `least` to `most`.
CLI::Validator whole_number(int64_t least, int64_t most = std::numeric_limits<int64_t>::max());

// Finite; above or from `least`.
CLI::Validator number_above(double least);
CLI::Validator number_from(double least);

// Take the usual names ("float32", "half") and turn them into ours. dtype_value: f32, bf16 or f16;
// amp_value: none, bf16 or f16.
CLI::Validator dtype_value();
CLI::Validator amp_value();

// Not empty: an empty name in front of "/file" would be the root.
CLI::Validator path_name();
// Not empty, and in no other folder.
CLI::Validator file_name();

// Adds --threads; 0, the default, stands for all processors.
void add_threads(CLI::App& app, int& threads,
                 const std::string& doc = "threads that kernels may use");

}  // namespace epilogue::tool
