// SPDX-License-Identifier: Apache-2.0
// Reads back what a page carries, with code of its own.
#pragma once

#include <zlib.h>

#include "support/test.h"

namespace epilogue::trace::testing {

inline std::string from_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    EXPECT_NE(digit, std::string_view::npos) << "not base64: " << c;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

inline std::string gunzip(std::string_view bytes) {
  z_stream z{};
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  EXPECT_EQ(inflateInit2(&z, MAX_WBITS + 16), Z_OK);
  std::string text;
  std::string piece(1 << 16, '\0');
  int code = Z_OK;
  while (code == Z_OK) {
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    code = inflate(&z, Z_NO_FLUSH);
    text.append(piece, 0, piece.size() - z.avail_out);
  }
  EXPECT_EQ(code, Z_STREAM_END);
  inflateEnd(&z);
  return text;
}

// The text of the page's <script type="text/plain" id="ID">.
inline std::string_view block(std::string_view page, std::string_view id) {
  const std::string head = "<script type=\"text/plain\" id=\"" + std::string(id) + "\">";
  const size_t from = page.find(head);
  EXPECT_NE(from, std::string_view::npos) << id;
  if (from == std::string_view::npos) return "";
  const size_t to = page.find("</script>", from);
  return page.substr(from + head.size(), to - from - head.size());
}

}  // namespace epilogue::trace::testing
