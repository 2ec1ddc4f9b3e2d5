// SPDX-License-Identifier: Apache-2.0
// The checks of the reference reader, in its order.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "epilogue/io.h"
#include "io/message.h"
#include "io/safetensors_json.h"

namespace epilogue {
namespace {

using io::in_quotes;
using io::io_failure;
using io::kLengthBytes;
using io::kMaxHeaderBytes;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// The JSON text between the length and the data.
Result<std::string_view> header_text(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < kLengthBytes)
    return io_failure(name, FailureCode::header_too_small,
                      fmt::format("expected at least {} bytes, got {}", kLengthBytes, file.size()));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    return io_failure(name, FailureCode::header_too_large,
                      fmt::format("expected a header of at most {} bytes, got a length of {}",
                                  kMaxHeaderBytes, length));
  if (length > file.size() - kLengthBytes)
    return io_failure(
        name, FailureCode::invalid_header_length,
        fmt::format("expected a header of at most {} bytes (the rest of the file), got "
                    "a length of {}",
                    file.size() - kLengthBytes, length));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!simdjson::validate_utf8(text))
    return io_failure(name, FailureCode::invalid_header,
                      "expected a header in UTF-8, got other bytes");
  if (!text.starts_with('{'))
    return io_failure(name, FailureCode::invalid_header_start,
                      text.empty() ? "expected a header that starts with '{', got an empty one"
                                   : "expected a header that starts with '{', got " +
                                         in_quotes(text.substr(0, 8)));
  return text;
}

// Bits that dtype and shape need, or false when the number does not fit 64 bits. A dimension of 0
// counts as 1 here, so that the strides of an empty tensor cannot overflow either.
bool needed_bits(const SafetensorsEntry& entry, uint64_t* bits) {
  uint64_t product = static_cast<uint64_t>(safetensors_dtype_bits(entry.dtype));
  bool empty = false;
  for (const int64_t dim : entry.shape) {
    empty |= dim == 0;
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &product))
      return false;
  }
  *bits = empty ? 0 : product;
  return true;
}

Status check_entry(const SafetensorsEntry& entry, uint64_t previous_end, std::string_view file) {
  const auto fail = [&](FailureCode code, std::string_view detail) -> Status {
    return io_failure(file, code, fmt::format("tensor {}: {}", in_quotes(entry.name), detail));
  };
  if (entry.begin != previous_end || entry.end < entry.begin)
    return fail(FailureCode::invalid_offset,
                fmt::format("expected data that begin at {}, where the tensor before it ends, got "
                            "the offsets [{}, {}]",
                            previous_end, entry.begin, entry.end));
  uint64_t bits = 0;
  if (!needed_bits(entry, &bits))
    return fail(FailureCode::validation_overflow,
                "expected a size below 2^64 bits, got a larger shape");
  if (bits % 8 != 0)
    return fail(FailureCode::misaligned_slice,
                fmt::format("expected whole bytes, got {} bits", bits));
  if (entry.end - entry.begin != bits / 8)
    return fail(
        FailureCode::tensor_invalid_info,
        fmt::format("expected {} bytes for {} and its shape, got {} between its offsets", bits / 8,
                    safetensors_dtype_name(entry.dtype), entry.end - entry.begin));
  return ok_status();
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view file_name) {
  auto text = header_text(file, file_name);
  if (!text) return text.failure();
  auto parsed = io::parse_header_json(text.value(), file_name);
  if (!parsed) return parsed;
  SafetensorsHeader& header = parsed.value();
  header.data_offset = kLengthBytes + text.value().size();

  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (auto status = check_entry(entry, end, file_name); !status) return status.failure();
    end = entry.end;
  }
  if (end != file.size() - header.data_offset)
    return io_failure(file_name, FailureCode::metadata_incomplete_buffer,
                      fmt::format("expected {} bytes of data after the header, got {}", end,
                                  file.size() - header.data_offset));
  return parsed;
}

}  // namespace epilogue
