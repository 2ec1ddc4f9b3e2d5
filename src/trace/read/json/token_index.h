// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a JSON text start: simdjson's first stage, which finds them with whatever
// vector instructions the machine has.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace epilogue::trace {

class TokenIndex {
 public:
  TokenIndex();
  ~TokenIndex();
  TokenIndex(const TokenIndex&) = delete;
  TokenIndex& operator=(const TokenIndex&) = delete;

  // Indexes `text`, which may start and end anywhere between two tokens. False when it has an open
  // string, raw control characters in a string or bytes that are not UTF-8. Precondition: less than
  // 4 GiB, and text.data()[text.size()] is readable and '\0'.
  bool build(std::string_view text);

  // Offsets of { } [ ] : , and of the first characters of strings, numbers and words. The entry
  // behind the last one is the text's size.
  const uint32_t* begin() const;
  size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::trace
