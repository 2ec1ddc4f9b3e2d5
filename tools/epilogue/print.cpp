// SPDX-License-Identifier: Apache-2.0
// Where results go.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "epilogue/trace/answer.h"
#include "explain/render/document.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {

void print(const trace::Document& result, Format format) {
  switch (format) {
    case Format::text: print(trace::document_text(result, wants_bold())); break;
    case Format::json: print(trace::document_json(result)); break;
    case Format::markdown: print(trace::document_markdown(result)); break;
    case Format::csv: print(trace::document_csv(result)); break;
  }
}

void print(const trace::Answer& answer, Format format) { print(answer.document(), format); }

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

bool wants_bold() {
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && isatty(STDOUT_FILENO) != 0;
}

std::string bold(const std::string& text) {
  return wants_bold() ? "\x1b[1m" + text + "\x1b[0m" : text;
}

}  // namespace epilogue::tool
