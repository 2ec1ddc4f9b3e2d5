// SPDX-License-Identifier: Apache-2.0
// Checks of flags' values. Each refuses with "expected ..., got '...'"; the flag's name is put
// before it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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

// The values that a shell offers (man page and completion read it from the option's description);
// refuses nothing. Words are separated by spaces in the validator named kChoices.
inline constexpr const char* kChoices = "choices";
CLI::Validator choices(const std::vector<std::string>& words);

// Adds -o,--out: the folder of what a command writes, made if missing; `files` says of what. And
// --tag: the name of it there. Alike in all commands that write more than one file.
void add_out_and_tag(CLI::App& app, std::string& folder, std::string& tag, const std::string& files,
                     const std::string& default_tag);

// Adds -o,--out of a command that writes one file.
void add_out_file(CLI::App& app, std::string& file, const std::string& doc,
                  const std::string& meta);

// Adds --threads; 0, the default, stands for all processors.
void add_threads(CLI::App& app, int& threads,
                 const std::string& doc = "threads that kernels may use");

}  // namespace epilogue::tool
