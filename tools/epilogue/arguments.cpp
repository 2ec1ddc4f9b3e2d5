// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/printable.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {
namespace {

// The most threads that set_num_threads() takes.
constexpr int64_t kMaxThreads = 4096;

using Names = std::map<std::string, std::string>;  // what may be said, what it means
Names half_dtypes() {
  return {{"bf16", "bf16"},   {"bfloat16", "bf16"}, {"f16", "f16"},
          {"float16", "f16"}, {"fp16", "f16"},      {"half", "f16"}};
}
constexpr const char* kHalfDTypesText = "bf16 (bfloat16) or f16 (float16, fp16, half)";

// "expected X, got 'VALUE'", where `accepts` does not take the value; may change it.
CLI::Validator check(const std::string& expected, std::function<bool(std::string&)> accepts) {
  return {[expected, accepts = std::move(accepts)](std::string& value) {
            return accepts(value)
                       ? std::string()
                       : fmt::format("expected {}, got '{}'", expected, printable(value));
          },
          ""};
}

// Turns what was said into what it means.
CLI::Validator one_of(const std::string& expected, Names names) {
  return check(expected, [names = std::move(names)](std::string& text) {
    const auto found = names.find(text);
    if (found != names.end()) text = found->second;
    return found != names.end();
  });
}

template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) {
  const bool is_open = most == std::numeric_limits<int64_t>::max();
  const std::string range =
      is_open ? fmt::format("of {} or more", least) : fmt::format("from {} to {}", least, most);
  return check("a whole number " + range, [least, most](const std::string& text) {
    const std::optional<int64_t> n = parsed<int64_t>(text);
    return n && *n >= least && *n <= most;
  });
}

CLI::Validator number_above(double least) {
  return check(fmt::format("a number above {:g}", least), [least](const std::string& text) {
    const std::optional<double> x = parsed<double>(text);
    return x && std::isfinite(*x) && *x > least;
  });
}

CLI::Validator number_from(double least) {
  return check(fmt::format("a number of {:g} or more", least), [least](const std::string& text) {
    const std::optional<double> x = parsed<double>(text);
    return x && std::isfinite(*x) && *x >= least;
  });
}

CLI::Validator dtype_value() {
  Names names = half_dtypes();
  for (const char* name : {"f32", "float32", "fp32", "float"}) names[name] = "f32";
  return one_of(std::string("f32 (float32, fp32), ") + kHalfDTypesText, std::move(names));
}

CLI::Validator amp_value() {
  Names names = half_dtypes();
  names["none"] = "none";
  return one_of(std::string("none, ") + kHalfDTypesText, std::move(names));
}

CLI::Validator path_name() {
  return check("a path", [](const std::string& text) { return !text.empty(); });
}

CLI::Validator file_name() {
  return check("a file name without '/'", [](const std::string& text) {
    return !text.empty() && text.find('/') == std::string::npos;
  });
}

CLI::Validator choices(const std::vector<std::string>& words) {
  return {[](std::string&) { return std::string(); }, fmt::format("{}", fmt::join(words, " ")),
          kChoices};
}

void add_out_and_tag(CLI::App& app, std::string& folder, std::string& tag, const std::string& files,
                     const std::string& default_tag) {
  app.add_option("-o,--out", folder, "folder of " + files + "; made if missing")
      ->check(path_name())
      ->option_text("DIR [traces]");
  app.add_option("--tag", tag, "name of " + files)
      ->check(file_name())
      ->option_text("NAME [" + default_tag + "]");
}

void add_out_file(CLI::App& app, std::string& file, const std::string& doc,
                  const std::string& meta) {
  app.add_option("-o,--out", file, doc + "; its folder is made if missing")
      ->check(path_name())
      ->required()
      ->option_text(meta);
}

void add_threads(CLI::App& app, int& threads, const std::string& doc) {
  app.add_option("--threads", threads, doc)
      ->check(whole_number(0, kMaxThreads))
      ->option_text("N [all processors]");
}

namespace {

void add_format_option(CLI::App& app, Format& format, const std::string& doc,
                       const std::string& expected, const std::vector<std::string>& words,
                       const Names& values) {
  app.add_option("--format", format, doc)
      ->transform(one_of(expected, values))
      ->check(choices(words))
      ->option_text("FORMAT [text]");
}

Names format_names() {
  const auto number = [](Format f) { return std::to_string(static_cast<int>(f)); };
  return {{"text", number(Format::text)},
          {"json", number(Format::json)},
          {"markdown", number(Format::markdown)}};
}

}  // namespace

void add_format(CLI::App& app, Format& format) {
  add_format_option(app, format, "text, json (one object on stdout) or markdown",
                    "text, json or markdown", {"text", "json", "markdown"}, format_names());
}

void add_table_format(CLI::App& app, Format& format) {
  Names names = format_names();
  names["csv"] = std::to_string(static_cast<int>(Format::csv));
  add_format_option(app, format, "text, json (one object on stdout), markdown or csv",
                    "text, json, markdown or csv", {"text", "json", "markdown", "csv"}, names);
}

}  // namespace epilogue::tool
