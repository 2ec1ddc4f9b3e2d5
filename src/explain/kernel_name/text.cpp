// SPDX-License-Identifier: Apache-2.0
#include "explain/kernel_name/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace epilogue::trace {
namespace {

constexpr size_t kMostDigits = 9;   // sizes stay far from overflow
constexpr size_t kMostSizes = 8;    // numbers joined by 'x'
constexpr size_t kMostTypes = 8;    // types written without a separator
constexpr size_t kMostPieces = 32;  // nested names of a mangled function
constexpr std::string_view kAnonymous = "(anonymous namespace)";

constexpr std::pair<std::string_view, std::string_view> kTypeSpellings[] = {
    {"float", "f32"},
    {"fp32", "f32"},
    {"f32", "f32"},
    {"Fp32", "f32"},
    {"double", "f64"},
    {"fp64", "f64"},
    {"f64", "f64"},
    {"bf16", "bf16"},
    {"bfloat16", "bf16"},
    {"BFloat16", "bf16"},
    {"Bfloat16", "bf16"},
    {"bfloat16_t", "bf16"},
    {"__nv_bfloat16", "bf16"},
    {"__hip_bfloat16", "bf16"},
    {"nv_bfloat16", "bf16"},
    {"f16", "f16"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"Half", "f16"},
    {"Fp16", "f16"},
    {"half_t", "f16"},
    {"__half", "f16"},
    {"tf32", "tf32"},
    {"tfloat32_t", "tf32"},
    {"e4m3", "e4m3"},
    {"E4m3", "e4m3"},
    {"Float8_e4m3fn", "e4m3"},
    {"float_e4m3_t", "e4m3"},
    {"__nv_fp8_e4m3", "e4m3"},
    {"e5m2", "e5m2"},
    {"E5m2", "e5m2"},
    {"Float8_e5m2", "e5m2"},
    {"float_e5m2_t", "e5m2"},
    {"__nv_fp8_e5m2", "e5m2"},
    {"e2m1", "e2m1"},
    {"E2m1", "e2m1"},
    {"mxfp4", "mxfp4"},
    {"MxE2m1", "mxfp4"},
    {"MxE4m3", "mxfp8_e4m3"},
    {"MxE5m2", "mxfp8_e5m2"},
    {"NvfpE2m1", "nvfp4"},
    {"long", "i64"},
    {"int64_t", "i64"},
    {"int", "i32"},
    {"s32", "i32"},
    {"i32", "i32"},
    {"short", "i16"},
    {"char", "i8"},
    {"signed char", "i8"},
    {"int8_t", "i8"},
    {"s8", "i8"},
    {"i8", "i8"},
    {"unsigned char", "u8"},
    {"uint8_t", "u8"},
    {"u8", "u8"},
    {"s4", "i4"},
    {"u4", "u4"},
    {"b1", "b1"},
    {"bool", "bool"},
    {"c10::complex<float>", "c64"},
    {"c10::complex<double>", "c128"},
    {"cf32", "c64"},
    {"cf64", "c128"},
};

// The spellings that occur joined ("bf16f32", "MxE2m1MxE4m3"); none is the start of another.
constexpr std::string_view kJoinable[] = {"bf16", "tf32",     "e4m3",   "e5m2",   "e2m1", "f16",
                                          "f32",  "f64",      "i8",     "i32",    "u8",   "s8",
                                          "s32",  "MxE2m1",   "MxE4m3", "MxE5m2", "E4m3", "E5m2",
                                          "E2m1", "Bfloat16", "Fp16",   "Fp32"};

bool is_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Follows brackets; '>' closes only a '<', so that comparisons and arrows do not count.
class Brackets {
 public:
  void step(std::string_view text, size_t i) {
    const char c = text[i];
    if (c == '<' || c == '(' || c == '{' || c == '[') {
      open_.push_back(c);
    } else if (!open_.empty() &&
               ((c == '>' && open_.back() == '<') || (c == ')' && open_.back() == '(') ||
                (c == '}' && open_.back() == '{') || (c == ']' && open_.back() == '['))) {
      open_.pop_back();
    }
  }
  size_t depth() const { return open_.size(); }

 private:
  std::string open_;
};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split_arguments(std::string_view text) {
  std::vector<std::string_view> args;
  Brackets brackets;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && brackets.depth() == 0) {
      args.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
    brackets.step(text, i);
  }
  if (begin < text.size()) args.push_back(trim(text.substr(begin)));
  return args;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool contains_ignoring_case(std::string_view text, std::string_view lower_part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  };
  return std::search(text.begin(), text.end(), lower_part.begin(), lower_part.end(), same) !=
         text.end();
}

bool is_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::optional<int64_t> parse_number(std::string_view text) {
  if (text.empty() || text.size() > kMostDigits) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::vector<int64_t> parse_sizes(std::string_view text) {
  std::vector<int64_t> sizes;
  if (text.size() > kMostSizes * (kMostDigits + 1)) return {};
  for (const std::string_view part : split(text, 'x')) {
    const std::optional<int64_t> size = parse_number(part);
    if (!size || sizes.size() == kMostSizes) return {};
    sizes.push_back(*size);
  }
  return sizes;
}

std::vector<int64_t> parse_prefixed(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) ? parse_sizes(text.substr(prefix.size()))
                                  : std::vector<int64_t>();
}

std::string format_sizes(std::span<const int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    if (!text.empty()) text += 'x';
    text += std::to_string(size);
  }
  return text;
}

std::string_view element_type(std::string_view text) {
  for (const std::string_view part : {"const", "*", "&"})
    if (text.ends_with(part)) text = trim(text.substr(0, text.size() - part.size()));
  for (const std::string_view prefix : {"c10::complex<"})
    if (text.starts_with(prefix)) return text == "c10::complex<double>" ? "c128" : "c64";
  for (const std::string_view scope : {"c10::", "at::", "cutlass::"})
    if (text.starts_with(scope)) text.remove_prefix(scope.size());
  for (const auto& [spelling, type] : kTypeSpellings)
    if (text == spelling) return type;
  return {};
}

std::vector<std::string_view> parse_type_list(std::string_view text) {
  std::vector<std::string_view> types;
  while (!text.empty()) {
    const auto* const it =
        std::find_if(std::begin(kJoinable), std::end(kJoinable),
                     [&](std::string_view spelling) { return text.starts_with(spelling); });
    if (it == std::end(kJoinable) || types.size() == kMostTypes) return {};
    types.push_back(element_type(*it));
    text.remove_prefix(it->size());
  }
  return types;
}

CppName parse_cpp_name(std::string_view text) {
  Brackets brackets;
  size_t begin = 0;  // of the qualified name
  size_t name_end = std::string_view::npos;
  size_t args_begin = 0;
  size_t args_end = 0;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if (brackets.depth() == 0) {
      if (text.substr(i).starts_with(kAnonymous)) {
        i += kAnonymous.size() - 1;
        continue;
      }
      if (text[i] == '(') break;
      if (text[i] == ' ') {
        begin = i + 1;
        name_end = std::string_view::npos;
        args_begin = args_end = 0;
        continue;
      }
      if (text[i] == '<') {
        name_end = i;
        args_begin = i + 1;
      }
    }
    brackets.step(text, i);
    if (text[i] == '>' && brackets.depth() == 0 && args_begin > 0) args_end = i;
  }
  CppName result;
  result.name = text.substr(begin, std::min(name_end, i) - begin);
  if (args_begin > 0)
    result.args = split_arguments(
        text.substr(args_begin, (args_end > args_begin ? args_end : text.size()) - args_begin));
  return result;
}

std::string_view base_name(std::string_view qualified) {
  Brackets brackets;
  size_t begin = 0;
  size_t end = qualified.size();
  bool has_end = false;
  for (size_t i = 0; i < qualified.size(); ++i) {
    if (brackets.depth() == 0) {
      if (qualified[i] == ':' && i + 1 < qualified.size() && qualified[i + 1] == ':') {
        begin = i + 2;
        has_end = false;
        ++i;
        continue;
      }
      if (!has_end && !is_identifier(qualified[i]) && i >= begin) {
        end = i;
        has_end = true;
      }
    }
    brackets.step(qualified, i);
  }
  return qualified.substr(begin, (has_end ? end : qualified.size()) - begin);
}

std::string mangled_function(std::string_view text) {
  if (!text.starts_with("_Z")) return {};
  text.remove_prefix(2);
  const bool is_nested = text.starts_with("N");
  if (is_nested) text.remove_prefix(1);
  std::string function;
  for (size_t piece = 0; piece < (is_nested ? kMostPieces : 1); ++piece) {
    size_t digits = 0;
    while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0)
      ++digits;
    const std::optional<int64_t> length = parse_number(text.substr(0, digits));
    if (!length || static_cast<size_t>(*length) > text.size() - digits) break;
    const std::string_view name = text.substr(digits, static_cast<size_t>(*length));
    text.remove_prefix(digits + name.size());
    if (name.starts_with("_GLOBAL__N_")) continue;  // an anonymous namespace
    if (!function.empty()) function += "::";
    function += name;
  }
  return function;
}

}  // namespace epilogue::trace
