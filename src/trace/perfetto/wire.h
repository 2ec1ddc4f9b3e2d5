// SPDX-License-Identifier: Apache-2.0
// The wire format of protocol buffers, read field by field, within bounds. Knows no message.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace epilogue::trace {

struct WireField {
  uint32_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;      // of a varint or of 4 or 8 bytes
  std::string_view bytes;  // of a message, text or packed list

  int64_t whole() const { return static_cast<int64_t>(value); }
  double real() const {
    double result = 0;
    std::memcpy(&result, &value, sizeof result);
    return result;
  }
};

// Gives the fields of one message in their order. Bytes that are no message end it with a fault.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  // Empty at the end, and at a fault.
  std::optional<WireField> next() {
    if (at_ == bytes_.size() || is_broken_) return std::nullopt;
    begin_ = at_;
    uint64_t key = 0;
    WireField field;
    const bool is_fine = take_varint(key) && (key >> 3) != 0 && (key >> 32) == 0 &&
                         take_value(static_cast<unsigned>(key & 7), field);
    field.number = static_cast<uint32_t>(key >> 3);
    is_broken_ = !is_fine;
    return is_fine ? std::optional(field) : std::nullopt;
  }

  bool is_broken() const { return is_broken_; }
  // Where the field that was read last begins.
  size_t begin() const { return begin_; }

  // The next varint of a packed list; its fault is is_broken(), too.
  std::optional<uint64_t> next_varint() {
    uint64_t value = 0;
    if (at_ == bytes_.size() || is_broken_) return std::nullopt;
    is_broken_ = !take_varint(value);
    return is_broken_ ? std::nullopt : std::optional(value);
  }

 private:
  bool take_varint(uint64_t& value) {
    for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool take_fixed(size_t size, uint64_t& value) {
    if (bytes_.size() - at_ < size) return false;
    std::memcpy(&value, bytes_.data() + at_, size);  // little-endian, as the machines here are
    at_ += size;
    return true;
  }
  bool take_value(unsigned type, WireField& field) {
    switch (type) {
      case 0: return take_varint(field.value);
      case 1: return take_fixed(8, field.value);
      case 2: {
        uint64_t size = 0;
        if (!take_varint(size) || size > bytes_.size() - at_) return false;
        field.is_bytes = true;
        field.bytes = bytes_.substr(at_, size);
        at_ += size;
        return true;
      }
      case 5: return take_fixed(4, field.value);
      default: return false;  // groups are of before 2008
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
  size_t begin_ = 0;
  bool is_broken_ = false;
};

}  // namespace epilogue::trace
