// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "command.h"

namespace epilogue::tool {

void add_format(CLI::App& app, Format& format) {
  static const std::map<std::string, Format> kFormats = {
      {"text", Format::text}, {"json", Format::json}, {"markdown", Format::markdown}};
  app.add_option("--format", format, "text, json (one object on stdout) or markdown")
      ->transform(CLI::CheckedTransformer(kFormats).description(""))
      ->option_text("FORMAT [text]");
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

bool wants_bold() {
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && isatty(STDOUT_FILENO) != 0;
}

std::string bold(const std::string& text) {
  return wants_bold() ? "\x1b[1m" + text + "\x1b[0m" : text;
}

}  // namespace epilogue::tool
