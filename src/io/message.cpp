// SPDX-License-Identifier: Apache-2.0
#include "io/message.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace epilogue::io {
namespace {

constexpr size_t kMaxPathChars = 1024;

}  // namespace

std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

Failure io_failure(std::string_view file, std::string_view code, std::string_view detail) {
  return {std::string(code),
          fmt::format("{}: {}: {}", printable(file, kMaxPathChars), code, detail)};
}

}  // namespace epilogue::io
