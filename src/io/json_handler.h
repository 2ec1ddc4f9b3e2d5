// SPDX-License-Identifier: Apache-2.0
// A strict streaming JSON reader for small headers: one callback per event, no document tree, no
// recursion. It exists because a tree would hide duplicate keys and the difference of 1, 1.0, 1e0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "epilogue/base/result.h"

namespace epilogue::io {

struct JsonEvent {
  enum Kind {
    null,
    boolean,
    negative,  // an integer with a minus sign, -0 included
    fraction,  // a fraction, an exponent, or an integer beyond 64 bits
    number,    // a non-negative integer
    string,
    key,
    open_object,
    close_object,
    open_array,
    close_array
  };
  Kind kind;
  uint64_t number_value = 0;    // for number
  std::string* text = nullptr;  // for string and key; the handler may move from it
};

// Derive, implement on(), call parse() once. on() returns false to stop; fail() and unexpected()
// are the ways to do so with a reason.
class JsonHandler {
 public:
  // `file` is named in messages; `syntax_code` is the code of everything that is not as expected.
  JsonHandler(std::string_view file, FailureCode syntax_code)
      : file_(file), syntax_code_(syntax_code) {}
  virtual ~JsonHandler() = default;
  JsonHandler(const JsonHandler&) = delete;
  JsonHandler& operator=(const JsonHandler&) = delete;

  // The whole text must be one JSON value. The text outlives the call only.
  Status parse(std::string_view text);

  // Called by the parser: on(), or nothing while a skipped value lasts.
  bool dispatch(const JsonEvent& event);
  bool fail_syntax(std::string_view detail) { return fail(syntax_code_, detail); }

 protected:
  virtual bool on(const JsonEvent& event) = 0;

  // Ignores the value that begins with `event`, up to 128 levels deep.
  bool skip_value(const JsonEvent& event);
  bool fail(FailureCode code, std::string_view detail);
  // Fails with "WHERE: expected WHAT, got <the event in words>".
  bool unexpected(std::string_view where, std::string_view what, const JsonEvent& event);

 private:
  std::string file_;
  FailureCode syntax_code_;
  Failure failure_;
  int skip_depth_ = 0;
};

}  // namespace epilogue::io
