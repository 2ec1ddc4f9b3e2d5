// SPDX-License-Identifier: Apache-2.0
#include "trace/json_text.h"

#include <charconv>
#include <cmath>

namespace epilogue::trace {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode table 3-7: no overlong
// forms, no surrogates, nothing above U+10FFFF); 0 when there is none.
size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = lead == 0xE0   ? continues(1, 0xA0)
                        : lead == 0xED ? continues(1, 0x80, 0x9F)
                                       : continues(1);
    return second && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = lead == 0xF0   ? continues(1, 0x90)
                        : lead == 0xF4 ? continues(1, 0x80, 0x8F)
                                       : continues(1);
    return second && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default:
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
  }
}

// "[a, b]" with `each` appending one element.
template <class Items, class Each>
void append_list(std::string& out, const Items& items, Each each) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ", ";
    first = false;
    each(item);
  }
  out += ']';
}

// One argument's sizes: [128, 64]; of a tensor list [[128], [64]].
void append_sizes(std::string& out, const OpInput& input, std::vector<int64_t> OpInput::*member) {
  const auto ints = [&](const OpInput& tensor) {
    append_list(out, tensor.*member, [&](int64_t size) { append_int(out, size); });
  };
  if (input.is_list) {
    append_list(out, input.list, ints);
  } else {
    ints(input);
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t plain = 0;  // start of the run that needs no change
  size_t i = 0;
  const auto flush = [&] { out.append(text, plain, i - plain); };
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      ++i;
    } else if (c < 0x80) {
      flush();
      append_escaped(out, text[i]);
      plain = ++i;
    } else if (const size_t length = utf8_sequence_length(text.substr(i)); length > 0) {
      i += length;
    } else {
      flush();
      out += "\xEF\xBF\xBD";
      plain = ++i;
    }
  }
  flush();
  out += '"';
}

void append_int(std::string& out, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, end);
}

void append_us(std::string& out, int64_t ns) {
  if (ns < 0) ns = 0;
  append_int(out, ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  const char decimals[4] = {'.', static_cast<char>('0' + rest / 100),
                            static_cast<char>('0' + rest / 10 % 10),
                            static_cast<char>('0' + rest % 10)};
  out.append(decimals, sizeof(decimals));
}

void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) value = 0;
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, end);
}

void append_inputs_json(std::string& out, std::span<const OpInput> inputs) {
  out += "\"Input Dims\": ";
  append_list(out, inputs, [&](const OpInput& in) { append_sizes(out, in, &OpInput::dims); });
  out += ", \"Input Strides\": ";
  append_list(out, inputs, [&](const OpInput& in) { append_sizes(out, in, &OpInput::strides); });
  out += ", \"Input type\": ";
  append_list(out, inputs, [&](const OpInput& in) { append_json_string(out, in.type); });
  out += ", \"Concrete Inputs\": ";
  append_list(out, inputs, [&](const OpInput& in) { append_json_string(out, in.concrete); });
}

}  // namespace epilogue::trace
