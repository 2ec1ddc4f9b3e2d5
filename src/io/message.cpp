// SPDX-License-Identifier: Apache-2.0
#include "io/message.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace epilogue::io {
namespace {

constexpr size_t kMaxPathChars = 1024;

}  // namespace

std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

Failure io_failure(std::string_view file, FailureCode code, std::string_view detail) {
  return {code, fmt::format("{}: {}: {}", printable(file, kMaxPathChars), failure_code_name(code),
                            detail)};
}

}  // namespace epilogue::io
