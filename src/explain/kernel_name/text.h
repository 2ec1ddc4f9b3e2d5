// SPDX-License-Identifier: Apache-2.0
// Reading kernel names: tokens between underscores, tile sizes, C++ templates, element types. All
// linear in the length of the text, for any bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace epilogue::trace {

std::vector<std::string_view> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);

bool contains(std::string_view text, std::string_view part);
// "A" == "a".
bool contains_ignoring_case(std::string_view text, std::string_view lower_part);
bool is_one_of(std::string_view text, std::span<const std::string_view> words);

// Digits only, at most nine of them.
std::optional<int64_t> parse_number(std::string_view text);
// "128x64x32" -> {128, 64, 32}; empty when it is not numbers joined by 'x'.
std::vector<int64_t> parse_sizes(std::string_view text);
// The sizes after `prefix`: parse_prefixed("tilesize64x64", "tilesize"); empty when it is not so.
std::vector<int64_t> parse_prefixed(std::string_view text, std::string_view prefix);
std::string format_sizes(std::span<const int64_t> sizes);

// "bf16", "f16" and so on in one spelling, from the ones that names use ("fp16", "BFloat16",
// "c10::Half", "__nv_bfloat16", "float"); "" for what is no type.
std::string_view element_type(std::string_view text);
// "bf16bf16f32" -> three types; empty when anything is left over.
std::vector<std::string_view> parse_type_list(std::string_view text);

// A C++ function as demangled: "void at::native::f<int, 4>(char*)" -> "at::native::f", {"int",
// "4"}.
struct CppName {
  std::string_view name;  // qualified
  std::vector<std::string_view> args;
};
CppName parse_cpp_name(std::string_view text);
// The part after the last "::" outside of brackets, without template arguments.
std::string_view base_name(std::string_view qualified);

// "_ZN2ck6deviceE..." -> "ck::device": the nested names up to the first template argument; "" when
// the text is not mangled so.
std::string mangled_function(std::string_view text);

}  // namespace epilogue::trace
