// SPDX-License-Identifier: Apache-2.0
// Equality of short texts without a call: keys and names, a dozen per event.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace epilogue::trace {

// The first or the last bytes of a text as a number.
template <class Word>
Word load_word(const char* from) {
  Word word = 0;
  std::memcpy(&word, from, sizeof(Word));
  return word;
}

// a == b
inline bool same_text(std::string_view a, std::string_view b) {
  const size_t n = a.size();
  if (n != b.size()) return false;
  const auto differ = [&](auto word, size_t at) {
    using Word = decltype(word);
    return load_word<Word>(a.data() + at) != load_word<Word>(b.data() + at);
  };
  // The last word overlaps the one before it.
  if (n >= sizeof(uint64_t)) {
    for (size_t at = 0; at + sizeof(uint64_t) < n; at += sizeof(uint64_t))
      if (differ(uint64_t{}, at)) return false;
    return !differ(uint64_t{}, n - sizeof(uint64_t));
  }
  if (n >= sizeof(uint32_t))
    return !differ(uint32_t{}, 0) && !differ(uint32_t{}, n - sizeof(uint32_t));
  for (size_t at = 0; at < n; ++at)
    if (a[at] != b[at]) return false;
  return true;
}

}  // namespace epilogue::trace
